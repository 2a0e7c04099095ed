//! Restoring a runtime from a checkpoint, in place of starting its program.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, execve, fork};

use super::{Doing, Failure, Groups, null, privileges, replace_stream};
use crate::sandbox::checkpoint::complaint;
use crate::sandbox::wire::Restore;

/// The number of a runtime's process of which a checkpoint may be made. In a restored instance it must be free, and CRIU
/// and what that starts have the numbers from 2 on.
pub(in crate::sandbox) const RESTORABLE: i32 = 100;

/// The kernel gives a namespace's next process the number after this.
const LAST_NUMBER: &str = "/proc/sys/kernel/ns_last_pid";

const LOG: &str = "restore.log";

/// Where CRIU finds what it is given: numbers that it does not use itself.
const FIRST_NUMBER: RawFd = 60;

/// Gives the runtime, which is started next, [`RESTORABLE`] for its number.
pub(super) fn reserve_number() -> Result<(), Failure> {
    fs::write(LAST_NUMBER, (RESTORABLE - 1).to_string()).doing("choose the runtime's number")
}

/// The host's files that it takes, opened while they can be seen.
pub(super) struct Opened {
    images: File,
    /// CRIU's loader, libraries, program, images and cache.
    all: Vec<File>,
    output: String,
}

impl Opened {
    pub(super) fn new(restore: &Restore) -> Result<Self, Failure> {
        let path = |path: &Path| {
            let opened = File::options().read(true).custom_flags(libc::O_PATH).open(path);
            opened.doing("open a part of CRIU")
        };
        let images = File::open(&restore.images).doing("open the checkpoint")?;
        let parts = [
            &restore.loader,
            &restore.libraries,
            &restore.program,
            &restore.images,
            &restore.cache,
        ];
        let all = parts.iter().map(|part| path(part)).collect::<Result<_, _>>()?;
        Ok(Self { images, all, output: restore.output.clone() })
    }

    /// Restores the runtime; the error says why it does not run.
    pub(super) fn restore(&self, groups: &Groups) -> Result<Pid, Failure> {
        // SAFETY: this process has one thread.
        match unsafe { fork() }.doing("start CRIU")? {
            ForkResult::Child => {
                let failure = self.become_criu(groups);
                let _ = self.note(&failure.to_string());
                // SAFETY: ends the child alone.
                unsafe { libc::_exit(127) }
            }
            ForkResult::Parent { child } => loop {
                match waitpid(child, None) {
                    Ok(WaitStatus::Exited(_, 0)) => return Ok(Pid::from_raw(RESTORABLE)),
                    Ok(_) => return Err(Failure::NotRestored(self.complaint())),
                    Err(Errno::EINTR) => {}
                    Err(error) => return Err(Failure::Step("wait for CRIU", error)),
                }
            },
        }
    }

    fn log(&self) -> String {
        format!("/proc/self/fd/{}/{LOG}", self.images.as_raw_fd())
    }

    /// Notes what kept CRIU from starting, where it would say what went wrong.
    fn note(&self, text: &str) -> std::io::Result<()> {
        fs::write(self.log(), format!("Error (): {text}\n"))
    }

    fn complaint(&self) -> String {
        complaint(&String::from_utf8_lossy(&fs::read(self.log()).unwrap_or_default()))
    }

    /// Returns only what kept it from that.
    fn become_criu(&self, groups: &Groups) -> Failure {
        match self.prepare(groups) {
            Ok((program, arguments, environment)) => {
                let Err(error) = execve(&program, &arguments, &environment);
                Failure::Step("execute CRIU", error)
            }
            Err(failure) => failure,
        }
    }

    /// What CRIU does, and what it starts, is the instance's: restored processes are in these groups from the start.
    fn prepare(&self, groups: &Groups) -> Result<(CString, Vec<CString>, Vec<CString>), Failure> {
        for tasks in &groups.join {
            nix::unistd::write(tasks, b"0").doing("join a cgroup")?;
        }
        let (file, adjustment) = privileges::OUT_OF_MEMORY;
        let _ = fs::write(file, adjustment);
        for call in privileges::prepare_runtime() {
            call.run()?;
        }
        privileges::signals()?;
        // What the runtime prints to; CRIU itself prints to its log.
        // SAFETY: this process's standard output, which is open.
        let output = give(unsafe { BorrowedFd::borrow_raw(1) }, FIRST_NUMBER)?;
        let mut places = Vec::new();
        for (number, file) in (FIRST_NUMBER + 1..).zip(&self.all) {
            let given = give(std::os::fd::AsFd::as_fd(file), number)?;
            places.push(format!("/proc/self/fd/{given}"));
        }
        let nowhere = null()?;
        for stream in 0..3 {
            replace_stream(&nowhere, stream)?;
        }
        let [loader, libraries, program, images, cache] = &places[..] else {
            return Err(Failure::Step("find CRIU", Errno::ENOENT));
        };
        let inherited = format!("fd[{output}]:{}", self.output);
        let arguments = [
            loader,
            "--library-path",
            libraries,
            program,
            "restore",
            "-D",
            images,
            "-o",
            LOG,
            "-v1",
            "--restore-detached",
            "--unprivileged",
            "--tcp-close",
            "--manage-cgroups=ignore",
            "--inherit-fd",
            &inherited,
        ];
        let cache = format!("XDG_RUNTIME_DIR={cache}");
        let text = |value: &str| {
            CString::new(value).map_err(|_| Failure::Step("pass a zero byte on", Errno::EINVAL))
        };
        let arguments = arguments.into_iter().map(text).collect::<Result<_, _>>()?;
        Ok((text(loader)?, arguments, vec![text(&cache)?]))
    }
}

/// Makes a descriptor one of this number, which stays open when a program is executed.
fn give(descriptor: BorrowedFd<'_>, number: RawFd) -> Result<RawFd, Failure> {
    // SAFETY: dup2 onto a number that nothing in this process owns as a value.
    let result = unsafe { libc::dup2(descriptor.as_raw_fd(), number) };
    Errno::result(result).doing("hand a descriptor over")
}
