//! Roots that other platforms of this user have built: their files are linked, not copied.
//!
//! A run has a platform with a state of its own, and would copy all runtimes each time. Who links holds the cache's lock,
//! and so does, alone, who puts something there; nobody waits for it: who does not get it builds its own root. What is
//! linked is counted, so that nothing passes for whole that a crash has cut off.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use super::sources::Sources;
use super::tree::{self, Contents};
use super::{ROOT, SOURCES};

const LOCK: &str = "lock";
/// Beside root and sources, and what tells that a folder is the cache's: it was whole with this.
const RECORD: &str = "cached.json";
/// What is put there has the one name until it is whole, and what is removed the other from then on.
const INCOMING: &str = ".incoming";
const OUTGOING: &str = ".outgoing";
/// Digits of a recipe in a name.
const DIGITS: usize = 16;
/// What nobody has linked for so long is removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Who finds what it wants looks so often whether anything is to be removed.
const TIDY_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// A folder with roots as they stand in a state folder.
pub(in crate::sandbox) struct Cache(PathBuf);

#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Record {
    root: Contents,
}

impl Cache {
    /// It has a folder of its own in `folder`.
    pub(in crate::sandbox) fn new(folder: &Path) -> Self {
        Self(folder.join("roots"))
    }

    /// Makes `to` of links to what is there for `runtime_folder`, if that is current; whether it was.
    pub(super) fn take(&self, runtime_folder: &Path, to: &Path, recipe: &str) -> bool {
        self.try_take(runtime_folder, to, recipe).unwrap_or(false)
    }

    fn try_take(&self, runtime_folder: &Path, to: &Path, recipe: &str) -> io::Result<bool> {
        let kept = self.kept(runtime_folder, recipe)?;
        let _lock = self.lock(FlockArg::LockSharedNonblock)?;
        let is_current =
            Sources::read(&kept.join(SOURCES)).is_some_and(|it| it.are_current(recipe));
        if !is_current || !is_own(&fs::symlink_metadata(&kept)?) {
            return Ok(false);
        }
        let record: Record = serde_json::from_slice(&fs::read(kept.join(RECORD))?)?;
        tree::make_folder(to)?;
        let linked = Record { root: tree::link(&kept.join(ROOT), &to.join(ROOT))? };
        fs::hard_link(kept.join(SOURCES), to.join(SOURCES))?;
        File::open(kept.join(RECORD))?.set_modified(SystemTime::now())?;
        Ok(linked == record)
    }

    /// Keeps what was built in a state's folder for others. Where that fails nothing is lost but their time.
    pub(super) fn keep(&self, runtime_folder: &Path, recipe: &str) {
        if let Err(error) = self.try_keep(runtime_folder, recipe) {
            tracing::debug!(
                "{} is not kept in {}: {error}",
                runtime_folder.display(),
                self.0.display()
            );
        }
    }

    fn try_keep(&self, runtime_folder: &Path, recipe: &str) -> io::Result<()> {
        if !self.0.is_dir() {
            tree::make_folder(&self.0)?;
        }
        let kept = self.kept(runtime_folder, recipe)?;
        let _lock = self.lock(FlockArg::LockExclusiveNonblock)?;
        let incoming = self.0.join(INCOMING);
        let put = Self::put(runtime_folder, &incoming).and_then(|()| {
            self.remove(&kept)?;
            fs::rename(&incoming, &kept)
        });
        if put.is_err() {
            // It would hold the state's files when that is gone.
            let _ = tree::clear(&incoming);
        }
        put?;
        self.remove_stale()
    }

    /// Makes a folder as they are kept of what was built.
    fn put(runtime_folder: &Path, incoming: &Path) -> io::Result<()> {
        tree::clear(incoming)?;
        tree::make_folder(incoming)?;
        let record = Record { root: tree::link(&runtime_folder.join(ROOT), &incoming.join(ROOT))? };
        fs::hard_link(runtime_folder.join(SOURCES), incoming.join(SOURCES))?;
        tree::write(&incoming.join(RECORD), &serde_json::to_string(&record)?)
    }

