//! From a zygote of the function's own: the runtime's process is a copy of one that has run the function's
//! imports (see `init/keeper`).
//!
//! The zygote is in a sandbox, in control groups and under a user of its own, with the function's limits. It
//! has run the function's code, so it serves this function as it is now, and ends when that is changed. A
//! function whose import cannot be copied has none, and its instances start as prepared ones do.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::socket::MsgFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::prepared::{self, Kept};
use super::zygote::{self, Zygote, can_be_copy};
use super::{Begun, Origin, Prepared, Replenished, StartKind};
use crate::ids;
use crate::instance::{Enforcement, InstanceSpec, Network, Runtime, StartError};
use crate::sandbox::cgroup::Group;
use crate::sandbox::descriptor::readable;
use crate::sandbox::host::Host;
use crate::sandbox::log::Log;
use crate::sandbox::rootfs::Root;
use crate::sandbox::spawn::Purpose;
use crate::sandbox::start::{limit_start, limits, own_api, sandbox};
use crate::sandbox::threads;
use crate::sandbox::users::User;
use crate::sandbox::wire::{self, InitConfig, KeeperReport, Report};

/// First processes that are kept for each, with what starts a copy in them.
const KEPT: usize = 2;

/// Until a zygote is told to end by its keeper, before the keeper is killed.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the keeper may take to say why the process that ran the imports has ended.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest part of what an import has printed that is passed on.
const MAX_COMPLAINT_CHARS: usize = 300;

pub(super) struct FromFunctionZygote;

impl StartKind for FromFunctionZygote {
    fn refuse(&self, runtime: Runtime) -> Option<String> {
        if cfg!(not(target_arch = "x86_64")) {
            return Some("functions have zygotes of their own on x86-64 alone".into());
        }
        zygote::refuse(runtime)
    }

    fn begin<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Begun<'a> {
        Box::pin(async move {
            let Some(zygote) = host.function_zygotes.ready(spec) else {
                return prepared::begin(host, spec, None).await;
            };
            let keeper = zygote.keeper.clone();
            let taken = zygote.kept.take();
            let made_ahead = taken.is_some();
            let first = match taken {
                Some(first) => first,
                None => host.first_process(spec.network, &spec.id, Some(&keeper)).await?,
            };
            Ok(Origin { first, zygote: Some(keeper), restore: None, waiting: None, made_ahead })
        })
    }

    fn note(&self, host: &Host, spec: &InstanceSpec) {
        host.ready_groups.note(&spec.function);
        if can_have_one(host, spec) {
            host.function_zygotes.note(spec);
        }
    }

    fn expect<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Replenished<'a> {
        Box::pin(async move {
            prepared::expect(host, spec, None).await;
            make_aside(host, spec).await;
        })
    }

    fn replenish<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Replenished<'a> {
        Box::pin(async move {
            prepared::replenish(host, spec, None).await;
            make_aside(host, spec).await;
        })
    }
}

fn can_have_one(host: &Host, spec: &InstanceSpec) -> bool {
    cfg!(target_arch = "x86_64") && spec.network != Network::Host && can_be_copy(host, spec)
}

/// Makes the zygote of a function if it lacks one; goes on if nobody waits for it any more.
async fn make_aside(host: &Arc<Host>, spec: &InstanceSpec) {
    let (host, spec) = (host.clone(), spec.clone());
    let made = async move {
        make(&host, &spec).await;
        if let Some(zygote) = host.function_zygotes.ready(&spec) {
            zygote.kept.refill(KEPT, &host, &spec, Some(&zygote.keeper)).await;
        }
    };
    // Its panic is nobody else's: the function is started as others are.
    let _ = tokio::spawn(made).await;
}

