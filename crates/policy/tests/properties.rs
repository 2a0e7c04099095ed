//! Whatever happens, in whatever order, the scheduler keeps its promises. A driver with a virtual
//! clock and no instances at all carries out what it decides.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use uncia_policy::{
    Capacity, Decision, End, Event, FunctionId, FunctionSettings, InstanceId, LateBinding, Nanos,
    Pause, Policies, Qos, Rejection, RequestId, Resources, Scheduler, Usage, WorkerId,
};

const WORKER_LIMIT: u32 = 6;
const FUNCTIONS: u64 = 3;
const SETTINGS: FunctionSettings = FunctionSettings {
    keep_alive: 1_000,
    pause_after: 50,
    pause: Some(Pause::Freeze),
    max_in_flight: 4,
    concurrency: 1,
    min_instances: 0,
    max_instances: u32::MAX,
    allocation: Resources::ZERO,
    spot_cpu: 0,
    preemptible: false,
    qos: Qos::Interactive,
};
const JOINED: Event = Event::WorkerJoined {
    worker: WorkerId(0),
    capacity: Capacity { resources: Resources::UNBOUNDED, max_instances: WORKER_LIMIT },
};

/// How each function's instances spend their keep-alive.
fn pause(function: FunctionId) -> Option<Pause> {
    [Some(Pause::Freeze), Some(Pause::ScaleDown), None][function.0 as usize]
}

/// What a driver may do next; numbers choose among what is possible.
#[derive(Debug, Clone)]
enum Step {
    Arrive(u64),
    Ready(usize),
    Fail(usize),
    Done(usize, bool),
    Undelivered(usize),
    Exit(usize),
    Stopped(usize),
    Pass(Nanos),
    Update(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..FUNCTIONS).prop_map(Step::Arrive),
        5 => any::<usize>().prop_map(Step::Ready),
        1 => any::<usize>().prop_map(Step::Fail),
        5 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(n, ok)| Step::Done(n, ok)),
        1 => any::<usize>().prop_map(Step::Undelivered),
        1 => any::<usize>().prop_map(Step::Exit),
        3 => any::<usize>().prop_map(Step::Stopped),
        4 => (0..400u64).prop_map(Step::Pass),
        1 => (0..FUNCTIONS).prop_map(Step::Update),
    ]
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Starting,
    Idle { paused: Option<Pause>, since: Nanos },
    Busy(RequestId),
    Stopping,
}

struct Driver {
    scheduler: Scheduler,
    now: Nanos,
    wake_at: Option<Nanos>,
    next_request: u64,
    instances: BTreeMap<InstanceId, (FunctionId, State)>,
    waiting: BTreeMap<RequestId, FunctionId>,
    answered: BTreeSet<RequestId>,
}

impl Driver {
    fn new(late: bool) -> Self {
        let mut policies = Policies::default();
        if late {
            policies.binding = Box::new(LateBinding);
        }
        let mut driver = Self {
            scheduler: Scheduler::new(policies, 0),
            now: 0,
            wake_at: None,
            next_request: 0,
            instances: BTreeMap::new(),
            waiting: BTreeMap::new(),
            answered: BTreeSet::new(),
        };
        driver.tell(JOINED);
        for function in (0..FUNCTIONS).map(FunctionId) {
            let settings = FunctionSettings { pause: pause(function), ..SETTINGS };
            driver.tell(Event::FunctionConfigured { function, settings });
        }
        driver
    }

    fn tell(&mut self, event: Event) {
        let mut decisions = Vec::new();
        self.scheduler.on_event(self.now, &event, &mut decisions);
        for decision in decisions {
            self.carry_out(decision);
        }
        assert_eq!(self.scheduler.instances(), self.instances.len());
        let idle = self.count(|state| matches!(state, State::Idle { .. }));
        assert_eq!(self.scheduler.timers(), idle, "one timer per idle instance");
        assert!(idle == 0 || self.wake_at.is_some(), "somebody wakes it for the idle ones");
        let running = self.count(|state| matches!(state, State::Busy(_)));
        assert_eq!(self.scheduler.in_flight() as usize, self.waiting.len() + running);
        assert!(self.scheduler.in_flight() <= WORKER_LIMIT);
    }

