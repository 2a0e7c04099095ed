//! Images: their layers, each unpacked once for all functions and images that have it.
//!
//! ```text
//! images/<name>.json       an image: see `StoredImage::name`
//! layers/<sha256>/files/   a layer, unpacked: the digest of its archive without compression names it
//! layers/<sha256>/layer.json
//! layers/<sha256>/<sha256 of the archive>.archive   as it came, where workers have it from here
//! ```
//!
//! There are two such pairs of folders: images that are kept share nothing with those that are fetched when an
//! instance starts, which would find their layers there and start as fast as the former.
//!
//! An image that is here holds its layers; one that no image holds any more goes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};
use uncia_oci::layer::{Contents, Rules, unpack, verify};
use uncia_oci::{Digest, Image, ImageError, Layer, Source};

use super::fetched::check;
use super::folders;
use super::package::PackageError;
use super::recent::Recent;
use crate::ids;
use crate::remote::registry::Repository;
use crate::remote::{SaveError, save};
use crate::sandbox::GROUP_ID;

/// Most files, folders and links of a layer. Bounds the inodes that one can use up.
const MAX_ENTRIES: u64 = 250_000;
/// Lambda's limit for an image, unpacked.
pub(crate) const MAX_IMAGE_BYTES: u64 = 10 * 1024 * 1024 * 1024;

const FILES: &str = "files";
const CONTENTS: &str = "layer.json";

/// An image as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredImage {
    pub image: Image,
    /// Bytes in the files of its layers, or of the layers in the registry.
    pub bytes: u64,
    /// Where its layers are fetched from when an instance starts; None: they are kept here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<Repository>,
}

impl StoredImage {
    /// The name that it is kept under: its digest, and that of the repository if it is fetched. One digest in two
    /// repositories is two images: each function's comes from its own.
    pub(super) fn name(&self) -> String {
        let sha256 = self.image.digest.hex();
        match &self.repository {
            None => sha256.to_owned(),
            Some(Repository { registry, name }) => {
                format!("{sha256}-{}", Digest::of(format!("{registry}/{name}").as_bytes()).hex())
            }
        }
    }
}

/// The folders `images` and `layers`.
#[derive(Debug)]
pub(super) struct ImageStore {
    root: PathBuf,
    staging: PathBuf,
    rules: Rules,
    holds: Mutex<Holds>,
    /// For each layer that is being unpacked, a lock for who wants it meanwhile.
    pub(super) unpacking: Mutex<HashMap<Digest, Arc<Mutex<()>>>>,
    /// What was fetched and is kept for the next instance; each holds once.
    pub(super) recent: Mutex<Recent<Digest>>,
    /// Whether archives of layers are kept as they came.
    keeps_archives: AtomicBool,
}

/// Which layers are needed.
#[derive(Debug, Default)]
struct Holds {
    images: HashMap<String, BTreeSet<Digest>>,
    /// By how many images, and attempts to store one.
    layers: HashMap<Digest, usize>,
}

impl ImageStore {
    /// Opens the folders below `root`; what is not complete is made in `staging`, on the same file system.
    pub(super) fn open(root: &Path, staging: &Path) -> io::Result<Self> {
        let is_root = nix::unistd::geteuid().is_root();
        let store = Self {
            root: root.to_owned(),
            staging: staging.to_owned(),
            rules: Rules {
                // Without root, functions are the worker's own user.
                group: is_root.then_some(GROUP_ID),
                is_root,
                max_entries: MAX_ENTRIES,
                max_bytes: MAX_IMAGE_BYTES,
            },
            holds: Mutex::default(),
            unpacking: Mutex::default(),
            recent: Mutex::new(Recent::new(0)),
            keeps_archives: AtomicBool::new(false),
        };
        folders::ensure(&store.images(), folders::PRIVATE)?;
        // Instances see the layers through mounts, and nobody else has any business there.
        folders::ensure(&store.layers(), folders::PRIVATE)?;
        Ok(store)
    }

