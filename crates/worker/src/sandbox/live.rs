//! A running instance.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use nix::sys::socket::MsgFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::cgroup::{CgroupError, Group, Limits};
use super::connector::Connector;
use super::containers::Contained;
use super::cores::HostCores;
use super::enforcer::Watched;
use super::host::Host;
use super::http_server::Server;
use super::kept::Kept;
use super::log::Log;
use super::meter::Meter;
use super::recording::Recording;
use super::runtime_api::{MAX_END, Reason, RuntimeApi};
use super::shares::Part;
use super::spawn;
use super::threads;
use super::traffic::Traffic;
use super::users::User;
use super::wire::{self, Exit, Order, Report};

/// A server that closes a connection may be ending: for so long it is waited for, so that its end is told
/// and not what followed from it.
const ENDING: Duration = Duration::from_secs(1);

/// Between two attempts to thaw an instance that was killed: while it was being frozen, it may have
/// been thawed too early.
const RETHAW: Duration = Duration::from_millis(20);

/// How an instance ended.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub description: String,
    /// Its runtime was ended by SIGKILL, which the kernel uses when memory runs out.
    pub killed: bool,
}

/// A running instance; clones are the same instance.
#[derive(Clone)]
pub struct Instance {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub id: String,
    pub api: Arc<RuntimeApi>,
    /// Set if it serves HTTP, and asks for nothing.
    pub server: Option<Server>,
    pub connector: Connector,
    pub meter: Arc<Meter>,
    pub traffic: Traffic,
    pub log: Arc<Log>,
    pub group: Option<Arc<Group>>,
    /// Its path in the mounted tree.
    pub cgroup: Option<String>,
    /// Set where a policy divides the CPU.
    pub cores: Option<Arc<HostCores>>,
    /// Whether it runs on some CPUs alone.
    pub pinned: AtomicBool,
    pub limits: Limits,
    /// Whether its memory is given back while it is frozen.
    pub reclaims: bool,
    /// Set if it is a container.
    pub contained: Option<Contained>,
    /// Given back with it.
    pub user: User,
    /// What has started it.
    pub host: Weak<Host>,
    /// Of its function's share of the CPU, if its group is in none.
    pub _part: Option<Part>,
    /// What it started with of what its function's instances share, until it has ended.
    pub kept: Mutex<Option<Arc<Kept>>>,
    /// Set if that is made of this one.
    pub recording: Option<Recording>,
    /// Set where the worker enforces the CPU quota.
    pub watched: Option<Arc<Watched>>,
    /// The first process in the worker's numbering. Only for looking: it may be another's number
    /// once the instance has ended.
    pub pid: i32,
    pub pidfd: AsyncFd<OwnedFd>,
    pub control: AsyncFd<OwnedFd>,
    pub ended: watch::Sender<Option<End>>,
    /// Set once somebody has decided that it must end.
    pub doomed: AtomicBool,
    pub busy: AtomicBool,
    /// The tasks that serve it.
    pub servers: Mutex<Vec<AbortHandle>>,
}

impl Inner {
    /// Ends every process of the instance. Returns before they have ended; see [`Self::gone`].
    pub(super) fn kill(&self) {
        self.doomed.store(true, Ordering::SeqCst);
        if let Some(watched) = &self.watched {
            watched.end();
        }
        if let Some(group) = &self.group {
            // A group that cannot be thawed is one that is gone.
            let _ = group.release();
        }
        let in_order = self.contained.as_ref().is_some_and(|it| it.end(&self.control, &self.pidfd));
        if !in_order {
            // The process may have ended by itself.
            let _ = spawn::kill(self.pidfd.get_ref());
        }
    }

    /// Has the CPU quota hold from now on.
    pub(super) fn limit(&self) -> Result<(), CgroupError> {
        if let Some(watched) = &self.watched {
            // What initialization has used is not charged.
            watched.set(&self.limits);
            return Ok(());
        }
        let set = self.group.as_ref().map_or(Ok(()), |group| group.set_quota(&self.limits));
        self.meter.quota_changed(&self.limits);
        set
    }

    /// Waits until nothing of the instance is left.
    pub(super) async fn gone(&self) -> End {
        let mut ended = self.ended.subscribe();
        let end = ended.wait_for(Option::is_some).await;
        // The sender is in `self`.
        end.ok().and_then(|end| end.clone()).unwrap_or_else(|| End::of(None))
    }

    /// Whether it ends by itself in a moment.
    pub(super) async fn ends_soon(&self) -> bool {
        self.ends_within(ENDING).await
    }

    /// Whether it has ended by then, or somebody is ending it.
    pub(super) async fn ends_within(&self, time: Duration) -> bool {
        self.doomed.load(Ordering::SeqCst) || timeout(time, self.gone()).await.is_ok()
    }

    /// It serves nothing for now.
    pub(super) fn rest(&self) {
        if let Some(watched) = &self.watched {
            watched.rest();
        }
    }

