//! Runtimes that were started before there is an instance for them.
//!
//! Each is in a sandbox and control groups of its own, has the privileges of any instance, and has seen
//! nothing of any function. It becomes one instance, once: of whichever function comes first that its
//! limits fit. What it has used until then is in nobody's initialization and in nobody's invocation.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fresh::Fresh;
use super::{Begun, Origin, Prepared, Replenished, StartKind, Waiting};
use crate::ids;
use crate::instance::{InstanceSpec, Network, Reach, Runtime, StartError, StartFrom};
use crate::sandbox::cgroup::{CgroupError, Group};
use crate::sandbox::host::Host;
use crate::sandbox::rootfs::Root;
use crate::sandbox::runtimes::RuntimeDefinition;
use crate::sandbox::start::{limits, own_api, sandbox};
use crate::sandbox::threads;
use crate::sandbox::wire::{self, InitConfig};

/// The label of those that have no instance.
const NO_INSTANCE: &str = "pool";

/// How long one may take until it waits, on however busy a machine: it goes last.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Until it waits, it has one part in so many of what a function gets: others go first, and yet it gets
/// ready on a busy machine.
const CPU_PARTS: u64 = 4;

/// Kinds that are kept; those asked for longest ago make room for others.
const MAX_KINDS: usize = 8;

/// Of the memory that is available, they may take one part in so many.
const MEMORY_PARTS: u64 = 4;

/// A started runtime that waits for what it is an instance of.
struct StartedRuntime {
    first: Prepared,
    waiting: Waiting,
}

impl StartedRuntime {
    /// Blocks until nothing of it is left.
    fn end(self) {
        self.first.child.end();
        // Its group goes after its processes.
        drop(self.waiting);
    }
}

/// What a function must ask for to be given one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    runtime: Runtime,
    /// A runtime may size its heap by it, once and for all.
    memory_bytes: u64,
    pids_max: u64,
}

impl Kind {
    /// What fits an instance; None if a started runtime cannot become it.
    fn of(spec: &InstanceSpec) -> Option<Self> {
        let definition = spec.runtime.definition();
        let fits = spec.start_from == StartFrom::Pool
            && definition.waiting_bytes().is_some()
            && spec.network != Network::Host
            // They start before the runtime.
            && spec.extensions.is_empty()
            && !spec.environment.keys().any(|name| definition.reads_at_start(name));
        fits.then_some(Self {
            runtime: spec.runtime,
            memory_bytes: spec.memory_bytes,
            pids_max: spec.pids_max,
        })
    }

    /// About what one takes.
    fn bytes(&self) -> u64 {
        self.runtime.definition().waiting_bytes().unwrap_or_default()
    }
}

/// What is kept.
pub(in crate::sandbox) struct RuntimePool {
    /// Of each kind.
    most: usize,
    /// The kind that was asked for last is the last.
    kinds: Mutex<Vec<(Kind, VecDeque<StartedRuntime>)>>,
    /// The functions that ask for each kind; what none asks for is not kept.
    asked: Mutex<HashMap<Kind, HashSet<String>>>,
    /// Held by who makes more: one at a time.
    making: tokio::sync::Mutex<()>,
    /// Why there are fewer than asked for, a sentence each.
    shortage: Mutex<Shortage>,
}

#[derive(Default)]
struct Shortage {
    /// Memory does not allow them: as long as the platform runs, since it may be so again.
    memory: Option<String>,
    /// The last one did not start.
    start: Option<String>,
}

impl RuntimePool {
    pub(in crate::sandbox) fn new(most: usize) -> Self {
        Self {
            most,
            kinds: Mutex::default(),
            asked: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            shortage: Mutex::default(),
        }
    }

    /// One for an instance, if there is one that fits.
    fn take(&self, spec: &InstanceSpec) -> Option<StartedRuntime> {
        let kind = Kind::of(spec)?;
        let mut kinds = self.kinds();
        let waiting = of(&mut kinds, &kind);
        // One may have been killed, by the kernel or by hand; it is cleared when others are made.
        let index = waiting.iter().position(|it| !it.first.has_ended())?;
        waiting.remove(index)
    }

