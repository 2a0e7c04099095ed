//! Programs that a monitor runs, each in a process group of its own.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Program, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, SysconfVar, sysconf};
use uncia_clock::NS_PER_S;

/// A program that is asked to end has this long.
pub(super) const GRACE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(5);

/// Kills a process group when its standard input ends: with whoever holds the other end of the pipe.
const GUARD: &str = "read -r _; kill -s KILL -- -\"$1\"";

/// A program in a process group of its own.
pub(super) struct Running {
    pub name: String,
    pub child: Child,
    /// The kernel kills the program with these monitors, but not what the program has started. None
    /// where there is no shell.
    guard: Option<Child>,
    /// CPU time in ns that was reported so far.
    reported: i64,
    is_over: bool,
}

impl Running {
    /// Starts it, to end with this thread. What it reads and prints is as `program` says.
    pub(super) fn start(program: &mut Program) -> Result<Self, String> {
        let name = program.get_program().to_string_lossy().into_owned();
        // The signals of a terminal are for whoever started the monitors.
        program.process_group(0);
        // Who kills the monitors does not mean to leave what they started. The thread that starts it is to
        // the kernel the parent; it watches until the end.
        // SAFETY: it makes one system call, and allocates nothing.
        unsafe { program.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
        let child = program.spawn().map_err(|error| format!("{name} cannot be run: {error}"))?;
        let group = child.id().to_string();
        let mut guard = Program::new("/bin/sh");
        guard.args(["-c", GUARD, "guard", &group]).process_group(0);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Self { name, child, guard: None, reported: 0, is_over: false };
        match guard.spawn() {
            Ok(guard) => running.guard = Some(guard),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Without it, what the program starts could outlive a killed engine, beside later measurements.
            Err(error) => {
                let name = &running.name;
                return Err(format!("{name} cannot be run: its guard does not start: {error}"));
            }
        }
        Ok(running)
    }

    fn id(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or_default())
    }

    /// It stays until it is waited for, so that its number is no other's.
    pub(super) fn has_ended(&self) -> bool {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(waitid(Id::Pid(self.id()), look), Ok(WaitStatus::StillAlive))
    }

    /// How it failed, if it has.
    pub(super) fn failure(&self) -> Option<String> {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.id()), look) {
            Ok(WaitStatus::Exited(_, code)) if code != 0 => Some(format!("exit code {code}")),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(format!("signal {signal}")),
            _ => None,
        }
    }

    /// CPU time in ns of the program, and of those of its processes that have ended, since this was asked last.
    pub(super) fn cpu(&mut self) -> i64 {
        let Some(used) = cpu_of(self.id()) else { return 0 };
        let more = (used - self.reported).max(0);
        self.reported += more;
        more
    }

    /// Asks the program, by a signal, for what it has counted.
    pub(super) fn ask_for_more(&self) {
        let _ = kill(self.id(), Signal::SIGUSR1);
    }

    /// Asks the whole group to end, and kills what does not; gives the CPU time that was not reported yet.
    pub(super) fn end(&mut self) -> i64 {
        if self.is_over {
            return 0;
        }
        let mut more = self.cpu();
        if !self.has_ended() {
            let _ = killpg(self.id(), Signal::SIGTERM);
            wait_until(GRACE, || self.has_ended());
        }
        more += self.cpu();
        // What it started may live on in its group, whose number is nobody else's until it is waited for.
        let _ = killpg(self.id(), Signal::SIGKILL);
        // Before that number may be another's.
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
        let _ = self.child.wait();
        self.is_over = true;
        more
    }
}

impl Drop for Running {
    /// Whoever gives up on it leaves nothing that runs beside what is measured.
    fn drop(&mut self) {
        self.end();
    }
}

/// Fields 14 to 17 of `/proc/PID/stat`: user and system, of itself and of children that it has waited for.
fn cpu_of(pid: Pid) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11).take(4);
    let ticks = fields.map(|field| field.parse::<i64>().ok()).sum::<Option<i64>>()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    Some(ticks * (NS_PER_S / per_second))
}

/// Whether something comes true in time.
pub(super) fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_does_not_outlive_who_started_it() {
        // To the kernel a thread that ends is a parent that was killed.
        let begin = || {
            let running = Running::start(Program::new("sleep").arg("600")).unwrap();
            let id = running.id();
            std::mem::forget(running);
            id
        };
        let id = thread::spawn(begin).join().unwrap();
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
        let has_ended = wait_until(Duration::from_secs(20), || {
            !matches!(waitid(Id::Pid(id), look), Ok(WaitStatus::StillAlive))
        });
        let _ = nix::sys::signal::kill(id, Signal::SIGKILL);
        assert!(has_ended);
    }

    #[test]
    fn a_program_that_nobody_holds_has_ended() {
        let running = Running::start(Program::new("sleep").arg("600")).unwrap();
        let id = running.id();
        drop(running);
        assert!(kill(id, None).is_err());
    }

    #[test]
    fn failures_are_known() {
        for (script, failure) in
            [("exit 3", Some("exit code 3")), ("kill -9 $$", Some("signal SIGKILL")), ("", None)]
        {
            let running = Running::start(Program::new("sh").args(["-c", script])).unwrap();
            assert!(wait_until(Duration::from_secs(20), || running.has_ended()));
            assert_eq!(running.failure().as_deref(), failure);
        }
    }
}
