//! Packages that are not kept here: fetched, checked and unpacked when an instance starts.
//!
//! Images come from a registry, a layer each; zip files from a store of objects, as if each were a layer, under its
//! own digest. What is unpacked lies in the folder `fetched/layers`, shared by all functions whose package is
//! fetched. It stays while an instance runs
//! on it, and afterwards as far as the cache has room (`code_cache`).

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};
use std::thread;

use serde::{Deserialize, Serialize};
use uncia_clock::Moment;
use uncia_oci::document::Index;
use uncia_oci::layer::{Contents, unpack};
use uncia_oci::{Digest, Image, ImageError, Layer, Selector, Source};

use super::folders;
use super::images::{ImageStore, MAX_IMAGE_BYTES, StoredImage, lock};
use super::package::{self, MAX_UNZIPPED_BYTES, PackageError};
use super::packages::{Code, PackageStore};
use crate::ids;
use crate::instance::{Package, Phase};
use crate::remote::registry::{Registry, Repository};
use crate::remote::s3::Object;
use crate::remote::{RemoteError, SaveError, save};

/// Where a package is fetched from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Registry(Repository),
    Store(FetchedZip),
}

/// A zip file in the store, as it was when the function was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FetchedZip {
    #[serde(flatten)]
    pub object: Object,
    pub zip_bytes: u64,
    pub unzipped_bytes: u64,
}

/// What instances run on: it stays on the disk as long as this lives.
#[derive(Debug)]
struct Held {
    store: Arc<PackageStore>,
    layers: BTreeSet<Digest>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // The last reference may go in a task that must not wait for the disk. Without a thread, the next start sweeps.
        let (store, layers) = (self.store.clone(), std::mem::take(&mut self.layers));
        let _ = thread::Builder::new().spawn(move || store.fetched().release(layers));
    }
}

impl Package for Code {
    fn turn(&self) -> &tokio::sync::Mutex<()> {
        &self.turn
    }

