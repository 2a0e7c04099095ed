//! The roots of a host's runtimes: found when it opens; built then, or when a function first wants one.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use tokio::sync::OnceCell;

use super::host::HostError;
use super::rootfs::{self, Cache, Root, RootError, RootSpec};
use super::runtimes::Runtime;
use crate::instance::StartError;

/// The runtimes that are on this host, with their roots.
pub(super) struct Roots {
    folder: PathBuf,
    cache: Option<Arc<Cache>>,
    all: HashMap<Runtime, Entry>,
}

struct Entry {
    spec: RootSpec,
    root: OnceCell<Root>,
}

impl Roots {
    /// Finds the runtimes, and builds the roots of all but those that are built when they are wanted.
    ///
    /// `interpreters` names programs by the names of runtimes; an error with one of these is returned.
    /// One that only happens to be on the PATH and cannot be asked about itself is left out, with a
    /// sentence in `warnings`. Removes the roots of runtimes that are gone. `cache`: a folder in which platforms keep
    /// roots for each other.
    pub(super) fn open(
        folder: &Path,
        cache: Option<PathBuf>,
        interpreters: &BTreeMap<String, PathBuf>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, HostError> {
        fs::create_dir_all(folder).map_err(|error| HostError::State(folder.to_owned(), error))?;
        let cache = cache.map(|folder| Arc::new(Cache::new(&folder)));
        let mut all = HashMap::new();
        for (runtime, found) in find_all(interpreters) {
            match found {
                Ok(Some(spec)) => {
                    let root = if runtime.definition().is_built_on_demand() {
                        OnceCell::new()
                    } else {
                        let cache = cache.as_deref();
                        OnceCell::from(rootfs::prepare(folder, cache, runtime, &spec)?)
                    };
                    all.insert(runtime, Entry { spec, root });
                }
                Ok(None) => {}
                // One that nobody asked for keeps no other from working.
                Err(error @ RootError::Ask(..)) if !interpreters.contains_key(runtime.name()) => {
                    warnings.push(format!("There is no runtime {runtime:?}: {error}."));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let keep = all.iter().map(|(runtime, entry)| rootfs::place(folder, *runtime, &entry.spec));
        rootfs::remove_others(folder, &keep.collect::<Vec<_>>())
            .map_err(|error| HostError::State(folder.to_owned(), error))?;
        Ok(Self { folder: folder.to_owned(), cache, all })
    }

    /// "3.11.7", "20.20.2"; `None` if this runtime is not on the host.
    pub(super) fn version(&self, runtime: Runtime) -> Option<&str> {
        Some(&self.all.get(&runtime)?.spec.version)
    }

    /// A digest of what the root of a runtime is made of, but for the host's files.
    pub(super) fn recipe(&self, runtime: Runtime) -> Option<String> {
        Some(rootfs::recipe(&self.all.get(&runtime)?.spec))
    }

    /// The root of a runtime whose root is built already.
    pub(super) fn built(&self, runtime: Runtime) -> Option<&Root> {
        self.all.get(&runtime)?.root.get()
    }

    /// The root of a runtime, built if need be: several who want it wait for one of them.
    pub(super) async fn get(&self, runtime: Runtime) -> Result<&Root, StartError> {
        let entry = self.all.get(&runtime).ok_or_else(|| {
            StartError::Sandbox(format!("this machine has no runtime {runtime:?}"))
        })?;
        let build = || async {
            let (folder, spec) = (self.folder.clone(), entry.spec.clone());
            let cache = self.cache.clone();
            let prepare = move || rootfs::prepare(&folder, cache.as_deref(), runtime, &spec);
            tokio::task::spawn_blocking(prepare)
                .await
                .map_err(|error| StartError::Sandbox(error.to_string()))?
                .map_err(|error| StartError::Sandbox(error.to_string()))
        };
        entry.root.get_or_try_init(build).await
    }
}

type Found = Result<Option<RootSpec>, RootError>;

/// Asks all interpreters at a time: each takes some ten milliseconds to start.
fn find_all(interpreters: &BTreeMap<String, PathBuf>) -> Vec<(Runtime, Found)> {
    thread::scope(|scope| {
        let asked: Vec<_> = Runtime::all()
            .iter()
            .map(|runtime| {
                let interpreter = interpreters.get(runtime.name()).map(PathBuf::as_path);
                (*runtime, scope.spawn(move || rootfs::find(*runtime, interpreter)))
            })
            .collect();
        let joined = asked.into_iter().map(|(runtime, thread)| {
            let panicked = |_| {
                let program = PathBuf::from(runtime.name());
                Err(RootError::Ask(program, "the thread that asked has panicked".into()))
            };
            (runtime, thread.join().unwrap_or_else(panicked))
        });
        joined.collect()
    })
}
