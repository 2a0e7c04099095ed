//! Instances in containers that OCI runtimes make.
//!
//! A file in `runtimes/` defines a unit struct `Definition` and implements [`OciRuntimeDefinition`] for it; its name
//! is the file's, and the value of the setting `sandbox` that asks for it. Nothing else knows one by name.
//!
//! An instance's first process is process 1 of a pid namespace here, too. It builds the network, and has the
//! runtime's program make, start, signal and delete the container, which is another pid namespace below. So
//! whatever becomes of the runtime's program, nothing of a container outlives the first process.
//!
//! | module | concern |
//! |---|---|
//! | `bundle` | `config.json`, from what the first process would build itself |
//! | `command` | the runtime's commands |
//! | `contained` | a container, as the worker has it |
//! | `leftovers` | what killed first processes and killed workers leave |

mod bundle;
mod command;
mod contained;
mod leftovers;

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use nix::unistd::{AccessFlags, access};

pub(super) use contained::Contained;
pub(super) use leftovers::{sweep, sweep_groups};

include!(concat!(env!("OUT_DIR"), "/oci_runtimes.rs"));

/// Where system administrators' programs are, which need not be on the PATH.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// What sets one OCI runtime apart from others.
pub(crate) trait OciRuntimeDefinition: Sync {
    /// Its name, and its program's.
    fn name(&self) -> &'static str;

    /// How it is installed, for people: what follows "install it".
    fn installation(&self) -> &'static str;

    /// Options before each command, besides those that all have.
    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it makes control groups at the path that `config.json` names, whatever it is told.
    fn makes_groups(&self) -> bool {
        false
    }
}

/// A runtime of the Open Container Initiative.
#[derive(Clone, Copy)]
pub struct OciRuntime(&'static dyn OciRuntimeDefinition);

impl OciRuntime {
    /// All that the platform knows, in the order of their names.
    pub fn all() -> &'static [Self] {
        ALL
    }

    /// Its name, and its program's.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Its program, if it is installed.
    pub(super) fn program(self) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
        let mut programs = folders.map(|folder| folder.join(self.name()));
        programs.find(|it| it.is_file() && access(it, AccessFlags::X_OK).is_ok())
    }

    /// What its program says of its version; `None` if it is not installed, or says nothing.
    pub fn version(self) -> Option<String> {
        let output = Command::new(self.program()?).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // "crun version 1.8.1", and more lines.
        let version = text.lines().next()?.rsplit(' ').next()?.trim();
        (output.status.success() && !version.is_empty()).then(|| version.to_owned())
    }

    /// Why instances cannot be in its containers here, if they cannot: a sentence without its full stop.
    pub(crate) fn obstacle(self) -> Option<String> {
        let name = self.name();
        if !nix::unistd::geteuid().is_root() {
            return Some(format!(
                "containers of {name} are made by root alone: run the platform as root, or set sandbox to \
                 process"
            ));
        }
        self.program().is_none().then(|| {
            let installation = self.0.installation();
            format!(
                "there is no program {name} on this machine: install it ({installation}), or set sandbox to \
                 process"
            )
        })
    }
}

impl fmt::Debug for OciRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for OciRuntime {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for OciRuntime {}

/// What an instance's processes are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sandbox {
    /// Namespaces that the platform makes itself.
    #[default]
    Process,
    /// A container.
    Container(OciRuntime),
}

impl Sandbox {
    /// The one that a setting's word means; a word that no file has means none.
    pub fn named(name: &str) -> Self {
        let runtime = ALL.iter().find(|runtime| runtime.name() == name);
        runtime.map_or(Self::Process, |runtime| Self::Container(*runtime))
    }

    /// The OCI runtime that makes it, if one does.
    pub fn runtime(self) -> Option<OciRuntime> {
        match self {
            Self::Process => None,
            Self::Container(runtime) => Some(runtime),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_the_files_of_that_name() {
        let names: Vec<_> = OciRuntime::all().iter().map(|it| it.name()).collect();
        assert_eq!(names, ["crun", "runc", "runsc"]);
        for name in names {
            assert_eq!(Sandbox::named(name).runtime().map(OciRuntime::name), Some(name));
        }
        assert_eq!(Sandbox::named("process"), Sandbox::Process);
    }
}
