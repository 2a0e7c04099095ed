//! From a checkpoint of a runtime that has loaded the function, before its first event.
//!
//! It is made in an instance of its own, at the platform's expense, and counts once another one has been restored from it:
//! a client that cannot go on would do so in no instance.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::Instant as Deadline;

use super::{Begun, Origin, Replenished, StartKind, prepared};
use crate::ids;
use crate::instance::{InstanceSpec, Network, Runtime, Sandbox, ShareState, StartFrom};
use crate::sandbox::host::Host;
use crate::sandbox::kept::Kept;
use crate::sandbox::kept::Place;
use crate::sandbox::recording::TIMEOUT;
use crate::sandbox::runtimes::RuntimeDefinition;
use crate::sandbox::terms::Terms;

pub(super) struct FromCheckpoint;

impl StartKind for FromCheckpoint {
    fn refuse(&self, runtime: Runtime) -> Option<String> {
        let can = |it: &dyn RuntimeDefinition| it.can_be_restored();
        let able = || format!("only one in {} can be restored", Runtime::names_of(can));
        (!can(runtime.definition())).then(able)
    }

    fn begin<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Begun<'a> {
        Box::pin(async move {
            let restore = host.checkpoints.ready(spec);
            Ok(Origin { restore, ..prepared::begin(host, spec, None).await? })
        })
    }

    fn note(&self, host: &Host, spec: &InstanceSpec) {
        host.ready_groups.note(&spec.function);
        host.checkpoints.note(spec);
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

/// Makes the checkpoint of a function if it lacks one; goes on if nobody waits for it any more.
async fn make_aside(host: &Arc<Host>, spec: &InstanceSpec) {
    let (host, spec) = (host.clone(), spec.clone());
    let made = async move {
        let making = host.checkpoints.making(&spec.function);
        let _making = making.lock().await;
        // Initializations take whole processors.
        let _turn = host.checkpoints.at_a_time.acquire().await;
        if host.checkpoints.lacks(&spec) && !host.closed.load(Ordering::SeqCst) {
            let began = Instant::now();
            let made = make(&host, &spec).await;
            if host.closed.load(Ordering::SeqCst) {
                return;
            }
            if made.is_ok() {
                let ms = began.elapsed().as_millis();
                tracing::info!(function = %spec.function, "its checkpoint was made in {ms} ms");
            }
            host.checkpoints.keep(&spec.function, &Terms::of(&spec), made);
        }
    };
    // Its panic is nobody else's: the function is started as others are.
    let _ = tokio::spawn(made).await;
}

async fn make(host: &Arc<Host>, spec: &InstanceSpec) -> Result<Kept, String> {
    if let Some(reason) = obstacle(spec) {
        return Err(reason);
    }
    let known = host.clone();
    let criu = tokio::task::spawn_blocking(move || known.criu().map(drop));
    criu.await.map_err(|error| error.to_string())??;
    let place = host.checkpoints.place().map_err(|error| error.to_string())?;
    let mut kept = Arc::new(dump(host, spec, place).await?);
    prove(host, spec, &kept).await?;
    // What was left of the instance that proved it goes in a moment.
    for _ in 0..1000 {
        match Arc::try_unwrap(kept) {
            Ok(kept) => return Ok(kept),
            Err(shared) => kept = shared,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err("the instance that proved it has not ended".into())
}

/// Why there can be none, whatever the machine.
pub(in crate::sandbox) fn obstacle(spec: &InstanceSpec) -> Option<String> {
    let reason = if spec.network == Network::Host {
        "with network: host it may have connections that a restored instance would lack"
    } else if !spec.extensions.is_empty() {
        "its layers have extensions, which run beside it"
    } else if spec.image.is_some() || spec.sandbox != Sandbox::Process {
        "it is in a root or a container of its own"
    } else {
        return None;
    };
    Some(reason.to_owned())
}

/// An instance of which nobody hears but this.
fn alone(spec: &InstanceSpec) -> InstanceSpec {
    InstanceSpec {
        id: format!("checkpoint-{}", ids::instance()),
        start_from: StartFrom::Prepared,
        share_state: ShareState::None,
        ..spec.clone()
    }
}

async fn dump(host: &Arc<Host>, spec: &InstanceSpec, place: Place) -> Result<Kept, String> {
    let spec = InstanceSpec { restorable: true, ..alone(spec) };
    let instance = host.start_here(&spec, None).await.result.map_err(|error| error.to_string())?;
    let made = instance.checkpoint(place, false, Deadline::now() + TIMEOUT).await;
    instance.stop(Duration::ZERO).await;
    made
}

/// Whether an instance that is restored from it asks for its first event.
async fn prove(host: &Arc<Host>, spec: &InstanceSpec, kept: &Arc<Kept>) -> Result<(), String> {
    let started = host.start_here(&alone(spec), Some(kept.clone())).await;
    let instance =
        started.result.map_err(|error| format!("once restored, it does not go on: {error}"))?;
    instance.stop(Duration::ZERO).await;
    drop(instance);
    if started.restored { Ok(()) } else { Err("CRIU cannot restore it".into()) }
}
