//! Which functions have a zygote of their own, and what became of each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::function_zygote::FunctionZygote;
use crate::instance::InstanceSpec;
use crate::sandbox::terms::Terms;

/// Functions that have one: those that start most often. Each has the memory of its imports.
const MAX_FUNCTIONS: usize = 16;

/// Starts after which all counts are halved.
const REMEMBERED_STARTS: u32 = 1024;

/// Zygotes of a function that end by themselves before it gets no other: each runs the imports anew, at the
/// platform's expense.
const MOST_ENDS: u32 = 8;

enum State {
    /// It is wanted.
    Missing,
    Ready(Arc<FunctionZygote>),
    /// Why there is none until the function is changed.
    Refused(String),
}

struct Entry {
    function: String,
    terms: Terms,
    state: State,
    /// How many of its zygotes have ended by themselves.
    ends: u32,
}

impl Entry {
    fn is_refused(&self) -> bool {
        matches!(self.state, State::Refused(_))
    }
}

/// The zygotes that functions have.
#[derive(Default)]
pub(in crate::sandbox) struct FunctionZygotes {
    table: Mutex<Table>,
    /// Held by who makes one.
    pub(super) making: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Table {
    /// At most [`MAX_FUNCTIONS`] beside those that are refused.
    entries: Vec<Entry>,
    /// How often each function has begun lately, and their sum.
    starts: BTreeMap<String, u32>,
    sum: u32,
}

impl Table {
    /// Counts a start. Older ones weigh less and less, so that what was in use once gives way.
    fn count(&mut self, function: &str) {
        *self.starts.entry(function.to_owned()).or_default() += 1;
        self.sum += 1;
        if self.sum >= REMEMBERED_STARTS {
            self.starts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
            self.sum = self.starts.values().sum();
        }
    }

    /// Makes room for a function, if it starts more often than one that has a place: else functions that
    /// start in turn would take each other's zygotes before they are used. So caches admit what is asked
    /// for more often than what would have to go (TinyLFU: Einziger, Friedman and Manes, "TinyLFU: A
    /// Highly Efficient Cache Admission Policy", 2017).
    fn makes_room_for(&mut self, function: &str) -> bool {
        let places = || self.entries.iter().enumerate().filter(|(_, it)| !it.is_refused());
        if places().count() < MAX_FUNCTIONS {
            return true;
        }
        let count = |function: &str| self.starts.get(function).copied().unwrap_or_default();
        let Some((index, least)) = places().min_by_key(|(_, it)| count(&it.function)) else {
            return true;
        };
        let admitted = count(function) > count(&least.function);
        if admitted {
            self.entries.remove(index);
        }
        admitted
    }
}

impl FunctionZygotes {
    /// Notes that a function starts, and wants one as it is now, until [`Self::forget`].
    pub(super) fn note(&self, spec: &InstanceSpec) {
        let (terms, state) = (Terms::of(spec), State::Missing);
        let mut table = self.table();
        table.count(&spec.function);
        table.entries.retain(|it| it.function != spec.function || it.terms == terms);
        let is_there = table.entries.iter().any(|it| it.function == spec.function);
        if !is_there && table.makes_room_for(&spec.function) {
            table.entries.push(Entry { function: spec.function.clone(), terms, state, ends: 0 });
        }
    }

    /// The one for an instance that starts now.
    pub(super) fn ready(&self, spec: &InstanceSpec) -> Option<Arc<FunctionZygote>> {
        let terms = Terms::of(spec);
        let table = self.table();
        let entry =
            table.entries.iter().find(|it| it.function == spec.function && it.terms == terms)?;
        match &entry.state {
            State::Ready(zygote) if zygote.keeper.is_usable() => Some(zygote.clone()),
            State::Ready(_) | State::Missing | State::Refused(_) => None,
        }
    }

    /// Whether one is to be made.
    pub(super) fn lacks(&self, spec: &InstanceSpec) -> bool {
        let terms = Terms::of(spec);
        self.table().entries.iter().any(|it| {
            it.function == spec.function
                && it.terms == terms
                && match &it.state {
                    State::Missing => true,
                    State::Ready(zygote) => !zygote.keeper.is_usable(),
                    State::Refused(_) => false,
                }
        })
    }

    /// Keeps one, or why there is none, unless the function has been forgotten or changed meanwhile.
    pub(super) fn keep(&self, spec: &InstanceSpec, made: Result<FunctionZygote, String>) {
        let terms = Terms::of(spec);
        let state = match made {
            Ok(zygote) => State::Ready(Arc::new(zygote)),
            Err(reason) => State::Refused(reason),
        };
        let mut table = self.table();
        let entry =
            table.entries.iter_mut().find(|it| it.function == spec.function && it.terms == terms);
        if let Some(entry) = entry {
            entry.ends += u32::from(matches!(entry.state, State::Ready(_)));
            entry.state = if entry.ends < MOST_ENDS {
                state
            } else {
                State::Refused(format!("its zygote has ended by itself {MOST_ENDS} times"))
            };
        }
    }

