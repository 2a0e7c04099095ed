//! A host and a log that only behave like the real ones: what happens, and when, dice decide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use uncia_clock::Moment;
use uncia_policy::{CpuAssignment, WorkerId};
use uncia_record::{Instance as InstanceRow, Invocation};

use crate::dispatch::host::{InstanceHost, Log, RunningInstance, Started};
use crate::instance::{InstanceSpec, Outcome, Phase, Reply, Request, StartError, Usage};
use crate::meterlog::{AcceptedEvent, EventUpdate, LogError, Recorded};

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
pub(super) struct FakeHost {
    dice: Dice,
    /// Nothing goes wrong.
    calm: bool,
    pub alive: Arc<Mutex<BTreeMap<String, Arc<watch::Sender<bool>>>>>,
    pub invocations: Arc<Mutex<Vec<String>>>,
    /// Functions for which something is kept.
    pub kept: Arc<Mutex<BTreeSet<String>>>,
    /// So many times instances will not be frozen for now.
    pub refusals: Arc<AtomicU32>,
    /// Whether functions raise errors.
    pub fails: Arc<AtomicBool>,
}

#[derive(Clone)]
pub(super) struct FakeInstance {
    id: String,
    host: FakeHost,
    alive: Arc<watch::Sender<bool>>,
}

impl FakeHost {
    pub(super) fn new(seed: u64, calm: bool) -> Self {
        Self {
            dice: Dice::new(seed),
            calm,
            alive: Arc::default(),
            invocations: Arc::default(),
            kept: Arc::default(),
            refusals: Arc::default(),
            fails: Arc::default(),
        }
    }

    pub(super) fn kill_all(&self) {
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

    async fn start(&self, _: WorkerId, spec: InstanceSpec) -> Started<FakeInstance> {
        let began = Moment::now();
        self.dice.pass(5_000).await;
        self.kept.lock().unwrap().insert(spec.function.clone());
        let failed = self.unlucky(10).then(|| {
            if self.dice.once_in(2) {
                StartError::Sandbox("no luck".to_owned())
            } else {
                StartError::Exited("exit status 1".to_owned())
            }
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
            restored: false,
            initialization_ns: 1_000,
            log_tail: Bytes::new(),
        }
    }

    fn expect(&self, _spec: InstanceSpec) {}

    fn forget(&self, function: &str) {
        self.kept.lock().unwrap().remove(function);
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
            extensions: None,
            outcome,
            delivered,
            started,
            ended: started.plus(1_000),
            usage: Usage::default(),
            shared: false,
            services: None,
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
        if self.host.fails.load(Ordering::SeqCst) || self.host.unlucky(10) {
            return self.reply(Outcome::FunctionError(Bytes::from_static(b"{}")), true);
        }
        self.reply(Outcome::Ok(request.payload), true)
    }

    async fn freeze(&self) -> std::io::Result<()> {
        if is_refused(&self.host.refusals) || self.host.unlucky(10) {
            return Err(std::io::ErrorKind::ResourceBusy.into());
        }
        self.thaw().await
    }

    async fn free(&self) {
        self.host.dice.pass(5_000).await;
    }

    async fn thaw(&self) -> std::io::Result<()> {
        self.host.dice.pass(200).await;
        if *self.alive.borrow() { Ok(()) } else { Err(std::io::Error::other("it has ended")) }
    }

    async fn scale_down(&self) -> std::io::Result<()> {
        Ok(())
    }

    async fn scale_up(&self) -> std::io::Result<()> {
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

/// Takes one of the refusals that are left.
fn is_refused(refusals: &AtomicU32) -> bool {
    let less = |refusals: u32| refusals.checked_sub(1);
    refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
}

/// A log in memory that refuses a row now and then.
#[derive(Clone)]
pub(super) struct FakeLog {
    dice: Dice,
    calm: bool,
    /// So many rows it refuses next.
    pub refusals: Arc<AtomicU32>,
    pub state: Arc<Mutex<LogState>>,
}

#[derive(Default)]
pub(super) struct LogState {
    pub rows: Vec<uncia_record::Invocation>,
    pub instances: BTreeMap<String, InstanceRow>,
    pub events: BTreeMap<i64, AcceptedEvent>,
}

impl FakeLog {
    pub(super) fn new(seed: u64, calm: bool) -> Self {
        Self { dice: Dice::new(seed), calm, refusals: Arc::default(), state: Arc::default() }
    }
}

impl Log for FakeLog {
    fn invocation(&self, recorded: Arc<Recorded>) -> Result<(), LogError> {
        if is_refused(&self.refusals) || !self.calm && self.dice.once_in(40) {
            return Err(LogError::Behind);
        }
        let mut state = self.state.lock().unwrap();
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
        state.rows.push(recorded.row.clone());
        Ok(())
    }

    fn output(&self, _row: &Invocation, _output: &Bytes) {}

    fn instance(&self, row: InstanceRow) {
        self.state.lock().unwrap().instances.insert(row.instance.to_string(), row);
    }

    fn drop_events(&self, ids: Vec<i64>) {
        self.state.lock().unwrap().events.retain(|id, _| !ids.contains(id));
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