    /// Runs a task until the instance ends. If it panics, the instance is killed: with nobody to
    /// read what it prints, or to serve its Runtime API, it would hang.
    pub(super) fn serve(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let inner = Arc::downgrade(self);
        let handle = threads::spawn_task(task, move |cause| {
            if let Some(inner) = inner.upgrade() {
                tracing::error!(instance = %inner.id, "a task that serves it has ended: {cause}");
                inner.kill();
            }
        });
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }

    /// Ends an instance of which the runtime or an extension has ended, and others are still there.
    fn end_rest(self: &Arc<Self>) {
        if self.api.extensions().exist() && !self.doomed.load(Ordering::SeqCst) {
            let instance = self.clone();
            tokio::spawn(async move { instance.end(Reason::Failure).await });
        }
    }

    /// Ends the instance; its extensions, if there are any, have time for their last work. Returns when
    /// nothing of it is left.
    pub(super) async fn end(&self, reason: Reason) {
        let in_order = self.ended.borrow().is_none() && self.api.extensions().exist();
        if self.doomed.swap(true, Ordering::SeqCst) {
            if in_order {
                // Somebody ends it already.
                let _ = timeout(MAX_END, self.gone()).await;
            }
        } else if in_order {
            if let Some(group) = &self.group {
                // A group that cannot be thawed is one that is gone.
                let _ = group.release();
            }
            let terminate = || {
                // Failing means that the instance is ending.
                let _ = wire::send(self.control.as_raw_fd(), &Order::Terminate, &[]);
            };
            tokio::select! {
                () = self.api.extensions().end(reason, self.api.telemetry(), terminate) => {}
                _ = self.gone() => {}
            }
        }
        self.kill();
        self.gone().await;
    }

    /// Watches over the instance until nothing of it is left; passes what its first process reports.
    pub(super) async fn supervise(
        self: Arc<Self>,
        reports: mpsc::UnboundedSender<(Report, Vec<OwnedFd>)>,
    ) {
        let mut exit = None;
        loop {
            let received = self
                .control
                .async_io(Interest::READABLE, |socket| {
                    wire::receive::<Report>(socket.as_raw_fd(), MsgFlags::empty())
                })
                .await;
            match received {
                Ok(Some((Report::Exited(how), _))) => {
                    exit = Some(how);
                    self.runtime_exited();
                    self.api.extensions().runtime_ended();
                    self.end_rest();
                }
                Ok(Some((Report::ExtensionExited(name, how), _))) => {
                    self.api.extensions().ended(&name, how);
                    self.end_rest();
                }
                Ok(Some((Report::ExtensionNotRunnable(name, reason), _))) => {
                    self.api.extensions().not_started(&name, &reason);
                    self.end_rest();
                }
                Ok(Some((Report::Socket, sockets))) => {
                    self.connector.take_socket(sockets.into_iter().next());
                }
                // Nobody listens after the start.
                Ok(Some(message)) => drop(reports.send(message)),
                Ok(None) | Err(_) => break,
            }
        }
        drop(reports);
        // It has nothing more to say: it has ended or is about to.
        let _ = spawn::kill(self.pidfd.get_ref());
        while tokio::time::timeout(RETHAW, self.pidfd.readable()).await.is_err() {
            self.kill();
        }
        if !self.doomed.load(Ordering::SeqCst) {
            self.api.drain().await;
        }
        for server in self.servers.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            server.abort();
        }
        // Who is told that nothing is asked any more is to know why.
        self.doomed.store(true, Ordering::SeqCst);
        self.api.close();
        if let Some(watched) = &self.watched {
            watched.end();
        }
        self.meter.finish();
        let end = End::of(exit);
        let instance = self.clone();
        // Waits for the kernel: not on a thread that others need.
        let cleared = tokio::task::spawn_blocking(move || {
            let reaped = spawn::reap(instance.pidfd.get_ref()).map_err(io::Error::from);
            let removed = instance.group.as_ref().map_or(Ok(()), |group| group.remove());
            let forgotten = instance.contained.as_ref().map_or(Ok(()), Contained::remove);
            // Before anybody is told that it has ended: an instance that starts then may be the next to record,
            // and files that nobody uses any more are gone.
            drop(instance.kept.lock().unwrap_or_else(PoisonError::into_inner).take());
            if let Some(recording) = &instance.recording {
                recording.end();
            }
            reaped.and(removed).and(forgotten)
        });
        if let Ok(Err(error)) = cleared.await {
            // Nothing that an invocation could be told; the next worker sweeps what is left.
            tracing::warn!(instance = %self.id, "the instance could not be cleared: {error}");
        }
        self.ended.send_replace(Some(end));
    }
}

impl End {
    /// When it was not seen how.
    pub(super) fn unseen() -> Self {
        Self::of(None)
    }

    fn of(exit: Option<Exit>) -> Self {
        let exit = exit.unwrap_or(Exit::Signal(libc::SIGKILL));
        Self { description: exit.to_string(), killed: exit == Exit::Signal(libc::SIGKILL) }
    }
}

/// Kills an instance whose invocation or start is given up half-way: what it does is unknown.
pub(super) struct Guard {
    inner: Option<Arc<Inner>>,
}

impl Guard {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self { inner: Some(inner.clone()) }
    }

    pub(super) fn release(mut self) {
        self.inner = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(inner) = &self.inner {
            inner.kill();
        }
    }
}