    fn count(&self, of: impl Fn(&State) -> bool) -> usize {
        self.instances.values().filter(|(_, state)| of(state)).count()
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Start { instance, function, .. } => {
                let old = self.instances.insert(instance, (function, State::Starting));
                assert_eq!(old, None, "an instance's name is used once");
            }
            Decision::Assign { request, instance, resume } => {
                let function = self.waiting.remove(&request).expect("a request that waits");
                let (of, state) = self.instances.get_mut(&instance).expect("a live instance");
                assert_eq!(*of, function, "an instance serves its own function");
                match *state {
                    State::Idle { paused, since } => {
                        assert_eq!(paused, resume, "what is paused is resumed first");
                        assert!(self.now < since + SETTINGS.keep_alive, "kept too long");
                    }
                    // It has just become ready, or free.
                    State::Starting | State::Busy(_) => assert_eq!(resume, None),
                    State::Stopping => panic!("{instance:?} is being stopped"),
                }
                *state = State::Busy(request);
            }
            Decision::Reject { request, reason } => {
                let function = self.waiting.remove(&request).expect("a request that waits");
                assert!(self.answered.insert(request));
                if reason == Rejection::FunctionLimit {
                    let mine = self
                        .instances
                        .values()
                        .filter(|(of, state)| *of == function && matches!(state, State::Busy(_)));
                    let waiting = self.waiting.values().filter(|of| **of == function);
                    assert_eq!(mine.count() + waiting.count(), SETTINGS.max_in_flight as usize);
                }
            }
            Decision::Pause { instance, how } => {
                let (function, state) = self.instances.get_mut(&instance).unwrap();
                assert_eq!(Some(how), pause(*function), "as its function has it");
                match state {
                    State::Idle { paused, since } => {
                        assert_eq!(paused.replace(how), None, "paused once");
                        assert!(self.now >= *since + SETTINGS.pause_after, "paused too early");
                    }
                    other => panic!("{other:?} is not to be paused"),
                }
            }
            Decision::Stop { instance, .. } => {
                let state = &mut self.instances.get_mut(&instance).unwrap().1;
                let old = std::mem::replace(state, State::Stopping);
                assert_ne!(old, State::Stopping, "it is stopped once");
            }
            Decision::WakeAt(at) => self.wake_at = Some(at),
            other => panic!("{other:?} was not asked for"),
        }
    }

    fn nth(&self, n: usize, of: impl Fn(&State) -> bool) -> Option<InstanceId> {
        let found: Vec<InstanceId> =
            self.instances.iter().filter(|(_, (_, s))| of(s)).map(|(id, _)| *id).collect();
        (!found.is_empty()).then(|| found[n % found.len()])
    }

    /// Lets time pass, with the wake-ups that were asked for.
    fn pass(&mut self, time: Nanos) {
        let until = self.now + time;
        while let Some(at) = self.wake_at.filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.wake_at = None;
            self.tell(Event::Wake);
        }
        self.now = until;
    }

    fn settle(&mut self, instance: InstanceId) {
        // What it did not decide otherwise is idle now.
        if let Some((_, state)) = self.instances.get_mut(&instance) {
            *state = State::Idle { paused: None, since: self.now };
        }
    }

    fn step(&mut self, step: &Step) {
        let starting = |state: &State| *state == State::Starting;
        let busy = |state: &State| matches!(state, State::Busy(_));
        match *step {
            Step::Arrive(function) => {
                let request = RequestId(self.next_request);
                self.next_request += 1;
                self.waiting.insert(request, FunctionId(function));
                self.tell(Event::Arrival {
                    request,
                    function: FunctionId(function),
                    can_wait: false,
                });
            }
            Step::Ready(n) => {
                if let Some(instance) = self.nth(n, starting) {
                    self.settle(instance);
                    self.tell(Event::InstanceReady { instance, initialization: 1 });
                }
            }
            Step::Fail(n) => {
                if let Some(instance) = self.nth(n, starting) {
                    self.instances.remove(&instance);
                    self.tell(Event::InstanceFailed { instance });
                }
            }
            Step::Done(n, survives) => {
                let Some(instance) = self.nth(n, busy) else { return };
                let State::Busy(request) = self.instances[&instance].1 else { return };
                assert!(self.answered.insert(request), "answered once");
                if survives {
                    self.settle(instance);
                } else {
                    self.instances.remove(&instance);
                }
                let end = if survives { End::Survives } else { End::Gone };
                self.tell(Event::InvocationEnded {
                    request,
                    instance,
                    end,
                    usage: Usage::default(),
                });
            }
            Step::Undelivered(n) => {
                let Some(instance) = self.nth(n, busy) else { return };
                if let Some((function, State::Busy(request))) = self.instances.remove(&instance) {
                    self.waiting.insert(request, function);
                    self.tell(Event::Undelivered { request, instance });
                }
            }
            Step::Exit(n) => {
                if let Some(instance) = self.nth(n, |s| matches!(s, State::Idle { .. })) {
                    self.instances.remove(&instance);
                    self.tell(Event::InstanceGone { instance });
                }
            }
            Step::Stopped(n) => {
                if let Some(instance) = self.nth(n, |s| *s == State::Stopping) {
                    self.instances.remove(&instance);
                    self.tell(Event::InstanceGone { instance });
                }
            }
            Step::Pass(time) => self.pass(time),
            Step::Update(function) => {
                self.tell(Event::FunctionUpdated { function: FunctionId(function) });
            }
        }
    }

    /// Ends everything that goes on, without failures, until nothing is left to do.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            if self.waiting.is_empty() && self.instances.is_empty() {
                return;
            }
            self.step(&Step::Ready(0));
            self.step(&Step::Done(0, true));
            self.step(&Step::Stopped(0));
            self.pass(100);
        }
        panic!("it does not come to rest: {:?}, {:?}", self.waiting, self.instances);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn promises_are_kept_and_every_request_is_answered(
        steps in prop::collection::vec(step(), 0..200),
        late in any::<bool>(),
    ) {
        let mut driver = Driver::new(late);
        for step in &steps {
            driver.step(step);
        }
        driver.finish();
        prop_assert_eq!(driver.answered.len() as u64, driver.next_request);
        prop_assert_eq!(driver.scheduler.timers(), 0);
    }

    #[test]
    fn the_same_events_give_the_same_decisions(steps in prop::collection::vec(step(), 0..80)) {
        let run = || {
            let mut driver = Driver::new(false);
            for step in &steps {
                driver.step(step);
            }
            (driver.instances, driver.waiting, driver.answered)
        };
        prop_assert_eq!(run(), run());
    }
}

