//! Compiled components: below `components`, for each version of the host, by the digests of what they were
//! compiled of.

use std::collections::{HashMap, HashSet};
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
use crate::sandbox::http_server::Trouble;
use crate::sandbox::live::Instance;
use crate::sandbox::start::sandbox;

/// How long a component may take: those that hold an interpreter take most of it.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Most machine code that is kept of all components, unless there are more functions. What was made first goes
/// first, but not what packages are that this worker has started since.
const MAX_BYTES: u64 = 2 << 30;

/// What came of a package: the name of its machine code's file, or why there is none.
type Compiled = Result<String, Failure>;

/// What the names of files begin with that are being written.
const STAGED: char = '.';

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

    /// Has the next that asks for a package find out anew what comes of it.
    fn forget(&self, code: &Path, package: &Arc<OnceCell<Compiled>>) {
        let mut packages = self.packages.lock().unwrap_or_else(PoisonError::into_inner);
        // Another may have done so before.
        if packages.get(code).is_some_and(|it| Arc::ptr_eq(it, package)) {
            packages.remove(code);
        }
    }

    /// The files of packages that are there.
    fn in_use(&self) -> HashSet<String> {
        let packages = self.packages.lock().unwrap_or_else(PoisonError::into_inner);
        let there = packages.iter().filter(|(path, _)| path.exists());
        there.filter_map(|(_, package)| package.get()?.as_ref().ok().cloned()).collect()
    }
}

impl Host {
    /// The file of a function's machine code, which is made if it is not there: several that want it wait
    /// for one of them.
    pub(super) async fn component(
        self: &Arc<Self>,
        spec: &InstanceSpec,
    ) -> Result<String, StartError> {
        let components = &self.code.components;
        let mut package = components.package(&spec.code);
        // Whoever tidies the disk may have taken it away.
        if let Some(Ok(name)) = package.get()
            && !components.folder.join(name).is_file()
        {
            components.forget(&spec.code, &package);
            package = components.package(&spec.code);
        }
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
        // As many at a time as there are processors, with what else is compiled.
        let _turn = self.compilers.acquire().await.map_err(sandbox)?;
        // Another package may be the same.
        if place.is_file() {
            return Ok(Ok(name));
        }
        let staged = folder.join(format!("{STAGED}{}", ids::staging()));
        let compiler = self.start_host("compiler", spec.runtime).await?;
        let made = compile(&compiler, binary, &staged).await;
        compiler.stop(Duration::ZERO).await;
        let in_use = self.code.components.in_use();
        let kept = tokio::task::spawn_blocking(move || {
            let kept = made.map(|()| keep(&folder, &staged, &place, &in_use, MAX_BYTES));
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
        answer.map_err(|trouble| not_compiled(&trouble))
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

/// Why there is no answer. What takes too long does so again: it is the component's failure.
fn not_compiled(trouble: &Trouble) -> StartError {
    match trouble {
        Trouble::TimeUp => {
            let sentence =
                format!("compiling the component takes more than {} s", TIMEOUT.as_secs());
            start_error(Failure::new(Kind::Component, sentence))
        }
        trouble => sandbox(trouble.sentence()),
    }
}

fn create(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    file.set_permissions(Permissions::from_mode(0o444))?;
    Ok(file)
}

/// Moves machine code to its place, for which older may have to go, but none that is in use.
fn keep(
    folder: &Path,
    staged: &Path,
    place: &Path,
    in_use: &HashSet<String>,
    max_bytes: u64,
) -> io::Result<()> {
    // A file that a loss of power cuts off would be run.
    File::open(staged)?.sync_all()?;
    let mut bytes = fs::metadata(staged)?.len();
    let mut unused: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // What is gone meanwhile takes no room.
        let Ok(metadata) = entry.metadata() else { continue };
        if name.starts_with(STAGED) {
            continue;
        }
        bytes += metadata.len();
        if !in_use.contains(&name) {
            unused.push((metadata.modified()?, metadata.len(), entry.path()));
        }
    }
    unused.sort();
    for (_, size, path) in unused {
        if bytes <= max_bytes {
            break;
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => bytes -= size,
        }
    }
    fs::rename(staged, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_or_being_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (age_s, name) in [(4, "used"), (3, ".other"), (2, "old"), (1, "newer")] {
            fs::write(path(name), [0; 10]).unwrap();
            let made = SystemTime::now() - Duration::from_secs(age_s);
            File::options().write(true).open(path(name)).unwrap().set_modified(made).unwrap();
        }
        fs::write(path(".staged"), [0; 10]).unwrap();
        let in_use = HashSet::from(["used".to_owned()]);
        keep(folder.path(), &path(".staged"), &path("new"), &in_use, 30).unwrap();
        let names = || {
            let entries = fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), [".other", "new", "newer", "used"]);
        // More is in use than there is room for.
        fs::write(path(".staged"), [0; 10]).unwrap();
        keep(folder.path(), &path(".staged"), &path("next"), &in_use, 5).unwrap();
        assert_eq!(names(), [".other", "next", "used"]);
    }

    #[test]
    fn a_package_is_asked_for_anew_once_it_is_forgotten() {
        let state = tempfile::tempdir().unwrap();
        let components = Components::new(state.path());
        let package = components.package(state.path());
        package.set(Ok("name".to_owned())).unwrap();
        let gone = components.package(&state.path().join("gone"));
        gone.set(Ok("other".to_owned())).unwrap();
        assert_eq!(components.in_use(), HashSet::from(["name".to_owned()]));
        components.forget(state.path(), &package);
        let again = components.package(state.path());
        assert!(again.get().is_none());
        components.forget(state.path(), &package);
        assert!(Arc::ptr_eq(&again, &components.package(state.path())));
    }

    #[test]
    fn what_takes_too_long_is_the_components_failure() {
        let StartError::Init { message, .. } = not_compiled(&Trouble::TimeUp) else {
            panic!("it is taken for one of the machine");
        };
        assert_eq!(message, "compiling the component takes more than 120 s");
        assert!(matches!(not_compiled(&Trouble::Gone), StartError::Sandbox(_)));
    }
}
