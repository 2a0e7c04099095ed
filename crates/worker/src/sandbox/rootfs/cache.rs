//! Roots that other platforms of this user have built: their files are linked, not copied.
//!
//! A run has a platform with a state of its own, and would copy all runtimes each time. What is linked is whole: who
//! links holds the cache's lock, and so does, alone, who puts something there. Nobody waits for it: who does not get it builds
//! its own root.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::sources::Sources;
use super::{SOURCES, tree};

const LOCK: &str = "lock";
/// What is put there has this name until it is whole.
const INCOMING: &str = ".incoming";

/// A folder with roots as they stand in a state folder.
pub(in crate::sandbox) struct Cache(PathBuf);

impl Cache {
    pub(in crate::sandbox) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Makes `to` of links to what is there by the name of `place`, if that is current; whether it was.
    pub(super) fn take(&self, place: &Path, to: &Path, recipe: &str) -> bool {
        let Some(kept) = place.file_name().map(|name| self.0.join(name)) else { return false };
        let Ok(_lock) = self.lock(FlockArg::LockSharedNonblock) else { return false };
        Sources::read(&kept.join(SOURCES)).is_some_and(|it| it.are_current(recipe))
            && tree::link(&kept, to).is_ok()
    }

    /// Keeps what was built at a place for others. Where that fails nothing is lost but their time.
    pub(super) fn keep(&self, place: &Path) {
        if let Err(error) = self.try_keep(place) {
            tracing::debug!("{} is not kept in {}: {error}", place.display(), self.0.display());
        }
    }

    fn try_keep(&self, place: &Path) -> io::Result<()> {
        let name = place.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        fs::create_dir_all(&self.0)?;
        let _lock = self.lock(FlockArg::LockExclusiveNonblock)?;
        let (incoming, kept) = (self.0.join(INCOMING), self.0.join(name));
        tree::clear(&incoming)?;
        tree::link(place, &incoming)?;
        tree::clear(&kept)?;
        fs::rename(&incoming, &kept)?;
        self.clear_others()
    }

    /// Removes the roots of programs that are no longer as they were.
    fn clear_others(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            let is_kept = |it: Sources| it.are_as_they_were();
            if path.is_dir() && !Sources::read(&path.join(SOURCES)).is_some_and(is_kept) {
                tree::clear(&path)?;
            }
        }
        Ok(())
    }

    fn lock(&self, how: FlockArg) -> io::Result<Flock<File>> {
        let file = File::options().create(true).append(true).open(self.0.join(LOCK))?;
        Flock::lock(file, how).map_err(|(_, error)| error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lab {
        folder: tempfile::TempDir,
        cache: Cache,
    }

    impl Lab {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("program"), "1").unwrap();
            let cache = Cache::new(folder.path().join("cache"));
            Self { folder, cache }
        }

        /// A root that was made of the program.
        fn built(&self, state: &str, recipe: &str) -> PathBuf {
            let place = self.folder.path().join(state).join("python-3");
            fs::create_dir_all(place.join("root/bin")).unwrap();
            fs::write(place.join("root/bin/python"), state).unwrap();
            std::os::unix::fs::symlink("bin", place.join("root/sbin")).unwrap();
            let mut sources = Sources::new(recipe.into());
            sources.add(&self.folder.path().join("program"));
            sources.write(&place.join(SOURCES)).unwrap();
            place
        }

        /// What a new state gets of the cache.
        fn taken(&self, recipe: &str) -> Option<String> {
            let to = self.folder.path().join("new");
            let place = self.folder.path().join("anywhere/python-3");
            let text = self
                .cache
                .take(&place, &to, recipe)
                .then(|| fs::read_to_string(to.join("root/sbin/python")).unwrap());
            tree::clear(&to).unwrap();
            text
        }
    }

    #[test]
    fn what_one_has_built_others_link() {
        let lab = Lab::new();
        assert_eq!(lab.taken("r"), None);
        assert!(!lab.folder.path().join("cache").exists(), "nothing was made by looking");
        lab.cache.keep(&lab.built("first", "r"));
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
        assert_eq!(lab.taken("other"), None);
        // The state goes, and its files stay.
        fs::remove_dir_all(lab.folder.path().join("first")).unwrap();
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
        fs::write(lab.folder.path().join("program"), "2, of another size").unwrap();
        assert_eq!(lab.taken("r"), None);
        fs::create_dir_all(lab.folder.path().join("cache/half-built/root")).unwrap();
        lab.cache.keep(&lab.built("second", "r"));
        assert_eq!(lab.taken("r").as_deref(), Some("second"));
        assert!(!lab.folder.path().join("cache/half-built").exists());
    }

    #[test]
    fn nobody_waits_for_a_lock() {
        let lab = Lab::new();
        lab.cache.keep(&lab.built("first", "r"));
        let shared = lab.cache.lock(FlockArg::LockSharedNonblock).unwrap();
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
        lab.cache.keep(&lab.built("second", "r"));
        drop(shared);
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
        let alone = lab.cache.lock(FlockArg::LockExclusiveNonblock).unwrap();
        assert_eq!(lab.taken("r"), None);
        drop(alone);
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
    }

    #[test]
    fn what_was_cut_off_is_put_there_again() {
        let lab = Lab::new();
        let incoming = lab.folder.path().join("cache").join(INCOMING);
        fs::create_dir_all(incoming.join("root")).unwrap();
        assert_eq!(lab.taken("r"), None);
        lab.cache.keep(&lab.built("first", "r"));
        assert!(!incoming.exists());
        assert_eq!(lab.taken("r").as_deref(), Some("first"));
    }
}
