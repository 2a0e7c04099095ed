//! Where unpacked packages lie, each under the hash of its zip file, shared by all functions that
//! have the same code, and removed when neither a function nor an instance uses it any more.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;

use sha2::{Digest, Sha256};
use uncia_oci::{self as oci, Image, ImageError, Source};

use super::fetched::Origin;
use super::folders;
use super::images::{ImageStore, StoredImage};
use super::layers;
use super::package::{self, PackageError};
use crate::ids;
use crate::instance::Runtime;
use crate::remote::s3;
use crate::services::Services;

/// Where what is not complete yet is made.
const STAGING: &str = "staging";
/// Where what is fetched when an instance starts lies.
const FETCHED: &str = "fetched";

/// Packages may hold secrets; instances read them unpacked.
const PRIVATE_FILE: u32 = 0o600;

/// An unpacked package, or an image. Its files stay as long as the value lives.
#[derive(Debug)]
pub(crate) struct Code {
    sha256: String,
    name: String,
    zip_bytes: u64,
    pub(super) store: Arc<PackageStore>,
    /// Whether the files go with the value: no function of the registry uses them.
    unused: AtomicBool,
    /// Set if it is an image.
    image: Option<StoredImage>,
    /// The folder of its byte code, once there is some, and the runtime that it is for.
    pub(super) byte_code: OnceLock<(Runtime, PathBuf)>,
    /// What of the byte code that it brings along is passed over, as the end of a sentence.
    pub(super) passed_over: OnceLock<String>,
    /// The packages whose files these are, if there are several: see [`PackageStore::merge`].
    parts: Vec<Arc<Self>>,
    unzipped_bytes: OnceLock<u64>,
    /// Where it is fetched from when an instance starts; None: it is kept here.
    pub(super) origin: Option<Origin>,
    /// Held by the start that fetches it.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl Code {
    /// The SHA-256 of the zip file, or of the image's manifest, in hexadecimal digits.
    pub(crate) fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The name that the store knows it by.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has the same bytes from the same origin.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.sha256 == other.sha256 && self.origin == other.origin
    }

    pub(crate) fn zip_bytes(&self) -> u64 {
        self.zip_bytes
    }

    /// The image, if it is one.
    pub(crate) fn image(&self) -> Option<&StoredImage> {
        self.image.as_ref()
    }

    /// The folders of its layers, the lowest first.
    pub(crate) fn layers(&self) -> Vec<PathBuf> {
        let store = if self.origin.is_some() { &self.store.fetched } else { &self.store.images };
        self.image.as_ref().map_or_else(Vec::new, |it| store.folders(&it.image))
    }

    /// The unpacked package.
    pub(crate) fn folder(&self) -> PathBuf {
        if self.origin.is_some() {
            return self.store.fetched_folder(&self.sha256);
        }
        self.store.folder(&self.sha256)
    }

    pub(super) fn store(&self) -> &Arc<PackageStore> {
        &self.store
    }

    /// The zip file.
    pub(crate) fn zip(&self) -> PathBuf {
        self.store.zip(&self.sha256)
    }

    /// The packages that it consists of.
    pub(crate) fn parts(&self) -> &[Arc<Self>] {
        &self.parts
    }

    /// Bytes of all its files, unpacked. Reads the folders the first time.
    pub(crate) fn unzipped_bytes(&self) -> io::Result<u64> {
        if let Some(bytes) = self.unzipped_bytes.get() {
            return Ok(*bytes);
        }
        let bytes = layers::bytes_below(&self.folder())?;
        Ok(*self.unzipped_bytes.get_or_init(|| bytes))
    }

    /// Where its byte code is kept, by version of the runtime.
    pub(super) fn byte_code_folder(&self) -> PathBuf {
        self.store.byte_code().join(&self.sha256)
    }

    /// Where what is not complete is made.
    pub(super) fn staging(&self) -> PathBuf {
        self.store.staging()
    }

    /// Says whether a function uses it; if none does, the files go when the last instance is gone.
    pub(crate) fn set_used(&self, used: bool) {
        self.unused.store(!used, Ordering::Release);
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        if self.passed_over.get().is_some() {
            self.store.passed_over.fetch_sub(1, Ordering::Relaxed);
        }
        // Of a zip file that is fetched nothing is kept here.
        let is_kept = !matches!(self.origin, Some(Origin::Store(_)));
        if !is_kept || !self.unused.load(Ordering::Acquire) {
            return;
        }
        // The last reference may go in a task that must not wait for the disk, or for whoever unpacks
        // a package. Without a thread, the next start sweeps.
        let (store, name) = (self.store.clone(), std::mem::take(&mut self.name));
        let _ = thread::Builder::new().spawn(move || store.forget(&name));
    }
}

