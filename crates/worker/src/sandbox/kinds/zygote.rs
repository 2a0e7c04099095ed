//! From a zygote: the runtime's process is a copy of one that has started (see `init/zygote.rs`).
//!
//! There is one zygote for a runtime, from the deployment on of the first function that wants it. If a
//! zygote ends it is started again. No start waits for one to come up, which takes longer than executing
//! a program: a start that cannot have a copy at once executes its program, and is cold.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, setsockopt, sockopt::SendTimeout};
use nix::sys::time::TimeVal;
use nix::unistd::pipe2;

use super::{Begun, Replenished, StartKind, prepared};
use crate::instance::{InstanceSpec, Runtime, StartError};
use crate::sandbox::environment;
use crate::sandbox::host::Host;
use crate::sandbox::init::zygote;
use crate::sandbox::rootfs::Root;
use crate::sandbox::spawn::{self, Child, Launch, Purpose};
use crate::sandbox::sweep;
use crate::sandbox::wire::{self, ZygoteConfig};

/// The variable by which a later worker finds what is left of this one's zygotes.
const LABEL: &str = "UNCIA_ZYGOTE";

/// After a zygote that ended or refused before it had made a copy, how long starts do without one.
const RETRY: Duration = Duration::from_secs(30);

/// How long an order may wait for a zygote to take it: as long as a first process waits for a copy.
const ORDER_TIMEOUT: TimeVal = TimeVal::new(5, 0);

/// Longest complaint of a zygote that is passed on, in bytes.
const MAX_COMPLAINT: usize = 1024;

pub(super) struct FromZygote;

impl StartKind for FromZygote {
    fn refuse(&self, runtime: Runtime) -> Option<String> {
        refuse(runtime)
    }

    fn begin<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Begun<'a> {
        Box::pin(async move {
            let zygote = host.zygotes.working(host, spec).await;
            prepared::begin(host, spec, zygote).await
        })
    }

    fn note(&self, host: &Host, spec: &InstanceSpec) {
        host.ready_groups.note(&spec.function);
    }

    fn expect<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Replenished<'a> {
        Box::pin(async move {
            let zygote = host.zygotes.of(host, spec).await;
            prepared::expect(host, spec, zygote).await;
        })
    }

    fn replenish<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Replenished<'a> {
        Box::pin(async move {
            let zygote = host.zygotes.of(host, spec).await;
            prepared::replenish(host, spec, zygote).await;
        })
    }
}

/// A started runtime. Dropping it ends it.
pub(in crate::sandbox) struct Zygote {
    child: Child,
    /// Where orders are sent.
    socket: OwnedFd,
    /// What it prints: nothing, unless it cannot start.
    output: OwnedFd,
    /// Whether it has made a copy.
    works: AtomicBool,
    /// Why it could not, though it answers.
    refusal: OnceLock<String>,
    /// Whether its end has been noted.
    is_told: AtomicBool,
}

impl Zygote {
    pub(in crate::sandbox) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// It has made a copy.
    pub(in crate::sandbox) fn confirm(&self) {
        self.works.store(true, Ordering::Relaxed);
    }

    /// It cannot make a copy, and why. If it never has, others need not ask: the kernel refuses what that
    /// takes.
    pub(in crate::sandbox) fn refuse(&self, reason: &dyn std::fmt::Display) {
        // If it has ended, what it printed says more.
        if !self.works() && !self.has_ended() && self.refusal.set(reason.to_string()).is_ok() {
            tracing::warn!("the zygote makes no copies: {reason}");
        }
    }

    /// Whether it makes copies.
    pub(super) fn is_usable(&self) -> bool {
        self.works() && !self.has_ended() && self.refusal.get().is_none()
    }