impl Instance {
    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Whether it has ended, or is about to.
    pub(super) fn is_ending(&self) -> bool {
        self.inner.doomed.load(Ordering::SeqCst) || self.inner.ended.borrow().is_some()
    }

    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// The ID that [`InstanceSpec`](crate::instance::InstanceSpec) gave it.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Stops all its processes where they are, until [`Self::thaw`]; not while something is made of it, which would
    /// keep whoever orders this waiting.
    pub async fn freeze(&self) -> io::Result<()> {
        let inner = &self.inner;
        let group = inner.group.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let _turn = inner.try_turn()?;
        if inner.doomed.load(Ordering::SeqCst) {
            return Err(io::Error::other("the instance is ending"));
        }
        if let Some(server) = &inner.server {
            server.close_idle();
        }
        inner.api.telemetry().pause(true);
        if let Err(error) = group.freeze().await {
            inner.api.telemetry().pause(false);
            return Err(io::Error::other(error));
        }
        inner.meter.frozen();
        if let Some(watched) = &inner.watched {
            watched.pause();
        }
        if inner.reclaims {
            self.reclaim();
        }
        Ok(())
    }

    /// Has the kernel take what it can of the memory, some time soon; a request does not wait for it.
    fn reclaim(&self) {
        /// Each holds a thread, for a second at worst; others wait for such threads, too.
        static AT_A_TIME: Semaphore = Semaphore::const_new(8);
        let waiting = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            // Nobody closes it.
            let _turn = AT_A_TIME.acquire().await;
            // It may have ended meanwhile, and nothing of it is held until then.
            let Some(inner) = waiting.upgrade() else { return };
            let reclaim = move || inner.group.as_ref().map(|group| group.reclaim());
            if let Ok(Some(Err(error))) = tokio::task::spawn_blocking(reclaim).await {
                tracing::debug!("memory of a frozen instance is not given back: {error}");
            }
        });
    }

    /// Lets them go on.
    #[expect(clippy::unused_async, reason = "like [`Self::freeze`], which waits")]
    pub async fn thaw(&self) -> io::Result<()> {
        let group = self.inner.group.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        if let Some(watched) = &self.inner.watched {
            watched.engage();
        }
        group.thaw().map_err(io::Error::other)?;
        self.inner.api.telemetry().pause(false);
        Ok(())
    }

    /// Leaves it 0.01 vCPU, until [`Self::scale_up`]; not while something is made of it, which would not end.
    pub fn scale_down(&self) -> io::Result<()> {
        let _turn = self.inner.try_turn()?;
        self.set_limits(&self.inner.limits.scaled_down())
    }

    /// Gives it back its whole CPU quota, the first period's anew: what was overdrawn before is
    /// forgiven, as the kernel does whenever a quota is set.
    pub fn scale_up(&self) -> io::Result<()> {
        self.set_limits(&self.inner.limits)
    }

    fn set_limits(&self, limits: &Limits) -> io::Result<()> {
        if let Some(watched) = &self.inner.watched {
            watched.set(limits);
            return Ok(());
        }
        let group = self.inner.group.as_ref().filter(|group| group.has_quota());
        let group = group.ok_or(io::ErrorKind::Unsupported)?;
        let set = group.set_quota(limits).map_err(io::Error::other);
        self.inner.meter.quota_changed(limits);
        set
    }

    /// Whether it serves several requests at a time.
    pub fn is_server(&self) -> bool {
        self.inner.server.is_some()
    }

    /// Its control group, by its path in the mounted tree; None if it has none.
    pub fn cgroup(&self) -> Option<String> {
        self.inner.cgroup.clone()
    }

    /// CPU time in ns that it has used while it served nothing, up to its last request or its end.
    pub fn idle_cpu(&self) -> Option<i64> {
        self.inner.meter.idle_cpu()
    }

    /// Ends it in order, because it is not needed any more: what is in it for extensions to do is done, in
    /// the time that these have; without extensions, as [`Self::stop`].
    pub async fn retire(&self, grace: Duration) {
        if self.inner.api.extensions().exist() {
            self.inner.end(Reason::Spindown).await;
        } else {
            self.stop(grace).await;
        }
    }

    /// SIGTERM, then after `grace` SIGKILL; when this returns, no process, control group, mount or
    /// file of it is left. May be called again.
    pub async fn stop(&self, grace: Duration) {
        let inner = &self.inner;
        inner.doomed.store(true, Ordering::SeqCst);
        if !grace.is_zero() && inner.ended.borrow().is_none() {
            if let Some(group) = &inner.group {
                // A group that cannot be thawed is one that is gone.
                let _ = group.release();
            }
            // Failing means that the instance is ending.
            let _ = wire::send(inner.control.as_raw_fd(), &Order::Terminate, &[]);
            if tokio::time::timeout(grace, inner.gone()).await.is_ok() {
                return;
            }
        }
        inner.kill();
        inner.gone().await;
    }

    /// Resolves when the instance has ended by itself or by [`Self::stop`], with how.
    pub async fn exited(&self) -> String {
        self.inner.gone().await.description
    }
}
