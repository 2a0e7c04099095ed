//! Under the default policies the scheduler does what Lambda does.

mod driver;

use std::sync::mpsc;

use driver::{Driver, Instance};
use uncia_policy::cpu::{Cpu, CpuEvent};
use uncia_policy::{
    Capacity, CpuAssignment, Decision, End, Event, FunctionId, FunctionSettings, InstanceId,
    InstanceView, Pause, Policies, PolicyNames, Qos, Random, Rejection, RequestId, Resources,
    Scheduler, StopReason, Usage, View, WorkerId,
};

const SETTINGS: FunctionSettings = FunctionSettings {
    keep_alive: 1_000,
    pause_after: 50,
    pause: Some(Pause::Freeze),
    max_in_flight: 4,
    concurrency: 1,
    min_instances: 0,
    hint_instances: 0,
    max_instances: u32::MAX,
    allocation: Resources::ZERO,
    spot_cpu: 0,
    preemptible: false,
    qos: Qos::Interactive,
};
const JOINED: Event = Event::WorkerJoined {
    worker: WorkerId(0),
    capacity: Capacity { resources: Resources::UNBOUNDED, max_instances: 6 },
};

/// One instance serves a request at 0, and idles from then on.
fn idle_instance(settings: FunctionSettings) -> (Scheduler, InstanceId, Vec<Decision>) {
    let mut scheduler = Scheduler::new(Policies::default(), 0);
    let (function, request) = (FunctionId(0), RequestId(0));
    let mut out = Vec::new();
    for event in [
        JOINED,
        Event::FunctionConfigured { function, settings },
        Event::Arrival { request, function, can_wait: false },
    ] {
        scheduler.on_event(0, &event, &mut out);
    }
    let Some(&Decision::Start { instance, .. }) = out.first() else { panic!("{out:?}") };
    for event in [
        Event::InstanceReady { instance, initialization: 1 },
        Event::InvocationEnded { request, instance, end: End::Survives, usage: Usage::default() },
    ] {
        scheduler.on_event(0, &event, &mut out);
    }
    (scheduler, instance, std::mem::take(&mut out))
}

#[test]
fn an_idle_instance_is_frozen_and_removed_to_the_nanosecond() {
    let (mut scheduler, instance, decisions) = idle_instance(SETTINGS);
    assert_eq!(decisions.last(), Some(&Decision::WakeAt(SETTINGS.pause_after)));
    let mut out = Vec::new();
    scheduler.on_event(SETTINGS.pause_after - 1, &Event::Wake, &mut out);
    assert!(!out.iter().any(|d| matches!(d, Decision::Pause { .. })), "{out:?}");
    out.clear();
    scheduler.on_event(SETTINGS.pause_after, &Event::Wake, &mut out);
    assert_eq!(out[0], Decision::Pause { instance, how: Pause::Freeze });
    assert_eq!(out[1], Decision::WakeAt(SETTINGS.keep_alive));
    out.clear();
    scheduler.on_event(SETTINGS.keep_alive, &Event::Wake, &mut out);
    assert_eq!(out[0], Decision::Stop { instance, reason: StopReason::KeepAlive });
}

#[test]
fn what_runs_as_usual_is_never_paused() {
    let settings = FunctionSettings { pause: None, ..SETTINGS };
    let (mut scheduler, _, decisions) = idle_instance(settings);
    assert_eq!(decisions.last(), Some(&Decision::WakeAt(SETTINGS.keep_alive)));
    let mut out = Vec::new();
    scheduler.on_event(SETTINGS.keep_alive, &Event::Wake, &mut out);
    assert!(matches!(out[..], [Decision::Stop { .. }]), "{out:?}");
}

#[test]
fn a_change_of_settings_reaches_what_idles() {
    let function = FunctionId(0);
    let (mut scheduler, instance, _) = idle_instance(FunctionSettings { pause: None, ..SETTINGS });
    let settings = FunctionSettings { pause: Some(Pause::ScaleDown), ..SETTINGS };
    let mut out = Vec::new();
    scheduler.on_event(60, &Event::FunctionConfigured { function, settings }, &mut out);
    let how = Pause::ScaleDown;
    assert_eq!(out[0], Decision::Pause { instance, how });
    // Once paused it stays so until it is used, whatever the settings say by then.
    out.clear();
    scheduler.on_event(70, &Event::FunctionConfigured { function, settings: SETTINGS }, &mut out);
    let event = Event::Arrival { request: RequestId(1), function, can_wait: false };
    scheduler.on_event(80, &event, &mut out);
    let assign = Decision::Assign { request: RequestId(1), instance, resume: Some(how) };
    assert_eq!(out, [assign]);
}