    /// Whether an earlier worker left images below this folder.
    pub(super) fn has_images(root: &Path) -> bool {
        fs::read_dir(root.join("images")).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Unpacks the layers of an image that are not here yet, and holds them until it is kept or given up.
    pub(super) fn unpack_all(
        &self,
        source: &dyn Source,
        image: Image,
    ) -> Result<StoredImage, PackageError> {
        let layers = distinct(&image);
        self.hold(&layers);
        self.try_unpack_all(source, image).inspect_err(|_| self.release(layers))
    }

    fn try_unpack_all(
        &self,
        source: &dyn Source,
        image: Image,
    ) -> Result<StoredImage, PackageError> {
        let mut bytes = 0_u64;
        let mut seen = HashSet::new();
        for layer in image.layers.iter().filter(|layer| seen.insert(&layer.diff_id)) {
            bytes = bytes.saturating_add(self.unpack(source, layer)?.bytes);
            if bytes > MAX_IMAGE_BYTES {
                return Err(PackageError::ImageBytes(MAX_IMAGE_BYTES));
            }
        }
        Ok(StoredImage { image, bytes, repository: None })
    }

    /// Keeps an image whose layers are unpacked and held.
    pub(super) fn keep(&self, stored: &StoredImage) -> Result<(), PackageError> {
        let written = || {
            let staged = self.staging();
            fs::write(&staged, serde_json::to_vec(stored)?)?;
            fs::rename(&staged, self.record(&stored.name()))
        };
        written().inspect_err(|_| self.give_up(stored))?;
        self.note(stored);
        Ok(())
    }

    /// Keeps no image although its layers are unpacked and held.
    pub(super) fn give_up(&self, stored: &StoredImage) {
        self.release(kept(stored));
    }

    fn unpack(&self, source: &dyn Source, layer: &Layer) -> Result<Contents, PackageError> {
        let gate = self.gate(&layer.diff_id);
        let unpacked = {
            let _alone = lock(&gate);
            let present = self.contents(&layer.diff_id);
            let is_new = present.is_none();
            let unpacked = present.map_or_else(
                || {
                    self.make(&layer.diff_id, |files| {
                        folders::make(files, folders::READABLE)?;
                        Ok(unpack(source, layer, files, &self.rules)?)
                    })
                },
                Ok,
            );
            // What another archive unpacked to says nothing of this one.
            let kept = |contents| self.keep_archive(source, layer, !is_new).map(|()| contents);
            unpacked.and_then(kept)
        };
        self.leave(&layer.diff_id, gate);
        unpacked
    }

    /// Keeps archives from now on.
    pub(super) fn keep_archives(&self) {
        self.keeps_archives.store(true, Ordering::Relaxed);
    }

    /// Whether all archives are here that are to be kept of an image.
    pub(super) fn has_archives(&self, image: &Image) -> bool {
        let is_kept = |it: &Layer| self.has_archive(it);
        !self.keeps_archives.load(Ordering::Relaxed) || image.layers.iter().all(is_kept)
    }

    /// The archive of a layer as it came, beside what was unpacked of it.
    pub(super) fn archive(&self, layer: &Digest, blob: &Digest) -> PathBuf {
        self.layer(layer).join(format!("{}.archive", blob.hex()))
    }

    /// Whether the archive of a layer is here, and whole: a machine that went down may have left a part of it.
    fn has_archive(&self, layer: &Layer) -> bool {
        let archive = self.archive(&layer.diff_id, &layer.blob.digest);
        fs::metadata(archive).is_ok_and(|it| it.is_file() && it.len() == layer.blob.size)
    }

    /// Keeps a layer's archive as it came, unless it is here; `checks` whether it unpacks to the layer.
    fn keep_archive(
        &self,
        source: &dyn Source,
        layer: &Layer,
        checks: bool,
    ) -> Result<(), PackageError> {
        let Layer { blob, diff_id } = layer;
        if !self.keeps_archives.load(Ordering::Relaxed) || self.has_archive(layer) {
            return Ok(());
        }
        let staged = self.staging();
        let saved = save(source.blob(&blob.digest)?, &staged, blob.size);
        let kept = saved.map_err(|(SaveError::Source(error) | SaveError::Disk(error))| error);
        let kept = kept.map_err(PackageError::Io).and_then(|(digest, bytes)| {
            let what = format!("the layer {}", blob.digest);
            check(what, (&blob.digest, blob.size), &digest, bytes)?;
            let file = File::open(&staged)?;
            file.sync_all()?;
            if checks {
                verify(file, layer, &self.rules)?;
            }
            Ok(fs::rename(&staged, self.archive(diff_id, &blob.digest))?)
        });
        kept.inspect_err(|_| {
            // The error at hand is what matters; the staging folder is emptied at the next start.
            let _ = fs::remove_file(&staged);
        })
    }

    /// Makes a layer: `fill` makes the folder that it gets and what is in it. Nobody else may make it meanwhile.
    pub(super) fn make(
        &self,
        layer: &Digest,
        fill: impl FnOnce(&Path) -> Result<Contents, PackageError>,
    ) -> Result<Contents, PackageError> {
        let staged = self.staging();
        let made = || -> Result<Contents, PackageError> {
            // Instances reach it by its path, and not what lies beside it.
            folders::make(&staged, folders::PASSABLE)?;
            let contents = fill(&staged.join(FILES))?;
            let text = serde_json::to_vec(&contents).map_err(io::Error::from)?;
            fs::write(staged.join(CONTENTS), text)?;
            // A layer that is there without its record: not one of ours, or damaged.
            self.discard(layer);
            fs::rename(&staged, self.layer(layer))?;
            Ok(contents)
        };
        made().inspect_err(|_| {
            // The error at hand is what matters; the staging folder is emptied at the next start.
            let _ = fs::remove_dir_all(&staged);
        })
    }

    /// What a layer holds, if it is here.
    pub(super) fn contents(&self, layer: &Digest) -> Option<Contents> {
        let text = fs::read(self.layer(layer).join(CONTENTS)).ok()?;
        let is_there = self.layer(layer).join(FILES).is_dir();
        is_there.then(|| serde_json::from_slice(&text).ok()).flatten()
    }

    /// The image that an earlier worker stored, whose layers must all be here; `None` if there is none of
    /// this name.
    pub(super) fn restore(&self, name: &str) -> Option<Result<StoredImage, PackageError>> {
        let text = fs::read(self.record(name)).ok()?;
        let restored = || -> Result<StoredImage, PackageError> {
            let stored: StoredImage = serde_json::from_slice(&text).map_err(io::Error::from)?;
            if stored.name() != name {
                return Err(ImageError::Missing(self.record(name).display().to_string()).into());
            }
            let layers = kept(&stored);
            if let Some(lost) = layers.iter().find(|layer| self.contents(layer).is_none()) {
                return Err(ImageError::Missing(format!("the unpacked layer {lost}")).into());
            }
            self.hold(&layers);
            self.note(&stored);
            Ok(stored)
        };
        Some(restored())
    }

    /// Removes an image, and those of its layers that no other holds.
    pub(super) fn remove(&self, name: &str) {
        // Nothing depends on it, and the next start sweeps again.
        let _ = fs::remove_file(self.record(name));
        let layers = lock(&self.holds).images.remove(name);
        self.release(layers.unwrap_or_default());
    }

    /// Removes what no image holds, once all that are used are restored.
    pub(super) fn sweep(&self, used: &HashSet<String>) -> io::Result<()> {
        for entry in fs::read_dir(self.images())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !used.contains(name.strip_suffix(".json").unwrap_or(&name)) {
                fs::remove_file(entry.path())?;
            }
        }
        let holds = lock(&self.holds);
        for entry in fs::read_dir(self.layers())? {
            let entry = entry?;
            let digest = Digest::parse(&format!("sha256:{}", entry.file_name().to_string_lossy()));
            if digest.is_ok_and(|digest| !holds.layers.contains_key(&digest)) {
                self.discard_folder(&entry.path());
            }
        }
        Ok(())
    }