/// The folders `code`, `bytecode`, `packages`, `images`, `layers`, `fetched` and `staging`.
#[derive(Debug)]
pub(crate) struct PackageStore {
    state: PathBuf,
    images: ImageStore,
    fetched: ImageStore,
    /// By name.
    live: Mutex<HashMap<String, Weak<Code>>>,
    services: OnceLock<Services>,
    /// Of how many packages something is passed over.
    pub(super) passed_over: AtomicUsize,
}

impl PackageStore {
    /// Opens the store; what an earlier worker left half-made goes.
    pub(crate) fn open(state: &Path) -> io::Result<Arc<Self>> {
        let staging = state.join(STAGING);
        let mut removed = fs::remove_dir_all(&staging);
        for _ in 0..100 {
            // Somebody else removes it, too: a listing may have missed what is behind what went.
            if !matches!(&removed, Err(it) if it.kind() == io::ErrorKind::DirectoryNotEmpty) {
                break;
            }
            removed = fs::remove_dir_all(&staging);
        }
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        folders::ensure(&staging, folders::PRIVATE)?;
        // What is fetched at a start is often as short-lived as the instance.
        folders::spread(&staging);
        let images = ImageStore::open(state, &staging)?;
        folders::ensure(&state.join(FETCHED), folders::PRIVATE)?;
        let fetched = ImageStore::open(&state.join(FETCHED), &staging)?;
        let store = Self {
            state: state.to_owned(),
            images,
            fetched,
            live: Mutex::default(),
            services: OnceLock::new(),
            passed_over: AtomicUsize::new(0),
        };
        folders::ensure(&store.zips(), folders::PRIVATE)?;
        folders::ensure(&store.code(), folders::PASSABLE)?;
        folders::ensure(&store.byte_code(), folders::PASSABLE)?;
        Ok(Arc::new(store))
    }

    /// Whether of any package byte code is passed over that it brings along: seldom.
    pub(crate) fn passes_over(&self) -> bool {
        self.passed_over.load(Ordering::Relaxed) > 0
    }

    /// Says how packages are fetched that are not kept here: from which services, and how many bytes of them are kept
    /// for the next instance. Without it none is.
    pub(crate) fn set_fetching(&self, services: &Services, cache_bytes: u64) {
        self.fetched.limit(cache_bytes);
        // Set once, when the platform starts.
        let _ = self.services.set(services.clone());
    }

    /// Keeps the archives of images' layers from now on, as they came: workers that have joined unpack them anew.
    pub(crate) fn keep_archives(&self) {
        self.images.keep_archives();
    }

    /// The archive of a layer that is kept.
    pub(crate) fn archive(&self, layer: &oci::Digest, blob: &oci::Digest) -> PathBuf {
        self.images.archive(layer, blob)
    }

    /// The store of objects that packages are fetched from.
    pub(crate) fn objects(&self) -> Result<s3::Store, PackageError> {
        let none = Services::default();
        let found = s3::Store::find(self.services.get().unwrap_or(&none));
        found.map_err(|error| PackageError::Remote(error.to_string()))
    }

    /// What is fetched when an instance starts.
    pub(super) fn fetched(&self) -> &ImageStore {
        &self.fetched
    }

    /// Keeps what an image in a registry consists of, unless it is known.
    pub(super) fn keep_fetched(
        self: &Arc<Self>,
        stored: StoredImage,
    ) -> Result<Arc<Code>, PackageError> {
        let mut live = self.lock();
        if let Some(code) = live.get(&stored.name()).and_then(Weak::upgrade) {
            return Ok(code);
        }
        self.fetched.keep(&stored)?;
        let sha256 = stored.image.digest.hex().to_owned();
        Ok(self.remember(&mut live, &sha256, 0, Some(stored), Vec::new()))
    }

