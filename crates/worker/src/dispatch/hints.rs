//! What requests say of those to come, on its way to the scheduler and back.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;
use uncia_policy::{Hint, HintAnswer};

/// A hint, and who learns what became of it; nobody does where its request was turned away.
#[derive(Debug)]
pub(crate) struct GivenHint {
    pub hint: Hint,
    pub answer: oneshot::Sender<HintAnswer>,
}

/// How many there were since the start.
#[derive(Debug, Default)]
pub(crate) struct HintCounts {
    taken: AtomicU64,
    refused: AtomicU64,
}

impl HintCounts {
    pub(crate) fn note(&self, is_taken: bool) {
        let count = if is_taken { &self.taken } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Hints for which instances were to be ready.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Hints that were refused or ignored.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}
