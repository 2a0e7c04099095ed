//! The runtime's process, and its first thread: the one that answers.

use crate::sandbox::cgroup::Thread;

/// How often to look whether the runtime still runs after its answer, before its CPU is visited.
pub(super) const LOOKS: usize = 3;

/// The runtime's process.
pub(super) struct Runtime {
    /// In the worker's numbering.
    pub pid: libc::pid_t,
    thread: Option<Thread>,
}

impl Runtime {
    pub(super) fn open(pid: libc::pid_t) -> Self {
        Self { pid, thread: Thread::open(pid) }
    }

    /// The CPU on which its first thread runs, if that is another than the caller's: where the caller
    /// runs now, the thread has been accounted for.
    pub(super) fn runs_elsewhere_on(&self) -> Option<usize> {
        let cpu = self.thread.as_ref()?.running_on()?;
        (nix::sched::sched_getcpu().ok() != Some(cpu)).then_some(cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_runs_nowhere() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let runtime = Runtime::open(child.id().cast_signed());
        // It runs until it sleeps.
        while runtime.runs_elsewhere_on().is_some() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(runtime.runs_elsewhere_on(), None, "it is gone");
    }
}