    /// Whether an earlier worker left packages in this state folder.
    pub(crate) fn has_packages(state: &Path) -> bool {
        fs::read_dir(state.join("packages")).is_ok_and(|mut entries| entries.next().is_some())
            || ImageStore::has_images(state)
            || ImageStore::has_images(&state.join(FETCHED))
    }

    /// Removes the packages that are not in `used`, which a crash may have left.
    pub(crate) fn sweep(&self, used: &HashSet<String>) -> io::Result<()> {
        for folder in [self.code(), self.byte_code(), self.zips()] {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let sha256 = name.strip_suffix(".zip").unwrap_or(&name);
                if !used.contains(sha256) {
                    self.discard(sha256);
                }
            }
        }
        self.images.sweep(used)?;
        self.fetched.sweep(used)
    }

    /// The image that an earlier worker stored under this name.
    pub(crate) fn restore_image(self: &Arc<Self>, name: &str) -> Result<Arc<Code>, PackageError> {
        let mut live = self.lock();
        if let Some(code) = live.get(name).and_then(Weak::upgrade) {
            return Ok(code);
        }
        let missing = || ImageError::Missing(self.images.record(name).display().to_string());
        let restored = self.images.restore(name).or_else(|| self.fetched.restore(name));
        let image = restored.unwrap_or_else(|| Err(missing().into()))?;
        let sha256 = image.image.digest.hex().to_owned();
        Ok(self.remember(&mut live, &sha256, 0, Some(image), Vec::new()))
    }

    /// Stores an image: what is not here yet of its layers is unpacked. One that is here already is only
    /// looked up.
    pub(crate) fn store_image(
        self: &Arc<Self>,
        source: &dyn Source,
        image: Image,
    ) -> Result<Arc<Code>, PackageError> {
        let sha256 = image.digest.hex().to_owned();
        let known = self.lock().get(&sha256).and_then(Weak::upgrade);
        if let Some(code) = known.filter(|_| self.images.has_archives(&image)) {
            return Ok(code);
        }
        let stored = self.images.unpack_all(source, image)?;
        let mut live = self.lock();
        if let Some(code) = live.get(&sha256).and_then(Weak::upgrade) {
            self.images.give_up(&stored);
            return Ok(code);
        }
        self.images.keep(&stored)?;
        Ok(self.remember(&mut live, &sha256, 0, Some(stored), Vec::new()))
    }

    /// The package that an earlier worker stored. Its zip file must be there; the folder is made
    /// again if it is missing, or if instances could not read it.
    pub(crate) fn restore(self: &Arc<Self>, sha256: &str) -> Result<Arc<Code>, PackageError> {
        let mut live = self.lock();
        if let Some(code) = live.get(sha256).and_then(Weak::upgrade) {
            return Ok(code);
        }
        let zip = self.zip(sha256);
        let zip_bytes = fs::metadata(&zip)?.len();
        if !is_readable_by_all(&self.folder(sha256)) {
            let bytes = fs::read(&zip)?;
            if hex::encode(Sha256::digest(&bytes)) != sha256 {
                return Err(PackageError::Changed);
            }
            let staged = self.staging().join(ids::staging());
            self.unpack(&bytes, &staged)?;
            self.discard_folder(&self.folder(sha256));
            fs::rename(&staged, self.folder(sha256))?;
        }
        Ok(self.remember(&mut live, sha256, zip_bytes, None, Vec::new()))
    }

    /// The files of several packages in one folder, the later ones over the earlier ones; a single package is itself.
    /// None if there is none. Only for threads that may wait.
    pub(crate) fn merge(self: &Arc<Self>, parts: &[Arc<Code>]) -> io::Result<Option<Arc<Code>>> {
        let [first, _, ..] = parts else { return Ok(parts.first().cloned()) };
        let names: Vec<_> = parts.iter().map(|part| part.sha256()).collect();
        // No zip file has these bytes: they are no zip.
        let name = hex::encode(Sha256::digest(names.join("\n")));
        let known = self.lock().get(&name).and_then(Weak::upgrade);
        if let Some(code) = known {
            return Ok(Some(code));
        }
        let is_there = is_readable_by_all(&self.folder(&name));
        let staged = first.staging().join(ids::staging());
        if !is_there {
            let folders: Vec<_> = parts.iter().map(|part| part.folder()).collect();
            layers::merge(&folders, &staged).inspect_err(|_| {
                let _ = fs::remove_dir_all(&staged);
            })?;
        }
        let mut live = self.lock();
        if let Some(code) = live.get(&name).and_then(Weak::upgrade) {
            let _ = fs::remove_dir_all(&staged);
            return Ok(Some(code));
        }
        if !is_there || !self.folder(&name).is_dir() {
            self.discard(&name);
            fs::rename(&staged, self.folder(&name))?;
        }
        Ok(Some(self.remember(&mut live, &name, 0, None, parts.to_vec())))
    }

    /// Stands for a package that could not be restored. What there is of its files stays.
    pub(crate) fn missing(self: &Arc<Self>, name: &str) -> Arc<Code> {
        let sha256 = name.split_once('-').map_or(name, |(sha256, _)| sha256);
        let mut code = self.new_code(sha256, 0, None, None);
        name.clone_into(&mut code.name);
        code.set_used(true);
        Arc::new(code)
    }

    /// Unpacks and stores a package, or says what is wrong with it; `check` sees the folder before
    /// it is kept. A package that is there already is only checked.
    pub(crate) fn store(
        self: &Arc<Self>,
        zip: &[u8],
        check: impl Fn(&Path) -> Result<(), PackageError>,
    ) -> Result<Arc<Code>, PackageError> {
        let sha256 = hex::encode(Sha256::digest(zip));
        // The lock is let go first: nobody else waits while the package is looked at.
        let known = self.lock().get(&sha256).and_then(Weak::upgrade);
        if let Some(code) = known {
            check(&code.folder())?;
            return Ok(code);
        }
        let staged = self.staging().join(ids::staging());
        let staged_zip = staged.with_extension("zip");
        let stored = self.unpack(zip, &staged).and_then(|()| check(&staged)).and_then(|()| {
            let mut file = File::options()
                .write(true)
                .create_new(true)
                .mode(PRIVATE_FILE)
                .open(&staged_zip)?;
            file.write_all(zip)?;
            file.sync_all()?;
            let mut live = self.lock();
            if let Some(code) = live.get(&sha256).and_then(Weak::upgrade) {
                return Ok(code);
            }
            // Left over from a function that was deleted while its last instance went.
            self.discard(&sha256);
            fs::rename(&staged, self.folder(&sha256))?;
            fs::rename(&staged_zip, self.zip(&sha256))?;
            Ok(self.remember(&mut live, &sha256, zip.len() as u64, None, Vec::new()))
        });
        // What was moved into place is not here any more.
        let _ = fs::remove_dir_all(&staged);
        let _ = fs::remove_file(&staged_zip);
        stored
    }

    fn unpack(&self, zip: &[u8], staged: &Path) -> Result<(), PackageError> {
        package::unpack(zip, staged).inspect_err(|_| {
            // The error at hand is what matters; the staging folder is emptied at the next start.
            let _ = fs::remove_dir_all(staged);
        })
    }

    fn remember(
        self: &Arc<Self>,
        live: &mut HashMap<String, Weak<Code>>,
        sha256: &str,
        zip_bytes: u64,
        image: Option<StoredImage>,
        parts: Vec<Arc<Code>>,
    ) -> Arc<Code> {
        let repository = image.as_ref().and_then(|stored| stored.repository.clone());
        let mut code = self.new_code(sha256, zip_bytes, image, repository.map(Origin::Registry));
        code.parts = parts;
        let code = Arc::new(code);
        live.insert(code.name.clone(), Arc::downgrade(&code));
        code
    }

    pub(super) fn new_code(
        self: &Arc<Self>,
        sha256: &str,
        zip_bytes: u64,
        image: Option<StoredImage>,
        origin: Option<Origin>,
    ) -> Code {
        let unzipped_bytes = match &origin {
            Some(Origin::Store(zip)) => zip.unzipped_bytes.into(),
            _ => OnceLock::new(),
        };
        Code {
            sha256: sha256.to_owned(),
            name: image.as_ref().map_or_else(|| sha256.to_owned(), StoredImage::name),
            zip_bytes,
            store: self.clone(),
            // Until a function has it.
            unused: AtomicBool::new(true),
            image,
            byte_code: OnceLock::new(),
            passed_over: OnceLock::new(),
            parts: Vec::new(),
            unzipped_bytes,
            origin,
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Removes a package of which there is no reference any more.
    fn forget(&self, name: &str) {
        let mut live = self.lock();
        // Somebody may have stored the same package anew since the last reference went.
        if live.get(name).is_none_or(|code| code.strong_count() == 0) {
            live.remove(name);
            self.discard(name);
            self.images.remove(name);
            self.fetched.remove(name);
        }
    }

    /// Removes the files of a package: out of the way at once, from the disk in a moment.
    fn discard(&self, sha256: &str) {
        // Nothing depends on it, and the next start sweeps again.
        let _ = fs::remove_file(self.zip(sha256));
        self.discard_folder(&self.folder(sha256));
        self.discard_folder(&self.byte_code().join(sha256));
    }

    fn discard_folder(&self, folder: &Path) {
        let doomed = self.staging().join(ids::staging());
        if fs::rename(folder, &doomed).is_ok() {
            // Without a thread, the next start empties the staging folder.
            let _ = thread::Builder::new().spawn(move || fs::remove_dir_all(doomed));
        }
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.state.join(STAGING)
    }

    fn code(&self) -> PathBuf {
        self.state.join("code")
    }

    fn byte_code(&self) -> PathBuf {
        self.state.join("bytecode")
    }

    fn zips(&self) -> PathBuf {
        self.state.join("packages")
    }

    fn folder(&self, sha256: &str) -> PathBuf {
        self.code().join(sha256)
    }

    /// A zip package that somebody uses.
    pub(crate) fn in_use(&self, sha256: &str) -> Option<Arc<Code>> {
        let code = self.lock().get(sha256).and_then(Weak::upgrade)?;
        (code.image.is_none() && code.zip().is_file()).then_some(code)
    }

    /// Where the zip file of a package is.
    pub(crate) fn zip(&self, sha256: &str) -> PathBuf {
        self.zips().join(format!("{sha256}.zip"))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<Code>>> {
        // The map is whole after every statement, so a panic elsewhere does not spoil it.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether instances, which may run as other users, can read an unpacked package: not if an earlier
/// version unpacked it under a umask that forbids it.
fn is_readable_by_all(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|metadata| {
        metadata.is_dir() && metadata.permissions().mode() & 0o777 == folders::READABLE
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn whether_anything_is_passed_over_is_known_without_the_functions() {
        let state = tempfile::tempdir().unwrap();
        let store = PackageStore::open(state.path()).unwrap();
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        zip.start_file("f.py", zip::write::SimpleFileOptions::default()).unwrap();
        let code = store.store(zip.finish().unwrap().get_ref(), |_| Ok(())).unwrap();
        assert!(!store.passes_over());
        for _ in 0..2 {
            code.set_passed_over("a sentence".to_owned());
        }
        assert!(store.passes_over());
        drop(code);
        assert!(!store.passes_over(), "the function is gone");
    }

    #[test]
    fn the_last_reference_goes_without_waiting_for_the_store() {
        let state = tempfile::tempdir().unwrap();
        let store = PackageStore::open(state.path()).unwrap();
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        zip.start_file("f.py", zip::write::SimpleFileOptions::default()).unwrap();
        let zip = zip.finish().unwrap().into_inner();
        let code = store.store(&zip, |_| Ok(())).unwrap();
        let (folder, zip) = (code.folder(), code.zip());
        // As while a package is unpacked.
        let unpacking = store.lock();
        drop(code);
        assert!(folder.exists() && zip.exists());
        drop(unpacking);
        while folder.exists() || zip.exists() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
