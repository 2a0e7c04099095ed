//! For which functions a worker may have something ready, so that nothing of a version that is gone stays.
//!
//! A controller says when nothing is to be kept for a function any more. It may say so while an instance of the
//! version before is being started, which has more made ready at its end; and it says nothing to a worker whose
//! connection was broken just then.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Functions by name, of which a start may have left something ready.
#[derive(Debug, Default)]
pub(super) struct Ahead(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Of functions that are being started.
    starts: HashMap<String, Starts>,
    kept: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Starts {
    count: usize,
    /// Whether the controller has said meanwhile that nothing is to be kept.
    is_forgotten: bool,
}

/// What is to be done once a start has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The next start may find things ready.
    Expect,
    /// Nothing of what this one has left is to stay.
    Forget,
}

impl Ahead {
    /// A start begins; [`Self::end`] follows.
    pub(super) fn begin(&self, function: &str) {
        self.lock().starts.entry(function.to_owned()).or_default().count += 1;
    }

    pub(super) fn end(&self, function: &str) -> Next {
        let mut state = self.lock();
        let Some(starts) = state.starts.get_mut(function) else { return Next::Forget };
        starts.count -= 1;
        let is_forgotten = starts.is_forgotten;
        if starts.count == 0 {
            state.starts.remove(function);
        }
        if is_forgotten {
            return Next::Forget;
        }
        state.kept.insert(function.to_owned());
        Next::Expect
    }

    /// Nothing is to be kept for the function.
    pub(super) fn forget(&self, function: &str) {
        let mut state = self.lock();
        if let Some(starts) = state.starts.get_mut(function) {
            starts.is_forgotten = true;
        }
        state.kept.remove(function);
    }

    /// The same for all functions; returns those for which something may be there.
    pub(super) fn forget_all(&self) -> BTreeSet<String> {
        let mut state = self.lock();
        state.starts.values_mut().for_each(|starts| starts.is_forgotten = true);
        std::mem::take(&mut state.kept)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole after every statement, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_being_started_when_it_was_forgotten_leaves_nothing() {
        let ahead = Ahead::default();
        ahead.begin("f");
        assert_eq!(ahead.end("f"), Next::Expect);
        ahead.begin("f");
        ahead.begin("f");
        ahead.forget("f");
        assert_eq!(ahead.forget_all(), BTreeSet::new());
        assert_eq!(ahead.end("f"), Next::Forget);
        // That of the new version, too: it is expected with the next.
        ahead.begin("f");
        assert_eq!((ahead.end("f"), ahead.end("f")), (Next::Forget, Next::Forget));
        ahead.begin("f");
        ahead.begin("g");
        assert_eq!(ahead.end("f"), Next::Expect);
        assert_eq!(ahead.forget_all(), BTreeSet::from(["f".to_owned()]));
        assert_eq!(ahead.end("g"), Next::Forget);
        assert!(ahead.lock().starts.is_empty() && ahead.lock().kept.is_empty());
    }
}