async fn make(host: &Arc<Host>, spec: &InstanceSpec) {
    let zygotes = &host.function_zygotes;
    // One at a time: imports take whole processors.
    let _making = zygotes.making.lock().await;
    if !zygotes.lacks(spec) || host.closed.load(Ordering::SeqCst) {
        return;
    }
    let began = Instant::now();
    let made = start(host, spec).await;
    if host.closed.load(Ordering::SeqCst) {
        return drop(made);
    }
    match &made {
        Ok(_) => tracing::info!(
            function = %spec.function,
            "its zygote has run its imports in {} ms",
            began.elapsed().as_millis()
        ),
        Err(reason) => tracing::warn!(
            function = %spec.function,
            "it has no zygote of its own, and starts as prepared: {reason}"
        ),
    }
    zygotes.keep(spec, made);
}

/// A zygote that stands still after its imports. Dropping it ends it.
pub(super) struct FunctionZygote {
    pub keeper: Arc<Zygote>,
    kept: Arc<Kept>,
    /// None once it is ended.
    sandbox: Option<Sandbox>,
}

/// Where the imports have run.
struct Sandbox {
    first: Prepared,
    group: Option<Arc<Group>>,
    user: User,
}

impl FunctionZygote {
    /// What ends it, which waits for processes and the kernel.
    pub(super) fn take_end(&mut self) -> Option<impl FnOnce() + Send + 'static> {
        let (keeper, kept) = (self.keeper.clone(), self.kept.clone());
        let sandbox = self.sandbox.take()?;
        Some(move || {
            keeper.end(END_TIMEOUT);
            kept.end();
            sandbox.first.child.end();
            drop((sandbox.group, sandbox.user));
        })
    }
}

impl Drop for FunctionZygote {
    fn drop(&mut self) {
        if let Some(end) = self.take_end() {
            threads::run_aside(end);
        }
    }
}

/// Makes a zygote and waits until it has run the imports; the error says why it cannot be one: what follows
/// a colon.
async fn start(host: &Arc<Host>, spec: &InstanceSpec) -> Result<FunctionZygote, String> {
    let spec = InstanceSpec { id: format!("zygote-{}", ids::instance()), ..spec.clone() };
    let text = |error: StartError| match error {
        StartError::Sandbox(message) => message,
        error => error.to_string(),
    };
    let root = host.roots.built(spec.runtime).ok_or("its runtime is gone")?;
    let keeper = zygote::launch(host, spec.runtime, root, Purpose::Keeper).await.map_err(text)?;
    let keeper = Arc::new(keeper);
    let (first, user) = begin(host, &spec, &keeper).await.map_err(text)?;
    let group = make_group(host, &spec).await.map_err(text)?;
    let mut sandbox = Sandbox { first, group, user };
    let imported = import(host, &spec, root, &keeper, &mut sandbox).await;
    let zygote = FunctionZygote { keeper, kept: Arc::default(), sandbox: Some(sandbox) };
    imported?;
    zygote.keeper.confirm();
    Ok(zygote)
}

async fn begin(
    host: &Arc<Host>,
    spec: &InstanceSpec,
    keeper: &Zygote,
) -> Result<(Prepared, User), StartError> {
    let first = host.first_process(spec.network, &spec.id, Some(keeper)).await?;
    let user = host.user()?;
    first.give_output(user.number).map_err(sandbox)?;
    Ok((first, user))
}

/// The zygote's control groups: no instance's.
async fn make_group(
    host: &Arc<Host>,
    spec: &InstanceSpec,
) -> Result<Option<Arc<Group>>, StartError> {
    let (host, spec) = (host.clone(), spec.clone());
    let made = tokio::task::spawn_blocking(move || {
        let Some(layout) = &host.layout else { return Ok(None) };
        let limits = limits(&spec);
        let group = Group::create(layout, &spec.id, &limits)?;
        if let Some(cpus) = &spec.cpus {
            group.set_cpus(&cpus.numbers())?;
        }
        if spec.enforcement == Enforcement::Kernel {
            limit_start(&spec, &group, &limits)?;
        }
        Ok::<_, crate::sandbox::cgroup::CgroupError>(Some(Arc::new(group)))
    });
    made.await.map_err(sandbox)?.map_err(sandbox)
}

