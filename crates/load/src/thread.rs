//! What the two threads of a run ask of the scheduler.

use std::io;

/// Of the real-time priorities (1 to 99) a low one: enough to go before everything ordinary, and
/// behind whatever else on the machine is real-time for a reason.
#[cfg(target_os = "linux")]
const REALTIME_PRIORITY: i32 = 10;

/// A tenth of an ordinary thread's share of a contested CPU: enough for rows at any rate that such a
/// machine can send at, and too little to take the CPU from the sending thread in its turn.
#[cfg(target_os = "linux")]
const RECORDER_NICENESS: i32 = 10;

/// Timers of this thread fire at their time and not up to 50 us later, the default that saves power.
pub fn sharpen_timers() {
    #[cfg(target_os = "linux")]
    // A kernel that refuses has less exact timers; the rows show how exact they were.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Lets this thread give way to the one that sends, should they meet on a CPU.
pub fn yield_to_others() {
    // Elsewhere niceness is of a process, not of a thread.
    #[cfg(target_os = "linux")]
    // Refused, rows are written as well, and sending may be later at times: the rows show it.
    let _ = rustix::process::setpriority_process(None, RECORDER_NICENESS);
}

/// Makes this thread go before every ordinary one (SCHED_FIFO).
#[cfg(target_os = "linux")]
pub fn take_precedence() -> io::Result<()> {
    // SAFETY: the structure is plain data for which zeros are valid on every C library.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = REALTIME_PRIORITY;
    // SAFETY: the pointer is to a live structure, which the call only reads; 0 is this thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives up what [`take_precedence`] took.
#[cfg(target_os = "linux")]
fn give_up_precedence() {
    // SAFETY: the structure is plain data for which zeros are valid on every C library.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live structure, which the call only reads; 0 is this thread.
    // Going down is always allowed.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &parameters) };
}

#[cfg(not(target_os = "linux"))]
fn give_up_precedence() {}

/// Precedence for as long as this lives, where it is allowed.
pub struct Precedence(());

impl Precedence {
    pub fn take() -> Self {
        // Whether it is allowed was found out before the run, and said.
        let _ = take_precedence();
        Self(())
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        give_up_precedence();
    }
}

#[cfg(not(target_os = "linux"))]
pub fn take_precedence() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether [`take_precedence`] is allowed; tried by a thread that then ends.
pub fn may_take_precedence() -> io::Result<()> {
    let attempt = std::thread::Builder::new().spawn(take_precedence)?;
    attempt.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn precedence_is_of_the_thread_that_takes_it_alone() {
        // SAFETY: the call has no pointers; 0 is this thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let ordinary = policy();
        let of_another = std::thread::spawn(move || match take_precedence() {
            Ok(()) => assert_eq!(policy(), libc::SCHED_FIFO),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        });
        of_another.join().unwrap();
        assert_eq!(policy(), ordinary);
        assert_eq!(
            may_take_precedence().is_ok(),
            std::thread::spawn(take_precedence).join().unwrap().is_ok()
        );
    }
}
