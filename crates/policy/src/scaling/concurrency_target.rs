//! As many instances as the average concurrency needs: Knative's autoscaler, which Google's is like.
//!
//! Every `scaling_tick` (2 s), with `target = concurrency x target_utilization`:
//!
//! * `stable` and `panic` are the average requests in flight, waiting ones included, over
//!   `scaling_window` (60 s) and a tenth of it (6 s), or since the first request if that is shorter.
//! * `wanted(average) = average / target`, rounded up, at least half of the ready instances and at most a
//!   thousand times as many.
//! * If `panic / target`, rounded up, is twice the ready instances or more, panic begins. Until it was less
//!   for a whole window, the greatest number that either average has wanted since then is kept.
//! * Missing instances are started; of more than are wanted, idle ones are stopped (unless `scale_down` is
//!   off), the last one when none was wanted for `scale_to_zero_delay` (30 s).
//!
//! A request that finds no instance at all has one started at once, as the activator does.
//!
//! Figures: Knative Serving 1.x, `config/core/configmaps/autoscaler.yaml` (stable-window 60s,
//! panic-window-percentage 10, panic-threshold-percentage 200, max-scale-up-rate 1000,
//! max-scale-down-rate 2, container-concurrency-target-percentage 70, scale-to-zero-grace-period 30s) and
//! `pkg/autoscaler/scaling` (a tick of 2 s). Google's target is 60 %: *About instance autoscaling in Cloud
//! Run services*, cloud.google.com/run/docs/about-instance-autoscaling.
//!
//! Otherwise than there, an instance that serves is never stopped, and averages are exact, not of samples
//! once a second; a moment shorter than a sixtieth of the window counts as that long, as their samples do.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::{Change, Scaling, missing_ready};
use crate::{FunctionId, FunctionView, Nanos, Parameters, Random, View};

/// The panic window is this part of the window.
const PANIC_WINDOW: Nanos = 10;
/// The shortest time that is averaged over is this part of the window.
const GRANULARITY: Nanos = 60;
/// Panic begins when so many times the ready instances are wanted.
const PANIC_THRESHOLD: f64 = 2.0;
/// At one tick the instances become at most so many times as many, and at least one divided by so many.
const MAX_SCALE_UP_RATE: f64 = 1000.0;
const MAX_SCALE_DOWN_RATE: f64 = 2.0;

/// Follows the average concurrency of each function.
#[derive(Debug, Default)]
pub struct ConcurrencyTarget {
    functions: FxHashMap<FunctionId, Series>,
}

/// Makes the policy.
pub fn policy() -> Box<dyn Scaling> {
    Box::new(ConcurrencyTarget::default())
}

/// A function's requests in flight over time, and what follows from them.
#[derive(Debug)]
struct Series {
    /// The requests in flight since then, and their integral over time until then.
    since: Nanos,
    in_flight: u32,
    integral: u128,
    /// The integral at the last ticks, the oldest first; never empty.
    ticks: VecDeque<(Nanos, u128)>,
    /// When the panic threshold was last exceeded, if that matters still, and the most wanted since.
    panic: Option<(Nanos, u32)>,
    /// Since when no instance is wanted.
    unwanted_since: Option<Nanos>,
}

impl Series {
    fn new(now: Nanos) -> Self {
        Self {
            since: now,
            in_flight: 0,
            integral: 0,
            ticks: VecDeque::from([(now, 0)]),
            panic: None,
            unwanted_since: None,
        }
    }

    /// Takes note that from now on so many requests are in flight.
    fn update(&mut self, now: Nanos, in_flight: u32) {
        self.integral += u128::from(now - self.since) * u128::from(self.in_flight);
        self.since = now;
        self.in_flight = in_flight;
    }

    /// The average of the last `window`, or since the first tick; of the last tick at least.
    fn average(&self, window: Nanos, shortest: Nanos) -> f64 {
        let from = self.since.saturating_sub(window);
        let first = self.ticks.iter().find(|(at, _)| *at >= from).or(self.ticks.back());
        let (at, integral) = first.copied().unwrap_or((self.since, self.integral));
        (self.integral - integral) as f64 / (self.since - at).max(shortest).max(1) as f64
    }

    /// How many instances are wanted, of which so many are ready.
    fn wanted(&mut self, ready: u32, concurrency: u32, parameters: &Parameters) -> u32 {
        let window = parameters.scaling_window;
        let shortest = window / GRANULARITY;
        let target =
            f64::from(concurrency.max(1)) * f64::from(parameters.target_utilization) / 100.0;
        let needed = |window| (self.average(window, shortest) / target).ceil();
        let (stable, panic) = (needed(window), needed(window / PANIC_WINDOW));
        let ready = f64::from(ready.max(1));
        let least = (ready / MAX_SCALE_DOWN_RATE).floor();
        let most = (ready * MAX_SCALE_UP_RATE).ceil();
        // A float that is too large becomes the greatest number.
        let bounded = |wanted: f64| wanted.max(least).min(most) as u32;
        let wanted = bounded(stable);
        if panic / ready >= PANIC_THRESHOLD {
            let most = self.panic.map_or(0, |(_, most)| most);
            self.panic = Some((self.since, most));
        } else if self.panic.is_some_and(|(at, _)| at.saturating_add(window) < self.since) {
            self.panic = None;
        }
        match &mut self.panic {
            Some((_, most)) => {
                *most = wanted.max(bounded(panic)).max(*most);
                *most
            }
            None => wanted,
        }
    }

    /// The same, where the last instance stays for a while, and remembers this tick.
    fn on_tick(&mut self, function: &FunctionView<'_>, parameters: &Parameters) -> u32 {
        let ready = function.idle() + function.active();
        let wanted = self.wanted(ready, function.settings().concurrency, parameters);
        self.ticks.push_back((self.since, self.integral));
        let from = self.since.saturating_sub(parameters.scaling_window);
        while self.ticks.len() > 1 && self.ticks[0].0 < from {
            self.ticks.pop_front();
        }
        if wanted > 0 {
            self.unwanted_since = None;
            return wanted;
        }
        let since = *self.unwanted_since.get_or_insert(self.since);
        u32::from(self.since < since.saturating_add(parameters.scale_to_zero_delay))
            .min(function.instances())
    }
}

impl Scaling for ConcurrencyTarget {
    fn starts(&mut self, view: View<'_>, _: &mut Random, function: &FunctionView<'_>) -> u32 {
        let now = view.now();
        let series = self.functions.entry(function.id()).or_insert_with(|| Series::new(now));
        series.update(now, function.in_flight());
        let is_stranded = function.waiting_for_new() > 0 && function.instances() == 0;
        u32::from(is_stranded).max(missing_ready(function))
    }

    fn tick_every(&self, parameters: &Parameters) -> Option<Nanos> {
        Some(parameters.scaling_tick)
    }

    fn on_tick(&mut self, view: View<'_>, _: &mut Random, out: &mut Vec<(FunctionId, Change)>) {
        self.functions.retain(|id, _| view.function(*id).is_some());
        let (now, parameters) = (view.now(), view.parameters());
        for function in view.functions() {
            let Some(series) = self.functions.get_mut(&function.id()) else { continue };
            series.update(now, function.in_flight());
            let wanted = series.on_tick(&function, parameters);
            let wanted = wanted.max(function.settings().min_instances);
            let instances = function.instances();
            if wanted > instances {
                out.push((function.id(), Change::Start(wanted - instances)));
            } else if wanted < instances && parameters.scale_down && function.waiting() == 0 {
                out.push((function.id(), Change::Stop(instances - wanted)));
            }
        }
    }
}