    /// Notes that a function asks for this kind.
    fn ask(&self, function: &str, kind: &Kind) {
        lock(&self.asked).entry(kind.clone()).or_default().insert(function.to_owned());
    }

    fn is_asked(&self, kind: &Kind) -> bool {
        lock(&self.asked).contains_key(kind)
    }

    /// Forgets what a function asked for, and ends what no other asks for.
    fn forget(&self, function: &str) {
        let mut asked = lock(&self.asked);
        asked.retain(|_, functions| {
            functions.remove(function);
            !functions.is_empty()
        });
        let unasked = |(kind, _): &mut (Kind, VecDeque<_>)| !asked.contains_key(kind);
        let ended: Vec<_> = self.kinds().extract_if(.., unasked).flat_map(|it| it.1).collect();
        if !ended.is_empty() {
            threads::run_aside(|| ended.into_iter().for_each(StartedRuntime::end));
        }
    }

    /// Keeps one, if a function asks for it still.
    fn keep(&self, kind: &Kind, started: StartedRuntime) {
        let asked = lock(&self.asked);
        if asked.contains_key(kind) {
            of(&mut self.kinds(), kind).push_back(started);
        } else {
            threads::run_aside(|| started.end());
        }
    }

    /// Ends all, once the host is closed. Blocks until they have ended.
    pub(in crate::sandbox) fn clear(&self) {
        // Whoever is making one keeps it first.
        let _making = self.making.blocking_lock();
        let kinds = std::mem::take(&mut *self.kinds());
        kinds.into_iter().flat_map(|(_, waiting)| waiting).for_each(StartedRuntime::end);
    }

    /// Whether one more of this kind is to be made, with so many bytes of memory available; and what is
    /// no longer kept, to be ended where that may block.
    fn wants(&self, kind: &Kind, available: Option<u64>) -> (bool, Vec<StartedRuntime>) {
        let mut kinds = self.kinds();
        let mut ended = Vec::new();
        for (_, waiting) in kinds.iter_mut() {
            let (gone, left) =
                waiting.drain(..).partition(|it: &StartedRuntime| it.first.has_ended());
            ended.extend::<VecDeque<_>>(gone);
            *waiting = left;
        }
        let enough = of(&mut kinds, kind).len() >= self.most;
        if kinds.len() > MAX_KINDS {
            ended.extend(kinds.remove(0).1);
        }
        if enough {
            return (false, ended);
        }
        let most = available.map_or(u64::MAX, |bytes| bytes / MEMORY_PARTS);
        let kept = |kinds: &[(Kind, VecDeque<StartedRuntime>)]| {
            kinds.iter().map(|(it, has)| it.bytes() * has.len() as u64).sum::<u64>()
        };
        while kept(&kinds) + kind.bytes() > most {
            // Others' room, before none.
            let mut others = kinds.iter_mut().filter(|(it, _)| it != kind);
            let Some(one) = others.find_map(|(_, has)| has.pop_front()) else { break };
            ended.push(one);
        }
        if kept(&kinds) + kind.bytes() <= most {
            return (true, ended);
        }
        let mut shortage = lock(&self.shortage);
        if shortage.memory.is_none() {
            let kept = kinds.iter().map(|(_, waiting)| waiting.len()).sum::<usize>();
            let sentence = format!(
                "The pool of {} started runtimes of each kind (pool) is larger than memory allows: {kept} were kept \
                 when one in {MEMORY_PARTS} parts of what was available was used up, and other starts are fresh.",
                self.most
            );
            tracing::warn!("{sentence}");
            shortage.memory = Some(sentence);
        }
        (false, ended)
    }

    /// Notes whether the last one has started.
    fn note_start(&self, failure: Option<&StartError>) {
        let sentence = failure.map(|error| {
            format!("No runtime can be started ahead, and starts are fresh: {error}.")
        });
        if let Some(sentence) = &sentence {
            tracing::warn!("{sentence}");
        }
        lock(&self.shortage).start = sentence;
    }

    /// Why there are fewer than asked for, a sentence each.
    pub(in crate::sandbox) fn refusals(&self) -> Vec<String> {
        let shortage = lock(&self.shortage);
        shortage.memory.iter().chain(&shortage.start).cloned().collect()
    }

