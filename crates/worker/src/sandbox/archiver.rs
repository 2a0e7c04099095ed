//! One file that is made of all of a package, such as the archive that a virtual machine shares classes
//! from: it spares each cold start loading and checking them.
//!
//! As a package's byte code, it is made where the package would run: in an instance, as a user without
//! rights, with limits of memory and time, and nothing of the package runs there. It is only ever shown to
//! instances with the same package.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::time::Instant;

use super::compiler::Compiled;
use super::environment::BYTES_PER_MIB;
use super::host::Host;
use super::live::Instance;
use crate::ids;
use crate::instance::{InstanceSpec, Outcome, Request};
use crate::runtime::in_proportion;

/// How long a package may take: two starts of a virtual machine, on however busy a machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest file that is kept.
const MAX_BYTES: u64 = 250 * BYTES_PER_MIB;
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
        let made = self.fetch(&instance, &self.into.join(name), deadline).await;
        instance.stop(Duration::ZERO).await;
        made
    }

    /// Takes the file from the instance, piece by piece.
    async fn fetch(
        &self,
        instance: &Instance,
        path: &Path,
        deadline: Instant,
    ) -> io::Result<Compiled> {
        let mut offset = 0;
        let mut file = File::create_new(path)?;
        loop {
            let request = Request {
                request_id: ids::uuid(),
                payload: Bytes::from(serde_json::json!({ "offset": offset }).to_string()),
                timeout: deadline.saturating_duration_since(Instant::now()),
                ..Request::default()
            };
            let answer = match instance.invoke(request).await.outcome {
                Outcome::Ok(answer) => answer,
                Outcome::FunctionError(error) => {
                    return Err(io::Error::other(String::from_utf8_lossy(&error).into_owned()));
                }
                other => return Err(io::Error::other(format!("{other:?}"))),
            };
            let bytes = answer.len();
            let decode = move || {
                let text: Option<String> = serde_json::from_slice(&answer).ok()?;
                STANDARD.decode(text?).ok()
            };
            let Some(piece) = in_proportion(bytes, decode).await else { break };
            offset += piece.len() as u64;
            if piece.is_empty() || offset > MAX_BYTES {
                return Err(io::Error::other("it is too large"));
            }
            let written =
                tokio::task::spawn_blocking(move || file.write_all(&piece).map(|()| file));
            file = written.await.map_err(io::Error::other)??;
        }
        file.set_permissions(Permissions::from_mode(0o444))?;
        Ok(Compiled::Some)
    }
}
