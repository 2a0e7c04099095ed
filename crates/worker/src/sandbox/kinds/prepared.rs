//! From a first process that was made before there was an instance for it.
//!
//! What is prepared knows nothing of any function: it has its namespaces, its network and the endpoints
//! in it. Limits, file system, user and all else come with the instance that it is assigned to, which is
//! its only one.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::MsgFlags;
use nix::unistd::{fchown, pipe2};
use tokio::io::Interest;

use super::{Begun, Origin, Replenished, StartKind, Zygote};
use crate::instance::{InstanceSpec, Network, Runtime, StartError};
use crate::sandbox::descriptor::readable;
use crate::sandbox::environment::{CHAIN_PORT, RUNTIME_API_PORT};
use crate::sandbox::host::Host;
use crate::sandbox::spawn::{Child, Launch, Purpose, lost_its_spawner};
use crate::sandbox::start::sandbox;
use crate::sandbox::sweep;
use crate::sandbox::wire::{self, NetworkConfig, Report};

/// How many are kept of each sort that was asked for: a small burst's, for a megabyte or so, or a few with
/// copies of a zygote, 4 MB each.
const KEPT: usize = 8;

/// How long a copy of a zygote may take until it waits, on however busy a machine.
const COPY_TIMEOUT: Duration = Duration::from_secs(10);

/// The label of those that have no instance.
const NO_INSTANCE: &str = "prepared";

/// A first process that waits for what it is to build.
pub(in crate::sandbox) struct Prepared {
    pub child: Child,
    pub control: OwnedFd,
    /// Where its and the function's output is read.
    pub output: OwnedFd,
    /// Those of the Runtime API and of Invoke that have been received.
    pub listeners: Vec<OwnedFd>,
}

impl Prepared {
    pub(super) fn has_ended(&self) -> bool {
        let mut ended = [PollFd::new(self.child.pidfd().as_fd(), PollFlags::POLLIN)];
        !matches!(poll(&mut ended, PollTimeout::ZERO), Ok(0))
    }

    /// Waits until a runtime that was made ahead in it waits.
    pub(super) async fn waits(&mut self, limit: Duration) -> Result<(), StartError> {
        let control = self.control.try_clone().and_then(readable).map_err(sandbox)?;
        let listeners = &mut self.listeners;
        let waits = async move {
            loop {
                let report = control
                    .async_io(Interest::READABLE, |socket| {
                        wire::receive::<Report>(socket.as_raw_fd(), MsgFlags::empty())
                    })
                    .await;
                match report.map_err(sandbox)? {
                    Some((Report::Listening, fds)) => *listeners = fds,
                    Some((Report::Waiting, _)) => return Ok(()),
                    Some((Report::Failed(message) | Report::NotRunnable(message), _)) => {
                        return Err(StartError::Sandbox(message));
                    }
                    Some((Report::Alone(message), _)) => {
                        return Err(StartError::Sandbox(message));
                    }
                    Some((
                        Report::Running { .. }
                        | Report::Socket
                        | Report::Exited(_)
                        | Report::Extensions
                        | Report::ExtensionExited(..)
                        | Report::ExtensionNotRunnable(..),
                        _,
                    ))
                    | None => {
                        return Err(StartError::Sandbox("it has ended".into()));
                    }
                }
            }
        };
        let late = |_| Err(StartError::Sandbox("it takes too long".into()));
        tokio::time::timeout(limit, waits).await.unwrap_or_else(late)
    }

    /// Gives the output to the user that the function runs as: whoever opens a pipe by its name, such as
    /// `/dev/stdout`, must be allowed to by its mode.
    pub(in crate::sandbox) fn give_output(&self, user: u32) -> nix::Result<()> {
        fchown(&self.output, Some(user.into()), None)
    }
}

/// What is kept of one sort.
#[derive(Default)]
pub(super) struct Kept {
    processes: Mutex<VecDeque<Prepared>>,
    /// Held by who makes more: one at a time.
    making: tokio::sync::Mutex<()>,
}

/// A pipe for what is printed: the reading end, which does not block, and the other.
pub(in crate::sandbox) fn output_pipe() -> nix::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((read, write))
}

impl Kept {
    fn processes(&self) -> MutexGuard<'_, VecDeque<Prepared>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self) -> Option<Prepared> {
        let mut processes = self.processes();
        // One may have been killed, by the kernel or by hand.
        std::iter::from_fn(|| processes.pop_front()).find(|prepared| !prepared.has_ended())
    }
}

impl Kept {
    /// Ends all. Blocks until they have ended.
    pub(super) fn end(&self) {
        let all = std::mem::take(&mut *self.processes());
        for prepared in all {
            prepared.child.end();
        }
    }

    /// Makes as many as are to be kept, unless somebody does already.
    pub(super) async fn refill(
        &self,
        most: usize,
        host: &Host,
        spec: &InstanceSpec,
        zygote: Option<&Zygote>,
    ) {
        // Whoever makes more already goes on until there are enough.
        let Ok(_making) = self.making.try_lock() else { return };
        self.fill(most, host, spec, zygote).await;
    }

    /// Only for who holds `making`.
    async fn fill(&self, most: usize, host: &Host, spec: &InstanceSpec, zygote: Option<&Zygote>) {
        while self.processes().len() < most && !host.closed.load(Ordering::SeqCst) {
            let made = host.first_process(spec.network, NO_INSTANCE, zygote).await;
            // Whoever needs one then makes one, and learns why that fails.
            let Ok(mut prepared) = made else { return };
            if let Some(zygote) = zygote {
                if let Err(error) = prepared.waits(COPY_TIMEOUT).await {
                    zygote.refuse(&error);
                    return;
                }
                zygote.confirm();
            }
            self.processes().push_back(prepared);
        }
    }
}

