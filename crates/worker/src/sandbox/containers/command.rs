//! The commands of an OCI runtime's program.
//!
//! Source: <https://github.com/opencontainers/runtime-spec/blob/main/runtime.md#operations>, and for what the
//! programs call them <https://github.com/opencontainers/runtime-tools/blob/master/docs/command-line-interface.md>.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::sandbox::wire::Container;

/// Where the programs that it calls are, such as `newuidmap`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// In the container's folder: what the runtime keeps of it, what it writes about errors, and the number of the
/// container's first process.
const STATE: &str = "state";
const LOG: &str = "log";
const NUMBER: &str = "pid";
const TEMPORARY: &str = "tmp";

impl Container {
    /// Makes the container, whose program waits for [`Self::start`], with this process's output; returns the
    /// number of its first process. The error is what the runtime says.
    pub(in crate::sandbox) fn create(&self) -> Result<i32, String> {
        let number = self.folder.join(NUMBER);
        let mut command = self.command("create");
        command.arg("--bundle").arg(&self.folder).arg("--pid-file").arg(&number).arg(&self.id);
        self.run(command.stdout(Stdio::inherit()).stderr(Stdio::inherit()))?;
        let text = fs::read_to_string(&number).map_err(|error| format!("it made none: {error}"))?;
        text.trim().parse().map_err(|_| format!("it made none: {text:?} is no number of a process"))
    }

    /// Has its program run.
    pub(in crate::sandbox) fn start(&self) -> Result<(), String> {
        self.run(self.command("start").arg(&self.id))
    }

    /// Sends a signal to its first process.
    pub(in crate::sandbox) fn signal(&self, name: &str) -> Result<(), String> {
        self.run(self.command("kill").args([&self.id, name]))
    }

    /// Ends its processes, if there are any, and has the runtime forget it.
    pub(in crate::sandbox) fn delete(&self) -> Result<(), String> {
        self.run(&mut self.deletion())
    }

    pub(super) fn deletion(&self) -> Command {
        let mut command = self.command("delete");
        command.args(["--force", &self.id]);
        command
    }

    /// What it sees at `/tmp`, unless that is in its image.
    pub(in crate::sandbox) fn temporary(&self) -> PathBuf {
        self.folder.join(TEMPORARY)
    }

    /// What the runtime keeps of it.
    pub(super) fn state(&self) -> PathBuf {
        self.folder.join(STATE)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().env("PATH", PATH).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.arg("--root").arg(self.state());
        command.arg("--log").arg(self.folder.join(LOG)).args(["--log-format", "json"]);
        command.args(&self.options).arg(name);
        command
    }

    fn run(&self, command: &mut Command) -> Result<(), String> {
        let program = self.program.display();
        let status = command.status().map_err(|error| format!("{program}: {error}"))?;
        if status.success() {
            return Ok(());
        }
        Err(self.last_error().unwrap_or_else(|| format!("{program} failed ({status})")))
    }

    /// What the runtime has written last.
    fn last_error(&self) -> Option<String> {
        let log = fs::read_to_string(self.folder.join(LOG)).ok()?;
        // Some write no new line after an object.
        let objects = serde_json::Deserializer::from_str(&log).into_iter::<Value>();
        let messages = objects.map_while(Result::ok);
        messages.filter_map(|it| Some(it.get("msg")?.as_str()?.to_owned())).last()
    }
}
