//! Which invocation a request is, and how many triggers led to it.
//!
//! A document's change says which request wrote it. What follows is an invocation whose parent is that
//! request's, and of a generation more if a trigger began that, too: by that an endless loop is known.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::MAX_GENERATION;

/// So many requests are remembered, the newest; a change reaches its trigger within milliseconds.
const MOST: usize = 50_000;

/// An invocation, as far as its descendants need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub invocation: Arc<str>,
    /// How many triggers led to it, one after the other.
    pub generation: u32,
}

/// What is remembered of requests.
#[derive(Default)]
pub(crate) struct Lineage {
    /// Nothing is remembered while there is no trigger.
    on: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_request: HashMap<Arc<str>, Origin>,
    /// Of those that a trigger led to.
    generations: HashMap<Arc<str>, u32>,
    order: VecDeque<(Arc<str>, Arc<str>)>,
}

impl Lineage {
    pub(super) fn remember(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    /// Takes note of a request. `generation` is 0 unless a trigger began it; it is at least its parent's.
    pub(crate) fn note(
        &self,
        request_id: &str,
        invocation: &str,
        parent: Option<&str>,
        generation: u32,
    ) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let mut known = self.lock();
        let of_parent = parent.and_then(|name| known.generations.get(name).copied());
        let generation = generation.max(of_parent.unwrap_or(0));
        let (request_id, invocation): (Arc<str>, Arc<str>) =
            (Arc::from(request_id), Arc::from(invocation));
        if generation > 0 {
            known.generations.insert(invocation.clone(), generation);
        }
        let origin = Origin { invocation: invocation.clone(), generation };
        known.by_request.insert(request_id.clone(), origin);
        known.order.push_back((request_id, invocation));
        while known.order.len() > MOST {
            let Some((request_id, invocation)) = known.order.pop_front() else { break };
            known.by_request.remove(&request_id);
            known.generations.remove(&invocation);
        }
    }

    /// The invocation that a request is, if it is remembered.
    pub(super) fn find(&self, request_id: &str) -> Option<Origin> {
        self.lock().by_request.get(request_id).cloned()
    }

    /// The map is whole after every statement, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of the invocation that a trigger begins for a change: another is never made of the same.
pub(crate) fn name(trigger: &str, position: i64, generation: u32) -> String {
    if generation > 1 {
        return format!("{trigger}:{position}.{generation}");
    }
    format!("{trigger}:{position}")
}

/// The generation that such a name tells; 0 of any other, and where there is no such trigger: clients may
/// name their invocations alike.
pub(super) fn generation_in(name: &str, is_trigger: impl Fn(&str) -> bool) -> u32 {
    let Some((trigger, numbers)) = name.split_once(':') else { return 0 };
    let (position, generation) = numbers.split_once('.').unwrap_or((numbers, "1"));
    let is_of_one = position.parse::<i64>().is_ok() && is_trigger(trigger);
    let generation: Option<u32> = generation.parse().ok().filter(|_| is_of_one);
    generation.unwrap_or(0).min(MAX_GENERATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_inherited() {
        let lineage = Lineage::default();
        lineage.note("early", "e", None, 0);
        assert_eq!(lineage.find("early"), None);
        lineage.remember();
        lineage.note("a", "client", None, 0);
        lineage.note("b", &name("t", 7, 1), Some("client"), 1);
        lineage.note("c", "nested", Some("t:7"), 0);
        let of =
            |request| lineage.find(request).map(|it| (it.invocation.to_string(), it.generation));
        assert_eq!(of("a"), Some(("client".to_owned(), 0)));
        assert_eq!(of("b"), Some(("t:7".to_owned(), 1)));
        assert_eq!(of("c"), Some(("nested".to_owned(), 1)));
        for number in 0..MOST {
            lineage.note(&number.to_string(), "x", None, 0);
        }
        assert_eq!(of("c"), None);
        assert_eq!(lineage.lock().generations.len(), 0);
    }

    #[test]
    fn names_tell_generations() {
        for generation in [1, 2, 16] {
            let of_one = |trigger: &str| trigger == "a-b";
            assert_eq!(generation_in(&name("a-b", 12, generation), of_one), generation);
        }
        for other in ["0-1-2", "t:x", "t:1.x", "", "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"] {
            assert_eq!(generation_in(other, |_| true), 0, "{other}");
        }
        assert_eq!(generation_in("order:17.20", |_| false), 0, "a client's own name");
        assert_eq!(generation_in("t:1.4294967295", |_| true), MAX_GENERATION);
    }
}
