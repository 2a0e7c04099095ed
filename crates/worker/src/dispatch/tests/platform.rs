//! A dispatcher with two functions on fakes, and what a test asks of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uncia_policy::{Policies, Resources};

use super::fakes::{FakeHost, FakeLog};
use crate::config::Config;
use crate::dispatch::{Completion, Dispatcher, Disposition, QueueFull, Submission};
use crate::function::{Configuration, Function, Overrides};
use crate::instance::Outcome;
use crate::meterlog::AcceptedEvent;
use crate::store::Registry;

/// A dispatcher with two functions on fakes.
pub(super) struct Platform {
    pub dispatcher: Dispatcher,
    pub host: FakeHost,
    pub log: Arc<FakeLog>,
    pub functions: Vec<Arc<Function>>,
    _state: tempfile::TempDir,
}

impl Platform {
    pub(super) fn new(seed: u64, calm: bool, config: Config) -> Self {
        let resources = Resources { cpu: 64_000_000, memory: 1 << 40 };
        Self::with(seed, calm, config, Some(resources))
    }

    /// On this machine with its resources, or a controller.
    pub(super) fn with(
        seed: u64,
        calm: bool,
        config: Config,
        resources: Option<Resources>,
    ) -> Self {
        let state = tempfile::tempdir().unwrap();
        let functions = ["a", "b"].map(|name| function(state.path(), name)).to_vec();
        let host = FakeHost::new(seed, calm);
        let log = Arc::new(FakeLog::new(seed ^ 1, calm));
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

    pub(super) fn submission(&self, function: usize, name: String) -> Submission {
        Submission {
            hint: None,
            function: self.functions[function].clone(),
            request_id: name.clone(),
            invocation: name,
            parent: None,
            stage: None,
            payload: Bytes::from_static(b"{}"),
            head: None,
            passage: None,
            client_context: None,
            invoked_arn: None,
        }
    }

    pub(super) fn accept(&self, function: usize, id: i64) -> Result<(), QueueFull> {
        let slot = self.dispatcher.reserve_event(&self.functions[function].name)?;
        let event = accepted_event(id, &self.functions[function].name);
        self.log.state.lock().unwrap().events.insert(id, event.clone());
        self.dispatcher.run_event(event, slot);
        Ok(())
    }

    /// Waits until nothing runs, waits or lives.
    pub(super) async fn rest(&self) {
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
    pub(super) fn check_rows(&self) {
        let state = self.log.state.lock().unwrap();
        let mut attempts = BTreeSet::new();
        for row in &state.rows {
            let attempt = (row.invocation.clone(), row.attempt);
            assert!(attempts.insert(attempt.clone()), "{attempt:?} has two rows");
        }
    }
}

pub(super) fn accepted_event(id: i64, function: &str) -> AcceptedEvent {
    AcceptedEvent {
        id,
        function: function.to_owned(),
        function_key: String::new(),
        parent: None,
        stage: None,
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
    let registry = Registry::open(&folder, "arn:", 1_769 << 20).unwrap();
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("f.py", zip::write::SimpleFileOptions::default()).unwrap();
    let zip = zip.finish().unwrap().into_inner();
    let code = registry.packages().store(&zip, |_| Ok(())).unwrap();
    let configuration = Configuration {
        image: None,
        fetched: None,
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
        layers: Vec::new(),
    };
    let mut function =
        registry.new_function(name, configuration, BTreeMap::new(), Overrides::default(), code);
    // Each has a registry of its own, which would give both the same.
    function.id = uncia_policy::FunctionId(name.bytes().next().unwrap().into());
    Arc::new(function)
}

pub(super) fn config() -> Config {
    Config::parse(r#"{"keep_alive_ms": 50, "pause_after_ms": 2, "event_retry_ms": 10}"#).unwrap()
}

pub(super) fn run<F: Future<Output = ()>>(test: F) {
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

pub(super) fn was_ok(answer: &Completion) -> bool {
    matches!(answer.disposition, Disposition::Ran(Outcome::Ok(_)))
}
