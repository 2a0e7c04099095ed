//! The byte code of packages: below `bytecode`, for each package and each version of a runtime: a folder,
//! or an empty file where there is nothing to compile. Beside it, what is to be said of byte code that the
//! package brings along.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::folders;
use super::packages::Code;
use crate::ids;
use crate::instance::{Host, Runtime};
use crate::sandbox::{Compiled, SeenAt};

/// Follows the name of byte code in the name of what is said of a package's own.
const PASSED_OVER: &str = ".passed-over";

impl Code {
    /// The folder of its byte code for instances of this runtime.
    pub(crate) fn byte_code(&self, runtime: Runtime) -> Option<PathBuf> {
        let (compiled_for, folder) = self.byte_code.get()?;
        (*compiled_for == runtime).then(|| folder.clone())
    }

    /// Has instances use the byte code that an earlier worker made, if it did.
    pub(crate) fn find_byte_code(&self, host: &Host, runtime: Runtime) {
        if let Some(name) = host.byte_code_name(runtime) {
            let folder = self.byte_code_folder().join(&name);
            if folder.is_dir() {
                let _ = self.byte_code.set((runtime, folder));
            }
            if let Ok(text) = fs::read_to_string(self.byte_code_folder().join(name + PASSED_OVER)) {
                self.set_passed_over(text);
            }
        }
    }

    /// What of the byte code that it brings along is passed over, as the end of a sentence.
    pub(crate) fn passed_over(&self) -> Option<&str> {
        self.passed_over.get().map(String::as_str)
    }

    /// Makes what its instances start with: the runtime's root if this is its first package, and byte code
    /// of the package unless there is some. Without it each cold start compiles, so that it
    /// cannot be made is no error.
    /// `seen_at`: where instances see it, for what an error says of a line.
    pub(crate) async fn compile(
        self: &Arc<Self>,
        host: &Arc<Host>,
        runtime: Runtime,
        seen_at: SeenAt,
    ) {
        // With the package, so that no start waits for it.
        host.build_root(runtime).await;
        let of_layers = || runtime.definition().byte_code().and_then(|it| it.layers_place());
        if seen_at == SeenAt::Layers && of_layers().is_none() {
            return;
        }
        self.find_byte_code(host, runtime);
        let Some(name) = host.byte_code_name(runtime) else { return };
        if self.byte_code_folder().join(&name).exists() {
            return;
        }
        let staged = self.staging().join(ids::staging());
        let kept = match host.compile(runtime, &self.folder(), seen_at, &staged).await {
            Ok(Compiled::Unknown) => Ok(()),
            Ok(compiled) => {
                let passed_over = host.passed_over(runtime, &self.folder(), &staged).await;
                let passed_over = passed_over.unwrap_or_else(|error| {
                    tracing::warn!(package = self.sha256(), "its own byte code: {error}");
                    None
                });
                let (code, staged) = (self.clone(), staged.clone());
                let made = compiled == Compiled::Some;
                let keep = move || {
                    code.keep_byte_code(made.then_some(&staged), &name, passed_over.as_deref())
                };
                let kept = tokio::task::spawn_blocking(keep).await;
                kept.unwrap_or_else(|error| Err(io::Error::other(error)))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = kept {
            tracing::warn!(package = self.sha256(), "it has no byte code: {error}");
        }
        self.find_byte_code(host, runtime);
        // What was moved into place is not here any more.
        let left = move || fs::remove_dir_all(staged);
        let _ = tokio::task::spawn_blocking(left).await;
    }

    pub(super) fn set_passed_over(&self, text: String) {
        if self.passed_over.set(text).is_ok() {
            self.store.passed_over.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Moves byte code to its place, or notes there that there is none; that of other versions goes.
    fn keep_byte_code(
        &self,
        staged: Option<&PathBuf>,
        name: &str,
        passed_over: Option<&str>,
    ) -> io::Result<()> {
        let folder = self.byte_code_folder();
        folders::ensure(&folder, folders::READABLE)?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name() != *name {
                fs::rename(entry.path(), self.staging().join(ids::staging()))?;
            }
        }
        // Before what says that nothing is left to be done.
        if let Some(text) = passed_over {
            fs::write(folder.join(format!("{name}{PASSED_OVER}")), text)?;
        }
        let Some(staged) = staged else {
            return match fs::File::create_new(folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            };
        };
        // A file that a loss of power cuts off would keep the function from starting.
        nix::unistd::syncfs(fs::File::open(staged)?)?;
        let place = folder.join(name);
        if place.is_file() {
            fs::remove_file(&place)?;
        }
        match fs::rename(staged, place) {
            // Somebody else has compiled the same package meanwhile.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => other,
        }
    }
}