/// One instance serves a request at 0, and idles from then on.
fn idle_instance(settings: FunctionSettings) -> (Scheduler, Vec<Decision>) {
    let mut scheduler = Scheduler::new(Policies::default(), 0);
    let (function, request, instance) = (FunctionId(0), RequestId(0), InstanceId(1));
    let mut out = Vec::new();
    for event in [
        JOINED,
        Event::FunctionConfigured { function, settings },
        Event::Arrival { request, function, can_wait: false },
        Event::InstanceReady { instance, initialization: 1 },
        Event::InvocationEnded { request, instance, end: End::Survives, usage: Usage::default() },
    ] {
        scheduler.on_event(0, &event, &mut out);
    }
    (scheduler, std::mem::take(&mut out))
}

#[test]
fn an_idle_instance_is_frozen_and_removed_to_the_nanosecond() {
    let (mut scheduler, decisions) = idle_instance(SETTINGS);
    assert_eq!(decisions.last(), Some(&Decision::WakeAt(SETTINGS.pause_after)));
    let mut out = Vec::new();
    scheduler.on_event(SETTINGS.pause_after - 1, &Event::Wake, &mut out);
    assert!(!out.iter().any(|d| matches!(d, Decision::Pause { .. })), "{out:?}");
    out.clear();
    scheduler.on_event(SETTINGS.pause_after, &Event::Wake, &mut out);
    assert_eq!(out[0], Decision::Pause { instance: InstanceId(1), how: Pause::Freeze });
    assert_eq!(out[1], Decision::WakeAt(SETTINGS.keep_alive));
    out.clear();
    scheduler.on_event(SETTINGS.keep_alive, &Event::Wake, &mut out);
    assert!(matches!(out[0], Decision::Stop { instance: InstanceId(1), .. }), "{out:?}");
}