#[test]
fn an_arrival_at_the_end_of_the_keep_alive_finds_no_instance() {
    let (mut scheduler, _, _) = idle_instance(SETTINGS);
    let mut out = Vec::new();
    let event = Event::Arrival { request: RequestId(1), function: FunctionId(0), can_wait: false };
    scheduler.on_event(SETTINGS.keep_alive, &event, &mut out);
    assert!(out.iter().any(|d| matches!(d, Decision::Stop { .. })), "{out:?}");
    assert!(out.iter().any(|d| matches!(d, Decision::Start { .. })), "{out:?}");
}

/// One worker for six instances, and these functions.
fn driver(names: &PolicyNames, functions: &[FunctionSettings]) -> Driver {
    let mut driver = Driver::new(names, 0);
    driver.join(0, Resources::UNBOUNDED, 6);
    for (function, settings) in functions.iter().enumerate() {
        driver.configure(function as u64, *settings);
    }
    driver
}

/// Readies whatever starts.
fn ready_all(driver: &mut Driver) {
    for id in driver.nths(|instance| instance.doing == driver::Doing::Starting) {
        driver.ready(id);
    }
}

/// How many of `requests` at once, that each take no time, are the first of their instance, when
/// one instance is ready before the others.
fn cold_starts(binding: &str, requests: u64) -> usize {
    let names = PolicyNames { binding: binding.into(), ..PolicyNames::default() };
    let mut driver = driver(&names, &[SETTINGS]);
    for _ in 0..requests {
        driver.arrive(0, false);
    }
    let mut served = 0;
    while let Some(first) = driver.nth(0, |instance| instance.doing == driver::Doing::Starting) {
        driver.ready(first);
        served += 1;
        while let Some(active) = driver.nth(0, Instance::is_active) {
            driver.end(active, 0, End::Survives);
        }
        if driver.waiting.is_empty() {
            break;
        }
    }
    served
}

#[test]
fn binding_decides_whether_a_burst_shares_what_is_ready_first() {
    assert_eq!(cold_starts("early", 4), 4);
    assert_eq!(cold_starts("late", 4), 1);
}

#[test]
fn what_exceeds_a_limit_is_rejected_or_waits() {
    let mut driver = driver(&PolicyNames::default(), &[SETTINGS, SETTINGS]);
    let events: Vec<RequestId> = (0..6).map(|_| driver.arrive(0, true)).collect();
    let rejected = driver.arrive(0, false);
    assert_eq!(driver.rejected[&rejected], Rejection::FunctionLimit);
    driver.arrive(1, false);
    driver.arrive(1, false);
    let rejected = driver.arrive(1, false);
    assert_eq!(driver.rejected[&rejected], Rejection::WorkerLimit);
    assert_eq!((driver.scheduler.in_flight(), driver.scheduler.counts().backlog), (6, 2));
    driver.finish();
    assert!(events.iter().all(|event| driver.attempts[event] == 1));
}

#[test]
fn nothing_is_let_in_where_nothing_may_be_until_it_may() {
    let none = FunctionSettings { max_in_flight: 0, ..SETTINGS };
    let mut driver = driver(&PolicyNames::default(), &[none]);
    let event = driver.arrive(0, true);
    driver.pass(1_000_000);
    assert_eq!((driver.started, driver.waiting.len()), (0, 1));
    driver.configure(0, SETTINGS);
    driver.finish();
    assert_eq!(driver.attempts[&event], 1);
}

/// Events that wait for the whole platform have their turn, however many requests of another function
/// come in meanwhile.
#[test]
fn what_waits_for_the_platform_does_not_starve() {
    let greedy = FunctionSettings { max_in_flight: 6, ..SETTINGS };
    let mut driver = driver(&PolicyNames::default(), &[greedy, SETTINGS]);
    for _ in 0..6 {
        driver.arrive(0, true);
    }
    let event = driver.arrive(1, true);
    for _ in 0..3 {
        for can_wait in [true, false] {
            driver.arrive(0, can_wait);
        }
        ready_all(&mut driver);
        let active = driver.nth(0, Instance::is_active).expect("one that serves");
        driver.end(active, 0, End::Survives);
    }
    ready_all(&mut driver);
    assert_eq!(driver.attempts.get(&event), Some(&1));
}

