//! Two classes of requests on four workers: interactive ones preempt batch.

mod driver;

use driver::{Doing, Driver, Instance};
use uncia_policy::{
    CpuAssignment, CpuClass, CpuSet, Decision, End, Event, FunctionId, FunctionSettings,
    InstanceId, PolicyNames, Qos, RequestId, Resources, WorkerId,
};

const INTERACTIVE: u64 = 0;
const BATCH: u64 = 1;

/// Four workers with room for two instances each, and a function of each class.
fn driver() -> Driver {
    let names = PolicyNames {
        admission: "two-class".into(),
        placement: "least-loaded".into(),
        ..PolicyNames::default()
    };
    let mut driver = Driver::new(&names, 1);
    for worker in 0..4 {
        driver.join(worker, Resources { cpu: 2, memory: 2 }, 99);
    }
    let allocation = Resources { cpu: 1, memory: 1 };
    let interactive = FunctionSettings { allocation, ..settings() };
    driver.configure(INTERACTIVE, interactive);
    let (spot_cpu, preemptible, qos) = (1, true, Qos::Batch);
    driver.configure(BATCH, FunctionSettings { spot_cpu, preemptible, qos, ..interactive });
    driver
}

fn settings() -> FunctionSettings {
    FunctionSettings { keep_alive: 1_000, ..FunctionSettings::default() }
}

fn arrive(driver: &mut Driver, function: u64, requests: usize) -> Vec<RequestId> {
    let requests = (0..requests).map(|_| driver.arrive(function, function == BATCH)).collect();
    for id in driver.nths(|instance| instance.doing == Doing::Starting) {
        driver.ready(id);
    }
    requests
}

fn preempting(driver: &Driver) -> Vec<InstanceId> {
    driver.nths(|instance| instance.doing == Doing::Preempting)
}

#[test]
fn requests_are_spread_over_the_workers() {
    let mut driver = driver();
    arrive(&mut driver, INTERACTIVE, 6);
    let load: Vec<u32> =
        driver.scheduler.view().workers().map(|worker| worker.in_flight()).collect();
    assert_eq!(load, [2, 2, 1, 1]);
}

#[test]
fn an_interactive_request_preempts_batch_which_runs_again() {
    let mut driver = driver();
    let batch = arrive(&mut driver, BATCH, 10);
    assert_eq!((driver.started, driver.scheduler.counts().backlog), (8, 2));
    let interactive = arrive(&mut driver, INTERACTIVE, 1)[0];
    let [victim] = preempting(&driver)[..] else { panic!("one is preempted") };
    let lost = driver.instances[&victim].serving[0];
    driver.end(victim, 0, End::Preempted);
    let start = driver.nth(0, |instance| instance.doing == Doing::Starting).expect("a start");
    driver.ready(start);
    assert_eq!(driver.attempts[&interactive], 1);
    assert_eq!(driver.scheduler.counts().backlog, 3, "what was preempted waits again");
    // It comes before the batch that came later.
    driver.end(start, 0, End::Survives);
    arrive(&mut driver, BATCH, 0);
    assert_eq!(driver.attempts[&lost], 2);
    driver.finish();
    assert_eq!(driver.answered.len(), 11);
    assert!(
        batch.iter().all(|request| driver.attempts[request] == 1 + u32::from(*request == lost))
    );
}

#[test]
fn what_is_preempted_does_not_take_the_room_that_was_made() {
    let mut driver = driver();
    // Interactive, and its memory may be taken all the same.
    let lender = 7;
    let allocation = Resources { cpu: 1, memory: 1 };
    let spot_cpu = 1;
    let lends = FunctionSettings { preemptible: true, spot_cpu, allocation, ..settings() };
    driver.configure(lender, lends);
    arrive(&mut driver, lender, 8);
    let request = arrive(&mut driver, INTERACTIVE, 1)[0];
    let victim = preempting(&driver)[0];
    driver.end(victim, 0, End::Preempted);
    let start = driver.nth(0, |instance| instance.doing == Doing::Starting).expect("a start");
    driver.ready(start);
    assert_eq!(driver.attempts[&request], 1, "it has the room");
    driver.finish();
}

