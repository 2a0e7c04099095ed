//! Waiting until a started instance is ready: its program runs, and it asks for its first request.

use std::fs;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::config::wrapper;
use super::{Failure, Reports, sandbox};
use crate::clock::Moment;
use crate::instance::{InstanceSpec, Phase, StartError};
use crate::sandbox::host::Host;
use crate::sandbox::http_server::Server;
use crate::sandbox::kept::Kept;
use crate::sandbox::kinds::Zygote;
use crate::sandbox::live::{End, Inner};
use crate::sandbox::runtime_api::{ExtensionFailure, Initialized};
use crate::sandbox::wire::{self, Order, Report};

/// How long building a sandbox may take before its first process is given up.
const BUILD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a runtime that waited may take to go on before it is looked at whether it can.
const STOPPED_AFTER: Duration = Duration::from_secs(1);

impl Host {
    /// Waits until the runtime's program runs; returns since when, and whether it is the copy or the restored one that
    /// it was to be, if it was.
    pub(super) async fn built(
        &self,
        spec: &InstanceSpec,
        inner: &Arc<Inner>,
        reports: &mut Reports,
        (zygote, restored, waited): (Option<&Zygote>, Option<&Arc<Kept>>, bool),
        spawned: Moment,
        phases: &mut Vec<Phase>,
    ) -> Result<(Moment, bool), Failure> {
        let unproven = restored.filter(|kept| !kept.is_proven.load(Ordering::Relaxed));
        let late = || match (unproven, sandbox("building it took too long")) {
            (Some(kept), error) => Failure::NotRestorable(kept.clone(), error),
            (None, error) => error.into(),
        };
        let mut deadline = tokio::time::Instant::now() + BUILD_TIMEOUT;
        loop {
            let report = tokio::select! {
                biased;
                report = tokio::time::timeout_at(deadline, reports.recv()) => {
                    report.map_err(|_| late())?
                }
                () = is_stopped(inner), if waited => {
                    return Err(Failure::Vanished("its runtime has been stopped".into()));
                }
            };
            match report {
                Some((Report::Listening, fds)) => {
                    self.serve(inner, spec, fds)?;
                }
                Some((Report::Extensions, _)) => {
                    registered(spec, inner).await?;
                    deadline = tokio::time::Instant::now() + BUILD_TIMEOUT;
                }
                Some((Report::Running { phases: mut inside, not_forked }, _)) => {
                    // What a prepared one has done before is no part of this start.
                    inside.retain(|(_, start, _)| *start >= spawned.monotonic());
                    let mut start =
                        inside.first().map_or(spawned, |(_, start, _)| spawned.at(*start));
                    let name = if waited { "assign" } else { "spawn" };
                    phases.push(Phase { name, start: spawned, end: start });
                    for (name, _, end) in inside {
                        let name = match name.as_str() {
                            "network" => "network",
                            "mount" => "mount",
                            "mounts" => "mounts",
                            "fork" => "fork",
                            "restore" => "restore",
                            "create" => "create",
                            "extensions" => "extensions",
                            _ => "exec",
                        };
                        // What it waited for between two belongs to the later one.
                        let end = spawned.at(end);
                        phases.push(Phase { name, start, end });
                        start = end;
                    }
                    let as_asked = not_forked.is_none();
                    match (zygote, not_forked) {
                        (Some(zygote), None) => zygote.confirm(),
                        (Some(zygote), Some(not_forked)) => {
                            tracing::warn!("its runtime was started fresh: {}", not_forked.reason);
                            if not_forked.silent {
                                zygote.kill();
                            }
                            if not_forked.refused {
                                zygote.refuse(&not_forked.reason);
                            }
                        }
                        (None, Some(not_forked)) => {
                            tracing::warn!("its runtime was started: {}", not_forked.reason);
                            for states in [&self.checkpoints, &self.shared_states] {
                                if let Some(kept) = restored {
                                    states.refuse(&spec.function, kept, not_forked.reason.clone());
                                }
                            }
                        }
                        (None, None) => {}
                    }
                    if let Some(pid) = runtime_process(inner) {
                        inner.meter.set_runtime(pid);
                    }
                    return Ok((phases.last().map_or(spawned, |phase| phase.end), as_asked));
                }
                // The runtime that waited has ended, and has seen nothing.
                Some((Report::Failed(message), _)) if waited => {
                    return Err(Failure::Vanished(message));
                }
                Some((Report::Failed(message), _)) => return Err(sandbox(message).into()),
                Some((Report::NotRunnable(message), _)) => {
                    return Err(not_runnable(spec, message).into());
                }
                Some((
                    Report::Waiting
                    | Report::Alone(_)
                    | Report::Socket
                    | Report::Exited(_)
                    | Report::ExtensionExited(..)
                    | Report::ExtensionNotRunnable(..),
                    _,
                )) => {}
                None => {
                    let end = inner.gone().await;
                    return Err(Failure::Vanished(end.description));
                }
            }
        }
    }

