//! The dispatcher on a host without processes, in virtual time: whatever starts, answers, dies or
//! is late, in whatever order, each request ends exactly once and nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use uncia_clock::Moment;
use uncia_policy::{CpuAssignment, Policies, Resources};
use uncia_record::Instance as InstanceRow;

use super::host::{InstanceHost, Log, OnCommit, RunningInstance, Started};
use super::{Answer, Answered, Dispatcher, QueueFull, Submission};
use crate::config::Config;
use crate::function::{Configuration, Function, Overrides};
use crate::instance::{InstanceSpec, Outcome, Phase, Reply, Request, StartError, Usage};
use crate::meterlog::{AcceptedEvent, EventUpdate, LogError, Recorded, WaitingEvent};
use crate::store::Registry;

/// Chooses what happens and when; one seed, one course of events.
#[derive(Clone)]
struct Dice(Arc<Mutex<SmallRng>>);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))))
    }

    /// True once in `sides` throws.
    fn once_in(&self, sides: u32) -> bool {
        self.0.lock().unwrap().random_range(0..sides) == 0
    }

    async fn pass(&self, up_to_us: u64) {
        let us = self.0.lock().unwrap().random_range(0..=up_to_us);
        tokio::time::sleep(Duration::from_micros(us)).await;
    }
}

/// Starts instances that are nothing but a flag.
#[derive(Clone)]
struct FakeHost {
    dice: Dice,
    /// Nothing goes wrong.
    calm: bool,
    alive: Arc<Mutex<BTreeMap<String, Arc<watch::Sender<bool>>>>>,
    invocations: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
struct FakeInstance {
    id: String,
    host: FakeHost,
    alive: Arc<watch::Sender<bool>>,
}

impl FakeHost {
    fn new(seed: u64, calm: bool) -> Self {
        Self { dice: Dice::new(seed), calm, alive: Arc::default(), invocations: Arc::default() }
    }

    fn kill_all(&self) {
        for alive in std::mem::take(&mut *self.alive.lock().unwrap()).values() {
            alive.send_replace(false);
        }
    }

    fn unlucky(&self, sides: u32) -> bool {
        !self.calm && self.dice.once_in(sides)
    }
}

impl InstanceHost for FakeHost {
    type Instance = FakeInstance;

    async fn start(&self, spec: InstanceSpec) -> Started<FakeInstance> {
        let began = Moment::now();
        self.dice.pass(5_000).await;
        let failed = self.unlucky(10).then(|| match self.dice.once_in(2) {
            true => StartError::Sandbox("no luck".to_owned()),
            false => StartError::Exited("exit status 1".to_owned()),
        });
        assert!(!self.unlucky(60), "a start that panics");
        let result = match failed {
            Some(error) => Err(error),
            None => {
                let alive = Arc::new(watch::Sender::new(true));
                self.alive.lock().unwrap().insert(spec.id.clone(), alive.clone());
                Ok(FakeInstance { id: spec.id, host: self.clone(), alive })
            }
        };
        let end = began.plus(1_000);
        Started {
            result,
            phases: vec![Phase { name: "runtime", start: began, end }],
            initialization_ns: 1_000,
            log_tail: Bytes::new(),
        }
    }
}

impl FakeInstance {
    fn end(&self) {
        self.alive.send_replace(false);
        self.host.alive.lock().unwrap().remove(&self.id);
    }

