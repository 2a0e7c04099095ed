//! Compiled components: below `components`, for each version of the host, by the digests of what they were
//! compiled of.

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use uncia_code::{COMPONENT, Failure, Kind, ORDER, Order};

use super::{ask, check, directions, start_error};
use crate::ids;
use crate::instance::{InstanceSpec, Passage, Request, StartError};
use crate::sandbox::host::Host;
use crate::sandbox::live::Instance;
use crate::sandbox::start::sandbox;

/// How long a component may take: those that hold an interpreter take most of it.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Most machine code that is kept of all components. What was made first goes first, unless it was used
/// since the worker started.
const MAX_BYTES: u64 = 2 << 30;

/// What came of a package: the name of its machine code's file, or why there is none.
type Compiled = Result<String, Failure>;

/// The machine code of packages.
pub(super) struct Components {
    folder: PathBuf,
    packages: Mutex<HashMap<PathBuf, Arc<OnceCell<Compiled>>>>,
}

impl Components {
    pub(super) fn new(state: &Path) -> Self {
        Self { folder: state.join("components"), packages: Mutex::default() }
    }

    /// The folder, which instances may read.
    pub(super) fn folder(&self) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.folder)?;
        fs::set_permissions(&self.folder, Permissions::from_mode(0o755))?;
        Ok(self.folder.clone())
    }

    fn package(&self, code: &Path) -> Arc<OnceCell<Compiled>> {
        let mut packages = self.packages.lock().unwrap_or_else(PoisonError::into_inner);
        // A package that is gone is never asked for again.
        if !packages.contains_key(code) {
            packages.retain(|path, _| path.exists());
        }
        packages.entry(code.to_owned()).or_default().clone()
    }
}

impl Host {
    /// The file of a function's machine code, which is made if it is not there: several that want it wait
    /// for one of them.
    pub(super) async fn component(
        self: &Arc<Self>,
        spec: &InstanceSpec,
    ) -> Result<String, StartError> {
        let package = self.code.components.package(&spec.code);
        let compiled = package.get_or_try_init(|| self.compiled(spec)).await?;
        compiled.clone().map_err(start_error)
    }

    /// An error is one of this machine, and may be gone another time.
    async fn compiled(self: &Arc<Self>, spec: &InstanceSpec) -> Result<Compiled, StartError> {
        let path = spec.code.join(COMPONENT);
        let read = tokio::task::spawn_blocking(move || {
            let binary = fs::read(path)?;
            let digest = hex::encode(Sha256::digest(&binary));
            Ok::<_, io::Error>((Bytes::from(binary), digest))
        });
        let (binary, digest) = match read.await.map_err(sandbox)? {
            Ok(read) => read,
            Err(error) => {
                let sentence = format!("{COMPONENT} of the package cannot be read: {error}");
                return Ok(Err(Failure::new(Kind::Component, sentence)));
            }
        };
        let folder = self.code.components.folder().map_err(sandbox)?;
        let version = self.roots.version(spec.runtime).unwrap_or_default();
        let name = format!("{digest}-{version}");
        let place = folder.join(&name);
        if place.is_file() {
            return Ok(Ok(name));
        }
        let staged = folder.join(format!(".{}", ids::staging()));
        let compiler = self.start_host("compiler", spec.runtime).await?;
        let made = compile(&compiler, binary, &staged).await;
        compiler.stop(Duration::ZERO).await;
        let kept = tokio::task::spawn_blocking(move || {
            let kept = made.map(|()| keep(&folder, &staged, &place));
            // What was moved into place is not here any more.
            let _ = fs::remove_file(&staged);
            kept
        });
        match kept.await.map_err(sandbox)? {
            Ok(kept) => kept.map(|()| Ok(name)).map_err(sandbox),
            Err(StartError::Init { message, .. }) => {
                Ok(Err(Failure::new(Kind::Component, message)))
            }
            Err(error) => Err(error),
        }
    }
}

/// Has a host compile a component, and writes what it answers.
async fn compile(compiler: &Instance, binary: Bytes, into: &Path) -> Result<(), StartError> {
    let (passage, begun) = Passage::new();
    let request = Request {
        request_id: ids::uuid(),
        payload: binary,
        directions: directions(&[(ORDER, Order::Compile.name())]),
        passage: Some(Arc::new(passage)),
        timeout: TIMEOUT,
        ..Request::default()
    };
    let mut file = create(into).map_err(sandbox)?;
    let exchange = async move {
        let answer = ask(compiler, &request, &mut None, &mut None).await;
        // The passage ends here, and with it the wait for an answer that comes as a whole.
        drop(request);
        answer.map_err(|trouble| sandbox(trouble.sentence()))
    };
    let write = async {
        if let Ok(mut begun) = begun.await {
            while let Some(piece) = begun.pieces.recv().await {
                file.write_all(&piece)?;
            }
        }
        Ok::<_, io::Error>(file)
    };
    let (answer, file) = tokio::join!(exchange, write);
    let (mut answer, mut file) = (answer?, file.map_err(sandbox)?);
    if let Some(body) = answer.body.take_if(|_| answer.status.is_success()) {
        file.write_all(&body).map_err(sandbox)?;
    }
    check(answer)
}

fn create(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    file.set_permissions(Permissions::from_mode(0o444))?;
    Ok(file)
}

/// Moves machine code to its place, for which older may have to go.
fn keep(folder: &Path, staged: &Path, place: &Path) -> io::Result<()> {
    // A file that a loss of power cuts off would be run.
    File::open(staged)?.sync_all()?;
    let mut all: Vec<_> = fs::read_dir(folder)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .filter(|(_, _, path)| path != staged)
        .collect::<Vec<(SystemTime, u64, PathBuf)>>();
    all.sort();
    let mut bytes = fs::metadata(staged)?.len() + all.iter().map(|(_, size, _)| size).sum::<u64>();
    for (_, size, path) in all {
        if bytes <= MAX_BYTES {
            break;
        }
        fs::remove_file(path)?;
        bytes -= size;
    }
    fs::rename(staged, place)
}
