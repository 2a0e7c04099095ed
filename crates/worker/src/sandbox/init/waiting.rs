//! A runtime that is started before there is an instance for it.
//!
//! The first process builds what all instances of the runtime have, starts its program, and keeps its
//! rights and the host's files until it is told what the instance is. Nothing of any function runs
//! before.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;
use uncia_clock::monotonic_ns;

use super::{
    ARGUMENT, CONTROL, Doing, Failure, Groups, Title, mounts, privileges, reap, receive, runtime,
    wait_for_news,
};
use crate::sandbox::wire::{self, InitConfig, Report};

/// The variable that names [`runtime::GATE`] to the runtime.
const GATE_VARIABLE: &str = "_UNCIA_WAITS_AT";

/// Starts the runtime and makes it the instance that the worker tells; None if it tells none.
pub(super) fn start(
    mut config: InitConfig,
    groups: Groups,
    signals: &SignalFd,
    title: Title,
) -> Result<Option<Pid>, Failure> {
    mounts::build_common(&config)?;
    let (gate, theirs) = UnixStream::pair().doing("make a pair of sockets")?;
    // Written to by the call that the filter of this process allows.
    let mut gate = File::from(OwnedFd::from(gate));
    config.environment.push((GATE_VARIABLE.into(), runtime::GATE.to_string()));
    let runtime = runtime::start(&config, &groups, Some(theirs.as_fd()))?;
    drop((groups, theirs));
    gate.read_exact(&mut [0]).doing("wait until the runtime is ready")?;
    wire::send(CONTROL, &Report::Waiting, &[]).doing("report to the worker")?;

    let Some((config, _)) = wait(runtime, signals)? else { return Ok(None) };
    let told = monotonic_ns();
    title.set(&[ARGUMENT, &config.label]);
    mounts::build_own(&config)?;
    privileges::keep_only_kill(&config)?;
    let mounted = monotonic_ns();
    // It reads to the end, and from then on runs the function.
    let environment = serde_json::to_vec(&config.environment).map_err(io::Error::from);
    environment.and_then(|it| gate.write_all(&it)).doing("tell the runtime its instance")?;
    drop(gate);
    let phases = vec![("mounts".to_owned(), told, mounted)];
    wire::send(CONTROL, &Report::Running { phases, not_forked: None }, &[])
        .doing("report to the worker")?;
    Ok(Some(runtime))
}

/// Waits until the worker tells the instance; None if the runtime ends, or the worker has no use for it.
fn wait(runtime: Pid, signals: &SignalFd) -> Result<Option<(InitConfig, Vec<OwnedFd>)>, Failure> {
    loop {
        let told = wait_for_news(signals)?;
        if reap().iter().any(|(pid, _)| *pid == runtime) {
            return Ok(None);
        }
        if told {
            return receive();
        }
    }
}