    /// Removes what is of no more use, if that was not done today.
    pub(super) fn tidy(&self) {
        let is_due = || {
            let done = fs::metadata(self.0.join(LOCK)).ok()?.modified().ok()?;
            Some(done.elapsed().unwrap_or_default() > TIDY_EVERY)
        };
        if is_due() == Some(true)
            && let Ok(lock) = self.lock(FlockArg::LockExclusiveNonblock)
        {
            let _ = lock.set_modified(SystemTime::now());
            let _ = tree::clear(&self.0.join(INCOMING)).and_then(|()| self.remove_stale());
        }
    }

    /// Where the root of a runtime is kept: those of two recipes do not replace each other.
    fn kept(&self, runtime_folder: &Path, recipe: &str) -> io::Result<PathBuf> {
        let name = runtime_folder.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        Ok(self.0.join(format!("{name}-{}", recipe.get(..DIGITS).unwrap_or(recipe))))
    }

    /// Removes the roots of programs that are no longer as they were, and those that nobody used for long; what is not
    /// the cache's stays.
    fn remove_stale(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            let Ok(record) = fs::metadata(path.join(RECORD)) else { continue };
            let age = record.modified()?.elapsed().unwrap_or_default();
            let sources = Sources::read(&path.join(SOURCES));
            if age > UNUSED || sources.is_none_or(|it| !it.are_as_they_were()) {
                self.remove(&path)?;
            }
        }
        tree::clear(&self.0.join(OUTGOING))
    }

    fn remove(&self, kept: &Path) -> io::Result<()> {
        let outgoing = self.0.join(OUTGOING);
        tree::clear(&outgoing)?;
        match fs::rename(kept, &outgoing) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => tree::clear(&outgoing),
        }
    }

    /// Locks the folder, if nobody but this user can write to it.
    fn lock(&self, how: FlockArg) -> io::Result<Flock<File>> {
        if !is_own(&fs::symlink_metadata(&self.0)?) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let file = File::options().create(true).append(true).open(self.0.join(LOCK))?;
        Flock::lock(file, how).map_err(|(_, error)| error.into())
    }
}