    /// How layers are unpacked.
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Has no more kept of what is fetched than so many bytes.
    pub(super) fn limit(&self, bytes: u64) {
        *lock(&self.recent) = Recent::new(bytes);
    }

    /// The folder of what is unpacked under a digest.
    pub(super) fn files(&self, sha256: &str) -> PathBuf {
        self.layers().join(sha256).join(FILES)
    }

    /// The folders of an image's layers, the lowest first.
    pub(super) fn folders(&self, image: &Image) -> Vec<PathBuf> {
        image.layers.iter().map(|layer| self.layer(&layer.diff_id).join(FILES)).collect()
    }

    pub(super) fn hold(&self, layers: &BTreeSet<Digest>) {
        let mut holds = lock(&self.holds);
        for layer in layers {
            *holds.layers.entry(layer.clone()).or_default() += 1;
        }
    }

    /// Remembers what an image holds. One that was kept before, and is not removed yet, holds once.
    fn note(&self, stored: &StoredImage) {
        let layers = kept(stored);
        let twice = lock(&self.holds).images.insert(stored.name(), layers);
        self.release(twice.unwrap_or_default());
    }

    pub(super) fn release(&self, layers: BTreeSet<Digest>) {
        let mut holds = lock(&self.holds);
        for layer in layers {
            let Some(count) = holds.layers.get_mut(&layer) else { continue };
            *count -= 1;
            if *count == 0 {
                holds.layers.remove(&layer);
                // With the lock: who holds it next unpacks it anew.
                self.discard(&layer);
            }
        }
    }

    fn discard(&self, layer: &Digest) {
        self.discard_folder(&self.layer(layer));
    }

    /// Removes a folder: out of the way at once, from the disk in a moment.
    fn discard_folder(&self, folder: &Path) {
        let doomed = self.staging();
        if fs::rename(folder, &doomed).is_ok() {
            // Without a thread, the next start empties the staging folder.
            let _ = thread::Builder::new().spawn(move || fs::remove_dir_all(doomed));
        }
    }

    /// A name in the staging folder that is free.
    pub(super) fn staging(&self) -> PathBuf {
        self.staging.join(ids::staging())
    }

    fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    pub(super) fn record(&self, name: &str) -> PathBuf {
        self.images().join(format!("{name}.json"))
    }

    fn layer(&self, layer: &Digest) -> PathBuf {
        self.layers().join(layer.hex())
    }
}

/// The layers that an image holds as long as it is here.
fn kept(stored: &StoredImage) -> BTreeSet<Digest> {
    if stored.repository.is_some() {
        // Those who run on them hold them.
        return BTreeSet::new();
    }
    distinct(&stored.image)
}

fn distinct(image: &Image) -> BTreeSet<Digest> {
    image.layers.iter().map(|layer| layer.diff_id.clone()).collect()
}

/// Whatever is locked here is whole after every statement, so a panic elsewhere does not spoil it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
