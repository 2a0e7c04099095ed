//! First processes in fresh namespaces, some of them made before there is an instance for them.
//!
//! What is prepared knows nothing of any function: it has its namespaces, its network and the endpoints
//! in it. Limits, file system, user and all else come with the instance that it is assigned to, which is
//! its only one.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{fchown, pipe2};

use super::environment::{CHAIN_PORT, RUNTIME_API_PORT};
use super::host::Host;
use super::spawn::{Child, Launch};
use super::sweep;
use super::wire::{self, NetworkConfig};
use crate::instance::{InstanceSpec, Network, StartError, StartFrom};

/// How many are kept for each network that a function of the platform may have and that was asked for: a
/// small burst's, for a megabyte or so.
const KEPT: usize = 8;

/// The label of those that have no instance.
const NO_INSTANCE: &str = "prepared";

/// A first process that waits for what it is to build.
pub(super) struct Prepared {
    pub child: Child,
    pub control: OwnedFd,
    /// Where its and the function's output is read.
    pub output: OwnedFd,
}

impl Prepared {
    pub(super) fn has_ended(&self) -> bool {
        let mut ended = [PollFd::new(self.child.pidfd().as_fd(), PollFlags::POLLIN)];
        !matches!(poll(&mut ended, PollTimeout::ZERO), Ok(0))
    }

    /// Gives the output to the user that the function runs as: whoever opens a pipe by its name, such as
    /// `/dev/stdout`, must be allowed to by its mode.
    pub(super) fn give_output(&self, user: u32) -> nix::Result<()> {
        fchown(&self.output, Some(user.into()), None)
    }
}

/// What is kept for one network.
#[derive(Default)]
struct Kept {
    processes: Mutex<VecDeque<Prepared>>,
    /// Held by who makes more: one at a time.
    making: tokio::sync::Mutex<()>,
}

impl Kept {
    fn processes(&self) -> MutexGuard<'_, VecDeque<Prepared>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is kept: for functions without Invoke, and for those with it.
#[derive(Default)]
pub(super) struct Pool([Kept; 2]);

impl Pool {
    /// Those for a network; none for the host's, on which nothing can be made ahead.
    fn of(&self, network: Network) -> Option<&Kept> {
        match network {
            Network::None => Some(&self.0[0]),
            Network::Platform => Some(&self.0[1]),
            Network::Host => None,
        }
    }

    fn take(&self, network: Network) -> Option<Prepared> {
        let mut kept = self.of(network)?.processes();
        // One may have been killed, by the kernel or by hand.
        std::iter::from_fn(|| kept.pop_front()).find(|prepared| !prepared.has_ended())
    }

    /// Ends all, once the host is closed. Blocks until they have ended.
    pub(super) fn clear(&self) {
        for kept in &self.0 {
            // Whoever is making one keeps it first.
            let _making = kept.making.blocking_lock();
            let all = std::mem::take(&mut *kept.processes());
            drop(all);
        }
    }
}

impl Host {
    /// The first process of an instance: a prepared one if the function may have one and one is left.
    pub(super) async fn first_process(&self, spec: &InstanceSpec) -> Result<Prepared, StartError> {
        if spec.start_from == StartFrom::Prepared
            && let Some(prepared) = self.prepared.take(spec.network)
        {
            return Ok(prepared);
        }
        self.prepare_first(spec.network, &spec.id).await
    }

    /// Replaces what an instance has taken, when that has started: not at the expense of its start.
    pub(super) fn replenish(self: &Arc<Self>, spec: &InstanceSpec) {
        if spec.start_from != StartFrom::Prepared || self.prepared.of(spec.network).is_none() {
            return;
        }
        let (host, network) = (self.clone(), spec.network);
        tokio::spawn(async move {
            let Some(kept) = host.prepared.of(network) else { return };
            // Whoever makes more already goes on until there are enough.
            let Ok(_making) = kept.making.try_lock() else { return };
            while kept.processes().len() < KEPT && !host.closed.load(Ordering::SeqCst) {
                // Whoever needs one then makes one, and learns why that fails.
                let Ok(prepared) = host.prepare_first(network, NO_INSTANCE).await else { return };
                kept.processes().push_back(prepared);
            }
        });
    }

    pub(super) async fn prepare_first(
        &self,
        network: Network,
        label: &str,
    ) -> Result<Prepared, StartError> {
        let failed = |error: std::io::Error| StartError::Sandbox(error.to_string());
        let (control, theirs) = wire::pair().map_err(failed)?;
        let (output, write) = pipe2(OFlag::O_CLOEXEC).map_err(|error| failed(error.into()))?;
        fcntl(&output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .map_err(|error| failed(error.into()))?;
        let listen = match network {
            Network::None => vec![RUNTIME_API_PORT],
            Network::Platform => vec![RUNTIME_API_PORT, CHAIN_PORT],
            Network::Host => vec![],
        };
        let own_network = network != Network::Host;
        // It waits in the socket, so that the process finds it as soon as it runs.
        let config = NetworkConfig { own_network, listen };
        wire::send(control.as_raw_fd(), &config, &[]).map_err(failed)?;
        let launch = Launch {
            label: sweep::label(&self.name, label),
            control: theirs,
            output: write,
            own_network,
            user_namespace: !self.capabilities.root,
        };
        let child = self.spawner.start(launch).await;
        let child = child
            .map_err(|error| StartError::Sandbox(format!("cannot start a process: {error}")))?;
        Ok(Prepared { child, control, output })
    }
}
