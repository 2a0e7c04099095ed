//! What each function shares, or why it shares nothing.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, Weak};

use super::super::kept::Kept;
use super::super::terms::Terms;
use crate::instance::{InstanceSpec, ShareState};

pub(super) enum State {
    /// Nobody has made it, or is about to.
    Missing,
    /// The instance that notes what it is made of, as long as that lives.
    Recording(Weak<()>),
    Ready(Arc<Kept>),
    /// Why there will be none until the function is changed.
    Refused(String),
}

pub(super) struct Entry {
    pub(super) terms: Terms,
    pub(super) share_state: ShareState,
    pub(super) state: State,
    /// Instances that have ended while something was made of them.
    pub(super) lost: u32,
}

impl Entry {
    pub(super) fn kept(&self) -> Option<&Arc<Kept>> {
        match &self.state {
            State::Ready(kept) => Some(kept),
            _ => None,
        }
    }

    pub(super) fn has(&self, kept: &Arc<Kept>) -> bool {
        self.kept().is_some_and(|mine| Arc::ptr_eq(mine, kept))
    }

    /// Why there is nothing, a sentence, if there will be none.
    pub(super) fn refusal(&self, function: &str) -> Option<String> {
        let State::Refused(reason) = &self.state else { return None };
        Some(match self.share_state {
            ShareState::None => {
                format!(
                    "The function {function} has no checkpoint, and starts as prepared: {reason}."
                )
            }
            ShareState::Warm => {
                format!("The function {function} has no warm checkpoint: {reason}.")
            }
            other => format!(
                "The instances of the function {function} share no {}: {reason}.",
                other.name()
            ),
        })
    }
}

/// The table, locked. What is taken out of it is dropped, and its files removed, once nobody waits for it.
pub(super) struct Table<'a> {
    pub(super) entries: MutexGuard<'a, BTreeMap<String, Entry>>,
    /// Behind the lock: fields are dropped in their order.
    pub(super) taken: Vec<State>,
}

impl<'a> Table<'a> {
    pub(super) fn new(entries: MutexGuard<'a, BTreeMap<String, Entry>>) -> Self {
        Self { entries, taken: Vec::new() }
    }

    /// What a function has, as it is now.
    pub(super) fn entry(&mut self, spec: &InstanceSpec, share_state: ShareState) -> &mut Entry {
        let terms = Terms::of(spec);
        let new = || Entry { terms: terms.clone(), share_state, state: State::Missing, lost: 0 };
        let entry = self.entries.entry(spec.function.clone()).or_insert_with(new);
        if entry.terms != terms || entry.share_state != share_state {
            self.taken.push(mem::replace(entry, new()).state);
        }
        entry
    }

    /// How it stands with a function that has an entry.
    pub(super) fn set(&mut self, function: &str, state: State) {
        let Some(entry) = self.entries.get_mut(function) else { return };
        self.taken.push(mem::replace(&mut entry.state, state));
    }

    pub(super) fn refuse(&mut self, function: &str, reason: String) {
        self.set(function, State::Refused(reason));
        let refusal = self.entries.get(function).and_then(|entry| entry.refusal(function));
        tracing::warn!("{}", refusal.unwrap_or_default());
    }

    pub(super) fn remove(&mut self, function: &str) {
        self.taken.extend(self.entries.remove(function).map(|entry| entry.state));
    }

    /// The bytes of what instances use.
    pub(super) fn used_bytes(&self) -> u64 {
        let kept = self.entries.values().filter_map(Entry::kept);
        kept.filter(|kept| Arc::strong_count(kept) > 1).map(|kept| kept.bytes).sum()
    }

    /// Takes out what is unused, that which was used longest ago first, until the rest is no larger than this. It is
    /// made anew for whoever has lost it.
    pub(super) fn make_room(&mut self, most: u64) {
        let mut bytes: u64 =
            self.entries.values().filter_map(Entry::kept).map(|kept| kept.bytes).sum();
        while bytes > most {
            let unused = self
                .entries
                .values_mut()
                .filter(|entry| entry.kept().is_some_and(|kept| Arc::strong_count(kept) == 1));
            let last_use = |entry: &&mut Entry| {
                entry.kept().map(|kept| kept.used.load(Ordering::Relaxed)).unwrap_or_default()
            };
            let Some(entry) = unused.min_by_key(last_use) else { break };
            bytes -= entry.kept().map_or(0, |kept| kept.bytes);
            self.taken.push(mem::replace(&mut entry.state, State::Missing));
        }
    }
}
