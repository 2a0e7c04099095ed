//! Extensions: programs of the function's layers that run beside its runtime, and start before it.

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signalfd::SignalFd;
use nix::sys::socket::MsgFlags;
use nix::unistd::Pid;

use super::{CONTROL, Doing, Failure, Groups, network, reap, runtime, wait_for_news};
use crate::sandbox::wire::{self, InitConfig, Order, Report};

/// Those that run.
pub(super) struct Extensions(Vec<(Pid, String)>);

impl Extensions {
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// Starts all of them as the runtime is: as the same user, in the same groups, without rights.
    /// What they print goes to `output`, if that is given.
    pub(super) fn start(
        config: &InitConfig,
        groups: &Groups,
        output: Option<OwnedFd>,
    ) -> Result<Self, Failure> {
        let mut running = Vec::new();
        for extension in &config.extensions {
            match runtime::start_program(
                config,
                &extension.program(config, output.as_ref().map(AsFd::as_fd)),
                groups,
                None,
            ) {
                Ok(pid) => running.push((pid, extension.name.clone())),
                Err(Failure::Program(_, reason)) => {
                    let report = Report::ExtensionNotRunnable(extension.name.clone(), reason);
                    wire::send(CONTROL, &report, &[]).doing("report to the worker")?;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(Self(running))
    }

    /// Waits until the worker wants the runtime; false if it has no use for this process any more.
    pub(super) fn wait(&mut self, signals: &SignalFd) -> Result<bool, Failure> {
        wire::send(CONTROL, &Report::Extensions, &[]).doing("report to the worker")?;
        loop {
            let told = wait_for_news(signals)?;
            for (pid, exit) in reap() {
                self.ended(pid, exit);
            }
            if !told {
                continue;
            }
            match wire::receive::<Order>(CONTROL, MsgFlags::MSG_DONTWAIT) {
                Ok(Some((Order::StartRuntime, _))) => return Ok(true),
                Ok(Some((Order::Socket, _))) => {
                    // Without a worker there is nobody to tell.
                    let _ = network::hand_socket_over();
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return Ok(false),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports the end of a process, if it was one of them.
    pub(super) fn ended(&mut self, pid: Pid, exit: wire::Exit) {
        if let Some(index) = self.0.iter().position(|(it, _)| *it == pid) {
            let (_, name) = self.0.remove(index);
            // Without a worker there is nobody to tell.
            let _ = wire::send(CONTROL, &Report::ExtensionExited(name, exit), &[]);
        }
    }
}
