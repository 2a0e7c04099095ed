//! The worker as a whole: everything opened in order, and closed in order.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uncia_policy::UnknownPolicy;

use crate::api::machines::invoker;
use crate::api::{ARN_PREFIX, Api, ApiError};
use crate::cluster::Members;
use crate::config::Config;
use crate::dispatch::{Dispatcher, Hosts};
use crate::function::Function;
use crate::instance::{ChainService, Host, HostConfig, HostError};
use crate::listen::{Listen, ListenError, Listener, SocketError, SocketFile};
use crate::machines::Machines;
use crate::meterlog::{LogError, MeterLog, Retention};
use crate::monitor::{Monitor, MonitoredLog};
use crate::output::OutputLog;
use crate::page::Page;
use crate::sandbox::{SeenAt, allowed_cpus};
use crate::store::{DatabaseError, LockError, Registry, StateLock, StoreError};
use crate::traces::Traces;
use crate::triggers::Triggers;

/// Why the worker could not start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum ServeError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("cannot listen on {address}: {source}; stop what uses the port, or choose another")]
    Bind { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("the functions cannot be read: {0}")]
    Store(#[from] StoreError),
    #[error("the log cannot be opened: {0}")]
    Log(#[from] LogError),
    #[error("the state machines cannot be opened: {0}")]
    Machines(#[from] DatabaseError),
    #[error("the folder for what functions print cannot be made: {0}")]
    Output(std::io::Error),
    #[error("the configuration is not valid: {0}")]
    Policy(#[from] UnknownPolicy),
    #[error("the configuration is not valid: {0}")]
    Cpus(String),
    #[error("instances cannot run here: {0}")]
    Host(#[from] HostError),
}

/// A worker that accepts requests.
pub struct Worker {
    api: Arc<Api>,
    address: SocketAddr,
    servers: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
    _sockets: Vec<SocketFile>,
    _lock: StateLock,
}

impl Worker {
    /// Opens the state folder, with what an earlier worker left there, and listens.
    ///
    /// A `controller` runs nothing itself: workers join it.
    pub async fn start(
        listen: Listen,
        state: &Path,
        config: Config,
        controller: bool,
    ) -> Result<Self, ServeError> {
        listen.check()?;
        check_cpus(&config, controller)?;
        // An instance's first process has another working folder.
        let state = &std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
        // Before anything is made in the state folder.
        let unbound = |source| ServeError::Bind { address: listen.address, source };
        let listener = TcpListener::bind(listen.address).await.map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        let lock = StateLock::take(state)?;
        let mut listeners = vec![match &listen.tls {
            Some(tls) => Listener::Tls(listener, tls.acceptor()),
            None => Listener::Plain(listener),
        }];
        let mut sockets = Vec::new();
        for path in &listen.sockets {
            let (listener, file) = SocketFile::listen(path)?;
            listeners.push(Listener::Socket(listener));
            sockets.push(file);
        }
        let registry = Arc::new(Registry::open(state, ARN_PREFIX, config.memory_per_vcpu_bytes)?);
        registry.packages().set_fetching(&config.services, config.code_cache_bytes);
        if controller {
            registry.packages().keep_archives();
        }
        let log = Arc::new(MeterLog::open(state, Retention { rows: config.log_rows }, config.log)?);
        let left = log.left_events()?;
        let itself: Arc<OnceLock<Arc<Api>>> = Arc::default();
        let machines = Machines::open(state, config.data_limit, invoker(itself.clone()))?;
        let host = Host::open(HostConfig {
            state: state.to_owned(),
            interpreters: config.runtimes.0.clone(),
            runtimes_cache: config.runtimes_cache.clone(),
            chain: chain(itself.clone()),
            services: config.services.clone(),
            pool: usize::try_from(config.pool).unwrap_or(usize::MAX),
            checkpoint_cache: config.checkpoint_cache_bytes,
            cpusets: config.cpusets,
            shares_cpus: config.shares_cpus(),
            capacity_memory: config.capacity_memory(),
        })
        .await?;
        if config.precedence && !controller {
            host.set_precedence();
        }
        for function in registry.all().iter().flat_map(Function::versions) {
            for code in [Some(&function.code), function.layers.opt()].into_iter().flatten() {
                code.find_byte_code(&host, function.runtime());
            }
        }
        let policies = config.policies()?;
        let output = Arc::new(OutputLog::open(state).map_err(ServeError::Output)?);
        let monitor = Arc::new(Monitor::new());
        let traces = config.traces.clone().map(Traces::start).map(Arc::new);
        if controller {
            // Instances of workers on this machine can connect, and none of them is started here. Where
            // nobody can be told apart, no worker starts one with the host's network.
            let _ = host.watch_connections();
        }
        let watching = (!controller).then(|| host.clone());
        let members = controller.then(|| Arc::new(Members::new(registry.clone())));
        let hosts = match &members {
            Some(members) => Hosts::Members(members.clone()),
            None => Hosts::Local(host.clone()),
        };
        let dispatcher = Dispatcher::start(
            Arc::new(config.clone()),
            hosts,
            Arc::new(MonitoredLog::new(
                log.clone(),
                monitor.clone(),
                traces.clone(),
                output.clone(),
            )),
            policies,
            (!controller).then_some(config.capacity),
        );
        if let Some(host) = watching {
            let owner = dispatcher.clone();
            host.watch_memory(dispatcher.reads_samples(), move |in_use| owner.note_use(in_use));
        }
        for function in registry.all().iter().flat_map(Function::versions) {
            dispatcher.configure(function);
        }
        let api = Arc::new(Api {
            base_url: base_url(address, listen.tls.is_some(), &config.allowed_hosts),
            is_guarded: listen.is_guarded(),
            access: listen.access,
            config,
            host,
            registry,
            dispatcher,
            log,
            machines: Arc::new(machines),
            triggers: Triggers::default(),
            monitor,
            page: Page::new(),
            traces,
            output,
            members,
            features: OnceLock::new(),
        });
        tokio::spawn(compile(api.clone()));
        let known = api.clone();
        tokio::spawn(async move { known.features().await.map(drop) });
        // Instances find the API once it exists; none was started before.
        let _ = itself.set(api.clone());
        Triggers::resume(&api, &left)?;
        api.dispatcher.resume_events(left);
        let (stop, stopped) = watch::channel(false);
        let serve = |listener| tokio::spawn(api.clone().serve(listener, stopped.clone()));
        let servers = listeners.into_iter().map(serve).collect();
        Ok(Self { api, address, servers, stop, _sockets: sockets, _lock: lock })
    }

    /// The address at which it listens, with the port that the kernel chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the addresses of its functions begin with, such as `http://127.0.0.1:9001`.
    pub fn url(&self) -> &str {
        &self.api.base_url
    }

    /// What does not hold on this machine, what the log has lost, and which functions are served otherwise
    /// than the configuration says, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.api.warnings();
        warnings.extend(self.api.host.cpu_warning(&self.api.config.policies.cpu));
        if self.api.members.is_none() {
            warnings.extend(self.api.host.memory_warning());
        }
        for function in self.api.registry.all() {
            let why = function.why_it_polls(&self.api.config);
            warnings.extend(why.map(|why| format!("the function {}: {why}", function.name)));
        }
        warnings
    }

    /// Resolves with a sentence when the platform cannot go on.
    pub async fn failed(&self) -> String {
        let api = &self.api;
        tokio::select! {
            message = api.log.failed() => message,
            message = api.host.failed() => message,
            () = api.dispatcher.awake().ended() => {
                "the task that keeps CPUs awake ended unexpectedly; start the platform again".to_owned()
            }
            () = api.dispatcher.ended() => {
                "the task that owns all requests ended unexpectedly; start the platform again".to_owned()
            }
        }
    }

    /// Lets requests in flight end, stops all instances, and writes what is left to the log. Once `hurry`
    /// resolves, what still runs is ended.
    pub async fn stop(self, hurry: impl Future<Output = ()>) {
        self.api.triggers.close().await;
        let grace = self.api.config.shutdown_grace();
        tokio::select! {
            () = self.api.dispatcher.shut_down(grace) => {}
            () = hurry => {}
        }
        self.api.dispatcher.close();
        if let Some(members) = &self.api.members {
            members.close();
        }
        self.api.host.close().await;
        self.api.dispatcher.finish().await;
        self.api.page.close();
        if let Some(traces) = &self.api.traces {
            traces.close().await;
        }
        self.stop.send_replace(true);
        // They end by themselves, after the last answers are written.
        for server in self.servers {
            let _ = server.await;
        }
        self.api.log.close();
        self.api.output.close();
    }
}

/// Whether the CPUs can be shared as the configuration says.
fn check_cpus(config: &Config, controller: bool) -> Result<(), ServeError> {
    if controller && config.shares_cpus() {
        let refusal = "a controller shares no CPUs: workers that join do not assign them yet";
        return Err(ServeError::Cpus(refusal.to_owned()));
    }
    config.cpu_refusal(allowed_cpus().len()).map_or(Ok(()), |it| Err(ServeError::Cpus(it)))
}

/// What the platform's addresses begin with: where it listens, or, if that is everywhere, the first name
/// that it is configured to have, or else the machine's.
fn base_url(address: SocketAddr, is_secure: bool, names: &[String]) -> String {
    let scheme = if is_secure { "https" } else { "http" };
    if !address.ip().is_unspecified() {
        return format!("{scheme}://{address}");
    }
    let machine = || nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let name = names.first().cloned().or_else(machine).unwrap_or_else(|| "localhost".to_owned());
    format!("{scheme}://{name}:{}", address.port())
}

/// Makes the byte code that is missing: of packages that an earlier version stored, or for another
/// version of the interpreter.
async fn compile(api: Arc<Api>) {
    for function in api.registry.all().iter().flat_map(Function::versions) {
        if function.broken.is_none() {
            let runtime = function.runtime();
            if function.code.origin().is_none() {
                function.code.compile(&api.host, runtime, SeenAt::Task).await;
            }
            if let Some(opt) = function.layers.opt() {
                opt.compile(&api.host, runtime, SeenAt::Layers).await;
            }
        }
    }
}

fn chain(api: Arc<OnceLock<Arc<Api>>>) -> ChainService {
    Arc::new(move |request| {
        let api = api.clone();
        Box::pin(async move {
            match api.get() {
                Some(api) => api.answer_instance(request).await,
                None => ApiError::unavailable("The platform is starting").answer(),
            }
        })
    })
}
