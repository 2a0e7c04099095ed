//! Whatever happens, in whatever order, under whatever policies, the scheduler keeps its promises.

mod driver;

use std::collections::BTreeMap;

use driver::{Doing, Driver, Instance};
use proptest::prelude::*;
use uncia_policy::{
    End, Event, FunctionId, FunctionSettings, Hint, Nanos, Parameters, Pause, Policies,
    PolicyNames, Qos, Resources, WorkerId,
};

const FUNCTIONS: u64 = 4;
const WORKERS: u32 = 4;
const ROOM: Resources = Resources { cpu: 4, memory: 12 };
/// Short enough for what the steps pass of time.
const PARAMETERS: Parameters = Parameters {
    queue_length: 1,
    target_utilization: 70,
    scaling_window: 600,
    scaling_tick: 20,
    scale_to_zero_delay: 300,
    scale_down: true,
    keep_alive_min: 100,
    locality_weight: 100,
    high_load: 70,
    overtaking_times: 3,
    overtaking_max: 100,
    cpu_overcommit: 200,
    histogram_bin: 30,
    hint_ahead: 2_000,
    hint_within: 40,
};

/// The functions differ in all that policies look at.
fn settings(function: u64) -> FunctionSettings {
    let function = function as usize;
    let preemptible = [false, true, true, false][function];
    FunctionSettings {
        keep_alive: [1_000, 1_000, 300, 2_000][function],
        pause_after: 50,
        pause: [Some(Pause::Freeze), Some(Pause::ScaleDown), None, None][function],
        max_in_flight: [4, 6, 5, 3][function],
        concurrency: [1, 1, 3, 2][function],
        min_instances: 0,
        max_instances: [9, 9, 2, 9][function],
        hint_instances: [1, 2, 3, 0][function],
        allocation: Resources { cpu: 1, memory: [1, 3, 4, 6][function] },
        spot_cpu: u64::from(preemptible),
        preemptible,
        qos: if preemptible { Qos::Batch } else { Qos::Interactive },
    }
}

/// What a driver may do next; numbers choose among what is possible.
#[derive(Debug, Clone)]
enum Step {
    Arrive(u64, bool),
    Ready(usize),
    Fail(usize),
    End(usize, End),
    Preempted(usize),
    Undelivered(usize),
    Gone(usize),
    Stopped(usize),
    Pass(Nanos),
    Update(u64),
    Configure(u64, u32, u32),
    Join(u32, u32),
    Drain(u32),
    Lose(u32),
    Sample(usize, u64),
    Pressure(u32, u64),
    Connect(u64),
    Settle(u64),
    Hint(u64, Hint),
}

fn step() -> impl Strategy<Value = Step> {
    let n = any::<usize>;
    let end =
        prop_oneof![9 => Just(End::Survives), 1 => Just(End::Gone), 1 => Just(End::Preempted)];
    prop_oneof![
        9 => (0..FUNCTIONS, any::<bool>()).prop_map(|(function, wait)| Step::Arrive(function, wait)),
        6 => n().prop_map(Step::Ready),
        1 => n().prop_map(Step::Fail),
        6 => (n(), end).prop_map(|(n, end)| Step::End(n, end)),
        4 => n().prop_map(Step::Preempted),
        1 => n().prop_map(Step::Undelivered),
        1 => n().prop_map(Step::Gone),
        4 => n().prop_map(Step::Stopped),
        4 => (0..400u64).prop_map(Step::Pass),
        1 => (0..FUNCTIONS).prop_map(Step::Update),
        1 => (0..FUNCTIONS, 0..5u32, 0..3u32).prop_map(|(f, max, min)| Step::Configure(f, max, min)),
        1 => (0..WORKERS, 1..5u32).prop_map(|(worker, max)| Step::Join(worker, max)),
        1 => (0..WORKERS).prop_map(Step::Drain),
        1 => (0..WORKERS).prop_map(Step::Lose),
        1 => (n(), 0..8u64).prop_map(|(n, memory)| Step::Sample(n, memory)),
        1 => (0..WORKERS, 0..8u64).prop_map(|(worker, bytes)| Step::Pressure(worker, bytes)),
        2 => (0..FUNCTIONS).prop_map(Step::Connect),
        2 => (0..FUNCTIONS).prop_map(Step::Settle),
        3 => (0..FUNCTIONS, 0..600u64, prop::option::of(0..100u64), 1..5u32).prop_map(
            |(function, after, within, count)| Step::Hint(function, Hint { after, within, count })
        ),
    ]
}

/// Any policy of each kind.
fn names() -> impl Strategy<Value = PolicyNames> {
    prop::collection::vec(any::<usize>(), Policies::choices().len()).prop_map(|numbers| {
        let mut names = PolicyNames::default();
        for (choice, n) in Policies::choices().into_iter().zip(numbers) {
            let policy = choice.policies[n % choice.policies.len()];
            *names.get_mut(choice.name).unwrap() = policy.to_owned();
        }
        names
    })
}

fn set_up(names: &PolicyNames, workers: u32) -> Driver {
    let mut driver = Driver::with_parameters(names, PARAMETERS, 7);
    for worker in 0..workers {
        driver.join(worker, ROOM, 4);
    }
    for function in 0..FUNCTIONS {
        driver.configure(function, settings(function));
    }
    driver
}