/// Whether others cannot change what functions will run.
fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Lab {
        folder: tempfile::TempDir,
        cache: Cache,
    }

    impl Lab {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("program"), "1").unwrap();
            let cache = Cache::new(folder.path());
            Self { folder, cache }
        }

        /// A root that was made of the program.
        fn built(&self, state: &str, recipe: &str) -> PathBuf {
            let runtime_folder = self.folder.path().join(state).join("python-3");
            fs::create_dir_all(runtime_folder.join("root/bin")).unwrap();
            fs::write(runtime_folder.join("root/bin/python"), state).unwrap();
            std::os::unix::fs::symlink("bin", runtime_folder.join("root/sbin")).unwrap();
            let mut sources = Sources::new(recipe.into());
            sources.add(&self.folder.path().join("program"));
            sources.write(&runtime_folder.join(SOURCES)).unwrap();
            runtime_folder
        }

        /// What a new state gets of the cache.
        fn taken(&self, recipe: &str) -> Option<String> {
            let to = self.folder.path().join("new");
            let runtime_folder = self.folder.path().join("anywhere/python-3");
            let text = self
                .cache
                .take(&runtime_folder, &to, recipe)
                .then(|| fs::read_to_string(to.join("root/sbin/python")).unwrap());
            tree::clear(&to).unwrap();
            text
        }
    }

    #[test]
    fn what_one_has_built_others_link() {
        let lab = Lab::new();
        assert_eq!(lab.taken("r"), None);
        assert!(!lab.folder.path().join("roots").exists(), "nothing was made by looking");
        lab.cache.keep(&lab.built("first", "r"), "r");
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
        assert_eq!(lab.taken("other"), None);
        // The state goes, and its files stay.
        fs::remove_dir_all(lab.folder.path().join("first")).unwrap();
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
        fs::write(lab.folder.path().join("program"), "2, of another size").unwrap();
        assert_eq!(lab.taken("r"), None);
        // What is not the cache's is left alone, whatever it looks like.
        fs::create_dir_all(lab.folder.path().join("roots/foreign/root")).unwrap();
        lab.cache.keep(&lab.built("second", "r"), "r");
        assert_eq!(lab.taken("r").as_deref(), Some("second"));
        assert!(lab.folder.path().join("roots/foreign/root").exists());
    }

    #[test]
    fn nobody_waits_for_a_lock() {
        let lab = Lab::new();
        lab.cache.keep(&lab.built("first", "r"), "r");
        let shared = lab.cache.lock(FlockArg::LockSharedNonblock).unwrap();
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
        lab.cache.keep(&lab.built("second", "r"), "r");
        drop(shared);
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
        let alone = lab.cache.lock(FlockArg::LockExclusiveNonblock).unwrap();
        assert_eq!(lab.taken("r"), None);
        drop(alone);
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
    }

    #[test]
    fn what_is_not_whole_or_not_only_this_users_is_not_taken() {
        let lab = Lab::new();
        lab.cache.keep(&lab.built("first", "r"), "r");
        let kept = lab.folder.path().join("roots/python-3-r");
        let open_to = |mode| fs::set_permissions(&kept, fs::Permissions::from_mode(mode)).unwrap();
        open_to(0o777);
        assert_eq!(lab.taken("r"), None);
        open_to(0o755);
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
        let file = kept.join("root/bin/python");
        for damage in [true, false] {
            fs::remove_file(&file).unwrap();
            if damage {
                fs::write(&file, "").unwrap();
            }
            assert_eq!(lab.taken("r"), None);
        }
        lab.cache.keep(&lab.built("second", "r"), "r");
        assert_eq!(lab.taken("r").as_deref(), Some("second"));
    }

    #[test]
    fn recipes_have_places_of_their_own_until_nobody_uses_them() {
        let lab = Lab::new();
        lab.cache.keep(&lab.built("first", "r"), "r");
        lab.cache.keep(&lab.built("second", "s"), "s");
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
        assert_eq!(lab.taken("s").as_deref(), Some("second"));
        let record = File::open(lab.folder.path().join("roots/python-3-r").join(RECORD)).unwrap();
        record.set_modified(SystemTime::now() - UNUSED - Duration::from_secs(60)).unwrap();
        lab.cache.keep(&lab.built("third", "t"), "t");
        assert_eq!(lab.taken("r"), None);
        assert_eq!(lab.taken("s").as_deref(), Some("second"));
    }

    #[test]
    fn what_nobody_uses_goes_though_everything_is_found() {
        let lab = Lab::new();
        lab.cache.keep(&lab.built("first", "r"), "r");
        lab.cache.keep(&lab.built("second", "s"), "s");
        let roots = lab.folder.path().join("roots");
        let age = |path: &str, by: Duration| {
            let file = File::open(roots.join(path)).unwrap();
            file.set_modified(SystemTime::now() - by - Duration::from_secs(60)).unwrap();
        };
        fs::create_dir(roots.join(INCOMING)).unwrap();
        age("python-3-r/cached.json", UNUSED);
        lab.cache.tidy();
        assert!(roots.join("python-3-r").exists(), "it was done today");
        age(LOCK, TIDY_EVERY);
        lab.cache.tidy();
        assert!(!roots.join("python-3-r").exists() && !roots.join(INCOMING).exists());
        assert_eq!(lab.taken("s").as_deref(), Some("second"));
        // What cannot be put there leaves nothing.
        let built = lab.built("third", "t");
        fs::remove_file(built.join(SOURCES)).unwrap();
        lab.cache.keep(&built, "t");
        assert!(!roots.join(INCOMING).exists() && lab.taken("t").is_none());
    }

    #[test]
    fn what_was_cut_off_is_put_there_again() {
        let lab = Lab::new();
        let incoming = lab.folder.path().join("roots").join(INCOMING);
        fs::create_dir_all(incoming.join("root")).unwrap();
        fs::create_dir_all(incoming.with_file_name(OUTGOING).join("root")).unwrap();
        assert_eq!(lab.taken("r"), None);
        lab.cache.keep(&lab.built("first", "r"), "r");
        assert!(!incoming.exists() && !incoming.with_file_name(OUTGOING).exists());
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
    }
}
