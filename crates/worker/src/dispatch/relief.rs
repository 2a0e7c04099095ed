//! Who was stopped because memory ran short, and how soon that was decided.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    cached: AtomicU64,
    active: AtomicU64,
    decisions: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Relief {
    /// Notes that so many were chosen, so long after the notice.
    pub(super) fn note(&self, cached: u64, active: u64, after: Duration) {
        let ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        self.cached.fetch_add(cached, Ordering::Relaxed);
        self.active.fetch_add(active, Ordering::Relaxed);
        self.decisions.fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// Instances that served nothing.
    pub(crate) fn cached(&self) -> u64 {
        self.cached.load(Ordering::Relaxed)
    }

    /// Preemptible instances that served.
    pub(crate) fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    /// Times that some were chosen.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions.load(Ordering::Relaxed)
    }

    /// From the notices to the choices, in ns.
    pub(crate) fn total_ns(&self) -> u64 {
        self.total_ns.load(Ordering::Relaxed)
    }

    /// The longest of these times in ns.
    pub(crate) fn longest_ns(&self) -> u64 {
        self.longest_ns.load(Ordering::Relaxed)
    }
}
