//! From a first process that was made before there was an instance for it.
//!
//! What is prepared knows nothing of any function: it has its namespaces, its network and the endpoints
//! in it. Limits, file system, user and all else come with the instance that it is assigned to, which is
//! its only one.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{fchown, pipe2};

use super::{Begun, Origin, StartKind};
use crate::instance::{InstanceSpec, Network, StartError};
use crate::sandbox::environment::{CHAIN_PORT, RUNTIME_API_PORT};
use crate::sandbox::host::Host;
use crate::sandbox::spawn::{Child, Launch, Purpose, lost_its_spawner};
use crate::sandbox::sweep;
use crate::sandbox::wire::{self, NetworkConfig};

/// How many are kept for each network that a function of the platform may have and that was asked for: a
/// small burst's, for a megabyte or so.
const KEPT: usize = 8;

/// The label of those that have no instance.
const NO_INSTANCE: &str = "prepared";

/// A first process that waits for what it is to build.
pub(in crate::sandbox) struct Prepared {
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
    pub(in crate::sandbox) fn give_output(&self, user: u32) -> nix::Result<()> {
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
pub(in crate::sandbox) struct Pool([Kept; 2]);

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
    pub(in crate::sandbox) fn clear(&self) {
        for kept in &self.0 {
            // Whoever is making one keeps it first.
            let _making = kept.making.blocking_lock();
            let all = std::mem::take(&mut *kept.processes());
            for prepared in all {
                prepared.child.end();
            }
        }
    }
}

pub(super) struct FromPrepared;

impl StartKind for FromPrepared {
    fn begin<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Begun<'a> {
        Box::pin(async move {
            if let Some(first) = host.prepared.take(spec.network) {
                return Ok(Origin { first, zygote: None, waiting: None, made_ahead: true });
            }
            let first = host.first_process(spec.network, &spec.id).await?;
            Ok(Origin { first, zygote: None, waiting: None, made_ahead: false })
        })
    }

    fn replenish(&self, host: &Arc<Host>, spec: &InstanceSpec) {
        if host.prepared.of(spec.network).is_none() {
            return;
        }
        let (host, network) = (host.clone(), spec.network);
        tokio::spawn(async move {
            let Some(kept) = host.prepared.of(network) else { return };
            // Whoever makes more already goes on until there are enough.
            let Ok(_making) = kept.making.try_lock() else { return };
            while kept.processes().len() < KEPT && !host.closed.load(Ordering::SeqCst) {
                // Whoever needs one then makes one, and learns why that fails.
                let Ok(prepared) = host.first_process(network, NO_INSTANCE).await else { return };
                kept.processes().push_back(prepared);
            }
        });
    }
}

impl Host {
    /// Makes a first process with its network, which waits for what it is to build.
    pub(super) async fn first_process(
        &self,
        network: Network,
        label: &str,
    ) -> Result<Prepared, StartError> {
        let mut made = self.try_first_process(network, label).await;
        // Others may be killed as well, one for each processor.
        for _ in 0..self.spawner.processes() {
            if made.as_ref().err().is_none_or(|error| !lost_its_spawner(error)) {
                break;
            }
            made = self.try_first_process(network, label).await;
        }
        made.map_err(|error| StartError::Sandbox(format!("cannot start a process: {error}")))
    }

    async fn try_first_process(&self, network: Network, label: &str) -> io::Result<Prepared> {
        let (control, theirs) = wire::pair()?;
        let (output, write) = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let listen = match network {
            Network::None => vec![RUNTIME_API_PORT],
            Network::Platform => vec![RUNTIME_API_PORT, CHAIN_PORT],
            Network::Host => vec![],
        };
        let own_network = network != Network::Host;
        // It waits in the socket, so that the process finds it as soon as it runs.
        let config = NetworkConfig { own_network, listen };
        wire::send(control.as_raw_fd(), &config, &[])?;
        let launch = Launch {
            label: sweep::label(&self.name, label),
            control: theirs,
            output: write,
            own_network,
            user_namespace: !self.capabilities.root,
            purpose: Purpose::Instance,
        };
        let child = self.spawner.start(launch).await?;
        Ok(Prepared { child, control, output })
    }
}
