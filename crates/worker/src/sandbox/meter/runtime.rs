//! The runtime's process, and its first thread: the one that answers.

use crate::sandbox::cgroup::Thread;

/// How often to look at most whether the runtime still runs after its answer, before its CPU is visited.
pub(super) const LOOKS: u32 = 3;

/// What a look at the runtime's first thread found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It has been accounted for: it sleeps, or would run where the caller runs now.
    Accounted,
    /// It runs, on this CPU if that was asked.
    Runs(Option<usize>),
}

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

    /// Looks at its first thread, with one access: for the first time where it costs less, and where only
    /// sleeping tells.
    pub(super) fn look(&self, is_first: bool) -> Found {
        let Some(thread) = &self.thread else { return Found::Accounted };
        if is_first {
            return if thread.sleeps() { Found::Accounted } else { Found::Runs(None) };
        }
        match thread.running_on() {
            Some(cpu) if nix::sched::sched_getcpu().ok() != Some(cpu) => Found::Runs(Some(cpu)),
            _ => Found::Accounted,
        }
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
        while runtime.look(false) != Found::Accounted {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(runtime.look(false), Found::Accounted, "it is gone");
    }
}