    fn kinds(&self) -> MutexGuard<'_, Vec<(Kind, VecDeque<StartedRuntime>)>> {
        lock(&self.kinds)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those of a kind, which is the last from now on.
fn of<'a>(
    kinds: &'a mut Vec<(Kind, VecDeque<StartedRuntime>)>,
    kind: &Kind,
) -> &'a mut VecDeque<StartedRuntime> {
    let index = kinds.iter().position(|(it, _)| it == kind);
    let entry = index.map_or_else(|| (kind.clone(), VecDeque::new()), |index| kinds.remove(index));
    kinds.push(entry);
    let last = kinds.len() - 1;
    &mut kinds[last].1
}

/// Memory in bytes that programs could have, as the kernel estimates.
fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

pub(super) struct FromPool;

impl StartKind for FromPool {
    fn refuse(&self, runtime: Runtime) -> Option<String> {
        let can_wait = |it: &dyn RuntimeDefinition| it.waiting_bytes().is_some();
        let able = || format!("only one in {} can be started ahead", Runtime::names_of(can_wait));
        (!can_wait(runtime.definition())).then(able)
    }

    fn take(&self, host: &Host, spec: &InstanceSpec) -> Option<Origin> {
        let StartedRuntime { first, waiting } = host.started.take(spec)?;
        Some(Origin {
            first,
            zygote: None,
            restore: None,
            waiting: Some(waiting),
            made_ahead: true,
        })
    }

    fn begin<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Begun<'a> {
        Fresh.begin(host, spec)
    }

    fn note(&self, host: &Host, spec: &InstanceSpec) {
        if let Some(kind) = Kind::of(spec) {
            host.started.ask(&spec.function, &kind);
        }
    }

    fn replenish<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Replenished<'a> {
        Box::pin(async move {
            let Some(kind) = Kind::of(spec) else { return };
            let _making = host.started.making.lock().await;
            while host.started.is_asked(&kind) && !host.closed.load(Ordering::SeqCst) {
                let (wanted, ended) = host.started.wants(&kind, available_memory());
                if !ended.is_empty() {
                    // What does not end here ends with the worker.
                    let clear = || ended.into_iter().for_each(StartedRuntime::end);
                    let _ = tokio::task::spawn_blocking(clear).await;
                }
                if !wanted {
                    return;
                }
                match host.start_waiting(spec).await {
                    Ok(started) => {
                        host.started.note_start(None);
                        host.started.keep(&kind, started);
                    }
                    Err(_) if host.closed.load(Ordering::SeqCst) => return,
                    Err(error) => return host.started.note_start(Some(&error)),
                }
            }
        })
    }
}

impl Host {
    /// Keeps nothing any more for a function alone: it is gone, or other than it was.
    pub fn forget(&self, function: &str) {
        self.started.forget(function);
        self.ready_groups.forget(function);
        self.function_zygotes.forget(function);
        self.shared_states.forget(function);
        self.checkpoints.forget(function);
        self.unusable_byte_code.forget(function);
    }

    /// Starts a runtime for any function whose instances have this one's limits.
    async fn start_waiting(
        self: &Arc<Self>,
        spec: &InstanceSpec,
    ) -> Result<StartedRuntime, StartError> {
        let spec = InstanceSpec {
            id: NO_INSTANCE.into(),
            function: String::new(),
            handler: String::new(),
            environment: BTreeMap::new(),
            mounts: Vec::new(),
            layers: None,
            extensions: Vec::new(),
            network: Network::Platform,
            reach: Reach::NONE,
            ..spec.clone()
        };
        let root = self.roots.get(spec.runtime).await?;
        let group = self.group_that_waits(&spec).await?;
        let waiting = self.start_in(&spec, root, group.clone()).await;
        if waiting.is_err() {
            threads::run_aside(move || drop(group));
        }
        waiting
    }