    /// Waits until the server listens.
    pub(super) async fn listening(
        &self,
        spec: &InstanceSpec,
        inner: &Arc<Inner>,
        server: &Server,
        executed: Moment,
        phases: &mut Vec<Phase>,
    ) -> Result<(), Failure> {
        let ready = tokio::select! {
            biased;
            ready = server.ready(spec, inner) => ready,
            end = inner.gone() => Err(exited(inner, end)),
        };
        let end = executed.at(ready?.monotonic().max(executed.monotonic()));
        phases.push(Phase { name: "runtime", start: executed, end });
        Ok(())
    }

    /// Waits until the runtime, which may have waited, asks for its first request.
    pub(super) async fn initialized(
        &self,
        spec: &InstanceSpec,
        inner: &Arc<Inner>,
        outcome: oneshot::Receiver<Initialized>,
        waited: bool,
        executed: Moment,
        phases: &mut Vec<Phase>,
    ) -> Result<(), Failure> {
        let deadline = tokio::time::Instant::now() + spec.init_timeout;
        let outcome = tokio::select! {
            biased;
            outcome = outcome => outcome,
            failure = inner.api.extensions().failed() => return Err(failed(failure).into()),
            end = inner.gone() => return Err(exited(inner, end).into()),
            () = is_stopped(inner), if waited => {
                return Err(Failure::Vanished("its runtime has been stopped".into()));
            }
            () = tokio::time::sleep_until(deadline) => {
                return Err(StartError::Timeout(spec.init_timeout).into());
            }
        };
        match outcome {
            Ok(Initialized::Ready { at, began, unusable_byte_code }) => {
                if unusable_byte_code > 0 {
                    self.unusable_byte_code.note(&spec.function, unusable_byte_code);
                }
                let at = executed.at(at.monotonic());
                // On a busy machine the runtime may ask before it is known that it runs.
                let executed = if at.since(executed) < 0 { at } else { executed };
                if let Some(exec) = phases.last_mut() {
                    exec.end = executed;
                }
                // What a function says about itself is believed only within reason.
                let exec = phases.last().map_or(executed, |phase| phase.start);
                let possible = exec.monotonic()..=at.monotonic();
                let forked =
                    phases.last().is_some_and(|phase| ["fork", "restore"].contains(&phase.name));
                match began.filter(|began| possible.contains(began)) {
                    // A copy goes on with the handler at once.
                    Some(began) if forked => {
                        let began = executed.at(began);
                        if let Some(fork) = phases.last_mut() {
                            fork.end = began;
                        }
                        phases.push(Phase { name: "handler", start: began, end: at });
                    }
                    None if forked => {
                        phases.push(Phase { name: "handler", start: executed, end: at });
                    }
                    Some(began) => {
                        // On a busy machine the runtime may run before it is known that it does.
                        let began = executed.at(began.max(executed.monotonic()));
                        phases.push(Phase { name: "runtime", start: executed, end: began });
                        phases.push(Phase { name: "handler", start: began, end: at });
                    }
                    None => phases.push(Phase { name: "runtime", start: executed, end: at }),
                }
                let rested = rested(spec, inner, deadline).await?;
                if let Some(rested) = rested {
                    // It is over when the last of them is ready.
                    let start = phases.last().map_or(at, |phase| phase.end);
                    let end = start.at(rested.monotonic().max(start.monotonic()));
                    phases.push(Phase { name: "extensions", start, end });
                }
                Ok(())
            }
            Ok(Initialized::Failed { error_type, payload }) => {
                Err(init_error(error_type, payload).into())
            }
            Err(_) => Err(sandbox("the Runtime API is gone").into()),
        }
    }
}

