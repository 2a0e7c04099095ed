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

/// A start that goes on. If it is dropped before its end, it was cut off, with the connection that it was asked for
/// by.
pub(super) struct Start<'a, F: Fn(&str)> {
    ahead: &'a Ahead,
    function: &'a str,
    forget: F,
    has_ended: bool,
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
    /// A start begins. `forget` is called if it is cut off and nothing of what it has left is to stay.
    pub(super) fn begin<'a, F: Fn(&str)>(&'a self, function: &'a str, forget: F) -> Start<'a, F> {
        self.lock().starts.entry(function.to_owned()).or_default().count += 1;
        Start { ahead: self, function, forget, has_ended: false }
    }

    fn end(&self, function: &str) -> Next {
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

impl<F: Fn(&str)> Start<'_, F> {
    pub(super) fn end(mut self) -> Next {
        self.has_ended = true;
        self.ahead.end(self.function)
    }
}

impl<F: Fn(&str)> Drop for Start<'_, F> {
    fn drop(&mut self) {
        // Otherwise its function would count as being started for ever, and what later starts make ready be forgotten.
        if !self.has_ended && self.ahead.end(self.function) == Next::Forget {
            (self.forget)(self.function);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn what_was_being_started_when_it_was_forgotten_leaves_nothing() {
        let ahead = Ahead::default();
        let begin = |function| ahead.begin(function, |_| panic!("it was not cut off"));
        assert_eq!(begin("f").end(), Next::Expect);
        let (first, second) = (begin("f"), begin("f"));
        ahead.forget("f");
        assert_eq!(ahead.forget_all(), BTreeSet::new());
        assert_eq!(first.end(), Next::Forget);
        // That of the new version, too: it is expected with the next.
        let third = begin("f");
        assert_eq!((second.end(), third.end()), (Next::Forget, Next::Forget));
        let (f, g) = (begin("f"), begin("g"));
        assert_eq!(f.end(), Next::Expect);
        assert_eq!(ahead.forget_all(), BTreeSet::from(["f".to_owned()]));
        assert_eq!(g.end(), Next::Forget);
        assert!(ahead.lock().starts.is_empty() && ahead.lock().kept.is_empty());
    }

    #[test]
    fn a_start_that_is_cut_off_is_none_any_more() {
        let ahead = Ahead::default();
        let forgotten = RefCell::new(Vec::new());
        let begin =
            |function| ahead.begin(function, |it| forgotten.borrow_mut().push(it.to_owned()));
        // Before all is forgotten, which then tells of it, or after.
        let (early, late) = (begin("f"), begin("g"));
        drop(early);
        assert_eq!(ahead.forget_all(), BTreeSet::from(["f".to_owned()]));
        assert_eq!(*forgotten.borrow(), [""; 0]);
        drop(late);
        assert_eq!(*forgotten.borrow(), ["g"]);
        assert!(ahead.lock().starts.is_empty() && ahead.lock().kept.is_empty());
        assert_eq!((begin("f").end(), begin("g").end()), (Next::Expect, Next::Expect));
        assert_eq!(*forgotten.borrow(), ["g"]);
    }
}