#[test]
fn no_more_is_preempted_than_is_needed() {
    let mut driver = driver();
    arrive(&mut driver, BATCH, 8);
    arrive(&mut driver, INTERACTIVE, 3);
    // The first one's room is coming; the others are asked again when it is there.
    assert_eq!(preempting(&driver).len(), 1);
    driver.finish();
    assert!(driver.preempted <= 3);
}

#[test]
fn what_is_not_preemptible_stays_and_the_request_waits() {
    let mut driver = driver();
    arrive(&mut driver, INTERACTIVE, 8);
    let waiting = arrive(&mut driver, INTERACTIVE, 1)[0];
    assert_eq!((driver.preempted, driver.scheduler.counts().backlog), (0, 1));
    let active = driver.nth(0, Instance::is_active).unwrap();
    driver.end(active, 0, End::Survives);
    assert_eq!(driver.attempts[&waiting], 1);
}

#[test]
fn an_answer_that_comes_before_the_preemption_counts() {
    let mut driver = driver();
    arrive(&mut driver, BATCH, 8);
    arrive(&mut driver, INTERACTIVE, 1);
    let victim = preempting(&driver)[0];
    driver.end(victim, 0, End::Survives);
    assert_eq!(driver.instances[&victim].doing, Doing::Stopping);
    driver.finish();
    assert_eq!(driver.answered.len(), 9);
}

#[test]
fn memory_pressure_evicts_what_idles_and_then_preempts_what_may_be() {
    let mut driver = driver();
    arrive(&mut driver, INTERACTIVE, 4);
    let batch = arrive(&mut driver, BATCH, 4);
    let on = |instance: &Instance| instance.worker == WorkerId(2);
    let idle = driver.nth(0, |instance| on(instance) && !instance.settings.preemptible).unwrap();
    driver.end(idle, 0, End::Survives);
    let pressure = |bytes| Event::MemoryPressure { worker: WorkerId(2), bytes };
    driver.send(pressure(1));
    assert_eq!(driver.instances[&idle].doing, Doing::Stopping);
    driver.send(pressure(1));
    assert_eq!(driver.preempted, 0, "that much is being freed already");
    driver.send(pressure(2));
    let [victim] = preempting(&driver)[..] else { panic!("one is preempted") };
    assert!(
        on(&driver.instances[&victim]) && batch.contains(&driver.instances[&victim].serving[0])
    );
    // What is not preemptible stays, whatever the pressure.
    driver.send(pressure(99));
    assert_eq!(preempting(&driver), [victim]);
    driver.finish();
}

#[test]
fn classes_of_cpus_follow_the_reservation() {
    let mut driver =
        Driver::new(&PolicyNames { cpu: "by-reservation".into(), ..PolicyNames::default() }, 0);
    driver.join(0, Resources { cpu: 4_000_000, memory: 9 }, 9);
    let allocation = Resources { cpu: 2_000_000, memory: 1 };
    let settings = FunctionSettings { allocation, spot_cpu: 1_000_000, ..settings() };
    driver.configure(0, settings);
    driver.configure(1, FunctionSettings { spot_cpu: 2_000_000, ..settings });
    driver.configure(2, FunctionSettings { spot_cpu: 0, ..settings });
    let half = Resources { cpu: 500_000, memory: 1 };
    driver.configure(3, FunctionSettings { allocation: half, spot_cpu: 0, ..settings });
    for function in 0..4 {
        arrive(&mut driver, function, 1);
    }
    let own: CpuSet = [0].into_iter().collect();
    let reserved = CpuAssignment::Class { class: CpuClass::Reserved, weight: 1_000_000, own };
    let own = CpuSet::default();
    let spot = CpuAssignment::Class { class: CpuClass::Spot, weight: 0, own };
    // What has no spot CPU runs on its cores, if they are whole.
    let weight = Some(2_000_000);
    let cores = CpuAssignment::Cpus { cpus: [1, 2].into_iter().collect(), are_own: true, weight };
    let part = CpuAssignment::Class { class: CpuClass::Reserved, weight: 500_000, own };
    let expected = [reserved, spot, cores, part];
    assert_eq!(
        assignments(&driver),
        driver.starts.iter().copied().zip(expected).collect::<Vec<_>>()
    );
    driver.finish();
}