/// Has the function's imports run in a sandbox of its own.
async fn import(
    host: &Host,
    spec: &InstanceSpec,
    root: &Root,
    keeper: &Zygote,
    sandbox: &mut Sandbox,
) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let Sandbox { first, group, user } = sandbox;
    let config = host.config(spec, root, group.as_deref(), &own_api(), user.number);
    // They run beside instances.
    let config = InitConfig { extensions: Vec::new(), ..config };
    let output = first.output.try_clone().map_err(|error| text(&error))?;
    let log = Arc::new(Log::new(output).map_err(|error| text(&error))?);
    let control = first.control.try_clone().and_then(readable).map_err(|error| text(&error))?;
    let socket = keeper.socket().try_clone().and_then(readable);
    let socket = socket.map_err(|error| text(&error))?;
    wire::send(first.control.as_raw_fd(), &config, &[]).map_err(|error| text(&error))?;
    // Nobody serves them: what connects at import is refused.
    first.listeners.clear();
    let printed = log.clone();
    let reading = tokio::spawn(async move { printed.follow().await });
    let result = tokio::select! {
        reason = ended(&control) => {
            // The keeper knows better, and says so before its processes end.
            match tokio::time::timeout(VERDICT_TIMEOUT, verdict(&socket)).await {
                Ok(Some(Err(better))) => Err(better),
                Ok(Some(Ok(())) | None) | Err(_) => Err(reason),
            }
        }
        verdict = verdict(&socket) => {
            verdict.unwrap_or_else(|| Err("its keeper has ended".into()))
        }
        () = tokio::time::sleep(spec.init_timeout) => {
            Err(format!("its import takes longer than {} ms", spec.init_timeout.as_millis()))
        }
    };
    reading.abort();
    result.map_err(|reason| match last_line(&log.tail()) {
        Some(line) => format!("{reason} (it last printed: {line})"),
        None => reason,
    })
}

fn last_line(tail: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(tail);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(line.chars().filter(|it| !it.is_control()).take(MAX_COMPLAINT_CHARS).collect())
}

/// Resolves with how the import ended its process, or why that did not begin.
async fn ended(control: &AsyncFd<OwnedFd>) -> String {
    loop {
        let report = control
            .async_io(Interest::READABLE, |socket| {
                wire::receive::<Report>(socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT)
            })
            .await;
        match report {
            Ok(Some((Report::Running { not_forked: Some(not_forked), .. }, _))) => {
                return not_forked.reason;
            }
            Ok(Some((Report::Failed(reason) | Report::NotRunnable(reason), _))) => return reason,
            Ok(Some((Report::Alone(reason), _))) => return reason,
            Ok(Some((Report::Exited(exit), _))) => return format!("its import ended: {exit}"),
            Ok(Some((
                Report::Listening
                | Report::Waiting
                | Report::Socket
                | Report::Running { .. }
                | Report::Extensions
                | Report::ExtensionExited(..)
                | Report::ExtensionNotRunnable(..),
                _,
            ))) => {}
            Ok(None) => return "its import's sandbox has ended".into(),
            Err(error) => return error.to_string(),
        }
    }
}

/// What the keeper has found; None if it has ended without a word.
async fn verdict(socket: &AsyncFd<OwnedFd>) -> Option<Result<(), String>> {
    let report = socket
        .async_io(Interest::READABLE, |socket| {
            wire::receive::<KeeperReport>(socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT)
        })
        .await;
    match report {
        Ok(Some((KeeperReport::Ready, _))) => Some(Ok(())),
        Ok(Some((KeeperReport::Refused(reason), _))) => Some(Err(reason)),
        Ok(None) => None,
        Err(error) => Some(Err(error.to_string())),
    }
}
