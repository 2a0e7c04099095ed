//! How many instances the scaling policies have, on series of requests.

mod driver;

use driver::{Doing, Driver, Instance};
use proptest::prelude::*;
use uncia_policy::{
    Decision, End, Event, FunctionId, FunctionSettings, Nanos, Parameters, PolicyNames, Resources,
    StopReason,
};

const FUNCTION: FunctionId = FunctionId(0);
const SECOND: Nanos = 1_000_000_000;
const TICK: Nanos = 2 * SECOND;
/// Longer than any series.
const NEVER: Nanos = 1_000_000 * SECOND;
/// The series change at most this often.
const STEP: Nanos = SECOND / 10;
const STEPS_PER_SECOND: usize = 10;

fn driver(scaling: &str, parameters: Parameters, settings: FunctionSettings) -> Driver {
    let names = PolicyNames { scaling: scaling.into(), ..PolicyNames::default() };
    let mut driver = Driver::with_parameters(&names, parameters, 0);
    driver.join(0, Resources::UNBOUNDED, 1_000);
    driver.configure(FUNCTION.0, settings);
    driver
}

/// What starts is ready, and what stops is gone.
fn settle(driver: &mut Driver) {
    for id in driver.nths(|instance| instance.doing == Doing::Starting) {
        driver.ready(id);
    }
    for id in driver.nths(|instance| instance.doing == Doing::Stopping) {
        driver.gone(id);
    }
}

/// Has so many requests in flight from now on.
fn set_in_flight(driver: &mut Driver, requests: u32) {
    while driver.scheduler.in_flight() < requests {
        driver.arrive(FUNCTION.0, true);
        settle(driver);
    }
    while driver.scheduler.in_flight() > requests {
        let active = driver.nth(0, Instance::is_active).expect("one that serves");
        driver.end(active, 0, End::Survives);
    }
}

/// Knative's autoscaler by its published source, on a sample of the average concurrency each second.
struct Knative {
    target: f64,
    /// Ten times each second's average.
    samples: Vec<u32>,
    panic_since: Option<usize>,
    max_panic: f64,
}

impl Knative {
    fn new(concurrency: u32) -> Self {
        let target = f64::from(concurrency) * 70.0 / 100.0;
        Self { target, samples: Vec::new(), panic_since: None, max_panic: 0.0 }
    }

    fn window_average(&self, seconds: usize) -> f64 {
        let window = &self.samples[self.samples.len().saturating_sub(seconds)..];
        f64::from(window.iter().sum::<u32>()) / (window.len() * STEPS_PER_SECOND) as f64
    }

    fn scale(&mut self, pods: u32) -> u32 {
        let now = self.samples.len();
        let ready = f64::from(pods).max(1.0);
        let (max_up, max_down) = ((1000.0 * ready).ceil(), (ready / 2.0).floor());
        let stable = (self.window_average(60) / self.target).ceil();
        let panic = (self.window_average(6) / self.target).ceil();
        let over = panic / ready >= 2.0;
        if over {
            self.panic_since = Some(now);
        } else if self.panic_since.is_some_and(|since| since + 60 < now) {
            (self.panic_since, self.max_panic) = (None, 0.0);
        }
        let mut desired = stable.max(max_down).min(max_up);
        if self.panic_since.is_some() {
            self.max_panic = self.max_panic.max(desired).max(panic.max(max_down).min(max_up));
            desired = self.max_panic;
        }
        desired as u32
    }
}

/// Plays a series of requests in flight, one number a step, and hands what holds just before and after each
/// tick, and the steps so far, to `check`.
fn play(driver: &mut Driver, series: &[u32], mut check: impl FnMut(&Driver, Before, &[u32])) {
    for (index, requests) in series.iter().enumerate() {
        set_in_flight(driver, *requests);
        driver.pass(STEP - 1);
        settle(driver);
        let function = driver.scheduler.view().function(FUNCTION).unwrap();
        let before = Before {
            instances: function.instances(),
            idle: function.idle(),
            waiting: function.waiting(),
            log: driver.log.len(),
        };
        driver.pass(1);
        if driver.now.is_multiple_of(TICK) {
            check(driver, before, &series[..=index]);
        }
        settle(driver);
    }
}

/// What held before a tick.
struct Before {
    instances: u32,
    idle: u32,
    waiting: usize,
    log: usize,
}

fn seconds(steps: &[u32]) -> Vec<u32> {
    steps.chunks_exact(STEPS_PER_SECOND).map(|second| second.iter().sum()).collect()
}