/// Pieces of cores are shared with others: pinned there, it would have less than it reserves.
#[test]
fn who_gets_no_whole_cores_runs_on_any() {
    let mut driver =
        Driver::new(&PolicyNames { cpu: "by-reservation".into(), ..PolicyNames::default() }, 0);
    driver.join(0, Resources { cpu: 2_000_000, memory: 9 }, 9);
    for (function, cpu) in [(0, 500_000), (1, 500_000), (2, 500_000), (3, 1_000_000)] {
        let allocation = Resources { cpu, memory: 1 };
        driver.configure(function, FunctionSettings { allocation, spot_cpu: 0, ..settings() });
    }
    for function in 0..3 {
        arrive(&mut driver, function, 1);
    }
    // Half of each core is free once the second has ended.
    driver.end(driver.starts[1], 0, End::Survives);
    arrive(&mut driver, 3, 1);
    let (_, given) = *assignments(&driver).last().unwrap();
    let (class, own) = (CpuClass::Reserved, CpuSet::default());
    assert_eq!(given, CpuAssignment::Class { class, weight: 1_000_000, own });
    driver.finish();
}

fn assignments(driver: &Driver) -> Vec<(InstanceId, CpuAssignment)> {
    let set = driver.log.iter().filter_map(|decision| match *decision {
        Decision::SetCpu { instance, assignment } => Some((instance, assignment)),
        _ => None,
    });
    set.collect()
}

#[test]
fn pinned_instances_have_cores_while_they_serve() {
    let mut driver =
        Driver::new(&PolicyNames { cpu: "pinned".into(), ..PolicyNames::default() }, 0);
    driver.join(0, Resources { cpu: 3_000_000, memory: 9 }, 9);
    for (function, cpu) in [(0, 2_000_000), (1, 500_000), (2, 500_000)] {
        let allocation = Resources { cpu, memory: 1 };
        driver.configure(function, FunctionSettings { allocation, ..settings() });
        arrive(&mut driver, function, 1);
    }
    let cpus = |cpus: &[usize], are_own| CpuAssignment::Cpus {
        cpus: cpus.iter().copied().collect(),
        are_own,
        weight: None,
    };
    let given: Vec<_> = assignments(&driver).into_iter().map(|(_, given)| given).collect();
    assert_eq!(given, [cpus(&[0, 1], true), cpus(&[2], false), cpus(&[2], false)]);
    // What it had is another's once it idles, and what it gets next are the first that are free.
    let active = driver.nth(0, Instance::is_active).unwrap();
    driver.end(active, 0, End::Survives);
    arrive(&mut driver, 0, 1);
    assert_eq!(assignments(&driver).last().unwrap().1, cpus(&[0, 1], true));
    driver.finish();
}

/// Under shortest-job-first a short request overtakes long ones that wait, but not for ever.
#[test]
fn short_jobs_overtake_long_ones_within_bounds() {
    let names = PolicyNames { order: "shortest-job-first".into(), ..PolicyNames::default() };
    let mut driver = Driver::new(&names, 0);
    driver.join(0, Resources::UNBOUNDED, 1);
    let settings = settings();
    driver.configure(0, settings);
    driver.configure(9, settings);
    // Their means become 20 and 200 ns.
    for function in [0, 9] {
        arrive(&mut driver, function, 1);
        let active = driver.nth(0, Instance::is_active).unwrap();
        driver.end(active, 0, End::Survives);
    }
    arrive(&mut driver, 0, 1);
    let long = driver.arrive(9, true);
    let short = driver.arrive(0, true);
    let next = |driver: &mut Driver| {
        let active = driver.nth(0, Instance::is_active).unwrap();
        driver.end(active, 0, End::Survives);
        arrive(driver, 0, 0);
        let active = driver.nth(0, Instance::is_active).unwrap();
        driver.instances[&active].serving[0]
    };
    assert_eq!(next(&mut driver), short);
    // Short ones that come later than ten times the long one's duration do not overtake it.
    driver.pass(10 * 200);
    driver.arrive(0, true);
    assert_eq!(next(&mut driver), long);
    driver.finish();
}