    /// Asks it to end, and ends it if it does not. Blocks until it has ended.
    pub(super) fn end(&self, patience: Duration) {
        // It reads the end of its orders, whoever else has this end of the socket.
        let _ = nix::sys::socket::shutdown(self.socket.as_raw_fd(), Shutdown::Write);
        let mut ended = [PollFd::new(self.child.pidfd().as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        if !matches!(poll(&mut ended, patience), Ok(count) if count > 0) {
            self.kill();
        }
    }

    fn works(&self) -> bool {
        self.works.load(Ordering::Relaxed)
    }

    /// Ends it: it does not answer.
    pub(in crate::sandbox) fn kill(&self) {
        // It may have ended meanwhile.
        let _ = spawn::kill(self.child.pidfd());
    }

    fn has_ended(&self) -> bool {
        is_ready(self.child.pidfd())
    }

    /// The last that it printed.
    fn complaint(&self) -> String {
        let mut bytes = [0; MAX_COMPLAINT];
        // Nothing there to be read: it printed nothing.
        let count = if is_ready(&self.output) {
            nix::unistd::read(&self.output, &mut bytes).unwrap_or_default()
        } else {
            0
        };
        let text = String::from_utf8_lossy(&bytes[..count]);
        text.trim().lines().next_back().unwrap_or("it printed nothing").to_owned()
    }
}

fn is_ready(descriptor: &OwnedFd) -> bool {
    let mut ready = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    !matches!(poll(&mut ready, PollTimeout::ZERO), Ok(0))
}

/// The zygotes of a host.
#[derive(Default)]
pub(in crate::sandbox) struct Zygotes {
    states: tokio::sync::Mutex<HashMap<Runtime, State>>,
    /// What became of the last one of each runtime that is gone, or never was: a sentence.
    complaints: Mutex<BTreeMap<&'static str, String>>,
}

enum State {
    Started(Arc<Zygote>),
    /// It ended, or refused, before it had made a copy, at this time.
    Unusable(Instant),
}

impl Zygotes {
    /// The one for an instance that starts now, if it has made a copy already.
    async fn working(&self, host: &Host, spec: &InstanceSpec) -> Option<Arc<Zygote>> {
        if !can_be_copy(host, spec) {
            return None;
        }
        match self.states.lock().await.get(&spec.runtime)? {
            State::Started(zygote) if zygote.works() && !zygote.has_ended() => Some(zygote.clone()),
            State::Started(_) | State::Unusable(_) => None,
        }
    }

    /// The one for instances to come, started if need be; none if they cannot be copies.
    async fn of(&self, host: &Host, spec: &InstanceSpec) -> Option<Arc<Zygote>> {
        let root = host.roots.built(spec.runtime)?;
        if !can_be_copy(host, spec) {
            return None;
        }
        let mut zygotes = self.states.lock().await;
        match zygotes.get(&spec.runtime) {
            Some(State::Started(zygote)) if zygote.refusal.get().is_some() => {
                self.look_at(spec.runtime, zygote);
                zygotes.insert(spec.runtime, State::Unusable(Instant::now()));
                return None;
            }
            Some(State::Started(zygote)) if !zygote.has_ended() => return Some(zygote.clone()),
            Some(State::Started(zygote)) => {
                self.look_at(spec.runtime, zygote);
                if !zygote.works() {
                    zygotes.insert(spec.runtime, State::Unusable(Instant::now()));
                    return None;
                }
            }
            Some(State::Unusable(since)) if since.elapsed() < RETRY => return None,
            Some(State::Unusable(_)) | None => {}
        }
        match launch(host, spec.runtime, root, Purpose::Zygote).await {
            Ok(zygote) => {
                let zygote = Arc::new(zygote);
                zygotes.insert(spec.runtime, State::Started(zygote.clone()));
                Some(zygote)
            }
            Err(error) => {
                let sentence = format!(
                    "There is no zygote of {}, and functions start as prepared until there is one: {error}.",
                    spec.runtime.name()
                );
                self.complain(spec.runtime, sentence);
                None
            }
        }
    }

    /// Notes if it has ended, or makes no copies.
    fn look_at(&self, runtime: Runtime, zygote: &Zygote) {
        let name = runtime.name();
        if let Some(reason) = zygote.refusal.get() {
            if !zygote.is_told.swap(true, Ordering::Relaxed) {
                self.complain(runtime, format!(
                    "The zygote of {name} makes no copies, and functions start as prepared instead: {reason}."
                ));
            }
        } else if zygote.has_ended() && !zygote.is_told.swap(true, Ordering::Relaxed) {
            let (when, complaint) = (
                if zygote.works() { "by itself" } else { "before it had made a copy" },
                zygote.complaint(),
            );
            self.complain(runtime, format!(
                "The zygote of {name} has ended {when}, and functions start as prepared until another makes copies: \
                 {complaint}."
            ));
        }
    }

    fn complain(&self, runtime: Runtime, sentence: String) {
        tracing::warn!("{sentence}");
        self.complaints().insert(runtime.name(), sentence);
    }

    /// Once the next one makes copies, nothing is to be said of those before.
    fn forget_if(&self, runtime: Runtime, makes_copies: bool) {
        if makes_copies {
            self.complaints().remove(runtime.name());
        }
    }

    fn complaints(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of zygotes that are gone, or never were: a sentence for each runtime at most.
    pub(in crate::sandbox) fn refusals(&self) -> Vec<String> {
        // While it is held one is being started, and what has ended is noted.
        if let Ok(states) = self.states.try_lock() {
            for (runtime, state) in &*states {
                if let State::Started(zygote) = state {
                    self.look_at(*runtime, zygote);
                    self.forget_if(*runtime, zygote.is_usable());
                }
            }
        }
        self.complaints().values().cloned().collect()
    }

    /// Ends all, once the host is closed. Blocks until they have ended.
    pub(in crate::sandbox) fn clear(&self) {
        for (_, zygote) in self.states.blocking_lock().drain() {
            // Nothing is started any more that could have another reference.
            if let State::Started(zygote) = zygote
                && let Some(zygote) = Arc::into_inner(zygote)
            {
                zygote.child.end();
            }
        }
    }
}

/// Why instances of a runtime cannot be copies, if they cannot.
pub(super) fn refuse(runtime: Runtime) -> Option<String> {
    let able = || format!("only one in {} can be a copy", Runtime::names_of(|it| it.has_zygote()));
    (!runtime.definition().has_zygote()).then(able)
}

/// Whether an instance may be a copy: entering a sandbox takes rights that only root has over all of
/// them, and a copy does not obey what an interpreter reads when it starts.
pub(super) fn can_be_copy(host: &Host, spec: &InstanceSpec) -> bool {
    let definition = spec.runtime.definition();
    definition.has_zygote()
        && host.capabilities.root
        && !spec.environment.keys().any(|name| definition.reads_at_start(name))
}

/// Starts a zygote, or the keeper of a function's.
pub(super) async fn launch(
    host: &Host,
    runtime: Runtime,
    root: &Root,
    purpose: Purpose,
) -> Result<Zygote, StartError> {
    let failed = |error: io::Error| StartError::Sandbox(error.to_string());
    let (socket, theirs) = wire::blocking_pair().map_err(failed)?;
    setsockopt(&socket, SendTimeout, &ORDER_TIMEOUT).map_err(|error| failed(error.into()))?;
    let (output, write) = pipe2(OFlag::O_CLOEXEC).map_err(|error| failed(error.into()))?;
    let label = sweep::label(&host.name, runtime.name());
    let variables = environment::COMMON.iter().map(|(name, value)| format!("{name}={value}"));
    let config = ZygoteConfig {
        root: root.path.clone(),
        program: root.command[0].clone().into(),
        arguments: root.command.clone(),
        environment: variables.chain([format!("{LABEL}={label}")]).collect(),
        filter: host.capabilities.seccomp,
    };
    // Both wait in the socket, the second one for the program.
    wire::send(socket.as_raw_fd(), &config, &[]).map_err(failed)?;
    if purpose == Purpose::Zygote {
        zygote::instruct(&socket, host.capabilities.seccomp).map_err(failed)?;
    }
    let launch = Launch {
        label,
        control: theirs,
        output: write,
        own_network: true,
        user_namespace: false,
        purpose,
    };
    let child = host.spawner.start(launch).await.map_err(failed)?;
    Ok(Zygote {
        child,
        socket,
        output,
        works: AtomicBool::new(false),
        refusal: OnceLock::new(),
        is_told: AtomicBool::new(false),
    })
}

/// Whether a process with this environment, as /proc shows it, is a zygote of the worker named `name`.
pub(in crate::sandbox) fn is_zygote_of(name: &str, environment: &[u8]) -> bool {
    let label = format!("{LABEL}={name}/");
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(label.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_stays_until_the_next_one_makes_copies() {
        let zygotes = Zygotes::default();
        let runtime = Runtime::all()[0];
        zygotes.complain(runtime, "It has ended.".to_owned());
        zygotes.forget_if(runtime, false);
        assert_eq!(zygotes.refusals(), ["It has ended."]);
        zygotes.forget_if(runtime, true);
        assert!(zygotes.refusals().is_empty());
    }
}
