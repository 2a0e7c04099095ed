//! How the two threads of a run share the machine, with each other and with everything else.

use std::io;

use uncia_process::thread::{set_niceness, set_ordinary, set_realtime};

/// Of the real-time priorities (1 to 99) a low one: enough to go before everything ordinary, and
/// behind whatever else on the machine is real-time for a reason.
const REALTIME_PRIORITY: i32 = 10;

/// A tenth of an ordinary thread's share of a contested CPU: enough for rows at any rate that such a
/// machine can send at, and too little to take the CPU from the sending thread in its turn.
const RECORDER_NICENESS: i32 = 10;

/// Lets this thread give way to the one that sends, should they meet on a CPU.
pub(crate) fn yield_to_others() {
    // Refused, rows are written as well, and sending may be later at times: the rows show it.
    let _ = set_niceness(RECORDER_NICENESS);
}

/// Precedence over every ordinary thread for as long as this lives, where it is allowed.
pub(crate) struct Precedence(());

impl Precedence {
    pub(crate) fn take() -> Self {
        // Whether it is allowed was found out before the run, and said.
        let _ = set_realtime(REALTIME_PRIORITY);
        Self(())
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        // Going down is always allowed.
        let _ = set_ordinary();
    }
}

/// Whether [`Precedence`] is allowed; tried by a thread that then ends.
pub(crate) fn may_take_precedence() -> io::Result<()> {
    let attempt = std::thread::Builder::new().spawn(|| set_realtime(REALTIME_PRIORITY))?;
    attempt.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