    fn reply(&self, outcome: Outcome, delivered: bool) -> Reply {
        let started = Moment::now();
        Reply {
            outcome,
            delivered,
            started,
            ended: started.plus(1_000),
            usage: Usage::default(),
            log_tail: Bytes::new(),
        }
    }
}

impl RunningInstance for FakeInstance {
    async fn invoke(&self, request: Request) -> Reply {
        let exited = || Outcome::Exited("exit status 1".to_owned());
        if !*self.alive.borrow() || self.host.unlucky(20) {
            self.end();
            return self.reply(exited(), false);
        }
        self.host.invocations.lock().unwrap().push(request.request_id);
        tokio::select! {
            () = self.exited() => return self.reply(exited(), true),
            () = self.host.dice.pass(3_000) => {}
        }
        if self.host.unlucky(15) {
            self.end();
            return self
                .reply(if self.host.dice.once_in(2) { Outcome::Timeout } else { exited() }, true);
        }
        if self.host.unlucky(10) {
            // It exits after its answer, sooner or later.
            let (this, dice) = (self.clone(), self.host.dice.clone());
            tokio::spawn(async move {
                dice.pass(20).await;
                this.end();
            });
        }
        if self.host.unlucky(10) {
            return self.reply(Outcome::FunctionError(Bytes::from_static(b"{}")), true);
        }
        self.reply(Outcome::Ok(request.payload), true)
    }

    async fn freeze(&self) -> std::io::Result<()> {
        self.host.dice.pass(200).await;
        if *self.alive.borrow() { Ok(()) } else { Err(std::io::Error::other("it has ended")) }
    }

    async fn thaw(&self) -> std::io::Result<()> {
        self.freeze().await
    }

    fn scale_down(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn scale_up(&self) -> std::io::Result<()> {
        if self.host.unlucky(30) { Err(std::io::Error::other("it has ended")) } else { Ok(()) }
    }

    fn set_cpu(&self, _assignment: CpuAssignment) -> std::io::Result<()> {
        Ok(())
    }

    fn idle_cpu(&self) -> Option<i64> {
        Some(0)
    }

    async fn stop(&self, _grace: Duration) {
        self.host.dice.pass(500).await;
        self.end();
    }

    async fn exited(&self) {
        // The sender is in `self`.
        let _ = self.alive.subscribe().wait_for(|alive| !alive).await;
    }
}

/// A log in memory that commits after a while, or fails to.
#[derive(Clone)]
struct FakeLog {
    dice: Dice,
    calm: bool,
    state: Arc<Mutex<LogState>>,
}

#[derive(Default)]
struct LogState {
    rows: Vec<uncia_record::Invocation>,
    instances: BTreeMap<String, InstanceRow>,
    events: BTreeMap<i64, AcceptedEvent>,
}

impl Log for FakeLog {
    fn invocation(&self, recorded: Recorded, on_commit: OnCommit) {
        let log = self.clone();
        tokio::spawn(async move {
            log.dice.pass(300).await;
            if !log.calm && log.dice.once_in(40) {
                return on_commit(Err(LogError::Closed));
            }
            {
                let mut state = log.state.lock().unwrap();
                match recorded.event {
                    Some(EventUpdate::Done { id }) => {
                        let known = state.events.remove(&id);
                        assert!(known.is_some(), "event {id} is done twice");
                    }
                    Some(EventUpdate::Attempted { id, attempt }) => {
                        state.events.get_mut(&id).unwrap().attempt = attempt;
                    }
                    Some(EventUpdate::Failed { id, attempt, failures }) => {
                        let event = state.events.get_mut(&id).unwrap();
                        (event.attempt, event.failures) = (attempt, failures);
                    }
                    None => {}
                }
                state.rows.push(recorded.row);
            }
            on_commit(Ok(()));
        });
    }

    fn instance(&self, row: InstanceRow) {
        self.state.lock().unwrap().instances.insert(row.instance.to_string(), row);
    }

    fn drop_event(&self, id: i64) {
        self.state.lock().unwrap().events.remove(&id);
    }

    async fn payload(self: Arc<Self>, id: i64) -> Result<Option<Bytes>, LogError> {
        self.dice.pass(100).await;
        if !self.calm && self.dice.once_in(20) {
            return Err(LogError::Closed);
        }
        let state = self.state.lock().unwrap();
        Ok(state.events.get(&id).map(|event| event.payload.clone()))
    }
}

/// A dispatcher with two functions on fakes.
struct Platform {
    dispatcher: Dispatcher,
    host: FakeHost,
    log: Arc<FakeLog>,
    functions: Vec<Arc<Function>>,
    _state: tempfile::TempDir,
}

impl Platform {
    fn new(seed: u64, calm: bool, config: Config) -> Self {
        let state = tempfile::tempdir().unwrap();
        let functions = ["a", "b"].map(|name| function(state.path(), name)).to_vec();
        let host = FakeHost::new(seed, calm);
        let log = Arc::new(FakeLog { dice: Dice::new(seed ^ 1), calm, state: Arc::default() });
        let resources = Resources { cpu: 64_000_000, memory: 1 << 40 };
        let dispatcher = Dispatcher::start(
            Arc::new(config),
            host.clone(),
            log.clone(),
            Policies::default(),
            resources,
        );
        for function in &functions {
            dispatcher.configure(function);
        }
        Self { dispatcher, host, log, functions, _state: state }
    }