#[test]
fn what_runs_as_usual_is_never_paused() {
    let settings = FunctionSettings { pause: None, ..SETTINGS };
    let (mut scheduler, decisions) = idle_instance(settings);
    assert_eq!(decisions.last(), Some(&Decision::WakeAt(SETTINGS.keep_alive)));
    let mut out = Vec::new();
    scheduler.on_event(SETTINGS.keep_alive, &Event::Wake, &mut out);
    assert!(matches!(out[..], [Decision::Stop { .. }]), "{out:?}");
}

#[test]
fn a_change_of_settings_reaches_what_idles() {
    let function = FunctionId(0);
    let (mut scheduler, _) = idle_instance(FunctionSettings { pause: None, ..SETTINGS });
    let settings = FunctionSettings { pause: Some(Pause::ScaleDown), ..SETTINGS };
    let mut out = Vec::new();
    scheduler.on_event(60, &Event::FunctionConfigured { function, settings }, &mut out);
    let how = Pause::ScaleDown;
    assert_eq!(out[0], Decision::Pause { instance: InstanceId(1), how });
    // Once paused it stays so until it is used, whatever the settings say by then.
    out.clear();
    scheduler.on_event(70, &Event::FunctionConfigured { function, settings: SETTINGS }, &mut out);
    let event = Event::Arrival { request: RequestId(1), function, can_wait: false };
    scheduler.on_event(80, &event, &mut out);
    let assign =
        Decision::Assign { request: RequestId(1), instance: InstanceId(1), resume: Some(how) };
    assert_eq!(out, [assign]);
}

#[test]
fn an_arrival_at_the_end_of_the_keep_alive_finds_no_instance() {
    let (mut scheduler, _) = idle_instance(SETTINGS);
    let mut out = Vec::new();
    let event = Event::Arrival { request: RequestId(1), function: FunctionId(0), can_wait: false };
    scheduler.on_event(SETTINGS.keep_alive, &event, &mut out);
    assert!(out.iter().any(|d| matches!(d, Decision::Stop { .. })), "{out:?}");
    assert!(out.iter().any(|d| matches!(d, Decision::Start { .. })), "{out:?}");
}

/// How many of `requests` at once, that each take no time, are the first of their instance, when
/// one instance is ready before the others.
fn cold_starts(late: bool, requests: u64) -> usize {
    let mut driver = Driver::new(late);
    for _ in 0..requests {
        driver.step(&Step::Arrive(0));
    }
    let mut served = BTreeSet::new();
    while let Some(first) = driver.nth(0, |state| *state == State::Starting) {
        driver.step(&Step::Ready(0));
        served.insert(first);
        while driver.count(|state| matches!(state, State::Busy(_))) > 0 {
            driver.step(&Step::Done(0, true));
        }
        if driver.waiting.is_empty() {
            break;
        }
    }
    served.len()
}

#[test]
fn binding_decides_whether_a_burst_shares_what_is_ready_first() {
    assert_eq!(cold_starts(false, 4), 4);
    assert_eq!(cold_starts(true, 4), 1);
}
