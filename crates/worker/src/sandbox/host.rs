//! What all instances of a worker share.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use nix::fcntl::Flock;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::capabilities::Capabilities;
use super::cgroup::{Controller, Layout, Mounts, PerCpu, clear_tree, discover, discover_to_pin};
use super::checkpoint::Criu;
use super::code::CodeHost;
use super::containers;
use super::cores::HostCores;
use super::enforcer::{Enforcer, EnforcerUse};
use super::forwarder::Forwarder;
use super::kinds::{FunctionZygotes, Pool, RuntimePool, Zygotes};
use super::live::Inner;
use super::memory_watch::{InUse, MemoryWatch};
use super::meter::Sampler;
use super::peer::{self, peer_user};
use super::precedence::{self, Precedence};
use super::priority::allowed_cpus;
use super::ready_groups::ReadyGroups;
use super::rootfs::{ImageRoots, RootError};
use super::roots::Roots;
use super::shared_state::SharedStates;
use super::shares::Shares;
use super::spawn::Spawner;
use super::sweep;
use super::threads::Failure;
use super::unusable_byte_code::UnusableByteCode;
use super::users::Users;
use super::visitors::{Peer, Visitors};
use crate::instance::{ChainService, HostConfig, Runtime, StartError};

/// Why a host cannot run instances.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
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