fn run(driver: &mut Driver, step: &Step) {
    let starting = |instance: &Instance| instance.doing == Doing::Starting;
    let serving = |instance: &Instance| !instance.serving.is_empty();
    match *step {
        Step::Arrive(function, can_wait) => {
            driver.arrive(function, can_wait);
        }
        Step::Ready(n) => {
            if let Some(id) = driver.nth(n, starting) {
                driver.ready(id);
            }
        }
        Step::Fail(n) => {
            if let Some(id) = driver.nth(n, starting) {
                driver.fail(id);
            }
        }
        Step::End(n, end) => {
            if let Some(id) = driver.nth(n, serving) {
                let gone = driver.instances[&id].doing == Doing::Gone;
                driver.end(id, n, if gone { End::Gone } else { end });
            }
        }
        Step::Preempted(n) => {
            if let Some(id) = driver.nth(n, |instance| instance.doing == Doing::Preempting) {
                driver.end(id, n, End::Preempted);
            }
        }
        Step::Undelivered(n) => {
            if let Some(id) = driver.nth(n, serving) {
                driver.undelivered(id, n);
            }
        }
        Step::Gone(n) => {
            if let Some(id) = driver.nth(n, |_| true) {
                driver.gone(id);
            }
        }
        Step::Stopped(n) => {
            if let Some(id) = driver.nth(n, |instance| instance.doing == Doing::Stopping) {
                driver.gone(id);
            }
        }
        Step::Pass(time) => driver.pass(time),
        Step::Connect(function) => {
            driver.send(Event::ConnectionBegan { function: FunctionId(function) });
        }
        Step::Hint(function, hint) => {
            driver.hint(function, hint);
        }
        Step::Settle(function) => {
            driver.send(Event::ConnectionSettled { function: FunctionId(function) });
        }
        Step::Update(function) => driver.update(function),
        Step::Configure(function, max_in_flight, min_instances) => {
            let mut settings = settings(function);
            settings.allocation.memory += u64::from(max_in_flight % 2);
            driver
                .configure(function, FunctionSettings { max_in_flight, min_instances, ..settings });
        }
        // A worker's capacity does not shrink here: what it has by then may exceed it.
        Step::Join(worker, max_instances) => {
            let had = driver.workers.get(&WorkerId(worker)).map_or(0, |had| had.max_instances);
            driver.join(worker, ROOM, max_instances.max(had));
        }
        Step::Drain(worker) => driver.drain_worker(WorkerId(worker)),
        Step::Lose(worker) => driver.lose_worker(WorkerId(worker)),
        Step::Sample(n, memory) => {
            if let Some(instance) = driver.nth(n, |_| true) {
                driver.send(Event::Sampled { instance, cpu: 1, memory });
            }
        }
        Step::Pressure(worker, bytes) => {
            driver.send(Event::MemoryPressure { worker: WorkerId(worker), bytes });
        }
    }
}

/// Lifts every limit, so that all that waits can be served, and lets all of it end.
fn settle(driver: &mut Driver) {
    for worker in 0..WORKERS {
        driver.join(worker, ROOM, 4);
    }
    for function in 0..FUNCTIONS {
        driver.configure(function, settings(function));
    }
    driver.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn promises_are_kept_and_every_request_is_answered(
        steps in prop::collection::vec(step(), 0..200),
        names in names(),
        workers in 0..=WORKERS,
    ) {
        let mut driver = set_up(&names, workers);
        for step in &steps {
            run(&mut driver, step);
        }
        settle(&mut driver);
        prop_assert_eq!(driver.answered.len() as u64, driver.next_request);
        prop_assert_eq!(driver.scheduler.timers(), 0);
        prop_assert_eq!(driver.scheduler.in_flight(), 0);
        let counts = driver.scheduler.counts();
        prop_assert_eq!(counts, uncia_policy::Counts::default());
        for worker in driver.scheduler.view().workers() {
            let taken = (worker.reserved(), worker.preempting(), worker.used(), worker.evictable());
            prop_assert_eq!(taken, Default::default());
        }
        for (request, attempts) in &driver.attempts {
            prop_assert!(*attempts > 0, "{:?}", request);
        }
    }

    #[test]
    fn the_same_seed_and_events_give_the_same_decisions(
        steps in prop::collection::vec(step(), 0..80),
        names in names(),
    ) {
        let run = || {
            let mut driver = set_up(&names, 3);
            for step in &steps {
                run(&mut driver, step);
            }
            driver.log
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn a_shutdown_or_deletion_leaves_nothing_behind(
        steps in prop::collection::vec(step(), 0..100),
        names in names(),
        delete in any::<bool>(),
    ) {
        let mut driver = set_up(&names, 2);
        for step in &steps {
            run(&mut driver, step);
        }
        if delete {
            for function in (0..FUNCTIONS).map(uncia_policy::FunctionId) {
                driver.send(Event::FunctionDeleted { function });
            }
        } else {
            driver.send(Event::Shutdown);
        }
        prop_assert_eq!(driver.scheduler.counts().backlog, 0);
        for worker in 0..WORKERS {
            driver.join(worker, ROOM, 4);
        }
        let min: BTreeMap<_, _> = std::mem::take(&mut driver.settings);
        driver.settings = min
            .into_iter()
            .map(|(id, settings)| (id, FunctionSettings { min_instances: 1, ..settings }))
            .collect();
        for _ in 0..2_000 {
            if driver.instances.is_empty() && driver.waiting.is_empty() {
                break;
            }
            run(&mut driver, &Step::Ready(0));
            run(&mut driver, &Step::End(0, End::Survives));
            run(&mut driver, &Step::Preempted(0));
            run(&mut driver, &Step::Stopped(0));
            if let Some(id) = driver.nth(0, |instance| instance.doing == Doing::Gone) {
                driver.gone(id);
            }
        }
        prop_assert!(driver.instances.is_empty() && driver.waiting.is_empty());
        prop_assert_eq!(driver.answered.len() as u64, driver.next_request);
        let functions = driver.scheduler.view().functions().count();
        prop_assert_eq!(functions, if delete { 0 } else { FUNCTIONS as usize });
    }
}
