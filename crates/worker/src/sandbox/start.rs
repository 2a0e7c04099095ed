//! How an instance starts.

mod config;
mod ready;

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Instrument;
use uncia_clock::monotonic_ns;

use super::cgroup::{CgroupError, Group, Limits, PERIODS_US};
use super::chain;
use super::connector::Connector;
use super::containers::Contained;
use super::descriptor::readable;
use super::environment::RUNTIME_API_PORT;
use super::host::Host;
use super::http_server::Server;
use super::kinds::{self, Origin, Prepared, StartKind, Zygote, output_pipe};
use super::live::{End, Guard, Inner, Instance};
use super::log::Log;
use super::meter::{Counted, Meter, QuotaUse, Source};
use super::rootfs::Root;
use super::runtime_api::{Extensions, Initialized, RuntimeApi};
use super::telemetry::{Telemetry, expects_extensions};
use super::traffic::Traffic;
use super::users::User;
use super::wire::{self, InitConfig, Report};
use crate::clock::Moment;
use crate::instance::{
    Architecture, Enforcement, InstanceSpec, Network, Phase, Services, StartError, StartFrom,
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

/// What the first process reports, and the descriptors that come with it.
type Reports = mpsc::UnboundedReceiver<(Report, Vec<OwnedFd>)>;

/// An instance whose first process has been started.
struct Launched {
    inner: Arc<Inner>,
    reports: Reports,
    initialized: oneshot::Receiver<Initialized>,
    zygote: Option<Arc<Zygote>>,
    /// Whether its runtime waited for it.
    waited: bool,
    made_ahead: bool,
}

/// Why there is no instance.
enum Failure {
    Start(StartError),
    /// The first process has ended before it had built anything.
    Vanished(String),
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl Host {
    /// Starts an instance and waits until its runtime asks for the first request.
    pub async fn start(self: &Arc<Self>, spec: InstanceSpec) -> Started {
        let began = Moment::now();
        let mut phases = Vec::new();
        let mut log_tail = Bytes::new();
        let span = tracing::info_span!("start", instance = %spec.id, function = %spec.function);
        let starting = self.try_start(&spec, began, &mut phases, &mut log_tail);
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
        let restored = phases.iter().any(|phase| ["fork", "assign"].contains(&phase.name));
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
        began: Moment,
        phases: &mut Vec<Phase>,
        log_tail: &mut Bytes,
    ) -> Result<Instance, StartError> {
        let mut kind = kinds::of(spec.start_from);
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
            let attempt = self.attempt(spec, root, limits, kind, began, phases, log_tail).await;
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
        let launched = match origin {
            Ok(origin) => {
                let made_ahead = origin.made_ahead;
                let launched = self.launch(spec, root, group.clone(), limits, origin, began).await;
                launched.map_err(|error| (error, made_ahead))
            }
            Err(error) => Err((error.into(), false)),
        };
        if launched.is_err() {
            // Waits for the kernel: not on a thread that others need.
            drop(tokio::task::spawn_blocking(move || drop(group)).await);
        }
        let Launched { inner, mut reports, initialized, zygote, waited, made_ahead } = launched?;
        let guard = Guard::new(&inner);
        let result = async {
            let zygote = zygote.as_deref();
            let executed =
                self.built(spec, &inner, &mut reports, (zygote, waited), grouped, phases).await?;
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

    /// Starts the first process and what serves the instance.
    async fn launch(
        self: &Arc<Self>,
        spec: &InstanceSpec,
        root: &Root,
        group: Option<Arc<Group>>,
        limits: Limits,
        origin: Origin,
        began: Moment,
    ) -> Result<Launched, Failure> {
        let Origin { first, zygote, waiting, made_ahead } = origin;
        let waited = waiting.is_some();
        let user = match waiting {
            Some(waiting) => waiting.user,
            None => self.user()?,
        };
        if self.capabilities.root {
            first.give_output(user.number).map_err(sandbox)?;
        }
        let Prepared { child, control, output, listeners } = first;
        let telemetry = Telemetry::new(spec);
        telemetry.begin(began);
        let (api, initialized) = RuntimeApi::new(
            spec.function_arn.clone(),
            !spec.runtime.definition().starts_functions_program(),
            Extensions::new(spec),
            telemetry.clone(),
        );

        // With the host's network, the API is on the host's loopback, at a port of its own.
        let own_network = spec.network != Network::Host;
        let mut listener = None;
        let mut address = own_api();
        if !own_network {
            let host_side = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(sandbox)?;
            address = host_side.local_addr().map_err(sandbox)?.to_string();
            listener = Some(host_side);
        }
        let mut config = self.config(spec, root, group.as_deref(), &address, user.number);
        let only_user = self.capabilities.root.then_some(user.number);
        let server = match spec.architecture {
            // The host of code is a server, and code no instance.
            Architecture::Polling | Architecture::Code => None,
            Architecture::Http => Some(Server::new(own_network).map_err(sandbox)?),
        };
        if let Some(server) = &server {
            server.announce(&mut config);
        }
        let contained = self.bundle(spec, &mut config).await?;
        let (extensions_output, theirs) = self.extensions_output(spec, user.number)?.unzip();
        let log = Log::new(output).and_then(|it| it.with_telemetry(extensions_output, telemetry));
        let log = Arc::new(log.map_err(sandbox)?);
        let mut part = None;
        if waited {
            // What is printed from now on is the function's.
            log.begin();
            config = fit(config, spec, group.clone(), limits).await?;
            part = group.as_ref().and_then(|group| self.shares.adopt(spec, group));
        }
        let beside: Vec<_> = theirs.iter().map(AsRawFd::as_raw_fd).collect();
        wire::send(control.as_raw_fd(), &config, &beside).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EMSGSIZE) => sandbox("the function's environment is too large").into(),
                Some(libc::EPIPE | libc::ECONNRESET) => Failure::Vanished(error.to_string()),
                _ => Failure::from(sandbox(error)),
            }
        })?;
        let pid = child.pid;
        let watched = group
            .as_ref()
            .filter(|_| spec.enforcement == Enforcement::EventDriven)
            .map(|group| self.enforcer.watch(group.clone(), &limits));
        let source = group.as_ref().map_or(Source::Process, |group| {
            let enforcer = self.enforcer.clone();
            Source::groups(
                group.counters(),
                limits.memory_bytes,
                watched.clone(),
                enforcer,
                self.cores.as_ref().and_then(|cores| cores.of(group)),
                QuotaUse::new(&limits),
            )
        });
        let counted = group.as_ref().filter(|_| spec.counters).map(|it| Counted::open(it));
        let meter = Meter::new(source, self.sampler.clone(), !spec.preemptible).counting(counted);
        let meter = Arc::new(meter);
        let inner = Arc::new(Inner {
            id: spec.id.clone(),
            api: api.clone(),
            server,
            connector: Connector::new(own_network, only_user),
            meter,
            traffic: Traffic::new(spec.reach),
            log: log.clone(),
            cgroup: group.as_ref().and_then(|it| it.path(self.mounts.as_ref()?)),
            group,
            cores: self.cores.clone(),
            pinned: AtomicBool::new(false),
            limits,
            reclaims: spec.reclaim_memory,
            contained,
            _user: user,
            _part: part,
            watched,
            pid,
            pidfd: readable(child.into_pidfd()).map_err(sandbox)?,
            control: readable(control).map_err(sandbox)?,
            ended: watch::Sender::new(None),
            doomed: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            servers: Mutex::default(),
        });
        api.telemetry().attach(&inner);
        drop(theirs);
        self.serve(&inner, spec, listeners)?;
        if let Some(listener) = listener {
            // Without root all functions are the worker's own user, and cannot be told apart.
            inner.serve(api.serve(listener, only_user));
        }
        inner.serve(async move { log.follow().await });
        self.lock().insert(spec.id.clone(), inner.clone());
        if let Some(watched) = inner.watched.as_ref().filter(|_| spec.init_throttled) {
            watched.engage();
        }
        if self.closed.load(Ordering::SeqCst) {
            inner.kill();
        }

        let (send, reports) = mpsc::unbounded_channel();
        let (host, own) = (self.clone(), inner.clone());
        let supervisor = tokio::spawn(own.clone().supervise(send));
        tokio::spawn(async move {
            if let Err(error) = supervisor.await {
                tracing::error!(instance = %own.id, "what watches over it has ended: {error}");
                own.kill();
                own.ended.send_replace(Some(End::unseen()));
            }
            let mut instances = host.lock();
            // Unless it has been started again meanwhile.
            if instances.get(&own.id).is_some_and(|it| Arc::ptr_eq(it, &own)) {
                instances.remove(&own.id);
            }
        });
        Ok(Launched { inner, reports, initialized, zygote, waited, made_ahead })
    }

    /// The pipe that an instance's extensions print to, if it has any.
    fn extensions_output(
        &self,
        spec: &InstanceSpec,
        user: u32,
    ) -> Result<Option<(OwnedFd, OwnedFd)>, StartError> {
        if !expects_extensions(spec) {
            return Ok(None);
        }
        let (read, write) = output_pipe().map_err(sandbox)?;
        if self.capabilities.root {
            // By its name, such as `/dev/stdout`, only its owner can open it.
            nix::unistd::fchown(&read, Some(user.into()), None).map_err(sandbox)?;
        }
        Ok(Some((read, write)))
    }

    /// Writes the bundle of an instance that is a container.
    async fn bundle(
        &self,
        spec: &InstanceSpec,
        config: &mut InitConfig,
    ) -> Result<Option<Contained>, StartError> {
        let Some(runtime) = spec.sandbox.runtime() else { return Ok(None) };
        let contained = Contained::new(runtime, &self.state, &self.name, &spec.id);
        let contained = contained.ok_or_else(|| sandbox("the OCI runtime is gone"))?;
        config.container = Some(contained.container().clone());
        let written = config.clone();
        tokio::task::spawn_blocking(move || contained.write(&written).map(|()| Some(contained)))
            .await
            .map_err(sandbox)?
            .map_err(|error| sandbox(format!("cannot write its bundle: {error}")))
    }

    /// A user for an instance.
    pub(super) fn user(&self) -> Result<User, StartError> {
        self.users
            .take()
            .ok_or_else(|| sandbox("as many instances run as there are users for them"))
    }

    /// Serves the endpoints in an instance's network: the Runtime API, the services that it reaches, and Invoke if
    /// it has that. The listeners of the others are closed.
    fn serve(
        &self,
        inner: &Arc<Inner>,
        spec: &InstanceSpec,
        listeners: Vec<OwnedFd>,
    ) -> Result<(), StartError> {
        let mut listeners = listeners.into_iter();
        if let Some(api) = listeners.next() {
            let api = listener(api).map_err(sandbox)?;
            inner.serve(inner.api.clone().serve(api, None));
        }
        for (index, descriptor) in self.services.located().indices().zip(&mut listeners) {
            if let Some(passed) = inner.traffic.of(index) {
                let forwarding = self.services.forward(index, descriptor, inner.id.clone(), passed);
                inner.serve(forwarding.map_err(sandbox)?);
            }
        }
        if let Some(descriptor) = listeners.next().filter(|_| spec.network == Network::Platform) {
            let listener = listener(descriptor).map_err(sandbox)?;
            inner.serve(chain::serve(listener, self.chain.clone(), inner.api.clone()));
        }
        Ok(())
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

/// Fits what waited to its instance: its limits, and the names by which it finds the files. Waits for the
/// kernel and the disk on a thread that nobody needs.
async fn fit(
    mut config: InitConfig,
    spec: &InstanceSpec,
    group: Option<Arc<Group>>,
    limits: Limits,
) -> Result<InitConfig, StartError> {
    let spec = spec.clone();
    let fitted = tokio::task::spawn_blocking(move || {
        if let Some(group) = group {
            limit_start(&spec, &group, &limits).map_err(sandbox)?;
        }
        config.follow_links().map_err(sandbox)?;
        Ok(config)
    });
    fitted.await.map_err(sandbox)?
}

/// Whether what the platform asks for can be built.
fn check(spec: &InstanceSpec, services: &Services) -> Result<(), StartError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if spec.id.is_empty() || !spec.id.bytes().all(fine) {
        return Err(StartError::Sandbox(format!("{:?} is no name for an instance", spec.id)));
    }
    if !PERIODS_US.contains(&spec.period_us) {
        return Err(StartError::Sandbox(CgroupError::Period(spec.period_us).to_string()));
    }
    if let Some(refusal) = services.refusal(spec.reach) {
        return Err(StartError::Sandbox(refusal));
    }
    if spec.network == Network::Host && !spec.reach.is_empty() {
        let refusal = "a function on the host's network reaches every address: remove `reach`, or give \
                       it another network";
        return Err(StartError::Sandbox(refusal.into()));
    }
    check_container(spec)?;
    if spec.image.is_some() {
        return Ok(());
    }
    for folder in std::iter::once(&spec.code).chain(&spec.layers) {
        let readable = fs::metadata(folder)
            .is_ok_and(|it| it.is_dir() && it.permissions().mode() & 0o005 == 0o005);
        if !readable {
            let folder = folder.display();
            let message = format!("{folder} is no folder that everybody may read");
            return Err(StartError::Sandbox(message));
        }
    }
    Ok(())
}

/// Whether it can be a container, if it is to be one.
fn check_container(spec: &InstanceSpec) -> Result<(), StartError> {
    let Some(runtime) = spec.sandbox.runtime() else { return Ok(()) };
    if let Some(obstacle) = runtime.obstacle() {
        return Err(sandbox(obstacle));
    }
    let name = runtime.name();
    if spec.start_from.needs_polling() {
        return Err(sandbox(format!(
            "start_from must be fresh or prepared with sandbox set to {name}: what others start from is no \
             container"
        )));
    }
    if spec.extensions.is_empty() || spec.architecture != Architecture::Polling {
        return Ok(());
    }
    Err(sandbox(format!(
        "a container of {name} has one program, and the function's layers have extensions besides: set \
         sandbox to process"
    )))
}

fn listener(fd: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