/// A start that needs much room has its turn, however many small ones come in meanwhile.
#[test]
fn a_large_start_does_not_starve() {
    let room = |memory| FunctionSettings { allocation: Resources { cpu: 0, memory }, ..SETTINGS };
    let mut driver = Driver::new(&PolicyNames::default(), 0);
    driver.join(0, Resources { cpu: 0, memory: 4 }, 99);
    driver.configure(0, FunctionSettings { max_in_flight: 99, ..room(1) });
    driver.configure(1, room(4));
    for _ in 0..4 {
        driver.arrive(0, false);
    }
    let large = driver.arrive(1, false);
    for _ in 0..4 {
        driver.arrive(0, false);
        ready_all(&mut driver);
        let active = driver.nth(0, Instance::is_active).expect("one that serves");
        driver.end(active, 0, End::Gone);
    }
    ready_all(&mut driver);
    assert_eq!(driver.attempts.get(&large), Some(&1));
    driver.finish();
}

#[test]
fn what_no_worker_can_ever_hold_is_rejected() {
    let allocation = Resources { cpu: 0, memory: 8 };
    let mut driver = Driver::new(&PolicyNames::default(), 0);
    driver.join(0, Resources { cpu: 1, memory: 4 }, 99);
    driver.configure(0, FunctionSettings { allocation, ..SETTINGS });
    let request = driver.arrive(0, false);
    assert_eq!(driver.rejected[&request], Rejection::TooLarge);
}

#[test]
fn requests_of_an_instance_that_is_gone_are_served_by_another() {
    let mut driver = driver(&PolicyNames::default(), &[SETTINGS]);
    let first = driver.arrive(0, false);
    driver.gone(driver.starts[0]); // While it starts.
    driver.ready(driver.starts[1]);
    driver.gone(driver.starts[1]); // While it serves.
    let later = driver.arrive(0, false);
    driver.ready(driver.starts[2]);
    assert_eq!((driver.attempts[&first], driver.attempts.get(&later)), (2, None));
    driver.finish();
    assert_eq!((driver.attempts[&first], driver.attempts[&later]), (2, 1));
}

#[test]
fn requests_of_a_worker_that_is_gone_are_served_by_another() {
    let mut driver = driver(&PolicyNames::default(), &[SETTINGS]);
    let requests: Vec<RequestId> = (0..3).map(|_| driver.arrive(0, false)).collect();
    driver.ready(driver.starts[0]);
    driver.lose_worker(WorkerId(0));
    assert_eq!((driver.scheduler.instances(), driver.scheduler.in_flight()), (0, 3));
    driver.join(1, Resources::UNBOUNDED, 2);
    driver.finish();
    let attempts: Vec<u32> = requests.iter().map(|request| driver.attempts[request]).collect();
    assert_eq!(attempts, [2, 1, 1]);
}

#[test]
fn a_drained_worker_ends_what_it_has_and_takes_nothing() {
    let mut driver = driver(&PolicyNames::default(), &[SETTINGS]);
    let busy = driver.arrive(0, false);
    let idle = driver.arrive(0, false);
    ready_all(&mut driver);
    let idle_one = driver.starts[1];
    driver.end(idle_one, 0, End::Survives);
    driver.drain_worker(WorkerId(0));
    assert!(driver.answered.contains(&idle) && !driver.answered.contains(&busy));
    let stop = Decision::Stop { instance: idle_one, reason: StopReason::Drained };
    assert!(driver.log.contains(&stop), "{:?}", driver.log);
    // What comes now goes elsewhere, and nowhere while there is nobody else.
    let refused = driver.arrive(0, false);
    assert!(driver.rejected.contains_key(&refused));
    driver.join(1, Resources::UNBOUNDED, 2);
    let later = driver.arrive(0, false);
    let starts = driver.starts.clone();
    assert_eq!(driver.instances[starts.last().unwrap()].worker, WorkerId(1));
    driver.end(starts[0], 0, End::Survives);
    let stop = Decision::Stop { instance: starts[0], reason: StopReason::Drained };
    assert!(driver.log.contains(&stop), "{:?}", driver.log);
    driver.finish();
    assert!(driver.answered.contains(&busy) && driver.answered.contains(&later));
}

