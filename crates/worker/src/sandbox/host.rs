//! What all instances of a worker share, and how one starts.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nix::fcntl::OFlag;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use super::capabilities::Capabilities;
use super::cgroup::{
    CgroupError, Controller, Group, Layout, Limits, PERIODS_US, discover, remove_tree,
};
use super::clock::unix_ns;
use super::descriptor::readable;
use super::environment::{self, CHAIN_PORT, RUNTIME_API_PORT};
use super::live::{Guard, Inner, Instance};
use super::log::Log;
use super::meter::{Meter, Sampler, Source};
use super::rootfs::{self, GROUP_ID, Root, RootError};
use super::runtime_api::{Api, Initialized, accept};
use super::spawn::{Launch, Spawner};
use super::sweep;
use super::wire::{self, Config, Report};
use crate::instance::{
    ChainService, HostConfig, InstanceSpec, Network, Phase, Runtime, StartError,
};

/// Users of instances: numbers that no account has, each instance another, so that what the kernel
/// counts for each user (pending signals, pipe buffers, keys, watches) is nobody else's.
const FIRST_USER: u32 = 1_900_000_000;
const USERS: u32 = 65_536;

/// The user of all functions where a container allows no such numbers: Lambda's.
const ORDINARY_USER: u32 = 993;

/// `/tmp` takes at most this part of the memory, because what is in it counts as the function's
/// memory: a full `/tmp` must be an error that the function sees, not the end of it.
const TMP_NUMERATOR: u64 = 3;
const TMP_DENOMINATOR: u64 = 4;