    fn submission(&self, function: usize, name: String) -> Submission {
        Submission {
            function: self.functions[function].clone(),
            request_id: name.clone(),
            invocation: name,
            parent: None,
            payload: Bytes::from_static(b"{}"),
            client_context: None,
        }
    }

    fn accept(&self, function: usize, id: i64) -> Result<(), QueueFull> {
        let slot = self.dispatcher.reserve_event(&self.functions[function].name)?;
        let event = accepted_event(id, &self.functions[function].name);
        self.log.state.lock().unwrap().events.insert(id, event.clone());
        self.dispatcher.run_event(event, slot);
        Ok(())
    }

    /// Waits until nothing runs, waits or lives.
    async fn rest(&self) {
        loop {
            let counts = self.dispatcher.counts().await;
            if counts == uncia_policy::Counts::default()
                && self.log.state.lock().unwrap().events.is_empty()
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(self.host.alive.lock().unwrap().is_empty(), "instances live on");
        assert_eq!(self.dispatcher.living(None).await.len(), 0);
        let state = self.log.state.lock().unwrap();
        for row in state.instances.values() {
            assert!(row.ended.is_some() && row.end_reason.is_some(), "{row:?}");
        }
    }

    /// Each attempt has one row.
    fn check_rows(&self) {
        let state = self.log.state.lock().unwrap();
        let mut attempts = BTreeSet::new();
        for row in &state.rows {
            let attempt = (row.invocation.clone(), row.attempt);
            assert!(attempts.insert(attempt.clone()), "{attempt:?} has two rows");
        }
    }
}

fn accepted_event(id: i64, function: &str) -> AcceptedEvent {
    AcceptedEvent {
        id,
        function: function.to_owned(),
        function_key: String::new(),
        parent: None,
        request_id: format!("event-{id}"),
        invocation: format!("event-{id}"),
        attempt: 0,
        failures: 0,
        // Every other one is too large to be kept in memory.
        payload: Bytes::from(vec![b'1'; if id % 2 == 0 { 1 } else { 5_000 }]),
        client_context: None,
        accepted: 0,
    }
}

fn function(state: &std::path::Path, name: &str) -> Arc<Function> {
    let folder = state.join(name);
    std::fs::create_dir(&folder).unwrap();
    let registry = Registry::open(&folder, "arn:").unwrap();
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("f.py", zip::write::SimpleFileOptions::default()).unwrap();
    let zip = zip.finish().unwrap().into_inner();
    let code = registry.packages().store(&zip, |_| Ok(())).unwrap();
    let configuration = Configuration {
        runtime: "python3.11".to_owned(),
        handler: "f.h".to_owned(),
        role: String::new(),
        description: String::new(),
        timeout_s: 3,
        memory_mb: 128,
        ephemeral_mb: 512,
        environment: BTreeMap::new(),
        architecture: "x86_64".to_owned(),
        modified_unix_ms: 0,
        revision: String::new(),
        key: String::new(),
        reserved_concurrency: None,
    };
    let mut function =
        registry.new_function(name, configuration, BTreeMap::new(), Overrides::default(), code);
    // Each has a registry of its own, which would give both the same.
    function.id = uncia_policy::FunctionId(name.bytes().next().unwrap().into());
    Arc::new(function)
}

fn config() -> Config {
    Config::parse(r#"{"keep_alive_ms": 50, "pause_after_ms": 2, "event_retry_ms": 10}"#).unwrap()
}

fn run<F: Future<Output = ()>>(test: F) {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(async {
            // Hours of virtual time pass in no time if something waits for ever.
            tokio::time::timeout(Duration::from_secs(36_000), test).await.expect("it hangs");
        });
}

fn was_ok(answer: &Answer) -> bool {
    matches!(answer.result, Answered::Ran(Outcome::Ok(_)))
}

#[test]
fn requests_are_answered_and_instances_removed() {
    run(async {
        let platform = Platform::new(1, true, config());
        let submit =
            |n: usize| platform.dispatcher.submit(platform.submission(n % 2, n.to_string()));
        assert!(was_ok(&submit(0).await.unwrap()));
        let again = submit(2).await.unwrap();
        assert!(was_ok(&again));
        assert_eq!(again.row.start.as_deref(), Some("warm"));
        platform.rest().await;
        platform.check_rows();
    });
}

#[test]
fn deleting_a_function_ends_its_events() {
    run(async {
        let config = Config { max_instances: 1, ..config() };
        let platform = Platform::new(4, true, config);
        for id in 0..20 {
            platform.accept(0, id).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        platform.dispatcher.delete(&platform.functions[0]);
        platform.rest().await;
        let ran = platform.host.invocations.lock().unwrap().len();
        assert!(ran < 20, "{ran} ran");
    });
}

#[test]
fn events_wait_for_room_and_each_runs_once() {
    run(async {
        let config = Config { max_instances: 2, event_queue: 300, ..config() };
        let platform = Platform::new(2, true, config);
        for id in 0..270 {
            platform.accept(0, id).unwrap();
        }
        assert!(platform.accept(0, 270).is_err(), "one function may not have all places");
        for id in 270..300 {
            platform.accept(1, id).unwrap();
        }
        assert!(platform.accept(1, 300).is_err(), "the queue is full");
        platform.rest().await;
        platform.check_rows();
        let ran = platform.host.invocations.lock().unwrap();
        assert_eq!(ran.len(), 300);
        assert_eq!(ran.iter().collect::<BTreeSet<_>>().len(), 300, "each once");
        assert_eq!(platform.log.state.lock().unwrap().rows.len(), 300, "and no rows of refusals");
    });
}

#[test]
fn events_of_a_function_that_may_not_run_wait_until_it_may() {
    run(async {
        let platform = Platform::new(3, true, config());
        let reserve = |limit| {
            let mut function = (*platform.functions[0]).clone();
            function.configuration.reserved_concurrency = limit;
            platform.dispatcher.configure(&Arc::new(function));
        };
        reserve(Some(0));
        for id in 0..50 {
            platform.accept(0, id).unwrap();
        }
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(platform.log.state.lock().unwrap().rows.len(), 0, "no row, no attempt");
        assert_eq!(platform.log.state.lock().unwrap().events.len(), 50);
        reserve(None);
        platform.rest().await;
        assert_eq!(platform.host.invocations.lock().unwrap().len(), 50);
    });
}

#[test]
fn shutting_down_leaves_events_in_the_log_and_answers_requests() {
    run(async {
        let config = Config { max_instances: 1, ..config() };
        let platform = Platform::new(5, true, config);
        for id in 0..20 {
            platform.accept(0, id).unwrap();
        }
        let request = platform.submission(1, "late".to_owned());
        let dispatcher = platform.dispatcher.clone();
        let answer = tokio::spawn(async move { dispatcher.submit(request).await });
        tokio::task::yield_now().await;
        platform.dispatcher.shut_down(Duration::from_secs(60)).await;
        platform.dispatcher.finish().await;
        answer.await.unwrap().expect("an answer");
        let state = platform.log.state.lock().unwrap();
        let done = state.rows.iter().filter(|row| row.invocation.starts_with("event")).count();
        assert_eq!(state.events.len() + done, 20, "each is done or in the log");
        assert!(!state.events.is_empty());
    });
}

#[test]
fn events_of_an_earlier_function_of_the_name_are_dropped() {
    run(async {
        let platform = Platform::new(8, true, config());
        let mut function = (*platform.functions[0]).clone();
        function.configuration.key = "second".to_owned();
        platform.dispatcher.configure(&Arc::new(function));
        let event = |id, function_key: &str| WaitingEvent {
            id,
            function: "a".to_owned(),
            function_key: function_key.to_owned(),
            request_id: format!("event-{id}"),
            invocation: format!("event-{id}"),
            parent: Some("parent".to_owned()),
            attempt: 0,
            failures: 0,
            payload_bytes: 2,
            client_context: None,
            accepted: 0,
        };
        for id in 1..=3 {
            let accepted = accepted_event(id, "a");
            platform.log.state.lock().unwrap().events.insert(id, accepted);
        }
        // An earlier version of the platform wrote no keys.
        platform.dispatcher.resume_events(vec![
            event(1, "first"),
            event(2, "second"),
            event(3, ""),
        ]);
        platform.rest().await;
        let state = platform.log.state.lock().unwrap();
        let mut ran: Vec<_> = state.rows.iter().map(|row| row.invocation.as_str()).collect();
        ran.sort_unstable();
        assert_eq!(ran, ["event-2", "event-3"]);
        assert!(state.rows.iter().all(|row| row.parent.as_deref() == Some("parent")));
    });
}

#[test]
fn stops_are_not_held_against_events_that_run() {
    run(async {
        let platform = Platform::new(6, true, config());
        platform.accept(0, 1).unwrap();
        while platform.host.invocations.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_micros(10)).await;
        }
        // As when the time to wait is over and the host closes.
        platform.dispatcher.shut_down(Duration::ZERO).await;
        platform.dispatcher.close();
        platform.host.kill_all();
        platform.dispatcher.finish().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let state = platform.log.state.lock().unwrap();
        assert_eq!(state.events[&1].attempt, 1, "it is the next worker's");
        assert_eq!(state.events[&1].failures, 0);
        assert_eq!((&*state.rows[0].outcome, state.rows[0].billed), ("transport_error", Some(0)));
    });
}

#[test]
fn a_row_says_what_the_instance_was_allocated() {
    run(async {
        let platform = Platform::new(7, true, config());
        let configure = |memory_mb, reserved_concurrency| {
            let mut function = (*platform.functions[0]).clone();
            function.configuration.reserved_concurrency = reserved_concurrency;
            function.configuration.memory_mb = memory_mb;
            platform.dispatcher.configure(&Arc::new(function));
        };
        configure(128, Some(0));
        platform.accept(0, 1).unwrap();
        configure(1024, None);
        platform.rest().await;
        let state = platform.log.state.lock().unwrap();
        assert_eq!(state.rows[0].allocated_memory, Some(1 << 30));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn each_request_ends_exactly_once_whatever_goes_wrong(
        seed: u64,
        requests in proptest::collection::vec((0_usize..2, 0_u64..4_000, 0_u8..12), 1..120),
        max_instances in 1_u32..8,
    ) {
        run(async {
            let config = Config { max_instances, event_retry_ms: 1, ..config() };
            let platform = Platform::new(seed, false, config);
            let mut answers = Vec::new();
            for (n, (function, pause_us, kind)) in requests.into_iter().enumerate() {
                tokio::time::sleep(Duration::from_micros(pause_us)).await;
                match kind {
                    0..=2 => platform.accept(function, n as i64).unwrap(),
                    3 => {
                        // Other code: its instances retire.
                        let mut updated = (*platform.functions[function]).clone();
                        updated.configuration.environment.insert("N".to_owned(), n.to_string());
                        platform.dispatcher.configure(&Arc::new(updated));
                    }
                    _ => {
                        let submission = platform.submission(function, format!("request-{n}"));
                        let dispatcher = platform.dispatcher.clone();
                        answers.push(tokio::spawn(async move { dispatcher.submit(submission).await }));
                    }
                }
            }
            for answer in answers {
                answer.await.unwrap().expect("an answer to each");
            }
            platform.rest().await;
            platform.check_rows();
        });
    }
}