    /// Starts a runtime in a control group, and waits until it waits.
    async fn start_in(
        self: &Arc<Self>,
        spec: &InstanceSpec,
        root: &Root,
        group: Option<Arc<Group>>,
    ) -> Result<StartedRuntime, StartError> {
        let first = self.first_process(spec.network, NO_INSTANCE, None).await?;
        let user = self.user()?;
        if self.capabilities.root {
            first.give_output(user.number).map_err(sandbox)?;
        }
        let config = self.config_that_waits(spec, root, group.as_deref(), user.number);
        wire::send(first.control.as_raw_fd(), &config, &[]).map_err(sandbox)?;
        let mut started = StartedRuntime { first, waiting: Waiting { group, user } };
        match started.first.waits(START_TIMEOUT).await {
            Ok(()) => Ok(started),
            Err(error) => {
                // What ends is waited for.
                let _ = tokio::task::spawn_blocking(move || started.end()).await;
                Err(error)
            }
        }
    }

    /// Its control groups: it lets all others go first.
    async fn group_that_waits(
        self: &Arc<Self>,
        spec: &InstanceSpec,
    ) -> Result<Option<Arc<Group>>, StartError> {
        let (host, limits) = (self.clone(), limits(spec));
        let made = tokio::task::spawn_blocking(move || {
            let Some(layout) = &host.layout else { return Ok(None) };
            let group = Group::create(layout, &ids::instance(), &limits)?;
            group.set_cpu_part(CPU_PARTS)?;
            Ok::<_, CgroupError>(Some(Arc::new(group)))
        });
        made.await.map_err(sandbox)?.map_err(sandbox)
    }

    fn config_that_waits(
        &self,
        spec: &InstanceSpec,
        root: &Root,
        group: Option<&Group>,
        user: u32,
    ) -> InitConfig {
        InitConfig { waits: true, ..self.config(spec, root, group, &own_api(), user) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(memory_bytes: u64) -> Kind {
        Kind { runtime: Runtime::named("node").unwrap(), memory_bytes, pids_max: 64 }
    }

    #[test]
    fn a_pool_is_no_larger_than_asked_for_and_than_memory_allows() {
        let pool = RuntimePool::new(1000);
        let (kind, bytes) = (kind(1), kind(1).bytes());
        let wants = |available| pool.wants(&kind, available).0;
        assert!(wants(None) && wants(Some(MEMORY_PARTS * bytes)));
        assert!(pool.refusals().is_empty());
        // However often it is asked for, it is one sentence, and the same.
        let mut told = Vec::new();
        for _ in 0..3 {
            assert!(!wants(Some(MEMORY_PARTS * bytes - 1)));
            told.extend(pool.refusals());
        }
        assert_eq!(told.len(), 3);
        assert!(
            told.iter().all(|it| *it == told[0] && it.contains("The pool of 1000")),
            "{told:?}"
        );
        let failure = StartError::Sandbox("no process".into());
        pool.note_start(Some(&failure));
        pool.note_start(Some(&failure));
        assert!(pool.refusals()[1].contains("no process") && pool.refusals().len() == 2);
        pool.note_start(None);
        assert_eq!(pool.refusals().len(), 1);
        assert!(!RuntimePool::new(0).wants(&kind, None).0);
        assert!(available_memory().is_some());
    }

    #[test]
    fn what_no_function_asks_for_is_not_kept() {
        let pool = RuntimePool::new(1);
        for (function, size) in [("a", 1), ("b", 1), ("c", 2), ("c", 3)] {
            pool.ask(function, &kind(size));
            pool.wants(&kind(size), None);
        }
        let kept =
            || -> Vec<_> { pool.kinds().iter().map(|(kind, _)| kind.memory_bytes).collect() };
        pool.forget("a");
        assert_eq!(kept(), [1, 2, 3]);
        pool.forget("c");
        assert_eq!(kept(), [1]);
        assert!(pool.is_asked(&kind(1)) && !pool.is_asked(&kind(2)));
        pool.forget("b");
        assert!(kept().is_empty());
    }

    #[test]
    fn only_so_many_kinds_are_kept() {
        let pool = RuntimePool::new(1);
        for size in 1..100 {
            pool.wants(&kind(size), None);
            assert!(pool.kinds().len() <= MAX_KINDS);
        }
        let kinds: Vec<_> = pool.kinds().iter().map(|(kind, _)| kind.memory_bytes).collect();
        assert_eq!(kinds.last(), Some(&99));
    }
}