    fn obtain(&self, phases: &mut Vec<Phase>) -> Result<crate::instance::Held, String> {
        match self.try_obtain(phases) {
            Ok(held) => Ok(held),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Code {
    /// Where it is fetched from, unless it is kept here.
    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    fn try_obtain(&self, phases: &mut Vec<Phase>) -> Result<Arc<Held>, PackageError> {
        let store = self.store();
        let mut repository = None;
        let mut units = Vec::new();
        match (self.image(), self.origin()) {
            (Some(StoredImage { image, .. }), Some(Origin::Registry(of_image))) => {
                repository = Some(of_image);
                units.extend(image.layers.iter().map(Unit::Layer));
            }
            (None, Some(Origin::Store(zip))) => {
                let digest = Digest::parse(&format!("sha256:{}", self.sha256()))?;
                units.push(Unit::Zip { digest, zip });
            }
            // What is kept here is never fetched.
            _ => {}
        }
        units.sort_by_key(Unit::digest);
        units.dedup_by_key(|unit| unit.digest());
        let layers: BTreeSet<_> = units.iter().map(Unit::digest).collect();
        store.fetched().hold(&layers);
        let held = Arc::new(Held { store: store.clone(), layers });
        // In the order of their digests, so that none waits for another that waits for it.
        let gates: Vec<_> = units.iter().map(|unit| store.fetched().gate(&unit.digest())).collect();
        let alone: Vec<MutexGuard<'_, ()>> = gates.iter().map(|gate| lock(gate)).collect();
        let result = Fetching { store, repository }.fetch(&units, phases);
        drop(alone);
        for (unit, gate) in units.iter().zip(gates) {
            store.fetched().leave(&unit.digest(), gate);
        }
        result.map(|()| held)
    }
}

/// What is fetched and unpacked as one.
enum Unit<'a> {
    Layer(&'a Layer),
    Zip { digest: Digest, zip: &'a FetchedZip },
}

impl Unit<'_> {
    fn digest(&self) -> Digest {
        match self {
            Self::Layer(layer) => layer.diff_id.clone(),
            Self::Zip { digest, .. } => digest.clone(),
        }
    }
}

/// One start's work.
struct Fetching<'a> {
    store: &'a Arc<PackageStore>,
    repository: Option<&'a Repository>,
}

impl Fetching<'_> {
    /// Fetches and unpacks what is not here; nobody else does so with any of it meanwhile.
    fn fetch(&self, units: &[Unit<'_>], phases: &mut Vec<Phase>) -> Result<(), PackageError> {
        let images = self.store.fetched();
        let missing: Vec<_> =
            units.iter().filter(|unit| images.contents(&unit.digest()).is_none()).collect();
        if !missing.is_empty() {
            let began = Moment::now();
            let downloads = Downloads::new(images.staging())?;
            for unit in &missing {
                self.download(unit, &downloads)?;
            }
            let fetched = Moment::now();
            phases.push(Phase { name: "fetch", start: began, end: fetched });
            let unpacked = self.unpack_all(units, &downloads);
            phases.push(Phase { name: "unpack", start: fetched, end: Moment::now() });
            unpacked?;
        }
        for unit in units {
            let digest = unit.digest();
            let bytes = images.contents(&digest).map_or(0, |contents| contents.bytes);
            images.touch(digest, bytes);
        }
        Ok(())
    }

    fn download(&self, unit: &Unit<'_>, downloads: &Downloads) -> Result<(), PackageError> {
        match unit {
            Unit::Layer(Layer { blob, .. }) => {
                let repository = self.repository.expect("layers are of images").clone();
                let registry = &repository.registry;
                let source = Registry::new(repository.clone(), Selector::Only);
                let body = source.blob(&blob.digest)?;
                let saved = save(body, &downloads.file(&blob.digest), blob.size);
                let (digest, bytes) = saved.map_err(|error| match error {
                    SaveError::Disk(error) => PackageError::Io(error),
                    SaveError::Source(error) => ImageError::Registry(format!(
                        "the registry {registry} does not give all of {}: {error}",
                        blob.digest
                    ))
                    .into(),
                })?;
                check(
                    format!("the layer {}", blob.digest),
                    (&blob.digest, blob.size),
                    &digest,
                    bytes,
                )
            }
            Unit::Zip { digest, zip } => {
                let store = self.store.objects()?;
                let fetched = store.fetch(&zip.object, &downloads.file(digest), zip.zip_bytes);
                match fetched {
                    Ok((found, _)) if found == *digest => Ok(()),
                    Ok((found, _)) => Err(changed(&zip.object, digest, &found.to_string())),
                    Err(RemoteError::TooLarge(bytes)) => {
                        Err(changed(&zip.object, digest, &format!("{bytes} bytes")))
                    }
                    Err(RemoteError::Refused(sentence)) => Err(PackageError::Remote(sentence)),
                }
            }
        }
    }

    /// Unpacks what is not here; all of it may have no more bytes than an image that is kept.
    fn unpack_all(&self, units: &[Unit<'_>], downloads: &Downloads) -> Result<(), PackageError> {
        let mut bytes = 0_u64;
        for unit in units {
            let contents = match self.store.fetched().contents(&unit.digest()) {
                Some(contents) => contents,
                None => self.unpack(unit, downloads)?,
            };
            bytes = bytes.saturating_add(contents.bytes);
            if bytes > MAX_IMAGE_BYTES {
                return Err(PackageError::ImageBytes(MAX_IMAGE_BYTES));
            }
        }
        Ok(())
    }

    fn unpack(&self, unit: &Unit<'_>, downloads: &Downloads) -> Result<Contents, PackageError> {
        let images = self.store.fetched();
        images.make(&unit.digest(), |files| match unit {
            Unit::Layer(layer) => {
                folders::make(files, folders::READABLE)?;
                Ok(unpack(downloads, layer, files, images.rules())?)
            }
            Unit::Zip { digest, .. } => package::unpack_file(&downloads.file(digest), files),
        })
    }
}

fn changed(object: &Object, expected: &Digest, found: &str) -> PackageError {
    PackageError::Remote(format!(
        "the package {}/{} in the store is not the one that the function was made with: it has {found}, and should \
         have {expected}; update the function's code",
        object.bucket, object.key
    ))
}

/// Refuses what is not what its descriptor says.
pub(super) fn check(
    what: String,
    (expected, size): (&Digest, u64),
    found: &Digest,
    bytes: u64,
) -> Result<(), PackageError> {
    if bytes != size {
        let found = if bytes > size { "more".to_owned() } else { bytes.to_string() };
        return Err(ImageError::Size { what, expected: size, found }.into());
    }
    if found != expected {
        let (expected, found) = (expected.to_string(), found.to_string());
        return Err(ImageError::Mismatch { what, expected, found }.into());
    }
    Ok(())
}

/// A folder of what was fetched, by digest, removed with the value.
struct Downloads(PathBuf);

impl Downloads {
    fn new(folder: PathBuf) -> io::Result<Self> {
        folders::make(&folder, folders::PRIVATE)?;
        Ok(Self(folder))
    }

    fn file(&self, digest: &Digest) -> PathBuf {
        self.0.join(digest.hex())
    }
}

impl Drop for Downloads {
    fn drop(&mut self) {
        // The staging folder is emptied at the next start.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Source for Downloads {
    fn index(&self) -> Result<Index, ImageError> {
        Ok(Index { manifests: Vec::new() })
    }

    fn blob(&self, digest: &Digest) -> Result<Box<dyn Read + Send + '_>, ImageError> {
        Ok(Box::new(File::open(self.file(digest))?))
    }
}

impl PackageStore {
    /// An image in a registry, of which only what it consists of is read now.
    pub(crate) fn store_remote(
        self: &Arc<Self>,
        repository: Repository,
        image: Image,
    ) -> Result<Arc<Code>, PackageError> {
        let sizes = image.layers.iter().map(|layer| layer.blob.size);
        let bytes = sizes.fold(0, u64::saturating_add);
        if bytes > MAX_IMAGE_BYTES {
            return Err(PackageError::ImageBytes(MAX_IMAGE_BYTES));
        }
        self.keep_fetched(StoredImage { image, bytes, repository: Some(repository) })
    }

    /// A zip file in the store of objects, checked now and fetched again when an instance starts. `check` sees it
    /// unpacked.
    pub(crate) fn store_fetched(
        self: &Arc<Self>,
        object: Object,
        check: impl Fn(&std::path::Path) -> Result<(), PackageError>,
    ) -> Result<Arc<Code>, PackageError> {
        let downloads = Downloads::new(self.fetched().staging())?;
        let file = downloads.0.join(ids::staging());
        let fetched = self.objects()?.fetch(&object, &file, MAX_UNZIPPED_BYTES);
        let (digest, zip_bytes) = fetched.map_err(|error| match error {
            RemoteError::TooLarge(_) => PackageError::Unzipped,
            RemoteError::Refused(sentence) => PackageError::Remote(sentence),
        })?;
        let folder = downloads.0.join("files");
        let Contents { bytes, .. } = package::unpack_file(&file, &folder)?;
        check(&folder)?;
        let zip = FetchedZip { object, zip_bytes, unzipped_bytes: bytes };
        Ok(self.restore_fetched(digest.hex(), zip))
    }

    /// A package of the store of objects that a function was made with.
    pub(crate) fn restore_fetched(self: &Arc<Self>, sha256: &str, zip: FetchedZip) -> Arc<Code> {
        Arc::new(self.new_code(sha256, zip.zip_bytes, None, Some(Origin::Store(zip))))
    }

    /// What is fetched now and then by this name, which is not a package that is kept.
    pub(super) fn fetched_folder(&self, sha256: &str) -> PathBuf {
        self.fetched().files(sha256)
    }
}

impl ImageStore {
    /// A lock for who fetches or unpacks a layer, or wants it meanwhile.
    pub(super) fn gate(&self, layer: &Digest) -> Arc<std::sync::Mutex<()>> {
        lock(&self.unpacking).entry(layer.clone()).or_default().clone()
    }

    /// Gives a gate back.
    pub(super) fn leave(&self, layer: &Digest, gate: Arc<std::sync::Mutex<()>>) {
        drop(gate);
        let mut unpacking: MutexGuard<'_, HashMap<_, _>> = lock(&self.unpacking);
        if unpacking.get(layer).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            unpacking.remove(layer);
        }
    }

    /// Notes that a layer is used, which the cache keeps from now on as far as it has room.
    fn touch(&self, layer: Digest, bytes: u64) {
        // Locked until it is held: who evicts it meanwhile would release what was not held yet.
        let mut recent = lock(&self.recent);
        let (kept, gone) = recent.touch(layer.clone(), bytes);
        if kept {
            self.hold(&BTreeSet::from([layer]));
        }
        self.release(gone.into_iter().collect());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Barrier;

    use uncia_oci::document::{Descriptor, Execution};

    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    #[test]
    fn what_is_held_is_not_evicted() {
        let folder = tempfile::tempdir().unwrap();
        let staging = folder.path().join("staging");
        folders::make(&staging, folders::PRIVATE).unwrap();
        let store = ImageStore::open(folder.path(), &staging).unwrap();
        // Of the layers, each thread's own, one fits.
        store.limit(1);
        let start = |name: String| {
            let layers = BTreeSet::from([digest(&name)]);
            store.hold(&layers);
            let fill = |files: &Path| {
                folders::make(files, folders::READABLE)?;
                Ok(Contents { entries: 1, bytes: 1 })
            };
            let layer = layers.first().unwrap();
            if store.contents(layer).is_none() {
                store.make(layer, fill).unwrap();
            }
            store.touch(layer.clone(), 1);
            thread::yield_now();
            assert!(store.contents(layer).is_some(), "it is gone while an instance runs on it");
            store.release(layers);
        };
        thread::scope(|scope| {
            for thread in 0..4 {
                let start = &start;
                scope.spawn(move || (0..300).for_each(|_| start(thread.to_string())));
            }
        });
        let left = (0..4).filter(|it| store.contents(&digest(&it.to_string())).is_some());
        assert_eq!(left.count(), 1, "the cache has room for one");
    }

    #[test]
    fn an_image_is_its_digest_and_where_it_comes_from() {
        struct Nothing;
        impl Source for Nothing {
            fn index(&self) -> Result<Index, ImageError> {
                Ok(Index { manifests: Vec::new() })
            }
            fn blob(&self, digest: &Digest) -> Result<Box<dyn Read + Send + '_>, ImageError> {
                Err(ImageError::Missing(digest.to_string()))
            }
        }
        let state = tempfile::tempdir().unwrap();
        let store = PackageStore::open(state.path()).unwrap();
        let image = Image {
            digest: digest("manifest"),
            execution: Execution::default(),
            layers: Vec::new(),
        };
        let pulled = |name: &str| {
            let repository =
                Repository { registry: "localhost:5000".to_owned(), name: name.to_owned() };
            let code = store.store_remote(repository.clone(), image.clone()).unwrap();
            assert_eq!(code.origin(), Some(&Origin::Registry(repository)));
            code
        };
        let kept = store.store_image(&Nothing, image.clone()).unwrap();
        let codes = [kept, pulled("a/b"), pulled("a/c")];
        assert_eq!(codes[0].origin(), None);
        assert!(Arc::ptr_eq(&codes[1], &pulled("a/b")));
        for (index, code) in codes.iter().enumerate() {
            assert_eq!(code.sha256(), image.digest.hex());
            code.set_used(true);
            let same: Vec<_> = codes.iter().map(|other| code.is_same(other)).collect();
            assert_eq!(same.iter().position(|same| *same), Some(index));
        }
        let names = codes.each_ref().map(|code| (code.name().to_owned(), code.origin().cloned()));
        drop(codes);
        let store = PackageStore::open(state.path()).unwrap();
        for (name, origin) in &names {
            let code = store.restore_image(name).unwrap();
            assert_eq!((code.name(), code.origin()), (name.as_str(), origin.as_ref()));
        }
    }

    #[test]
    fn an_image_of_more_bytes_than_allowed_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let store = PackageStore::open(state.path()).unwrap();
        let layer = |text: &str, size: u64| Layer {
            blob: Descriptor {
                media_type: String::new(),
                digest: digest(text),
                size,
                platform: None,
                annotations: BTreeMap::new(),
            },
            diff_id: digest(text),
        };
        let create = |sizes: [u64; 2]| {
            let layers = vec![layer("a", sizes[0]), layer("b", sizes[1])];
            let execution = Execution::default();
            let image = Image { digest: digest("manifest"), execution, layers };
            let repository =
                Repository { registry: "localhost:5000".to_owned(), name: "a".to_owned() };
            store.store_remote(repository, image)
        };
        for sizes in [[MAX_IMAGE_BYTES, 1], [u64::MAX, u64::MAX]] {
            assert!(matches!(create(sizes), Err(PackageError::ImageBytes(_))), "{sizes:?}");
        }
        assert!(create([MAX_IMAGE_BYTES - 1, 1]).is_ok());
    }

    #[test]
    fn functions_made_at_once_share_an_image() {
        let state = tempfile::tempdir().unwrap();
        let store = PackageStore::open(state.path()).unwrap();
        let image = Image {
            digest: digest("manifest"),
            execution: Execution::default(),
            layers: Vec::new(),
        };
        let repository = Repository { registry: "localhost:5000".to_owned(), name: "a".to_owned() };
        let barrier = Barrier::new(4);
        let codes: Vec<_> = thread::scope(|scope| {
            let make = || {
                barrier.wait();
                store.store_remote(repository.clone(), image.clone()).unwrap()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(codes.iter().all(|code| Arc::ptr_eq(code, &codes[0])));
    }
}