/// Waits until all extensions that start before the runtime have registered, and has that start.
async fn registered(spec: &InstanceSpec, inner: &Arc<Inner>) -> Result<(), StartError> {
    let extensions = inner.api.extensions();
    tokio::select! {
        biased;
        registered = extensions.registered() => registered.map_err(failed)?,
        end = inner.gone() => return Err(exited(inner, end)),
        () = tokio::time::sleep(spec.init_timeout) => return Err(late(spec, inner, "registered")),
    }
    wire::send(inner.control.as_raw_fd(), &Order::StartRuntime, &[]).map_err(sandbox)
}

/// Waits until all extensions wait for their first event; returns when, if there are any.
async fn rested(
    spec: &InstanceSpec,
    inner: &Arc<Inner>,
    deadline: tokio::time::Instant,
) -> Result<Option<Moment>, StartError> {
    if !inner.api.extensions().exist() {
        return Ok(None);
    }
    tokio::select! {
        biased;
        rested = inner.api.rest() => rested.map_err(failed)?,
        end = inner.gone() => return Err(exited(inner, end)),
        () = tokio::time::sleep_until(deadline) => {
            return Err(late(spec, inner, "asked for its first event"));
        }
    }
    Ok(Some(Moment::now()))
}

/// How an extension has kept an instance from becoming ready.
fn failed(failure: ExtensionFailure) -> StartError {
    let ExtensionFailure { kind, message } = failure;
    let payload = serde_json::json!({ "errorType": kind, "errorMessage": message });
    StartError::Init { error_type: kind, message, payload: payload.to_string().into() }
}

fn late(spec: &InstanceSpec, inner: &Inner, what: &str) -> StartError {
    let (who, limit) = (inner.api.who_works(), spec.init_timeout.as_millis());
    let message = format!("Initialization took longer than {limit} ms: {who} has not {what}");
    failed(ExtensionFailure { kind: "Sandbox.Timedout".to_owned(), message })
}

/// Why an instance that has ended did not become ready.
fn exited(inner: &Inner, end: End) -> StartError {
    if let Some(failure) = inner.api.extensions().failure() {
        return failed(failure);
    }
    if end.killed && inner.meter.out_of_memory() {
        StartError::OutOfMemory
    } else {
        StartError::Exited(end.description)
    }
}

/// The runtime's process in the worker's numbering: the only one of the group, or the last child of
/// the first process, which starts extensions before.
fn runtime_process(inner: &Inner) -> Option<i32> {
    let alone = inner.group.as_ref().filter(|_| !inner.api.extensions().exist());
    alone.and_then(|group| group.leader()).or_else(|| {
        let pid = inner.pid;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next_back()?.parse().ok()
    })
}

/// Resolves if the runtime's process does not go on because somebody has stopped it by a signal.
async fn is_stopped(inner: &Inner) {
    tokio::time::sleep(STOPPED_AFTER).await;
    let stat =
        runtime_process(inner).and_then(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok());
    let state = stat.as_deref().and_then(|stat| stat.rsplit_once(") "));
    if !state.is_some_and(|(_, fields)| fields.starts_with('T')) {
        std::future::pending::<()>().await;
    }
}

/// A program of ours that does not run is our fault, and the function's own is its.
fn not_runnable(spec: &InstanceSpec, message: String) -> StartError {
    if !spec.runtime.definition().starts_functions_program() && wrapper(spec).is_none() {
        return StartError::Sandbox(message);
    }
    let error_type = "Runtime.InvalidEntrypoint";
    let payload = serde_json::json!({ "errorType": error_type, "errorMessage": message });
    StartError::Init { error_type: error_type.into(), message, payload: payload.to_string().into() }
}

/// Takes an error object apart.
fn init_error(header: Option<String>, payload: Bytes) -> StartError {
    let object: serde_json::Value =
        serde_json::from_slice(&crate::json::well_formed(&payload)).unwrap_or_default();
    let text = |key: &str| object.get(key).and_then(|it| it.as_str()).map(str::to_owned);
    StartError::Init {
        error_type: text("errorType").or(header).unwrap_or_else(|| "Runtime.Unknown".into()),
        message: text("errorMessage").unwrap_or_default(),
        payload,
    }
}