/// A function's network, and of which runtime there is a copy of a zygote in the sandbox.
type Sort = (Network, Option<Runtime>);

/// What is kept, of each sort that was asked for.
#[derive(Default)]
pub(in crate::sandbox) struct Pool(Mutex<HashMap<Sort, Arc<Kept>>>);

impl Pool {
    /// Those for an instance; none on the host's network, on which nothing can be made ahead.
    fn of(&self, spec: &InstanceSpec, zygote: Option<&Zygote>) -> Option<Arc<Kept>> {
        let sort = (spec.network, zygote.map(|_| spec.runtime));
        (spec.network != Network::Host).then(|| self.sorts().entry(sort).or_default().clone())
    }

    /// Ends all, once the host is closed. Blocks until they have ended.
    pub(in crate::sandbox) fn clear(&self) {
        let sorts = std::mem::take(&mut *self.sorts());
        for kept in sorts.into_values() {
            // Whoever is making one keeps it first.
            let _making = kept.making.blocking_lock();
            kept.end();
        }
    }

    fn sorts(&self) -> MutexGuard<'_, HashMap<Sort, Arc<Kept>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct FromPrepared;

impl StartKind for FromPrepared {
    fn begin<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Begun<'a> {
        Box::pin(begin(host, spec, None))
    }

    fn note(&self, host: &Host, spec: &InstanceSpec) {
        host.ready_groups.note(&spec.function);
    }

    fn expect<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Replenished<'a> {
        Box::pin(expect(host, spec, None))
    }

    fn replenish<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Replenished<'a> {
        Box::pin(replenish(host, spec, None))
    }
}

/// Takes a process that was made ahead, with a copy of the zygote in it if there is one, or makes it.
pub(super) async fn begin(
    host: &Host,
    spec: &InstanceSpec,
    zygote: Option<Arc<Zygote>>,
) -> Result<Origin, StartError> {
    let taken = host.prepared.of(spec, zygote.as_deref()).and_then(|kept| kept.take());
    let made_ahead = taken.is_some();
    let first = match taken {
        Some(first) => first,
        None => host.first_process(spec.network, &spec.id, zygote.as_deref()).await?,
    };
    Ok(Origin { first, zygote, restore: None, waiting: None, made_ahead })
}

/// Makes as many as are kept, before there is a start that could have taken one.
pub(super) async fn expect(host: &Arc<Host>, spec: &InstanceSpec, zygote: Option<Arc<Zygote>>) {
    host.make_group_ready(spec).await;
    let Some(kept) = host.prepared.of(spec, zygote.as_deref()) else { return };
    // Whoever makes them already has made them then.
    let _making = kept.making.lock().await;
    kept.fill(KEPT, host, spec, zygote.as_deref()).await;
}

/// Makes as many as are kept, after a start.
pub(super) async fn replenish(host: &Arc<Host>, spec: &InstanceSpec, zygote: Option<Arc<Zygote>>) {
    host.make_group_ready(spec).await;
    let Some(kept) = host.prepared.of(spec, zygote.as_deref()) else { return };
    kept.refill(KEPT, host, spec, zygote.as_deref()).await;
}

impl Host {
    /// Makes a first process with its network, which waits for what it is to build. It orders a copy of
    /// the zygote.
    pub(super) async fn first_process(
        &self,
        network: Network,
        label: &str,
        zygote: Option<&Zygote>,
    ) -> Result<Prepared, StartError> {
        let mut made = self.try_first_process(network, label, zygote).await;
        // Others may be killed as well, one for each processor.
        for _ in 0..self.spawner.processes() {
            if made.as_ref().err().is_none_or(|error| !lost_its_spawner(error)) {
                break;
            }
            made = self.try_first_process(network, label, zygote).await;
        }
        made.map_err(|error| StartError::Sandbox(format!("cannot start a process: {error}")))
    }

    async fn try_first_process(
        &self,
        network: Network,
        label: &str,
        zygote: Option<&Zygote>,
    ) -> io::Result<Prepared> {
        let (control, theirs) = wire::pair()?;
        let (output, write) = output_pipe()?;
        let listen = match network {
            Network::Host => vec![],
            Network::None | Network::Platform => {
                let api = std::iter::once(RUNTIME_API_PORT);
                let chain = (network == Network::Platform).then_some(CHAIN_PORT);
                // Before it is known which of them its function reaches.
                api.chain(self.services.located().ports()).chain(chain).collect()
            }
        };
        let own_network = network != Network::Host;
        // It waits in the socket, so that the process finds it as soon as it runs.
        let config = NetworkConfig { own_network, listen };
        let beside: Vec<_> = zygote.iter().map(|zygote| zygote.socket().as_raw_fd()).collect();
        wire::send(control.as_raw_fd(), &config, &beside)?;
        let launch = Launch {
            label: sweep::label(&self.name, label),
            control: theirs,
            output: write,
            own_network,
            user_namespace: !self.capabilities.root,
            purpose: Purpose::Instance,
        };
        let child = self.spawner.start(launch).await?;
        Ok(Prepared { child, control, output, listeners: Vec::new() })
    }
}