/// The control groups of a host.
fn layout(name: &str, unified: bool, pins: bool) -> Option<Layout> {
    let layout = if pins { discover_to_pin(name, unified) } else { discover(name, unified) };
    layout.map(|layout| layout.beside(name))
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

/// Runs instances.
pub struct Host {
    pub(super) name: String,
    pub(super) state: PathBuf,
    pub(super) chain: ChainService,
    pub(super) services: Forwarder,
    pub(super) capabilities: Capabilities,
    pub(super) layout: Option<Layout>,
    /// By which groups are named.
    pub(super) mounts: Option<Mounts>,
    _groups: Vec<Flock<File>>,
    pub(super) shares: Arc<Shares>,
    /// Set where the CPU is divided between instances by a policy.
    pub(super) cores: Option<Arc<HostCores>>,
    pub(super) ready_groups: Arc<ReadyGroups>,
    pub(super) roots: Roots,
    pub(super) image_roots: ImageRoots,
    pub(super) spawner: Spawner,
    pub(super) prepared: Arc<Pool>,
    pub(super) started: Arc<RuntimePool>,
    pub(super) zygotes: Arc<Zygotes>,
    pub(super) function_zygotes: Arc<FunctionZygotes>,
    /// Of started instances, by function.
    pub(super) checkpoints: Arc<SharedStates>,
    /// What makes and restores them, or why nothing does, once somebody wants to know.
    pub(super) criu: OnceLock<Result<Criu, String>>,
    pub(super) shared_states: Arc<SharedStates>,
    pub(super) sampler: Sampler,
    /// Set where somebody wants to know what instances use.
    memory_watch: OnceLock<MemoryWatch>,
    capacity_memory: Option<u64>,
    pub(super) enforcer: Arc<Enforcer>,
    pub(super) users: Users,
    visitors: Visitors,
    pub(super) code: CodeHost,
    pub(super) unusable_byte_code: UnusableByteCode,
    /// Packages that may be compiled at a time.
    pub(super) compilers: Semaphore,
    /// Set with the first instance on the host's network: whether the kernel says who connects.
    host_network: OnceLock<bool>,
    pub(super) instances: Mutex<HashMap<String, Arc<Inner>>>,
    pub(super) closed: AtomicBool,
    pub(super) failure: Failure,
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
        let (state, unified) = (config.state.clone(), tuning.unified);
        let pins = config.shares_cpus || config.cpusets;
        Self::try_prepare(config, tuning).inspect_err(|_| {
            // The error at hand is what matters; groups that stay are empty.
            let name = state.canonicalize().map(|state| sweep::parent_name(&state));
            let layout = name.ok().and_then(|name| layout(&name, unified, pins));
            let folders = layout.iter().flat_map(Layout::folders);
            for folder in folders.filter(|folder| !sweep::is_held(folder)) {
                let _ = clear_tree(&folder);
            }
        })
    }

    fn try_prepare(config: HostConfig, tuning: &Tuning) -> Result<Self, HostError> {
        let folder = config.state.clone();
        let bad_state = |error| HostError::State(folder.clone(), error);
        fs::create_dir_all(config.state.join("runtimes")).map_err(bad_state)?;
        let state = config.state.canonicalize().map_err(bad_state)?;
        let roots_folder = state.join("runtimes");

        let name = sweep::parent_name(&state);
        sweep::sweep(&state, &name).map_err(HostError::Sweep)?;
        containers::sweep(&state, &name).map_err(HostError::Sweep)?;
        let shares_cpus = config.shares_cpus;
        let pins = shares_cpus || config.cpusets;
        let layout =
            layout(&name, tuning.unified, pins).filter(|layout| !layout.parents.is_empty());
        let folders = layout.as_ref().map(Layout::folders).unwrap_or_default();
        let groups = sweep::hold(&folders).map_err(HostError::Sweep)?;
        if layout.is_some() {
            sweep::record(&state, &folders).map_err(bad_state)?;
        }
        let cpus = allowed_cpus();
        let all = layout.as_ref().filter(|_| shares_cpus).and_then(|layout| {
            let folder = layout.parents.get(&Controller::CpuAccounting)?;
            let all = PerCpu::open(layout.version, folder, &cpus)?;
            Some((layout.version, Arc::new(all)))
        });
        let mut capabilities = Capabilities::new(layout.as_ref());
        if !capabilities.can_sandbox() {
            return Err(HostError::Namespaces(capabilities.warnings[0].clone()));
        }

        let roots = Roots::open(
            &roots_folder,
            config.runtimes_cache,
            &config.interpreters,
            &mut capabilities.warnings,
        )?;
        let image_roots = ImageRoots::prepare(&state, capabilities.root)?;

        // An instance takes about fifteen, and the usual limit is 1024; with fewer, fewer instances run
        // at a time.
        uncia_process::descriptors::raise_limit();
        let own = Path::new("/proc/self/exe");
        let executable = tuning.executable.as_deref().unwrap_or(own);
        let failure = Failure::new();
        Ok(Self {
            chain: config.chain,
            services: Forwarder::new(config.services).map_err(HostError::Thread)?,
            spawner: Spawner::new(executable, &failure).map_err(HostError::Thread)?,
            prepared: Arc::default(),
            started: Arc::new(RuntimePool::new(config.pool)),
            zygotes: Arc::default(),
            function_zygotes: Arc::default(),
            checkpoints: Arc::new(
                SharedStates::open(state.join("checkpoints"), config.checkpoint_cache)
                    .map_err(bad_state)?,
            ),
            criu: OnceLock::new(),
            shared_states: Arc::new(
                SharedStates::open(state.join("shared"), config.checkpoint_cache)
                    .map_err(bad_state)?,
            ),
            sampler: Sampler::new(&failure, config.capacity_memory).map_err(HostError::Thread)?,
            memory_watch: OnceLock::new(),
            capacity_memory: config.capacity_memory,
            enforcer: Arc::new(Enforcer::new(&failure).map_err(HostError::Thread)?),
            users: Users::new(capabilities.root),
            visitors: Visitors::default(),
            code: CodeHost::new(&state),
            unusable_byte_code: UnusableByteCode::default(),
            compilers: Semaphore::new(thread::available_parallelism().map_or(1, usize::from)),
            host_network: OnceLock::new(),
            instances: Mutex::default(),
            closed: AtomicBool::new(false),
            failure,
            name,
            state,
            capabilities,
            layout,
            mounts: Mounts::read().ok(),
            _groups: groups,
            shares: Arc::new(Shares::new(!shares_cpus)),
            cores: shares_cpus.then(|| Arc::new(HostCores { cpus, all })),
            ready_groups: Arc::default(),
            roots,
            image_roots,
        })
    }

    /// What this machine offers, as found when the host was opened.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// What functions asked for and do not get, and what the platform does without, a sentence each.
    pub fn refusals(&self) -> Vec<String> {
        let mut refusals = self.function_zygotes.refusals();
        refusals.extend(self.zygotes.refusals());
        refusals.extend(self.started.refusals());
        refusals.extend(self.shared_states.refusals());
        refusals.extend(self.checkpoints.refusals());
        refusals.extend(self.unusable_byte_code.refusals());
        refusals
    }

    /// What is not measured, or not divided, where this policy divides the CPU; a sentence.
    pub fn cpu_warning(&self, policy: &str) -> Option<String> {
        let cores = self.cores.as_ref()?;
        let is_measured = cores.all.is_some() && policy != "weights";
        if self.layout.as_ref().is_none_or(|layout| !layout.has(Controller::Cpu)) {
            return Some(
                "cpu_sharing has no effect: there is no control group for CPUs".to_owned(),
            );
        }
        (!is_measured).then(|| {
            "borrowed and lent CPU time of functions that reserve CPU are not measured (null): that takes \
             cpu_sharing pinned or idle, and the account by CPU of version 1 of control groups \
             (cpuacct.usage_percpu) or, on version 2, performance events (root or CAP_PERFMON)"
                .to_owned()
        })
    }

    /// Has the calling thread go first while it takes little, and then functions that do not use all the CPU
    /// they may ([`super::precedence`]). Once, and only where no policy divides the CPU.
    pub(crate) fn set_precedence(&self) {
        if self.cores.is_none() {
            let thread = nix::unistd::gettid().as_raw();
            let refused = self.visitors.refused();
            self.sampler.set_precedence(Precedence::new(self.shares.clone(), thread, refused));
        }
    }

    /// Whether somebody goes first ([`Self::set_precedence`]).
    pub(crate) fn has_precedence(&self) -> bool {
        self.sampler.has_precedence()
    }

    /// What precedence lacks here, where the platform is to have it: a sentence. `asked`: whether that was said,
    /// and is not the default.
    pub(crate) fn precedence_warning(&self, asked: bool) -> Option<String> {
        let folder = self.layout.as_ref().and_then(|it| it.parents.get(&Controller::Cpu));
        precedence::warning(asked, self.cores.is_some(), folder.map(PathBuf::as_path))
    }

    /// Has `report` told what instances use: from time to time if it `samples`, and when they use more than
    /// the capacity. Once, and only where there are control groups.
    pub(crate) fn watch_memory(
        self: &Arc<Self>,
        samples: bool,
        report: impl Fn(InUse) + Send + 'static,
    ) {
        if self.layout.is_none() || !samples && self.capacity_memory.is_none() {
            return;
        }
        match MemoryWatch::start(self, self.capacity_memory, samples, report) {
            Ok(watch) => drop(self.memory_watch.set(watch)),
            Err(error) => tracing::error!("what instances use is not watched: {error}"),
        }
    }

    /// That the kernel does not tell when memory runs short; a sentence.
    pub fn memory_warning(&self) -> Option<String> {
        self.capacity_memory?;
        match self.memory_watch.get() {
            Some(watch) => watch.warning().map(str::to_owned),
            None => Some("nobody is stopped when instances use more memory than capacity_memory: there is no control \
                          group for memory".to_owned()),
        }
    }

    /// What event-driven enforcement has cost so far.
    pub fn enforcer(&self) -> EnforcerUse {
        self.enforcer.usage()
    }

    /// Who is at the other end of a connection to this process on the host's loopback interface.
    /// Without root instances are the worker's own user, and cannot be told apart.
    pub fn peer(&self, stream: &TcpStream) -> Peer {
        // Until the first instance with the host's network, none can connect.
        if !self.capabilities.root || !self.has_host_network() {
            return Peer::Program;
        }
        match peer_user(stream) {
            Some(user) if !self.users.is_instance(user) => Peer::Program,
            Some(user) => self.visitors.admit(user).map_or(Peer::Unwelcome, Peer::Function),
            None => Peer::Unwelcome,
        }
    }

    /// The same of a connection that may come from elsewhere: whoever is not on this machine, or has
    /// closed it already, is no function, and shows credentials.
    pub fn peer_from_anywhere(&self, stream: &TcpStream) -> Peer {
        let is_function = |user| self.users.is_instance(user);
        let can_tell = self.capabilities.root && self.has_host_network();
        if can_tell && !peer_user(stream).is_some_and(is_function) {
            return Peer::Program;
        }
        self.peer(stream)
    }

    /// Whether there has been an instance with the host's network, or is about to be.
    pub(crate) fn has_host_network(&self) -> bool {
        self.host_network.get().is_some()
    }

    /// Makes sure that instances on the host's network are told apart from now on.
    pub(crate) fn watch_connections(&self) -> Result<(), StartError> {
        let works = || !self.capabilities.root || peer::is_known();
        if *self.host_network.get_or_init(works) {
            return Ok(());
        }
        Err(StartError::Sandbox(
            "the kernel does not say who connects (CONFIG_INET_DIAG), so no function may have the \
             host's network: it could use the platform's own API"
                .into(),
        ))
    }

    /// Resolves with a sentence once one of the host's threads has ended unasked: it can run no
    /// instances any more.
    pub fn failed(&self) -> impl Future<Output = String> + Send + use<> {
        self.failure.reported()
    }

    /// "3.11.7", "20.20.2"; `None` if this runtime is not on the host.
    pub fn runtime_version(&self, runtime: Runtime) -> Option<String> {
        self.roots.version(runtime).map(str::to_owned)
    }

    /// Builds what instances of a runtime see, if that is not there yet. What keeps it from being built
    /// is what their starts say.
    pub(crate) async fn build_root(&self, runtime: Runtime) {
        if let Err(error) = self.roots.get(runtime).await {
            tracing::warn!("{error}");
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
        let (spawner, prepared) = (self.spawner.clone(), self.prepared.clone());
        let (zygotes, started) = (self.zygotes.clone(), self.started.clone());
        let (groups, own) = (self.ready_groups.clone(), self.function_zygotes.clone());
        let end = move || {
            spawner.end();
            prepared.clear();
            zygotes.clear();
            own.clear();
            started.clear();
            groups.clear();
        };
        // What does not end here ends with the worker.
        let _ = tokio::task::spawn_blocking(end).await;
        self.sampler.end();
        if let Some(watch) = self.memory_watch.get() {
            watch.end();
        }
        self.enforcer.end();
        if let Some(layout) = self.layout.clone() {
            let (state, name) = (self.state.clone(), self.name.clone());
            let removed = tokio::task::spawn_blocking(move || {
                for folder in layout.folders() {
                    clear_tree(&folder)?;
                }
                containers::sweep_groups(&name)?;
                sweep::record(&state, &[])
            });
            // What cannot be removed now, the next worker sweeps: the record names it.
            drop(removed.await);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Inner>>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