fn settings(concurrency: u32) -> FunctionSettings {
    FunctionSettings { concurrency, keep_alive: NEVER, ..FunctionSettings::default() }
}

/// Of so many requests in flight each for so many seconds.
fn series(levels: &[(u32, usize)]) -> Vec<u32> {
    let steps = |&(level, seconds): &(u32, usize)| vec![level; seconds * STEPS_PER_SECOND];
    levels.iter().flat_map(steps).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// On any series, every tick wants what Knative's algorithm wants of as many pods.
    #[test]
    fn every_tick_wants_what_knative_wants(
        levels in prop::collection::vec((0..40_u32, 1..40_usize), 1..6),
        concurrency in 1..12_u32,
    ) {
        let mut driver = driver("concurrency-target", Parameters::default(), settings(concurrency));
        let mut knative = Knative::new(concurrency);
        let mut unwanted_ticks = 0;
        play(&mut driver, &series(&levels), |driver, before, steps| {
            knative.samples = seconds(steps);
            let mut wanted = knative.scale(before.instances);
            unwanted_ticks = if wanted == 0 { unwanted_ticks + 1 } else { 0 };
            if wanted == 0 && (unwanted_ticks - 1) * TICK < 30 * SECOND {
                wanted = before.instances.min(1);
            }
            let stops = if before.waiting > 0 { 0 } else {
                before.instances.saturating_sub(wanted).min(before.idle)
            };
            let expected = before.instances.max(wanted) - stops;
            assert_eq!(driver.instances_of(FUNCTION), expected, "at {} s", driver.now / SECOND);
            let is_scaled_down =
                |it: &&Decision| matches!(it, Decision::Stop { reason: StopReason::ScaledDown, .. });
            let stopped = driver.log[before.log..].iter().filter(is_scaled_down).count();
            assert_eq!(stopped, stops as usize);
        });
        driver.configure(FUNCTION.0, FunctionSettings { keep_alive: 0, ..settings(concurrency) });
        driver.finish();
    }

    /// Whatever comes, no more instances than allowed, and every request is served.
    #[test]
    fn queues_are_bounded_and_served(
        levels in prop::collection::vec(0..60_u32, 1..30),
        concurrency in 1..5_u32,
        queue_length in 0..5_u32,
        max_instances in 1..20_u32,
    ) {
        let parameters = Parameters { queue_length, ..Parameters::default() };
        let limited = FunctionSettings { max_instances, ..settings(concurrency) };
        let mut driver = driver("queue-per-instance", parameters, limited);
        for level in levels {
            set_in_flight(&mut driver, level);
            let function = driver.scheduler.view().function(FUNCTION).unwrap();
            let instances = function.instances();
            prop_assert!(level == 0 || instances > 0);
            let bound = instances * (concurrency + queue_length);
            prop_assert!(level <= bound || instances == max_instances, "{level} on {instances}");
        }
        driver.configure(FUNCTION.0, FunctionSettings { keep_alive: 0, ..limited });
        driver.finish();
        prop_assert!(driver.rejected.is_empty());
    }
}

/// Each with pods of its own: a second instance comes within two ticks of Knative's, to the load that it is
/// for as to a surge.
#[test]
fn the_first_new_instance_comes_within_two_ticks_of_knatives() {
    let ramp: Vec<u32> = (0..1_200).map(|step| step / 20).collect();
    let sawtooth: Vec<u32> = (0..1_800).map(|step| step % 600 / 25).collect();
    let all = [
        series(&[(5, 30), (8, 90)]),
        series(&[(1, 60), (40, 30)]),
        series(&[(0, 20), (80, 4), (0, 60), (9, 60)]),
        ramp,
        sawtooth,
    ];
    for series in all {
        let mut knative = Knative::new(10);
        let mut pods = 0;
        let (mut theirs, mut ours) = (None, None);
        let mut driver = driver("concurrency-target", Parameters::default(), settings(10));
        play(&mut driver, &series, |driver, _, steps| {
            knative.samples = seconds(steps);
            pods = knative.scale(pods);
            if pods > 1 {
                theirs.get_or_insert(driver.now);
            }
            if driver.instances_of(FUNCTION) > 1 {
                ours.get_or_insert(driver.now);
            }
        });
        let (theirs, ours) = (theirs.expect("more pods"), ours.expect("more instances"));
        assert!(theirs.abs_diff(ours) <= 2 * TICK, "{theirs} and {ours}");
    }
}