#[test]
fn what_waits_for_room_waits_on_when_the_last_worker_drains() {
    let settings = FunctionSettings {
        allocation: Resources { cpu: 1, memory: 1 },
        max_in_flight: 99,
        ..SETTINGS
    };
    let mut driver = Driver::new(&PolicyNames::default(), 0);
    let room = Resources { cpu: 1, memory: 1 };
    driver.join(0, room, 9);
    driver.configure(0, settings);
    let requests: Vec<RequestId> = (0..3).map(|_| driver.arrive(0, true)).collect();
    driver.drain_worker(WorkerId(0));
    assert!(driver.rejected.is_empty(), "{:?}", driver.rejected);
    driver.join(1, room, 9);
    driver.finish();
    assert!(requests.iter().all(|request| driver.answered.contains(request)));
}

#[test]
fn an_instance_serves_as_many_requests_as_its_concurrency() {
    let settings = FunctionSettings { concurrency: 3, max_in_flight: 99, ..SETTINGS };
    let mut driver = driver(&PolicyNames::default(), &[settings]);
    driver.join(0, Resources::UNBOUNDED, 99);
    for _ in 0..5 {
        driver.arrive(0, false);
    }
    assert_eq!(driver.started, 2);
    ready_all(&mut driver);
    driver.arrive(0, false);
    assert_eq!((driver.started, driver.waiting.len()), (2, 0));
    driver.arrive(0, false);
    assert_eq!((driver.started, driver.waiting.len()), (3, 1));
}

#[test]
fn instances_are_kept_ready_and_started_anew() {
    let settings = FunctionSettings { min_instances: 2, ..SETTINGS };
    let mut driver = driver(&PolicyNames::default(), &[settings]);
    ready_all(&mut driver);
    driver.pass(1_000_000);
    assert_eq!((driver.started, driver.nths(Instance::is_idle).len()), (2, 2));
    let request = driver.arrive(0, false);
    assert_eq!(driver.attempts[&request], 1);
    let active = driver.nth(0, Instance::is_active).unwrap();
    driver.end(active, 0, End::Gone);
    ready_all(&mut driver);
    assert_eq!((driver.started, driver.nths(Instance::is_idle).len()), (3, 2));
    driver.configure(0, SETTINGS);
    driver.pass(1_000);
    assert_eq!(driver.nths(Instance::is_idle).len(), 0);
}

/// Nobody waits for it, so that it is not started over and over.
#[test]
fn an_instance_that_cannot_start_is_not_kept_ready() {
    let settings = FunctionSettings { min_instances: 1, ..SETTINGS };
    let mut driver = driver(&PolicyNames::default(), &[settings]);
    driver.fail(driver.starts[0]);
    driver.pass(1_000_000);
    assert_eq!((driver.started, driver.instances.len()), (1, 0));
    driver.update(0);
    driver.ready(driver.starts[1]);
    driver.gone(driver.starts[1]);
    assert_eq!((driver.started, driver.instances.len()), (2, 0));
    driver.arrive(0, false);
    assert_eq!(driver.started, 3);
}

#[test]
fn a_function_has_no_more_instances_than_it_may() {
    let settings = FunctionSettings { max_instances: 1, ..SETTINGS };
    let mut driver = driver(&PolicyNames::default(), &[settings]);
    driver.arrive(0, false);
    driver.arrive(0, false);
    assert_eq!(driver.started, 1);
    driver.finish();
    assert_eq!((driver.started, driver.answered.len()), (1, 2));
}

#[test]
fn a_full_worker_evicts_the_longest_idle_of_any_function() {
    let mut driver = driver(&PolicyNames::default(), &[SETTINGS; 7]);
    for function in 0..6 {
        driver.arrive(function, false);
        ready_all(&mut driver);
    }
    for index in [3, 1, 0, 2, 4, 5] {
        driver.end(driver.starts[index], 0, End::Survives);
    }
    driver.arrive(6, false);
    let evicted = Decision::Stop { instance: driver.starts[3], reason: StopReason::Evicted };
    assert!(driver.log.contains(&evicted), "{:?}", driver.log);
}

#[test]
fn a_worker_that_shrinks_evicts_what_it_has_no_room_for() {
    let mut driver = driver(&PolicyNames::default(), &[SETTINGS; 4]);
    for function in 0..4 {
        driver.arrive(function, false);
        ready_all(&mut driver);
    }
    for index in 0..3 {
        driver.end(driver.starts[index], 0, End::Survives);
    }
    driver.join(0, Resources::UNBOUNDED, 2);
    let live = driver.nths(|instance| instance.doing == driver::Doing::Running);
    assert_eq!(live, driver.starts[2..]);
}

