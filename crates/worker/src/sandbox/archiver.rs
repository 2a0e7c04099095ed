//! One file that is made of all of a package, such as the archive that a virtual machine shares classes
//! from: it spares each cold start loading and checking them.
//!
//! As a package's byte code, it is made where the package would run: in an instance, as a user without
//! rights, with limits of memory and time, and nothing of the package runs there. It is only ever shown to
//! instances with the same package.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::compiler::Compiled;
use super::environment::BYTES_PER_MIB;
use super::host::Host;
use super::pieces;
use crate::ids;
use crate::instance::InstanceSpec;

/// How long a package may take: two starts of a virtual machine, on however busy a machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const MEMORY_BYTES: u64 = 1024 * BYTES_PER_MIB;
const TMP_BYTES: u64 = 300 * BYTES_PER_MIB;
/// Of two virtual machines, with their threads.
const PROCESSES: u64 = 128;

/// Makes the archive of one package.
pub(super) struct Archiver<'a> {
    pub host: &'a Arc<Host>,
    pub spec: InstanceSpec,
    pub code: &'a Path,
    pub into: &'a Path,
}

impl Archiver<'_> {
    /// Makes the file `name` in the new folder, beside what `stage` puts there.
    pub(super) async fn archive(
        mut self,
        name: &str,
        stage: fn(&Path, &Path) -> io::Result<bool>,
    ) -> io::Result<Compiled> {
        let (code, into) = (self.code.to_owned(), self.into.to_owned());
        let staged = tokio::task::spawn_blocking(move || {
            fs::create_dir(&into)?;
            fs::set_permissions(&into, Permissions::from_mode(0o755))?;
            stage(&code, &into)
        });
        if !staged.await.map_err(io::Error::other)?? {
            return Ok(Compiled::Nothing);
        }
        let place = self.spec.runtime.definition().byte_code().map(|it| it.place.into());
        self.spec.mounts.extend(place.map(|place| (self.into.to_owned(), place)));
        self.spec.id = format!("archiver-{}", ids::instance());
        self.spec.memory_bytes = MEMORY_BYTES;
        self.spec.ephemeral_bytes = TMP_BYTES;
        self.spec.pids_max = PROCESSES;
        self.spec.init_timeout = TIMEOUT;
        let deadline = Instant::now() + TIMEOUT;
        let started = self.host.start(self.spec.clone()).await.result;
        let instance = started.map_err(|error| io::Error::other(error.to_string()))?;
        let path = self.into.join(name);
        let ask = |request| {
            let instance = instance.clone();
            async move { instance.invoke(request).await.outcome }
        };
        let made = pieces::take(&path, None, deadline, ask).await;
        instance.stop(Duration::ZERO).await;
        made.map(|()| Compiled::Some)
    }
}