/// What needs much room is not overtaken by what needs little, once it waits.
#[test]
fn a_small_request_does_not_overtake_a_large_one_of_its_class() {
    let mut driver = driver();
    let allocation = Resources { cpu: 2, memory: 2 };
    driver.configure(2, FunctionSettings { allocation, ..settings() });
    arrive(&mut driver, INTERACTIVE, 4);
    let large = arrive(&mut driver, 2, 1)[0];
    let small = arrive(&mut driver, INTERACTIVE, 1)[0];
    assert_eq!(driver.scheduler.counts().backlog, 2);
    let active = driver.nth(0, Instance::is_active).unwrap();
    driver.end(active, 0, End::Survives);
    arrive(&mut driver, INTERACTIVE, 0);
    assert_eq!((driver.attempts[&large], driver.attempts[&small]), (1, 1));
    let order = |request| {
        let is_its =
            |d: &Decision| matches!(d, Decision::Assign { request: r, .. } if *r == request);
        driver.log.iter().position(is_its)
    };
    assert!(order(large) < order(small));
    driver.finish();
}

#[test]
fn batch_does_not_take_the_room_that_a_large_interactive_request_waits_for() {
    let mut driver = driver();
    let allocation = Resources { cpu: 2, memory: 2 };
    driver.configure(2, FunctionSettings { allocation, ..settings() });
    // Not preemptible, so that the large one has to wait for a worker's both halves.
    arrive(&mut driver, INTERACTIVE, 8);
    let large = arrive(&mut driver, 2, 1)[0];
    let batch = arrive(&mut driver, BATCH, 2);
    let started = |driver: &Driver, request| driver.attempts.get(request).copied();
    while started(&driver, &large).is_none() {
        let active =
            driver.nth(0, Instance::is_active).expect("room is made before all have ended");
        driver.end(active, 0, End::Survives);
        for id in driver.nths(|instance| instance.doing == Doing::Starting) {
            driver.ready(id);
        }
        let early = batch.iter().filter(|request| started(&driver, request).is_some()).count();
        assert!(early == 0 || started(&driver, &large).is_some(), "batch first");
    }
    driver.finish();
    assert!(batch.iter().all(|request| started(&driver, request) == Some(1)));
}

#[test]
fn what_was_not_delivered_before_it_was_preempted_does_not_take_the_room_either() {
    let mut driver = driver();
    arrive(&mut driver, BATCH, 8);
    let request = arrive(&mut driver, INTERACTIVE, 1)[0];
    let victim = preempting(&driver)[0];
    driver.undelivered(victim, 0);
    let start = driver.nth(0, |instance| instance.doing == Doing::Starting).expect("a start");
    driver.ready(start);
    assert_eq!(driver.attempts[&request], 1, "it has the room");
    driver.finish();
}

#[test]
fn an_instance_to_be_kept_ready_does_not_take_the_room_either() {
    let mut driver = driver();
    let allocation = Resources { cpu: 2, memory: 2 };
    let (spot_cpu, preemptible, qos) = (2, true, Qos::Batch);
    let kept = FunctionSettings { min_instances: 4, spot_cpu, preemptible, qos, ..settings() };
    driver.configure(BATCH, FunctionSettings { allocation, ..kept });
    arrive(&mut driver, BATCH, 4);
    let request = arrive(&mut driver, INTERACTIVE, 1)[0];
    driver.end(preempting(&driver)[0], 0, End::Preempted);
    for id in driver.nths(|instance| instance.doing == Doing::Starting) {
        driver.ready(id);
    }
    assert_eq!(driver.attempts.get(&request), Some(&1), "it has the room");
    driver.finish();
}

#[test]
fn nothing_is_preempted_for_who_is_not_next() {
    let mut driver = driver();
    // More than can be preempted: a worker's other half is not preemptible.
    let allocation = Resources { cpu: 1, memory: 1 };
    driver.configure(8, FunctionSettings { allocation, ..settings() });
    arrive(&mut driver, 8, 4);
    arrive(&mut driver, BATCH, 4);
    driver.configure(9, FunctionSettings { allocation: allocation + allocation, ..settings() });
    arrive(&mut driver, 9, 1);
    assert_eq!(preempting(&driver).len(), 0);
    arrive(&mut driver, INTERACTIVE, 1);
    assert_eq!(preempting(&driver).len(), 0, "the room would be for the first, and too little");
    driver.finish();
}