/// How long building a sandbox may take before its first process is given up.
const BUILD_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("cannot use the state folder {0}: {1}")]
    State(PathBuf, #[source] io::Error),
    #[error("cannot clear what an earlier worker left: {0}")]
    Sweep(#[source] io::Error),
    #[error(transparent)]
    Root(#[from] RootError),
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    #[error("{0}")]
    Namespaces(String),
    #[error("cannot prepare in the background: {0}")]
    Background(String),
}

/// What only tests and experiments change.
#[derive(Debug, Clone, Default)]
pub struct Tuning {
    /// The program that becomes an instance's first process, if not this one: it must call
    /// [`super::enter_if_asked`] before anything else.
    pub executable: Option<PathBuf>,
    /// Use version 2 of control groups even where version 1 has the controllers.
    pub unified: bool,
}

/// How a start went.
pub struct Started {
    pub result: Result<Instance, StartError>,
    pub phases: Vec<Phase>,
    /// The whole start, until the runtime asked for its first request or failed.
    pub initialization_ns: i64,
    /// The last of what was printed meanwhile.
    pub log_tail: Bytes,
}

/// Runs instances.
pub struct Host {
    name: String,
    state: PathBuf,
    chain: ChainService,
    capabilities: Capabilities,
    layout: Option<Layout>,
    roots: HashMap<Runtime, Root>,
    spawner: Spawner,
    sampler: Sampler,
    unique_users: bool,
    next_user: AtomicU32,
    instances: Mutex<HashMap<String, Arc<Inner>>>,
    closed: AtomicBool,
}

impl Host {
    /// What this machine offers, without opening anything.
    pub fn probe() -> Capabilities {
        Capabilities::probe()
    }

    /// Prepares everything shared, after sweeping what an earlier worker with the same state left.
    pub async fn open(config: HostConfig) -> Result<Arc<Self>, HostError> {
        Self::open_tuned(config, Tuning::default()).await
    }

    /// [`Self::open`], otherwise.
    pub async fn open_tuned(config: HostConfig, tuning: Tuning) -> Result<Arc<Self>, HostError> {
        tokio::task::spawn_blocking(move || Self::prepare(config, &tuning))
            .await
            .map_err(|error| HostError::Background(error.to_string()))?
            .map(Arc::new)
    }

    fn prepare(config: HostConfig, tuning: &Tuning) -> Result<Self, HostError> {
        let folder = config.state.clone();
        let bad_state = |error| HostError::State(folder.clone(), error);
        let roots_folder = config.state.join("runtimes");
        fs::create_dir_all(&roots_folder).map_err(bad_state)?;
        let state = config.state.canonicalize().map_err(bad_state)?;
        let roots_folder = state.join("runtimes");

        let name = sweep::parent_name(&state);
        sweep::sweep(&state, &name).map_err(HostError::Sweep)?;
        let layout = discover(&name, tuning.unified).filter(|layout| !layout.parents.is_empty());
        if let Some(layout) = &layout {
            sweep::record(&state, &layout.folders()).map_err(bad_state)?;
        }
        let capabilities = Capabilities::new(layout.as_ref());
        if !capabilities.can_sandbox() {
            return Err(HostError::Namespaces(capabilities.warnings[0].clone()));
        }

        let mut roots = HashMap::new();
        for (runtime, interpreter) in [
            (Runtime::Python, config.python.as_deref()),
            (Runtime::Node, config.node.as_deref()),
            (Runtime::Provided, None),
        ] {
            if let Some(root) = rootfs::prepare(&roots_folder, runtime, interpreter)? {
                roots.insert(runtime, root);
            }
        }
        let keep: Vec<_> = roots.values().collect();
        rootfs::remove_others(&roots_folder, &keep).map_err(bad_state)?;

        raise_descriptor_limit();
        let own = Path::new("/proc/self/exe");
        let executable = tuning.executable.as_deref().unwrap_or(own);
        Ok(Self {
            chain: config.chain,
            spawner: Spawner::new(executable).map_err(HostError::Thread)?,
            sampler: Sampler::new().map_err(HostError::Thread)?,
            unique_users: capabilities.root && all_users_exist(),
            next_user: AtomicU32::new(std::process::id()),
            instances: Mutex::default(),
            closed: AtomicBool::new(false),
            name,
            state,
            capabilities,
            layout,
            roots,
        })
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// "3.11.7", "20.20.2"; `None` if this runtime is not on the host.
    pub fn runtime_version(&self, runtime: Runtime) -> Option<String> {
        self.roots.get(&runtime).map(|root| root.version.clone())
    }

    /// Starts an instance and waits until its runtime asks for the first request.
    pub async fn start(self: &Arc<Self>, spec: InstanceSpec) -> Started {
        let began = unix_ns();
        let mut phases = Vec::new();
        let mut log_tail = Bytes::new();
        let result = self.try_start(&spec, &mut phases, &mut log_tail).await;
        // A start ends when the runtime is ready, not when this task gets to know it.
        let ended = match &result {
            Ok(_) => phases.last().map_or_else(unix_ns, |phase: &Phase| phase.end),
            Err(_) => unix_ns(),
        };
        Started { result, phases, initialization_ns: ended - began, log_tail }
    }

    async fn try_start(
        self: &Arc<Self>,
        spec: &InstanceSpec,
        phases: &mut Vec<Phase>,
        log_tail: &mut Bytes,
    ) -> Result<Instance, StartError> {
        let began = unix_ns();
        if self.closed.load(Ordering::SeqCst) {
            return Err(StartError::Sandbox("the worker is closing".into()));
        }
        let root = self.roots.get(&spec.runtime).ok_or_else(|| {
            StartError::Sandbox(format!("this machine has no runtime {:?}", spec.runtime))
        })?;
        check(spec)?;
        let limits = Limits {
            memory_bytes: spec.memory_bytes,
            pids_max: spec.pids_max,
            cpu_micro: spec.cpu_micro,
            period_us: spec.period_us,
        };
        let group = self.group(spec, limits).await?;
        let grouped = unix_ns();
        phases.push(Phase { name: "cgroup", start: began, end: grouped });

        let (inner, mut reports, initialized) = self.launch(spec, root, group).await?;
        let guard = Guard::new(&inner);
        let result = async {
            let executed = self.built(&inner, &mut reports, grouped, phases).await?;
            self.initialized(spec, &inner, initialized, executed, phases).await?;
            if !spec.init_throttled
                && let Some(group) = &inner.group
            {
                group.set_quota(&limits).map_err(sandbox)?;
            }
            Ok(())
        }
        .await;
        *log_tail = inner.log.tail();
        match result {
            Ok(()) => {
                guard.release();
                Ok(Instance::new(inner))
            }
            Err(error) => {
                inner.kill();
                inner.gone().await;
                Err(error)
            }
        }
    }

    async fn group(
        self: &Arc<Self>,
        spec: &InstanceSpec,
        limits: Limits,
    ) -> Result<Option<Group>, StartError> {
        if self.layout.is_none() {
            return Ok(None);
        }
        let (host, id, throttled) = (self.clone(), spec.id.clone(), spec.init_throttled);
        let made = tokio::task::spawn_blocking(move || {
            let Some(layout) = &host.layout else { return Ok(None) };
            let group = Group::create(layout, &id, &limits)?;
            if throttled {
                group.set_quota(&limits)?;
            }
            Ok::<_, CgroupError>(Some(group))
        });
        made.await.map_err(sandbox)?.map_err(sandbox)
    }

    /// Starts the first process and what serves the instance.
    #[allow(clippy::type_complexity)]
    async fn launch(
        self: &Arc<Self>,
        spec: &InstanceSpec,
        root: &Root,
        group: Option<Group>,
    ) -> Result<
        (
            Arc<Inner>,
            mpsc::UnboundedReceiver<(Report, Vec<OwnedFd>)>,
            oneshot::Receiver<Initialized>,
        ),
        StartError,
    > {
        let (control, theirs) = wire::pair().map_err(sandbox)?;
        let (read, output) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(sandbox)?;
        nix::fcntl::fcntl(&read, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .map_err(sandbox)?;
        let (api, initialized) = Api::new(spec.function_arn.clone());

        // With the host's network, the API is on the host's loopback, at a port of its own.
        let own_network = spec.network != Network::Host;
        let mut listener = None;
        let mut address = format!("127.0.0.1:{RUNTIME_API_PORT}");
        if !own_network {
            let host_side = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(sandbox)?;
            address = host_side.local_addr().map_err(sandbox)?.to_string();
            listener = Some(host_side);
        }
        let config = self.config(spec, root, group.as_ref(), &address, own_network);
        // It waits in the socket, so that the process finds it as soon as it runs.
        wire::send(control.as_raw_fd(), &config, &[]).map_err(|error| {
            StartError::Sandbox(if error.raw_os_error() == Some(libc::EMSGSIZE) {
                "the function's environment is too large".into()
            } else {
                error.to_string()
            })
        })?;
        let launch = Launch {
            label: sweep::label(&self.name, &spec.id),
            control: theirs,
            output,
            own_network,
            user_namespace: !self.capabilities.root,
        };
        let child = self
            .spawner
            .start(launch)
            .await
            .map_err(|error| StartError::Sandbox(format!("cannot start a process: {error}")))?;
        let pid = child.pid;
        let source = group.as_ref().map_or(Source::Process, |it| Source::Groups(it.counters()));
        let meter = Arc::new(Meter::new(source));
        self.sampler.add(&meter);
        let inner = Arc::new(Inner {
            id: spec.id.clone(),
            api: api.clone(),
            meter,
            log: Arc::new(Log::new(read).map_err(sandbox)?),
            group,
            sampler: self.sampler.clone(),
            pid,
            pidfd: readable(child.into_pidfd()).map_err(sandbox)?,
            control: readable(control).map_err(sandbox)?,
            ended: watch::Sender::new(None),
            doomed: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            servers: Mutex::default(),
        });
        if let Some(listener) = listener {
            inner.serve(api.serve(listener));
        }
        let log = inner.log.clone();
        inner.serve(async move { log.follow().await });
        self.lock().insert(spec.id.clone(), inner.clone());
        if self.closed.load(Ordering::SeqCst) {
            inner.kill();
        }

        let (send, reports) = mpsc::unbounded_channel();
        let (host, own) = (self.clone(), inner.clone());
        tokio::spawn(async move {
            let id = own.id.clone();
            own.supervise(send).await;
            host.lock().remove(&id);
        });
        Ok((inner, reports, initialized))
    }

    fn config(
        &self,
        spec: &InstanceSpec,
        root: &Root,
        group: Option<&Group>,
        api: &str,
        own_network: bool,
    ) -> Config {
        let mut arguments = environment::command(spec, &root.command);
        let program = PathBuf::from(&arguments[0]);
        if spec.runtime == Runtime::Provided {
            arguments.truncate(1);
        }
        let mut listen = vec![];
        if own_network {
            listen.push(RUNTIME_API_PORT);
        }
        if spec.network == Network::Platform {
            listen.push(CHAIN_PORT);
        }
        let mut files = Vec::new();
        if !own_network {
            for file in ["/etc/resolv.conf", "/etc/hosts"] {
                if let Ok(path) = fs::canonicalize(file) {
                    files.push((path, PathBuf::from(file)));
                }
            }
        }
        let most = spec.memory_bytes / TMP_DENOMINATOR * TMP_NUMERATOR;
        Config {
            hostname: "localhost".into(),
            root: root.path.clone(),
            code: spec.code.clone(),
            tmp_bytes: spec.ephemeral_bytes.min(most),
            uid: self.user(),
            gid: GROUP_ID,
            user_namespace: !self.capabilities.root,
            own_network,
            max_processes: self.max_processes(spec),
            listen,
            files,
            join: group.map(Group::join_files).unwrap_or_default(),
            thaw: group.and_then(Group::thaw_file),
            program,
            arguments,
            environment: environment::build(spec, &root.version, api).into_iter().collect(),
        }
    }

    /// The limit of processes where no control group holds it.
    fn max_processes(&self, spec: &InstanceSpec) -> Option<u64> {
        let grouped = self.layout.as_ref().is_some_and(|it| it.has(Controller::Pids));
        (!grouped && self.capabilities.enforced.pids).then_some(spec.pids_max)
    }

    fn user(&self) -> u32 {
        if self.unique_users {
            FIRST_USER + self.next_user.fetch_add(1, Ordering::Relaxed) % USERS
        } else {
            ORDINARY_USER
        }
    }

    /// Waits until the runtime's program runs; returns since when.
    async fn built(
        &self,
        inner: &Arc<Inner>,
        reports: &mut mpsc::UnboundedReceiver<(Report, Vec<OwnedFd>)>,
        spawned: i64,
        phases: &mut Vec<Phase>,
    ) -> Result<i64, StartError> {
        let deadline = tokio::time::Instant::now() + BUILD_TIMEOUT;
        loop {
            let report = tokio::time::timeout_at(deadline, reports.recv())
                .await
                .map_err(|_| StartError::Sandbox("building it took too long".into()))?;
            match report {
                Some((Report::Listening, fds)) => {
                    let mut listeners = fds.into_iter().map(listener);
                    if let Some(api) = listeners.next() {
                        inner.serve(inner.api.clone().serve(api.map_err(sandbox)?));
                    }
                    if let Some(chain) = listeners.next() {
                        inner.serve(serve_chain(chain.map_err(sandbox)?, self.chain.clone()));
                    }
                }
                Some((Report::Running { phases: inside }, _)) => {
                    let entered = inside.first().map_or(spawned, |(_, start, _)| *start);
                    phases.push(Phase { name: "spawn", start: spawned, end: entered });
                    for (name, start, end) in inside {
                        let name = match name.as_str() {
                            "network" => "network",
                            "mounts" => "mounts",
                            _ => "exec",
                        };
                        phases.push(Phase { name, start, end });
                    }
                    if let Some(pid) = runtime_process(inner) {
                        inner.meter.set_runtime(pid);
                    }
                    return Ok(phases.last().map_or_else(unix_ns, |phase| phase.end));
                }
                Some((Report::Failed(message), _)) => return Err(StartError::Sandbox(message)),
                Some((Report::Exited(_), _)) => {}
                None => {
                    let end = inner.gone().await;
                    return Err(StartError::Sandbox(end.description));
                }
            }
        }
    }

    /// Waits until the runtime asks for its first request.
    async fn initialized(
        &self,
        spec: &InstanceSpec,
        inner: &Arc<Inner>,
        outcome: oneshot::Receiver<Initialized>,
        executed: i64,
        phases: &mut Vec<Phase>,
    ) -> Result<(), StartError> {
        let outcome = tokio::select! {
            biased;
            outcome = outcome => outcome,
            end = inner.gone() => {
                return Err(if end.killed && inner.meter.out_of_memory() {
                    StartError::OutOfMemory
                } else {
                    StartError::Exited(end.description)
                });
            }
            () = tokio::time::sleep(spec.init_timeout) => {
                return Err(StartError::Timeout(spec.init_timeout));
            }
        };
        match outcome {
            Ok(Initialized::Ready { at, began }) => {
                // What a function says about itself is believed only within reason.
                match began.filter(|began| (executed..=at).contains(began)) {
                    Some(began) => {
                        phases.push(Phase { name: "runtime", start: executed, end: began });
                        phases.push(Phase { name: "handler", start: began, end: at });
                    }
                    None => phases.push(Phase { name: "runtime", start: executed, end: at }),
                }
                Ok(())
            }
            Ok(Initialized::Failed { error_type, payload }) => Err(init_error(error_type, payload)),
            Err(_) => Err(StartError::Sandbox("the Runtime API is gone".into())),
        }
    }

    /// Ends what is left and removes the control groups' parent.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Again, for what was just starting.
        loop {
            let left: Vec<_> = self.lock().values().cloned().collect();
            if left.is_empty() {
                break;
            }
            for inner in &left {
                inner.kill();
            }
            for inner in &left {
                inner.gone().await;
            }
        }
        self.sampler.end();
        if let Some(layout) = self.layout.clone() {
            let state = self.state.clone();
            let removed = tokio::task::spawn_blocking(move || {
                for folder in layout.folders() {
                    remove_tree(&folder)?;
                }
                sweep::record(&state, &[])
            });
            // What cannot be removed now, the next worker sweeps: the record names it.
            drop(removed.await);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Inner>>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sandbox(error: impl std::fmt::Display) -> StartError {
    StartError::Sandbox(error.to_string())
}

/// Whether what the platform asks for can be built.
fn check(spec: &InstanceSpec) -> Result<(), StartError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if spec.id.is_empty() || !spec.id.bytes().all(fine) {
        return Err(StartError::Sandbox(format!("{:?} is no name for an instance", spec.id)));
    }
    if !PERIODS_US.contains(&spec.period_us) {
        return Err(StartError::Sandbox(CgroupError::Period(spec.period_us).to_string()));
    }
    let readable = fs::metadata(&spec.code)
        .is_ok_and(|it| it.is_dir() && it.permissions().mode() & 0o005 == 0o005);
    if !readable {
        let folder = spec.code.display();
        return Err(StartError::Sandbox(format!("{folder} is no folder that everybody may read")));
    }
    Ok(())
}

/// The runtime's process in the worker's numbering: the only one of the group, or the only child of
/// the first process.
fn runtime_process(inner: &Inner) -> Option<i32> {
    inner.group.as_ref().and_then(Group::leader).or_else(|| {
        let pid = inner.pid;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    })
}

fn listener(fd: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves Invoke to the function itself.
async fn serve_chain(listener: TcpListener, chain: ChainService) {
    accept(listener, |stream| {
        let chain = chain.clone();
        async move {
            // Without it, answers may be late by 40 ms.
            let _ = stream.set_nodelay(true);
            let service = service_fn(move |request| {
                let answer = chain(request);
                async move { Ok::<_, std::convert::Infallible>(answer.await) }
            });
            // The function may close the connection as it likes.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    })
    .await;
}

/// Takes an error object apart.
fn init_error(header: Option<String>, payload: Bytes) -> StartError {
    let object: serde_json::Value = serde_json::from_slice(&payload).unwrap_or_default();
    let text = |key: &str| object.get(key).and_then(|it| it.as_str()).map(str::to_owned);
    StartError::Init {
        error_type: text("errorType").or(header).unwrap_or_else(|| "Runtime.Unknown".into()),
        message: text("errorMessage").unwrap_or_default(),
        payload,
    }
}

/// Whether every user number is one here, as outside of containers with user namespaces.
fn all_users_exist() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// An instance takes about fifteen descriptors, and the usual limit is 1024.
fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // With fewer, fewer instances run at a time.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
