//! An instance's first process, and what serves the instance from then on.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Failure, limit_start, own_api, sandbox};
use crate::clock::Moment;
use crate::instance::{Architecture, Enforcement, InstanceSpec, Network, StartError};
use crate::sandbox::cgroup::{Group, Limits};
use crate::sandbox::chain;
use crate::sandbox::checkpoint::Staged;
use crate::sandbox::connector::Connector;
use crate::sandbox::containers::Contained;
use crate::sandbox::descriptor::readable;
use crate::sandbox::environment;
use crate::sandbox::host::Host;
use crate::sandbox::http_server::Server;
use crate::sandbox::kinds::{Origin, Prepared, Zygote, output_pipe};
use crate::sandbox::live::{End, Inner};
use crate::sandbox::log::Log;
use crate::sandbox::meter::{Counted, Meter, QuotaUse, Source};
use crate::sandbox::rootfs::Root;
use crate::sandbox::runtime_api::{Extensions, Initialized, RuntimeApi};
use crate::sandbox::shared_state::Share;
use crate::sandbox::telemetry::{Telemetry, expects_extensions};
use crate::sandbox::traffic::Traffic;
use crate::sandbox::wire::{self, InitConfig, Report};

/// What the first process reports, and the descriptors that come with it.
pub(super) type Reports = mpsc::UnboundedReceiver<(Report, Vec<OwnedFd>)>;

/// An instance whose first process has been started.
pub(super) struct Launched {
    pub inner: Arc<Inner>,
    pub reports: Reports,
    pub initialized: oneshot::Receiver<Initialized>,
    pub zygote: Option<Arc<Zygote>>,
    /// What it is restored from, until it is.
    pub staged: Option<Staged>,
    /// Whether its runtime waited for it.
    pub waited: bool,
    pub made_ahead: bool,
}

impl Host {
    /// Starts the first process and what serves the instance, which has its share from then on.
    #[expect(clippy::too_many_arguments, reason = "they are the state of one start")]
    pub(super) async fn launch(
        self: &Arc<Self>,
        spec: &InstanceSpec,
        root: &Root,
        group: Option<Arc<Group>>,
        limits: Limits,
        origin: Origin,
        began: Moment,
        share: &mut Share,
    ) -> Result<Launched, Failure> {
        let Origin { first, zygote, waiting, restore, made_ahead } = origin;
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
            restore.as_ref().map(|_| self.environment(spec, root)).unwrap_or_default(),
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
        let mut staged = None;
        if let Some(kept) = restore {
            let (host, number) = (self.clone(), user.number);
            let made = tokio::task::spawn_blocking(move || Staged::new(&host, kept, number));
            match made.await.map_err(io::Error::other).flatten() {
                Ok((folder, restore)) => {
                    staged = Some(folder);
                    config.restore = Some(restore);
                }
                // It is started, then.
                Err(error) => tracing::warn!("it is not restored: {error}"),
            }
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
        let mut meter = Meter::new(source, self.sampler.clone(), !spec.preemptible);
        // Whoever asks for a share of its own has it, and no other.
        if group.is_some() && spec.cpu_shares.is_none() {
            meter = meter.of_function(&spec.function, limits.cpu_micro);
        }
        let meter = Arc::new(meter.counting(counted).measuring(spec.metering));
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
            user,
            host: Arc::downgrade(self),
            _part: part,
            kept: Mutex::new(share.kept.take()),
            recording: share.recording.take(),
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
        Ok(Launched { inner, reports, initialized, zygote, staged, waited, made_ahead })
    }

    /// What a restored runtime is told of its environment: all of it, in JSON.
    fn environment(&self, spec: &InstanceSpec, root: &Root) -> Vec<u8> {
        let api = own_api();
        let variables = environment::build(spec, &root.version, &api, self.services.located());
        serde_json::to_vec(&variables).unwrap_or_default()
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

    /// Serves the endpoints in an instance's network: the Runtime API, the services that it reaches, and Invoke if
    /// it has that. The listeners of the others are closed.
    pub(super) fn serve(
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

fn listener(fd: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
