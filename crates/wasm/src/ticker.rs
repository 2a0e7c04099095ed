//! The clock by which running code is interrupted.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use wasmtime::Engine;

/// Between two ticks. At each, code that has used up its time ends, and other code gets its turn.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// A thread that moves the engine's epoch on while something runs.
#[derive(Clone)]
pub(crate) struct Ticker(Arc<Shared>);

struct Shared {
    running: Mutex<usize>,
    begun: Condvar,
}

/// As long as this lives, the epoch moves on.
pub(crate) struct Ticking(Arc<Shared>);

impl Ticker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no room for it.
    pub(crate) fn start(engine: &Engine) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { running: Mutex::new(0), begun: Condvar::new() });
        let (own, engine) = (shared.clone(), engine.weak());
        std::thread::Builder::new().name("ticker".to_owned()).spawn(move || {
            loop {
                let running = own.running.lock().unwrap_or_else(PoisonError::into_inner);
                // A machine on which nothing runs is left alone.
                drop(own.begun.wait_while(running, |running| *running == 0));
                std::thread::sleep(TICK);
                let Some(engine) = engine.upgrade() else { return };
                engine.increment_epoch();
            }
        })?;
        Ok(Self(shared))
    }

    /// Something runs from now on.
    pub(crate) fn begin(&self) -> Ticking {
        let mut running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running += 1;
        if *running == 1 {
            self.0.begun.notify_one();
        }
        Ticking(self.0.clone())
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}
