//! SIGINT and SIGTERM, by which whoever started the engine asks it to end.

use std::io;

use tokio::signal::unix::{self, SignalKind, signal};
use uncia_load::Signal;

/// Both signals, within a runtime; while it lives, they no longer end the process.
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    /// Takes them over from now on.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next one; `None`: no more can come.
    pub(crate) async fn next(&mut self) -> Option<Signal> {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Some(Signal::Interrupt),
            Some(()) = self.terminate.recv() => Some(Signal::Terminate),
            else => None,
        }
    }
}

/// Calls `on_signal` with each signal, in a thread of its own, for as long as the process lives.
///
/// # Errors
/// The system refuses the signals or the thread.
pub(crate) fn listen(on_signal: impl Fn(Signal) + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _context = runtime.enter();
        Signals::new()?
    };
    std::thread::Builder::new().name("uncia-signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            while let Some(signal) = signals.next().await {
                on_signal(signal);
            }
        });
    })?;
    Ok(())
}
