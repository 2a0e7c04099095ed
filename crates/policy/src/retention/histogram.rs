//! Each function's own idle times say when an instance is removed, and when one is started again ahead of
//! the next request: Azure's hybrid histogram policy, without its forecasts.
//!
//! The idle times of a function, from when its last request ended to the next arrival, are counted in 240
//! bins of a minute. With `head`, the lower end of the bin with their 5th percentile, and `tail`, the upper
//! end of that with the 99th:
//!
//! `prewarm = 0.9 x head`, `keep_alive = 1.1 x tail - prewarm`
//!
//! * If `prewarm` is 0 an instance is kept for `keep_alive` after its use. Otherwise it is removed at once;
//!   one is started `prewarm` after the use, and kept for `keep_alive` if no request comes.
//! * While other requests of the function are in flight, its idle instances are kept until `prewarm +
//!   keep_alive` after their use: there is no idle time yet.
//! * The pattern is uncertain, and instances are kept for the function's setting `keep_alive`, if fewer than
//!   ten idle times are known, or more than half of them were beyond the bins, or the bins' counts have a
//!   coefficient of variation below 2: then the idle times are spread too evenly to be foreseen.
//!
//! Source: Shahrad et al., *Serverless in the Wild*, USENIX ATC 2020, section 4.2: bins of a minute over
//! four hours, 5th and 99th percentile, rounded outwards, margins of 10 %, coefficient of variation 2.
//! Otherwise than there: too many idle times beyond the bins are not forecast by ARIMA; an uncertain
//! pattern has the function's own keep-alive, not the four hours; and the ten and the half are ours.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::{Ahead, Retention, Schedule, pause};
use crate::{FunctionId, FunctionView, InstanceView, Nanos, Random, View};

const BINS: usize = 240;
const HEAD_PERCENT: u64 = 5;
const TAIL_PERCENT: u64 = 99;
/// The margins of both ends, in percent.
const MARGIN: u64 = 10;
const MIN_VARIATION: f64 = 2.0;
const MIN_IDLE_TIMES: u64 = 10;

/// Keeps instances by their functions' idle times.
#[derive(Debug, Default)]
pub struct Histogram {
    functions: FxHashMap<FunctionId, Past>,
    /// The instances to be started ahead, by time.
    planned: BTreeSet<(Nanos, FunctionId)>,
}

/// Makes the policy.
pub fn policy() -> Box<dyn Retention> {
    Box::new(Histogram::default())
}

/// A function's idle times.
#[derive(Debug)]
struct Past {
    bins: Box<[u32; BINS]>,
    counted: u64,
    beyond: u64,
    /// Since when nothing of it is in flight, if that is so and known.
    idle_since: Option<Nanos>,
    /// When an instance is to be started ahead.
    planned: Option<Nanos>,
}

impl Default for Past {
    fn default() -> Self {
        let bins = Box::new([0; BINS]);
        Self { bins, counted: 0, beyond: 0, idle_since: None, planned: None }
    }
}

/// What becomes of an instance after its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Windows {
    prewarm: Nanos,
    keep_alive: Nanos,
}

impl Past {
    fn add(&mut self, idle: Nanos, bin: Nanos) {
        match self.bins.get_mut(usize::try_from(idle / bin).unwrap_or(BINS)) {
            Some(count) => {
                *count = count.saturating_add(1);
                self.counted += 1;
            }
            None => self.beyond += 1,
        }
    }

    /// What the idle times say; None if they are too few or follow no pattern.
    fn windows(&self, bin: Nanos) -> Option<Windows> {
        let all = self.counted + self.beyond;
        if all < MIN_IDLE_TIMES || 2 * self.beyond > all || self.variation() < MIN_VARIATION {
            return None;
        }
        let head = self.percentile(HEAD_PERCENT) as Nanos;
        let tail = self.percentile(TAIL_PERCENT) as Nanos + 1;
        let prewarm = head.saturating_mul(bin) / 100 * (100 - MARGIN);
        let until = (tail.saturating_mul(bin) / 100).saturating_mul(100 + MARGIN);
        Some(Windows { prewarm, keep_alive: until.saturating_sub(prewarm) })
    }

    /// The bin with this percentile of the idle times within the bins.
    fn percentile(&self, percent: u64) -> usize {
        let rank = (self.counted * percent).div_ceil(100).max(1);
        let mut below = 0;
        let bin = self.bins.iter().position(|count| {
            below += u64::from(*count);
            below >= rank
        });
        bin.unwrap_or(BINS - 1)
    }

    /// The coefficient of variation of the bins' counts.
    fn variation(&self) -> f64 {
        let mean = self.counted as f64 / BINS as f64;
        let squares = self.bins.iter().map(|count| (f64::from(*count) - mean).powi(2));
        let variance = squares.sum::<f64>() / BINS as f64;
        if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
    }
}

impl Histogram {
    /// Plans an instance of the function for a time, or none.
    fn plan(&mut self, function: FunctionId, at: Option<Nanos>) {
        let past = self.functions.entry(function).or_default();
        if let Some(before) = std::mem::replace(&mut past.planned, at) {
            self.planned.remove(&(before, function));
        }
        self.planned.extend(at.map(|at| (at, function)));
    }
}

