//! How an instance starts.

mod check;
pub(super) mod config;
mod launch;
mod ready;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tracing::Instrument;
use uncia_clock::monotonic_ns;

use self::check::check;
use self::launch::{Launched, Reports};
use super::cgroup::{CgroupError, Group, Limits};
use super::environment::RUNTIME_API_PORT;
use super::host::Host;
use super::kept::Kept;
use super::kinds::{self, Origin, StartKind};
use super::live::{Guard, Instance};
use super::rootfs::Root;
use super::shared_state::Share;
use super::threads;
use super::users::User;
use crate::clock::Moment;
use crate::instance::{
    Enforcement, InstanceSpec, Network, Phase, ShareState, StartError, StartFrom,
};

/// How long after a start what it has taken is replaced: the request that it was for comes first.
const REPLENISH_AFTER: Duration = Duration::from_millis(20);

/// After a start that has failed, its extensions' listeners have this long to take what they are told.
const FAILED_SETTLE: Duration = Duration::from_millis(200);

/// How a start went.
pub struct Started {
    /// The instance, ready for its first request, or why there is none.
    pub result: Result<Instance, StartError>,
    /// What the start consisted of, in order.
    pub phases: Vec<Phase>,
    /// Whether a runtime that had been started before was reused.
    pub restored: bool,
    /// The whole start, until the runtime asked for its first request or failed.
    pub initialization_ns: i64,
    /// The last of what was printed meanwhile.
    pub log_tail: Bytes,
}

