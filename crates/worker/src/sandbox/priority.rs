//! A thread that runs before all others, where and when it wants to.

use std::io;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use uncia_process::thread;

/// The lowest of the real-time priorities is above every ordinary process.
const PRIORITY: i32 = 1;

/// What an ordinary thread may ask for instead.
const BEST_NICE: i32 = -20;

/// Has the calling thread run before every ordinary process, and its timers not be late on purpose.
/// False if this process may not ask for that; then it is as quick as it may be.
pub(super) fn raise() -> bool {
    thread::sharpen_timers();
    let raised = thread::set_realtime(PRIORITY).is_ok();
    if !raised {
        // Refused as well, it runs when its turn comes.
        let _ = thread::set_niceness(BEST_NICE);
    }
    raised
}

/// Runs on each of these CPUs, and stays on the last one. Whatever ran there is preempted, so that
/// the scheduler accounts for what it has used until now.
pub(super) fn visit(cpus: &[usize]) {
    let here = nix::sched::sched_getcpu().ok();
    // The one it is on last, so that it need not go anywhere if that is the only one.
    for &cpu in cpus.iter().filter(|cpu| Some(**cpu) != here) {
        // A CPU that is gone, or forbidden: what ran there is accounted for at its next tick.
        let _ = go(cpu);
    }
}

fn go(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// The CPUs of this process's first thread; the calling one may have moved ([`visit`]).
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let set = nix::sched::sched_getaffinity(Pid::from_raw(std::process::id().cast_signed()));
    let Ok(set) = set else { return Vec::new() };
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_ends_where_it_was_asked_to() {
        std::thread::spawn(|| {
            let cpus = allowed_cpus();
            assert!(!cpus.is_empty());
            for cpu in &cpus {
                visit(std::slice::from_ref(cpu));
                assert_eq!(nix::sched::sched_getcpu().unwrap(), *cpu);
            }
            visit(&[]);
            visit(&[usize::MAX]);
        })
        .join()
        .unwrap();
    }
}
