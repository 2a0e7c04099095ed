//! Every instance is kept for the same time after each use; beyond that, what requests say of those to come
//! has instances kept, or started ahead.
//!
//! A hint says that `count` requests come `after` from now, give or take `within`. With `lead = 2 x` the mean
//! time of the function's starts, from 0.1 s to 10 s, or 1 s before any is known, it is open
//!
//! `from after - within - lead until after + within`
//!
//! * When a hint opens, so many instances are started as the function's open hints ask for and it has no free
//!   places for. Of the places that are taken, those count as free that will be when the first of what was said
//!   comes: `serving x min(time until then / mean duration, 1)`, rounded down.
//! * An idle instance whose `keep_alive` is over stays until the first of the open hints ends, if the function's
//!   other free places are fewer than they ask for. One that opens within another `lead` counts as open: to stop
//!   and to start again would take as long.
//! * Each request that arrives is one of those that the hint said which is open and ends first.
//!
//! No more than `hint_instances` of a function are on hints' account at once: started for one and not used yet,
//! or kept for one. Nobody else is held up for them: they start only where there is room to spare, and are the
//! first to give it up, even while they start.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Ahead, Retention, Schedule, pause};
use crate::{FunctionId, FunctionView, Hint, HintAnswer, InstanceView, Nanos, Random, View};

/// Of each function so many hints may be pending.
const MOST_PENDING: usize = 1_000;

const SECOND: Nanos = 1_000_000_000;
const LEAST_LEAD: Nanos = SECOND / 10;
const MOST_LEAD: Nanos = 10 * SECOND;
/// Before any start of the function is known.
const UNKNOWN_LEAD: Nanos = SECOND;

/// A hint that has not ended.
#[derive(Debug, Clone, Copy)]
struct Pending {
    opens: Nanos,
    expected: Nanos,
    ends: Nanos,
    /// Requests that it said and that have not come.
    count: u32,
}

/// Keeps and starts instances as requests say.
#[derive(Debug, Default)]
pub struct Hints {
    functions: FxHashMap<FunctionId, Vec<Pending>>,
    /// When hints open that have not.
    opening: BTreeSet<(Nanos, FunctionId)>,
}

/// Makes the policy.
pub fn policy() -> Box<dyn Retention> {
    Box::new(Hints::default())
}

fn lead(function: &FunctionView<'_>) -> Nanos {
    let twice = function.mean_initialization().map(|mean| mean.saturating_mul(2));
    twice.map_or(UNKNOWN_LEAD, |lead| lead.clamp(LEAST_LEAD, MOST_LEAD))
}

impl Hints {
    /// The hints of a function that have not ended.
    fn pending(&mut self, function: FunctionId, now: Nanos) -> &mut Vec<Pending> {
        let pending = self.functions.entry(function).or_default();
        pending.retain(|hint| hint.count > 0 && hint.ends > now);
        pending
    }

    /// How many requests are said to come by the hints that are open at a time, and when the first of these
    /// hints ends.
    fn open(&mut self, function: FunctionId, now: Nanos, at: Nanos) -> (u64, Option<Nanos>) {
        let open = self.pending(function, now).iter().filter(|hint| hint.opens <= at);
        let ends = open.clone().map(|hint| hint.ends).min();
        (open.map(|hint| u64::from(hint.count)).sum(), ends)
    }
}

impl Hints {
    /// Places that are taken and will be free when the first of what is said comes.
    fn soon_free(&mut self, function: &FunctionView<'_>, now: Nanos) -> u64 {
        let open = self.pending(function.id(), now).iter().filter(|hint| hint.opens <= now);
        let next = open.map(|hint| hint.expected).min().unwrap_or(now);
        let (serving, time) = (u64::from(function.serving()), next.saturating_sub(now));
        match function.mean_duration() {
            None => 0,
            Some(mean) if mean <= time => serving,
            Some(mean) => {
                let ended = u128::from(serving) * u128::from(time) / u128::from(mean);
                u64::try_from(ended).unwrap_or(serving)
            }
        }
    }
}

impl Retention for Hints {
    fn schedule(&mut self, _: View<'_>, _: &mut Random, instance: &InstanceView<'_>) -> Schedule {
        let keep_alive = instance.function().settings().keep_alive;
        Schedule { pause: pause(instance), stop_at: instance.since().saturating_add(keep_alive) }
    }

    fn prewarms(&self) -> bool {
        true
    }

    fn reads_hints(&self) -> bool {
        true
    }

    fn on_hint(&mut self, view: View<'_>, function: &FunctionView<'_>, hint: Hint) -> HintAnswer {
        let (now, parameters) = (view.now(), view.parameters());
        let budget = function.settings().hint_instances;
        if hint.after > parameters.hint_ahead {
            return HintAnswer::TooFar(parameters.hint_ahead);
        }
        if budget == 0 {
            return HintAnswer::NoBudget;
        }
        let pending = self.pending(function.id(), now);
        if pending.len() >= MOST_PENDING {
            return HintAnswer::TooMany(MOST_PENDING);
        }
        let within = hint.within.unwrap_or(parameters.hint_within).min(parameters.hint_ahead);
        let expected = now.saturating_add(hint.after);
        let opens = expected.saturating_sub(within.saturating_add(lead(function))).max(now);
        let count = hint.count.min(budget);
        pending.push(Pending { opens, expected, ends: expected.saturating_add(within), count });
        self.opening.insert((opens, function.id()));
        HintAnswer::Taken(count)
    }

    fn on_arrival(&mut self, view: View<'_>, function: &FunctionView<'_>) {
        let now = view.now();
        if !self.functions.contains_key(&function.id()) {
            return;
        }
        let open = self.pending(function.id(), now).iter_mut().filter(|hint| hint.opens <= now);
        if let Some(first) = open.min_by_key(|hint| hint.ends) {
            first.count -= 1;
        }
    }

    fn next_prewarm(&self) -> Option<Nanos> {
        self.opening.first().map(|(at, _)| *at)
    }

    fn prewarm(&mut self, view: View<'_>, out: &mut Vec<Ahead>) {
        let now = view.now();
        let mut seen = FxHashSet::default();
        while let Some((at, id)) = self.opening.first().copied() {
            if at > now {
                return;
            }
            self.opening.pop_first();
            // All of a function that have opened by now are in one sum.
            if !seen.insert(id) {
                continue;
            }
            let Some(function) = view.function(id) else { continue };
            let (expected, _) = self.open(id, now, now);
            let free = function.free_slots() + self.soon_free(&function, now);
            let missing = expected.saturating_sub(free);
            let settings = function.settings();
            let missing = missing.div_ceil(u64::from(settings.concurrency.max(1)));
            let left = settings.hint_instances.saturating_sub(function.on_hint());
            let count = left.min(u32::try_from(missing).unwrap_or(u32::MAX));
            if count > 0 {
                out.push(Ahead { function: id, count, on_hint: true });
            }
        }
    }

    fn hold(&mut self, view: View<'_>, instance: &InstanceView<'_>) -> Option<Nanos> {
        let (now, function) = (view.now(), instance.function());
        let others = function.on_hint() - u32::from(instance.is_on_hint());
        if others >= function.settings().hint_instances {
            return None;
        }
        let (expected, ends) = self.open(function.id(), now, now.saturating_add(lead(&function)));
        let free = function.free_slots().saturating_sub(instance.concurrency().into());
        ends.filter(|_| expected > free)
    }

    fn on_deleted(&mut self, function: FunctionId) {
        self.functions.remove(&function);
        self.opening.retain(|(_, known)| *known != function);
    }
}