impl Retention for Histogram {
    fn schedule(
        &mut self,
        view: View<'_>,
        _: &mut Random,
        instance: &InstanceView<'_>,
    ) -> Schedule {
        let function = instance.function();
        let since = instance.since();
        let past = self.functions.entry(function.id()).or_default();
        let windows = past.windows(view.parameters().histogram_bin.max(1));
        let is_last = function.in_flight() == 0;
        // One that has served nothing was started ahead.
        let was_used = instance.served() > 0;
        if is_last && was_used {
            past.idle_since = past.idle_since.max(Some(since));
        }
        let keep_alive = match windows {
            None => function.settings().keep_alive,
            Some(windows) if !was_used => windows.keep_alive,
            Some(windows) if is_last && windows.prewarm > 0 => {
                let at = since.saturating_add(windows.prewarm);
                self.plan(function.id(), (at > view.now()).then_some(at));
                0
            }
            Some(windows) => windows.prewarm.saturating_add(windows.keep_alive),
        };
        Schedule { pause: pause(instance), stop_at: since.saturating_add(keep_alive) }
    }

    fn prewarms(&self) -> bool {
        true
    }

    fn on_arrival(&mut self, view: View<'_>, function: &FunctionView<'_>) {
        let past = self.functions.entry(function.id()).or_default();
        if let Some(since) = past.idle_since.take() {
            past.add(view.now() - since, view.parameters().histogram_bin.max(1));
        }
        self.plan(function.id(), None);
    }

    fn next_prewarm(&self) -> Option<Nanos> {
        self.planned.first().map(|(at, _)| *at)
    }

    fn prewarm(&mut self, view: View<'_>, out: &mut Vec<Ahead>) {
        while let Some((at, function)) = self.planned.first().copied() {
            if at > view.now() {
                return;
            }
            self.plan(function, None);
            // One that has any instance is left alone.
            let known = view.function(function);
            if known.is_some_and(|known| known.instances() == 0 && known.in_flight() == 0) {
                out.push(Ahead { function, count: 1, on_hint: false });
            }
        }
    }

    fn on_deleted(&mut self, function: FunctionId) {
        self.plan(function, None);
        self.functions.remove(&function);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Nanos = 60_000_000_000;

    fn past(idle: impl IntoIterator<Item = Nanos>) -> Past {
        let mut past = Past::default();
        for idle in idle {
            past.add(idle, MINUTE);
        }
        past
    }

    #[test]
    fn a_timer_is_met_with_margins() {
        // Every twenty minutes and a bit: the bin from 20 to 21.
        let windows = past([20 * MINUTE + 7; 10]).windows(MINUTE).unwrap();
        assert_eq!(windows.prewarm, 18 * MINUTE);
        assert_eq!(windows.prewarm + windows.keep_alive, 21 * MINUTE * 11 / 10);
    }

    #[test]
    fn short_idle_times_are_kept_through() {
        let windows = past((0..100).map(|n| n % 3 * MINUTE)).windows(MINUTE).unwrap();
        assert_eq!(windows, Windows { prewarm: 0, keep_alive: 3 * MINUTE * 11 / 10 });
    }

    #[test]
    fn what_is_uncertain_says_nothing() {
        assert_eq!(past([MINUTE; 9]).windows(MINUTE), None, "too few");
        let beyond = std::iter::repeat_n(400 * MINUTE, 11);
        assert_eq!(past([MINUTE; 10].into_iter().chain(beyond)).windows(MINUTE), None, "beyond");
        assert_eq!(past((0..240).map(|n| n * MINUTE)).windows(MINUTE), None, "spread evenly");
    }

    proptest! {
        /// Of the idle times within the bins, at most five in a hundred are below the windows and one
        /// above them; the percentiles are those of the sorted times.
        #[test]
        fn the_windows_cover_the_idle_times(idle in prop::collection::vec(0..300 * MINUTE, 1..200)) {
            let past = past(idle.iter().copied());
            let mut within: Vec<_> = idle.iter().filter(|idle| **idle < 240 * MINUTE).collect();
            within.sort();
            prop_assert_eq!((past.counted, past.beyond as usize), (within.len() as u64, idle.len() - within.len()));
            for percent in [HEAD_PERCENT, TAIL_PERCENT] {
                let rank = (within.len() * percent as usize).div_ceil(100).max(1);
                if let Some(exact) = within.get(rank - 1) {
                    prop_assert_eq!(past.percentile(percent) as u64, **exact / MINUTE);
                }
            }
            if let Some(windows) = past.windows(MINUTE) {
                let early = within.iter().filter(|idle| ***idle < windows.prewarm).count();
                let late = within.iter().filter(|idle| ***idle > windows.prewarm + windows.keep_alive).count();
                prop_assert!(early * 100 <= within.len() * 5 && late * 100 <= within.len());
            }
        }
    }
}