/// Why there is no instance.
enum Failure {
    Start(StartError),
    /// The first process has ended before it had built anything.
    Vanished(String),
    /// What was restored from this checkpoint has not become ready, as nothing has that was before.
    NotRestorable(Arc<Kept>, StartError),
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl Host {
    /// Starts an instance and waits until its runtime asks for the first request.
    pub async fn start(self: &Arc<Self>, spec: InstanceSpec) -> Started {
        self.start_here(&spec, None).await
    }

    /// [`Self::start`], from a checkpoint if there is one.
    pub(super) async fn start_here(
        self: &Arc<Self>,
        spec: &InstanceSpec,
        checkpoint: Option<Arc<Kept>>,
    ) -> Started {
        let began = Moment::now();
        let mut phases = Vec::new();
        let mut log_tail = Bytes::new();
        let span = tracing::info_span!("start", instance = %spec.id, function = %spec.function);
        let starting = self.try_start(spec, checkpoint, began, &mut phases, &mut log_tail);
        let result = starting.instrument(span.clone()).await;
        if let Err(error @ StartError::Sandbox(_)) = &result {
            // All else is the function's own affair, which its caller learns of.
            span.in_scope(|| tracing::warn!("{error}"));
        }
        // A start ends when the runtime is ready, not when this task gets to know it.
        let ended = match &result {
            Ok(_) => phases.last().map_or_else(Moment::now, |phase: &Phase| phase.end),
            Err(_) => Moment::now(),
        };
        let restored =
            phases.iter().any(|phase| ["fork", "assign", "restore"].contains(&phase.name));
        Started { result, phases, restored, initialization_ns: ended.since(began), log_tail }
    }

    /// Makes ahead what the first instances of a function are started from, so that these starts are as all
    /// later ones; returns when it is there. What cannot be made is missing then, and its starts say so.
    pub async fn expect(self: &Arc<Self>, spec: &InstanceSpec) {
        if !self.closed.load(Ordering::SeqCst) {
            let kind = kinds::of(spec.start_from);
            kind.note(self, spec);
            kind.expect(self, spec).await;
        }
    }

    async fn try_start(
        self: &Arc<Self>,
        spec: &InstanceSpec,
        checkpoint: Option<Arc<Kept>>,
        began: Moment,
        phases: &mut Vec<Phase>,
        log_tail: &mut Bytes,
    ) -> Result<Instance, StartError> {
        let mut spec = Cow::Borrowed(spec);
        let mut share = Share::default();
        if spec.share_state != ShareState::None {
            let version = self.runtime_version(spec.runtime).unwrap_or_default();
            // Another than when the function was made, or that of another machine.
            let refusal = spec.runtime.definition().refuse_version(&version, spec.share_state);
            if let Some(reason) = refusal {
                self.shared_states.deny(&spec, reason);
                spec.to_mut().share_state = ShareState::None;
            } else {
                share = self.shared_states.begin(spec.to_mut());
            }
        }
        let is_proof = checkpoint.is_some();
        if is_proof {
            share.kept = checkpoint;
        }
        // It is mounted later, and gone if the function is changed by then.
        let _kept = share.kept.clone();
        let spec = spec.as_ref();
        let mut kind = kinds::of(share.start_from(spec));
        // Before all else: the function may be changed or gone when this has ended.
        kind.note(self, spec);
        let root = self.roots.get(spec.runtime).await?;
        check(spec, self.services.located())?;
        if spec.network == Network::Host {
            self.watch_connections()?;
        }
        let limits = limits(spec);
        loop {
            if self.closed.load(Ordering::SeqCst) {
                return Err(StartError::Sandbox("the worker is closing".into()));
            }
            let attempt =
                self.attempt(spec, root, limits, kind, began, phases, log_tail, &mut share).await;
            let (host, replaced) = (self.clone(), spec.clone());
            tokio::spawn(async move {
                tokio::time::sleep(REPLENISH_AFTER).await;
                if !host.closed.load(Ordering::SeqCst) {
                    kind.replenish(&host, &replaced).await;
                }
            });
            match attempt {
                Ok(instance) => return Ok(instance),
                Err((Failure::Start(error), _)) => return Err(error),
                Err((Failure::NotRestorable(_, error), _)) if is_proof => return Err(error),
                Err((Failure::NotRestorable(kept, error), _)) => {
                    let reason = format!("once restored, it does not go on: {error}");
                    self.shared_states.refuse(&spec.function, &kept, reason);
                    // As it did before there was one. That time belongs to the first phase, too.
                    phases.clear();
                    kind = kinds::of(share.start_from(spec));
                }
                Err((Failure::Vanished(how), false)) => return Err(StartError::Sandbox(how)),
                Err((Failure::Vanished(_), true)) => {
                    // What was made ahead has ended at the moment at which it was taken. The time that
                    // this took belongs to the phase that comes first now.
                    phases.clear();
                    kind = kinds::of(StartFrom::Fresh);
                }
            }
        }
    }

    /// Starts an instance in one way; says with an error whether what it began with was made ahead.
    #[expect(clippy::too_many_arguments, reason = "they are the state of one start")]
    async fn attempt(
        self: &Arc<Self>,
        spec: &InstanceSpec,
        root: &Root,
        limits: Limits,
        kind: &'static dyn StartKind,
        began: Moment,
        phases: &mut Vec<Phase>,
        log_tail: &mut Bytes,
        share: &mut Share,
    ) -> Result<Instance, (Failure, bool)> {
        let taken = kind.take(self, spec);
        let group = match taken.as_ref().and_then(|origin| origin.waiting.as_ref()) {
            Some(waiting) => Ok(waiting.group.clone()),
            None => self.group(spec).await,
        };
        let group = group.map_err(|error| (error.into(), false))?;
        let grouped = began.at(monotonic_ns());
        phases.push(Phase { name: "cgroup", start: began, end: grouped });

        let origin = match taken {
            Some(origin) => Ok(origin),
            None => kind.begin(self, spec).await,
        };
        // What its instances share comes first, if that is a checkpoint.
        let warm = share.kept.clone().filter(|kept| kept.dumped.is_some());
        let origin = origin.map(|origin| match warm {
            Some(warm) if origin.waiting.is_none() => Origin { restore: Some(warm), ..origin },
            _ => origin,
        });
        let mut restore = None;
        let launched = match origin {
            Ok(origin) => {
                restore.clone_from(&origin.restore);
                let made_ahead = origin.made_ahead;
                let launched =
                    self.launch(spec, root, group.clone(), limits, origin, began, share).await;
                launched.map_err(|error| (error, made_ahead))
            }
            Err(error) => Err((error.into(), false)),
        };
        if launched.is_err() {
            // Waits for the kernel: not on a thread that others need.
            drop(tokio::task::spawn_blocking(move || drop(group)).await);
        }
        let Launched { inner, mut reports, initialized, zygote, staged, waited, made_ahead } =
            launched?;
        let guard = Guard::new(&inner);
        let mut restore = restore.filter(|_| staged.is_some());
        let result = async {
            let zygote = zygote.as_deref();
            let (executed, as_asked) = self
                .built(
                    spec,
                    &inner,
                    &mut reports,
                    (zygote, restore.as_ref(), waited),
                    grouped,
                    phases,
                )
                .await?;
            if !as_asked {
                // It was started, and what comes of that says nothing of the checkpoint.
                restore = None;
            }
            if let Some(staged) = staged {
                threads::run_aside(move || drop(staged));
            }
            match &inner.server {
                Some(server) => self.listening(spec, &inner, server, executed, phases).await?,
                None => {
                    self.initialized(spec, &inner, initialized, waited, executed, phases).await?;
                }
            }
            if !spec.init_throttled {
                inner.limit().map_err(sandbox)?;
            }
            Ok(())
        }
        .await;
        *log_tail = inner.log.tail();
        match result {
            Ok(()) => {
                guard.release();
                if let Some(kept) = &restore {
                    kept.is_proven.store(true, Ordering::Relaxed);
                }
                inner.meter.ready();
                // The start has ended with its last phase.
                let ended = phases.last().map_or_else(Moment::now, |phase: &Phase| phase.end);
                inner.api.telemetry().initialized(ended, ended.since(began));
                Ok(Instance::new(inner))
            }
            Err(error) => {
                // Those who want to know have a moment to learn why.
                inner.api.telemetry().settle(FAILED_SETTLE).await;
                inner.kill();
                inner.gone().await;
                let unproven = restore.filter(|kept| !kept.is_proven.load(Ordering::Relaxed));
                let error = match (error, unproven) {
                    // That has nothing to do with it.
                    (error @ Failure::Start(StartError::Sandbox(_)), _) => error,
                    (Failure::Start(error), Some(kept)) => Failure::NotRestorable(kept, error),
                    (Failure::Vanished(how), Some(kept)) => {
                        Failure::NotRestorable(kept, StartError::Sandbox(how))
                    }
                    (error, _) => error,
                };
                Err((error, made_ahead))
            }
        }
    }

    async fn group(
        self: &Arc<Self>,
        spec: &InstanceSpec,
    ) -> Result<Option<Arc<Group>>, StartError> {
        if self.layout.is_none() {
            if spec.enforcement == Enforcement::EventDriven {
                return Err(sandbox(CgroupError::NotEnforceable));
            }
            return Ok(None);
        }
        if let Some(group) = self.ready_groups.take(spec) {
            return Ok(Some(group));
        }
        let (host, spec) = (self.clone(), spec.clone());
        let made = tokio::task::spawn_blocking(move || host.make_group(&spec, &spec.id));
        Ok(made.await.map_err(sandbox)?.map_err(sandbox)?.map(Arc::new))
    }

    /// A user for an instance.
    pub(super) fn user(&self) -> Result<User, StartError> {
        self.users
            .take()
            .ok_or_else(|| sandbox("as many instances run as there are users for them"))
    }
}

pub(super) fn sandbox(error: impl std::fmt::Display) -> StartError {
    StartError::Sandbox(error.to_string())
}

/// What an instance may have.
pub(super) fn limits(spec: &InstanceSpec) -> Limits {
    let cpu_micro = match spec.enforcement {
        Enforcement::Kernel | Enforcement::EventDriven => spec.cpu_micro,
        Enforcement::None => Limits::NO_QUOTA,
    };
    Limits {
        memory_bytes: spec.memory_bytes,
        pids_max: spec.pids_max,
        cpu_micro,
        period_us: spec.period_us,
    }
}

/// Where a runtime in a network of its own finds its API.
pub(super) fn own_api() -> String {
    format!("127.0.0.1:{RUNTIME_API_PORT}")
}

/// Has the CPU quota hold from the beginning, if it is to; checks that it can be held at all. Keeps the group to
/// its CPUs.
pub(super) fn limit_start(
    spec: &InstanceSpec,
    group: &Group,
    limits: &Limits,
) -> Result<(), CgroupError> {
    if let Some(cpus) = &spec.cpus {
        group.set_cpus(&cpus.numbers())?;
    }
    if spec.enforcement == Enforcement::EventDriven {
        return if group.can_be_held() { Ok(()) } else { Err(CgroupError::NotEnforceable) };
    }
    if spec.init_throttled { group.set_quota(limits) } else { Ok(()) }
}
