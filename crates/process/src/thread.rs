//! When the scheduler runs the calling thread, and how exact its timers are.

use std::io;

/// Lets timers of the calling thread fire at their time and not up to 50 us later, the default, which
/// saves power.
pub fn sharpen_timers() {
    #[cfg(target_os = "linux")]
    // A kernel that refuses has less exact timers: whoever cares measures how exact they were.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Sets how the calling thread shares a CPU with other ordinary ones: from -20, the most, to 19.
///
/// # Errors
/// The kernel refuses a lower number than now, which takes root or `CAP_SYS_NICE`; or this is not
/// Linux, and niceness is of the whole process.
pub fn set_niceness(niceness: i32) -> io::Result<()> {
    if cfg!(not(target_os = "linux")) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(rustix::process::setpriority_process(None, niceness)?)
}

/// Makes the calling thread go before every ordinary one (`SCHED_FIFO`), and before real-time ones of
/// a lower priority: from 1 to 99.
///
/// # Errors
/// The kernel refuses: it takes root, `CAP_SYS_NICE`, or an rtprio limit; or this is not Linux.
pub fn set_realtime(priority: i32) -> io::Result<()> {
    set_scheduler(Class::RealTime(priority))
}

/// Makes the calling thread go after every ordinary one (`SCHED_IDLE`): it runs where no other wants to,
/// or has less than a hundredth of a CPU.
///
/// # Errors
/// This is not Linux.
pub fn set_idle() -> io::Result<()> {
    set_scheduler(Class::Idle)
}

/// Whether threads of this process that go after all others ([`set_idle`]) may become ordinary again,
/// found by trying.
pub fn may_be_idle_for_a_while() -> bool {
    let attempt = || set_idle().is_ok() && set_ordinary().is_ok();
    std::thread::Builder::new().spawn(attempt).is_ok_and(|it| it.join().unwrap_or(false))
}

/// Makes the calling thread an ordinary one again.
///
/// # Errors
/// The thread is idle ([`set_idle`]), and going up from there takes root, `CAP_SYS_NICE` or a nice limit.
pub fn set_ordinary() -> io::Result<()> {
    set_scheduler(Class::Ordinary)
}

/// The scheduler's classes.
enum Class {
    Idle,
    Ordinary,
    RealTime(i32),
}

#[cfg(target_os = "linux")]
fn set_scheduler(class: Class) -> io::Result<()> {
    let (policy, priority) = match class {
        Class::Idle => (libc::SCHED_IDLE, 0),
        Class::Ordinary => (libc::SCHED_OTHER, 0),
        Class::RealTime(priority) => (libc::SCHED_FIFO, priority),
    };
    // SAFETY: the structure is plain data for which zeros are valid on every C library.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: the pointer is to a live structure, which the call only reads; 0 is this thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
fn set_scheduler(class: Class) -> io::Result<()> {
    match class {
        Class::Ordinary => Ok(()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The calling thread's class.
    fn class() -> libc::c_int {
        // SAFETY: the call has no pointers; 0 is this thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn precedence_is_of_the_thread_that_takes_it_until_it_gives_it_up() {
        let before = class();
        std::thread::spawn(|| match set_realtime(1) {
            Ok(()) => {
                assert_eq!(class(), libc::SCHED_FIFO);
                set_ordinary().unwrap();
                assert_eq!(class(), libc::SCHED_OTHER);
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        })
        .join()
        .unwrap();
        assert_eq!(class(), before);
    }

    #[test]
    fn an_idle_thread_is_an_ordinary_one_again_where_that_was_found() {
        let before = class();
        let returns = may_be_idle_for_a_while();
        assert_eq!(class(), before);
        std::thread::spawn(move || {
            set_idle().unwrap();
            assert_eq!(class(), libc::SCHED_IDLE);
            assert_eq!(set_ordinary().is_ok(), returns);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn niceness_is_of_the_thread_that_sets_it() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let nicer = (before + 3).min(19);
        std::thread::spawn(move || {
            set_niceness(nicer).unwrap();
            assert_eq!(niceness(), nicer);
        })
        .join()
        .unwrap();
        assert_eq!(niceness(), before);
    }
}