/// A backlog of events leaves a tenth of the places to requests that cannot wait, and these do not
/// wait behind it.
#[test]
fn a_backlog_of_events_holds_up_nobody_who_cannot_wait() {
    let many = FunctionSettings { max_in_flight: 99, ..SETTINGS };
    let mut driver = Driver::new(&PolicyNames::default(), 0);
    driver.join(0, Resources::UNBOUNDED, 10);
    driver.configure(0, many);
    driver.configure(1, many);
    for _ in 0..50 {
        driver.arrive(0, true);
    }
    ready_all(&mut driver);
    assert_eq!((driver.scheduler.in_flight(), driver.scheduler.counts().backlog), (9, 41));
    let request = driver.arrive(1, false);
    ready_all(&mut driver);
    assert_eq!(driver.attempts.get(&request), Some(&1));
    let rejected = driver.arrive(1, false);
    assert_eq!(driver.rejected[&rejected], Rejection::WorkerLimit);
    // The place that the request leaves is for the next that cannot wait.
    let of_it = |instance: &Instance| instance.is_active() && instance.function == FunctionId(1);
    let active = driver.nth(0, of_it).expect("one that serves");
    driver.end(active, 0, End::Survives);
    assert_eq!((driver.scheduler.in_flight(), driver.scheduler.counts().backlog), (9, 41));
    let request = driver.arrive(1, false);
    assert_eq!(driver.attempts.get(&request), Some(&1));
    driver.finish();
}

/// Instances that are kept ready leave a tenth of the places to functions that have none.
#[test]
fn kept_instances_leave_room_for_others() {
    let kept = FunctionSettings { min_instances: 10, max_in_flight: 99, ..SETTINGS };
    let mut driver = Driver::new(&PolicyNames::default(), 0);
    driver.join(0, Resources::UNBOUNDED, 10);
    driver.configure(0, kept);
    driver.configure(1, SETTINGS);
    ready_all(&mut driver);
    let request = driver.arrive(1, false);
    ready_all(&mut driver);
    assert_eq!(driver.attempts.get(&request), Some(&1));
}

#[test]
fn an_event_about_an_instance_that_never_was_is_none() {
    let mut driver = Driver::new(&PolicyNames::default(), 0);
    driver.join(0, Resources::UNBOUNDED, 6);
    driver.configure(0, SETTINGS);
    driver.arrive(0, false);
    let first = driver.starts[0];
    driver.fail(first);
    for instance in [InstanceId(0), InstanceId(1), InstanceId(u64::MAX), first] {
        driver.send(Event::InstanceReady { instance, initialization: 1 });
        driver.send(Event::Sampled { instance, cpu: 1, memory: 1 });
        driver.send(Event::InstanceGone { instance });
    }
    driver.finish();
}

/// Records what it is asked.
struct Recorder(mpsc::Sender<(InstanceId, CpuEvent)>);

impl Cpu for Recorder {
    fn assign(
        &mut self,
        _: View<'_>,
        _: &mut Random,
        instance: &InstanceView<'_>,
        event: CpuEvent,
        _: &mut Vec<(InstanceId, CpuAssignment)>,
    ) {
        self.0.send((instance.id(), event)).expect("somebody receives it");
    }
}

#[test]
fn the_end_of_an_instance_is_reported_once_to_the_policy_for_cpus() {
    let (sender, receiver) = mpsc::channel();
    let mut driver = Driver::new(&PolicyNames::default(), 0);
    let policies = Policies { cpu: Box::new(Recorder(sender)), ..Policies::default() };
    driver.scheduler = Scheduler::new(policies, 0);
    driver.join(0, Resources::UNBOUNDED, 6);
    driver.configure(0, SETTINGS);
    for _ in 0..4 {
        driver.arrive(0, true);
    }
    let instances = driver.nths(|_| true);
    driver.fail(instances[0]);
    instances[1..].iter().for_each(|id| driver.ready(*id));
    driver.end(instances[1], 0, End::Gone);
    driver.end(instances[2], 0, End::Survives);
    driver.gone(instances[3]);
    // Stopped for having idled, and gone after that.
    driver.finish();
    let mut gone: Vec<_> =
        receiver.try_iter().filter(|(_, event)| *event == CpuEvent::Gone).collect();
    gone.sort_unstable_by_key(|(id, _)| *id);
    let started = driver.starts.iter().map(|id| (*id, CpuEvent::Gone));
    assert_eq!(gone, started.collect::<Vec<_>>());
}