#[test]
fn nothing_is_preempted_for_a_function_that_may_not_start_another() {
    let mut driver = driver();
    let allocation = Resources { cpu: 1, memory: 1 };
    driver.configure(INTERACTIVE, FunctionSettings { allocation, max_instances: 1, ..settings() });
    arrive(&mut driver, INTERACTIVE, 1);
    arrive(&mut driver, BATCH, 7);
    arrive(&mut driver, INTERACTIVE, 1);
    assert_eq!(preempting(&driver).len(), 0);
    driver.finish();
    assert_eq!(driver.preempted, 0);
}

#[test]
fn what_fits_no_worker_is_rejected_and_holds_nobody_up() {
    let mut driver = driver();
    let allocation = Resources { cpu: 3, memory: 3 };
    driver.configure(2, FunctionSettings { allocation, ..settings() });
    let impossible = arrive(&mut driver, 2, 1)[0];
    let batch = arrive(&mut driver, BATCH, 2);
    assert!(batch.iter().all(|request| driver.attempts.contains_key(request)));
    let rejected =
        |d: &Decision| matches!(d, Decision::Reject { request, .. } if *request == impossible);
    assert!(driver.log.iter().any(rejected));
    driver.finish();
}

#[test]
fn batch_goes_on_when_the_function_that_it_waited_for_is_deleted() {
    let mut driver = driver();
    let allocation = Resources { cpu: 2, memory: 2 };
    driver.configure(2, FunctionSettings { allocation, ..settings() });
    arrive(&mut driver, INTERACTIVE, 4);
    arrive(&mut driver, 2, 1);
    let batch = arrive(&mut driver, BATCH, 2);
    assert!(!batch.iter().any(|request| driver.attempts.contains_key(request)));
    driver.send(Event::FunctionDeleted { function: FunctionId(2) });
    arrive(&mut driver, BATCH, 0);
    assert!(batch.iter().all(|request| driver.attempts.contains_key(request)));
    driver.finish();
}

/// Under backfill what fits is let in before what does not, for ten times the duration of that, and no longer.
#[test]
fn what_fits_passes_what_does_not_within_bounds() {
    let names = PolicyNames {
        admission: "reservations".into(),
        order: "backfill".into(),
        ..PolicyNames::default()
    };
    let mut driver = Driver::new(&names, 0);
    driver.join(0, Resources { cpu: 4, memory: 4 }, 9);
    let small = FunctionSettings { allocation: Resources { cpu: 1, memory: 1 }, ..settings() };
    let large = FunctionSettings { allocation: Resources { cpu: 4, memory: 4 }, ..settings() };
    driver.configure(0, small);
    driver.configure(9, large);
    // Their means become 20 and 200 ns.
    for function in [0, 9] {
        arrive(&mut driver, function, 1);
        let active = driver.nth(0, Instance::is_active).unwrap();
        driver.end(active, 0, End::Survives);
    }
    let serving = |driver: &Driver| {
        driver.instances.values().filter(|it| it.is_active() && it.function.0 == 0).count()
    };
    arrive(&mut driver, 0, 2);
    let waits = driver.arrive(9, true);
    assert_eq!(driver.scheduler.counts().backlog, 1, "there is no room for all of a worker");
    // Its rank is behind the large one's by now.
    driver.pass(9 * 200);
    driver.arrive(0, true);
    arrive(&mut driver, 0, 0);
    assert_eq!(serving(&driver), 3, "there is room for this");
    driver.pass(10 * 200);
    let active = driver.nth(0, Instance::is_active).unwrap();
    driver.end(active, 0, End::Survives);
    driver.arrive(0, true);
    assert_eq!(serving(&driver), 2, "room is kept by now");
    while let Some(active) = driver.nth(0, |it| it.is_active() && it.function.0 == 0) {
        if driver.attempts.get(&waits).is_some_and(|attempts| *attempts > 0) {
            break;
        }
        driver.end(active, 0, End::Survives);
        arrive(&mut driver, 0, 0);
    }
    assert_eq!(driver.attempts[&waits], 1);
    driver.finish();
}