#[test]
fn the_last_instance_stays_for_the_delay_and_then_nothing_is_left() {
    let mut driver = driver("concurrency-target", Parameters::default(), settings(10));
    play(&mut driver, &series(&[(5, 10), (0, 61)]), |_, _, _| {});
    assert_eq!(driver.instances_of(FUNCTION), 1);
    // None has been wanted since the first tick whose window holds no request: at 70 s.
    play(&mut driver, &series(&[(0, 28)]), |_, _, _| {});
    assert_eq!((driver.now / SECOND, driver.instances_of(FUNCTION)), (99, 1));
    play(&mut driver, &series(&[(0, 3)]), |_, _, _| {});
    assert_eq!(driver.instances_of(FUNCTION), 0);
    // A request that finds none does not wait for a tick.
    driver.pass(STEP);
    driver.arrive(FUNCTION.0, false);
    assert_eq!(driver.instances_of(FUNCTION), 1);
    settle(&mut driver);
    assert!(driver.waiting.is_empty());
}

#[test]
fn without_scale_down_instances_are_left_to_the_retention() {
    let parameters = Parameters { scale_down: false, ..Parameters::default() };
    let keep_alive = 90 * SECOND;
    let mut driver =
        driver("concurrency-target", parameters, FunctionSettings { keep_alive, ..settings(1) });
    play(&mut driver, &series(&[(4, 10), (0, 89)]), |_, _, _| {});
    assert!(driver.instances_of(FUNCTION) >= 4);
    let scaled =
        |it: &Decision| matches!(it, Decision::Stop { reason: StopReason::ScaledDown, .. });
    assert!(!driver.log.iter().any(scaled));
}

#[test]
fn what_is_to_be_ready_is_ready_under_every_scaling() {
    for scaling in ["one-per-request", "queue-per-instance", "concurrency-target"] {
        let ready = FunctionSettings { min_instances: 3, ..settings(2) };
        let mut driver = driver(scaling, Parameters::default(), ready);
        settle(&mut driver);
        play(&mut driver, &series(&[(1, 5), (0, 120)]), |_, _, _| {});
        assert!(driver.instances_of(FUNCTION) >= 3, "{scaling}");
    }
}

#[test]
fn another_instance_is_started_when_the_queues_are_full() {
    let parameters = Parameters { queue_length: 2, ..Parameters::default() };
    let mut driver = driver("queue-per-instance", parameters, settings(1));
    for (requests, instances) in [(1, 1), (3, 1), (4, 2), (6, 2), (7, 3)] {
        set_in_flight(&mut driver, requests);
        assert_eq!(driver.instances_of(FUNCTION), instances, "for {requests}");
    }
}

#[test]
fn connections_start_what_their_requests_will_need() {
    let connected = |connection: &str, connections: u32, max_instances: u32| {
        let names = PolicyNames { connection: connection.into(), ..PolicyNames::default() };
        let mut driver = Driver::new(&names, 0);
        driver.join(0, Resources::UNBOUNDED, 1_000);
        driver.configure(
            FUNCTION.0,
            FunctionSettings { concurrency: 2, max_instances, ..FunctionSettings::default() },
        );
        for _ in 0..connections {
            driver.send(Event::ConnectionBegan { function: FUNCTION });
        }
        driver
    };
    assert_eq!(connected("wait-for-request", 5, 9).started, 0);
    assert_eq!(connected("start-at-handshake", 5, 2).started, 2, "no more than it may have");
    let mut driver = connected("start-at-handshake", 5, 9);
    assert_eq!(driver.started, 3, "two requests for each");
    // Their requests find what was started for them, whichever is first.
    for _ in 0..3 {
        driver.arrive(FUNCTION.0, false);
        driver.send(Event::ConnectionSettled { function: FUNCTION });
    }
    settle(&mut driver);
    driver.arrive(FUNCTION.0, false);
    assert_eq!((driver.started, driver.scheduler.in_flight()), (3, 4));
    // Two connections have not asked, of which one counts on a place that is free.
    let connecting =
        |driver: &Driver| driver.scheduler.view().function(FUNCTION).unwrap().connecting();
    assert_eq!(connecting(&driver), 2);
    driver.send(Event::ConnectionBegan { function: FUNCTION });
    assert_eq!(driver.started, 4);
    for _ in 0..5 {
        driver.send(Event::ConnectionSettled { function: FUNCTION });
    }
    assert_eq!(connecting(&driver), 0);
    // A function that is not there (any more) has none.
    driver.send(Event::ConnectionBegan { function: FunctionId(9) });
    driver.send(Event::ConnectionSettled { function: FunctionId(9) });
}
