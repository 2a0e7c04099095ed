//! The filters of system calls: for the runtime and all it starts, and for the first process.
//!
//! Both allow what is on a list and refuse the rest. What is on them, and why, is in [`table`];
//! [`program`] makes them into what the kernel runs before each call, [`profile`] into what OCI runtimes make that of.

mod profile;
mod program;
mod table;

#[cfg(test)]
mod tests;

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use seccompiler::BpfProgram;

pub(in crate::sandbox) use profile::profile;
pub(in crate::sandbox) use program::ARCHITECTURE;

/// A filter of system calls.
pub struct SystemCallFilter {
    program: BpfProgram,
}

impl SystemCallFilter {
    /// For a runtime and all that it starts.
    pub fn for_functions() -> Self {
        // C libraries take ENOSYS for an old kernel, and do without a call that is too new for the
        // list.
        Self { program: program::compile(table::FUNCTION, libc::ENOSYS) }
    }

    /// For an instance's first process once its runtime runs.
    pub(crate) fn for_first_process() -> Self {
        Self { program: program::compile(table::FIRST_PROCESS, libc::EPERM) }
    }

    /// The program as `struct sock_filter`s in memory, for who installs it without this.
    pub(in crate::sandbox) fn to_bytes(&self) -> Vec<u8> {
        let instruction = |it: &seccompiler::sock_filter| {
            let [code_low, code_high] = it.code.to_ne_bytes();
            let [a, b, c, d] = it.k.to_ne_bytes();
            [code_low, code_high, it.jt, it.jf, a, b, c, d]
        };
        self.program.iter().flat_map(instruction).collect()
    }

    /// Puts the calling thread, and all that it starts from now on, under the filter, for good. None
    /// of them can gain privileges any more.
    ///
    /// Makes only system calls, so that a child of a process with several threads may call it.
    pub fn install(&self) -> Result<(), Errno> {
        nix::sys::prctl::set_no_new_privs()?;
        let program = libc::sock_fprog {
            len: u16::try_from(self.program.len()).map_err(|_| Errno::E2BIG)?,
            filter: self.program.as_ptr().cast_mut().cast(),
        };
        let apply = |flags: libc::c_ulong| {
            // SAFETY: the program is a live structure that the call only reads, as is its filter,
            // whose instructions seccompiler lays out as the kernel does.
            Errno::result(unsafe {
                libc::syscall(
                    libc::SYS_seccomp,
                    libc::SECCOMP_SET_MODE_FILTER,
                    flags,
                    &raw const program,
                )
            })
        };
        // Kernels before 5.16 slow filtered processes down, unless told not to; before 4.17 they
        // could not be told.
        apply(libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW).or_else(|_| apply(0)).map(drop)
    }
}

/// Whether the kernel takes the filters, found by trying in a child.
pub(in crate::sandbox) fn probe() -> Result<(), Errno> {
    let filters = [SystemCallFilter::for_functions(), SystemCallFilter::for_first_process()];
    // SAFETY: the child makes system calls and nothing else, which is allowed after a fork of a
    // process with several threads.
    let child = unsafe {
        match libc::fork() {
            0 => {
                let refused = filters.iter().find_map(|filter| filter.install().err());
                libc::_exit(refused.map_or(0, |error| error as i32))
            }
            pid => Errno::result(pid)?,
        }
    };
    loop {
        match waitpid(Pid::from_raw(child), None) {
            Ok(WaitStatus::Exited(_, 0)) => return Ok(()),
            Ok(WaitStatus::Exited(_, error)) => return Err(Errno::from_raw(error)),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
            // Whatever ended it did so because of a filter.
            Ok(_) => return Err(Errno::EACCES),
        }
    }
}
