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
    set_scheduler(0, Class::RealTime(priority))
}

/// Makes a thread, by its number in the kernel, go before every ordinary one, as [`set_realtime`] does. What
/// it starts from now on is ordinary.
///
/// # Errors
/// As there; or there is no such thread.
pub fn set_realtime_of(thread: i32, priority: i32) -> io::Result<()> {
    set_scheduler(thread, Class::RealTime(priority))
}

/// Makes a thread an ordinary one again.
///
/// # Errors
/// There is no such thread; or it is another user's, and this is not root.
pub fn set_ordinary_of(thread: i32) -> io::Result<()> {
    set_scheduler(thread, Class::Ordinary)
}

/// Makes the calling thread an ordinary one again.
///
/// # Errors
/// Never on Linux, where going down is always allowed.
pub fn set_ordinary() -> io::Result<()> {
    set_scheduler(0, Class::Ordinary)
}

/// Whether a thread, by its number in the kernel, has the policy that threads have unless somebody gives
/// them another; false, too, if there is none.
#[must_use]
pub fn is_ordinary(thread: i32) -> bool {
    #[cfg(target_os = "linux")]
    // SAFETY: the call has no pointers, and a number that is none's is an error.
    return unsafe { libc::sched_getscheduler(thread) } & !libc::SCHED_RESET_ON_FORK
        == libc::SCHED_OTHER;
    #[cfg(not(target_os = "linux"))]
    return thread != 0;
}

/// The scheduler's classes.
enum Class {
    Ordinary,
    RealTime(i32),
}

#[cfg(target_os = "linux")]
fn set_scheduler(thread: i32, class: Class) -> io::Result<()> {
    let (mut policy, priority) = match class {
        Class::Ordinary => (libc::SCHED_OTHER, 0),
        Class::RealTime(priority) => (libc::SCHED_FIFO, priority),
    };
    if thread != 0 {
        // Given by another, it is no choice of what the thread starts. It takes root to undo this again.
        policy |= libc::SCHED_RESET_ON_FORK;
    }
    // SAFETY: the structure is plain data for which zeros are valid on every C library.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: the pointer is to a live structure, which the call only reads; 0 is this thread, and a number
    // that is none's an error.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
fn set_scheduler(_thread: i32, class: Class) -> io::Result<()> {
    match class {
        Class::Ordinary => Ok(()),
        Class::RealTime(_) => Err(io::ErrorKind::Unsupported.into()),
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
    fn what_a_thread_starts_has_no_precedence_that_another_gave_it() {
        std::thread::spawn(|| {
            // SAFETY: the call has no arguments and cannot fail.
            let number = unsafe { libc::gettid() };
            match set_realtime_of(number, 1) {
                Ok(()) => {
                    assert!(!is_ordinary(number));
                    assert_eq!(class(), libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK);
                    assert_eq!(std::thread::spawn(class).join().unwrap(), libc::SCHED_OTHER);
                    set_ordinary_of(number).unwrap();
                    assert!(is_ordinary(number));
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
            }
        })
        .join()
        .unwrap();
        assert!(set_realtime_of(i32::MAX, 1).is_err());
        assert!(!is_ordinary(i32::MAX));
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