    /// Keeps none any more for a function.
    pub(in crate::sandbox) fn forget(&self, function: &str) {
        let mut table = self.table();
        table.entries.retain(|it| it.function != function);
        if let Some(count) = table.starts.remove(function) {
            table.sum -= count;
        }
    }

    /// Why functions have none, though they want one: a sentence each.
    pub(in crate::sandbox) fn refusals(&self) -> Vec<String> {
        let table = self.table();
        let refusal = |it: &Entry| match &it.state {
            State::Refused(reason) => Some(format!(
                "The function {} has no zygote of its own, and starts as prepared: {reason}.",
                it.function
            )),
            State::Missing | State::Ready(_) => None,
        };
        table.entries.iter().filter_map(refusal).collect()
    }

    /// Ends all, once the host is closed and nothing is started any more. Blocks until they have ended.
    pub(in crate::sandbox) fn clear(&self) {
        let _making = self.making.blocking_lock();
        for entry in std::mem::take(&mut *self.table()).entries {
            if let State::Ready(zygote) = entry.state
                && let Some(mut zygote) = Arc::into_inner(zygote)
                && let Some(end) = zygote.take_end()
            {
                end();
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::environment::tests::spec;

    #[test]
    fn a_zygote_is_wanted_until_the_function_is_changed_or_forgotten() {
        let zygotes = FunctionZygotes::default();
        let first = spec("python", &[]);
        assert!(!zygotes.lacks(&first));
        zygotes.note(&first);
        assert!(zygotes.lacks(&first) && zygotes.ready(&first).is_none());
        zygotes.keep(&first, Err("it has opened a socket".into()));
        assert!(!zygotes.lacks(&first));
        assert!(zygotes.refusals()[0].ends_with("it has opened a socket."));
        // Noted again, it is refused still.
        zygotes.note(&first);
        assert!(!zygotes.lacks(&first));
        let changed = InstanceSpec { handler: "other.handler".into(), ..first.clone() };
        zygotes.note(&changed);
        assert!(zygotes.lacks(&changed) && !zygotes.lacks(&first));
        assert!(zygotes.refusals().is_empty());
        // What was being made meanwhile.
        zygotes.keep(&first, Err("too late".into()));
        assert!(zygotes.lacks(&changed));
        zygotes.forget(&changed.function);
        assert!(!zygotes.lacks(&changed));
    }

    fn numbered(number: usize) -> InstanceSpec {
        InstanceSpec { function: number.to_string(), ..spec("python", &[]) }
    }

    fn lacking(zygotes: &FunctionZygotes, functions: usize) -> Vec<usize> {
        (0..functions).filter(|it| zygotes.lacks(&numbered(*it))).collect()
    }

    #[test]
    fn functions_that_start_in_turn_do_not_take_each_others_places() {
        let zygotes = FunctionZygotes::default();
        for _ in 0..100 {
            for number in 0..2 * MAX_FUNCTIONS {
                zygotes.note(&numbered(number));
            }
            let first: Vec<_> = (0..MAX_FUNCTIONS).collect();
            assert_eq!(lacking(&zygotes, 2 * MAX_FUNCTIONS), first);
        }
    }

    #[test]
    fn functions_that_start_more_often_have_the_places() {
        let zygotes = FunctionZygotes::default();
        for number in 0..MAX_FUNCTIONS {
            zygotes.note(&numbered(number));
        }
        let last: Vec<_> = (MAX_FUNCTIONS..2 * MAX_FUNCTIONS).collect();
        for number in &last {
            zygotes.note(&numbered(*number));
            assert!(!zygotes.lacks(&numbered(*number)));
            zygotes.note(&numbered(*number));
            assert!(zygotes.lacks(&numbered(*number)));
        }
        assert_eq!(lacking(&zygotes, 2 * MAX_FUNCTIONS), last);
    }

    #[test]
    fn a_function_that_nobody_uses_any_more_gives_way() {
        let zygotes = FunctionZygotes::default();
        for number in 0..MAX_FUNCTIONS {
            (0..1000).for_each(|_| zygotes.note(&numbered(number)));
        }
        let new = numbered(MAX_FUNCTIONS);
        let has_place = (0..REMEMBERED_STARTS).any(|_| {
            zygotes.note(&new);
            zygotes.lacks(&new)
        });
        assert!(has_place);
        assert!(zygotes.table().starts.len() <= MAX_FUNCTIONS + 1);
    }

    #[test]
    fn a_function_that_cannot_have_one_takes_no_place() {
        let zygotes = FunctionZygotes::default();
        for number in 0..MAX_FUNCTIONS {
            zygotes.note(&numbered(number));
            zygotes.keep(&numbered(number), Err("it has opened a socket".into()));
        }
        zygotes.note(&numbered(MAX_FUNCTIONS));
        assert!(zygotes.lacks(&numbered(MAX_FUNCTIONS)));
        assert_eq!(zygotes.refusals().len(), MAX_FUNCTIONS);
    }
}
