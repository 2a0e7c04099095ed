//! The packages that a worker has from its controller.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::sync::Mutex as AsyncMutex;
use uncia_oci::document::Index;
use uncia_oci::{Digest, Image, ImageError, Layer, Source};

use super::uplink::Uplink;
use super::wire::PackageSource;
use crate::function::byte_code_mounts;
use crate::ids;
use crate::instance::{Host, ImageSpec, InstanceSpec, Package};
use crate::layer::Layers;
use crate::remote::{self, SaveError, save};
use crate::sandbox::SeenAt;
use crate::store::{Code, PackageError, PackageStore, StoredImage};

/// Packages that are kept though no instance uses them, the last ones used.
const KEPT: usize = 64;

/// What instances on a worker start with.
pub(super) struct Packages {
    store: Arc<PackageStore>,
    uplink: Uplink,
    host: Arc<Host>,
    recent: Mutex<VecDeque<(PackageSource, Arc<Code>)>>,
    /// Held while a package is fetched, by its hash, so that each comes once and holds up no other.
    fetches: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

impl Packages {
    pub(super) fn new(store: Arc<PackageStore>, uplink: Uplink, host: Arc<Host>) -> Self {
        let (recent, fetches) = (Mutex::default(), Mutex::default());
        Self { store, uplink, host, recent, fetches }
    }

    /// Puts the folders of an instance's packages into its specification, after fetching those that are not
    /// here. They stay as long as what is returned.
    pub(super) async fn lay(
        &self,
        spec: &mut InstanceSpec,
        package: &PackageSource,
        layers: &[String],
    ) -> Result<Vec<Arc<Code>>, String> {
        let code = self.find(package).await?;
        let mut parts = Vec::new();
        for layer in layers {
            parts.push(self.find(&PackageSource::Kept(layer.clone())).await?);
        }
        let (store, opt_parts) = (self.store.clone(), parts.clone());
        let merge = move || store.merge(&opt_parts).map(Layers::new);
        let merged = tokio::task::spawn_blocking(merge).await.map_err(|error| error.to_string())?;
        let layers = merged.map_err(|error| format!("its layers cannot be laid: {error}"))?;
        if matches!(package, PackageSource::Kept(_)) {
            // Nothing of what is fetched is kept, and neither is its byte code.
            code.compile(&self.host, spec.runtime, SeenAt::Task).await;
        }
        if let Some(opt) = layers.opt() {
            opt.compile(&self.host, spec.runtime, SeenAt::Layers).await;
        }
        spec.code = code.folder();
        spec.package = code.origin().map(|_| code.clone() as Arc<dyn Package>);
        if let Some(image) = &spec.image {
            spec.image = Some(Arc::new(ImageSpec { layers: code.layers(), ..(**image).clone() }));
        }
        spec.layers = layers.folder();
        spec.extensions = layers.extensions().to_vec();
        spec.mounts = byte_code_mounts(&code, &layers, spec.runtime);
        let mut used = vec![code];
        used.extend(layers.packages().cloned());
        Ok(used)
    }

    async fn find(&self, source: &PackageSource) -> Result<Arc<Code>, String> {
        let turn = {
            let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
            fetches.retain(|_, turn| turn.strong_count() > 0);
            let known = fetches.get(source.hash()).and_then(Weak::upgrade);
            let turn = known.unwrap_or_default();
            fetches.insert(source.hash().to_owned(), Arc::downgrade(&turn));
            turn
        };
        let _turn = turn.lock().await;
        let code = match self.take(source) {
            Some(code) => code,
            None => self.obtain(source).await?,
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back((source.clone(), code.clone()));
        if recent.len() > KEPT {
            recent.pop_front();
        }
        Ok(code)
    }

    fn take(&self, source: &PackageSource) -> Option<Arc<Code>> {
        // The queue is whole after every statement, so a panic elsewhere does not spoil it.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let index = recent.iter().position(|(of, _)| of == source)?;
        recent.remove(index).map(|(_, code)| code)
    }

    async fn obtain(&self, source: &PackageSource) -> Result<Arc<Code>, String> {
        let store = self.store.clone();
        let stored: Result<_, PackageError> = match source.clone() {
            PackageSource::Kept(sha256) => return self.fetch(&sha256).await,
            PackageSource::Fetched(sha256, zip) => Ok(store.restore_fetched(&sha256, zip)),
            PackageSource::Image(StoredImage { image, repository: Some(repository), .. }) => {
                store.store_remote(repository, image)
            }
            PackageSource::Image(StoredImage { image, .. }) => {
                let uplink = self.uplink.clone();
                let unpack = move || {
                    let archives = Archives::new(uplink, &image, store.staging())?;
                    store.store_image(&archives, image)
                };
                tokio::task::spawn_blocking(unpack).await.map_err(|error| error.to_string())?
            }
        };
        stored.map_err(|error| format!("the package cannot be stored: {error}"))
    }

    async fn fetch(&self, sha256: &str) -> Result<Arc<Code>, String> {
        let zip = self.uplink.package(sha256).await?;
        let store = self.store.clone();
        let stored = tokio::task::spawn_blocking(move || store.store(&zip, |_| Ok(()))).await;
        let stored = stored.map_err(|error| error.to_string())?;
        let code = stored.map_err(|error| format!("the package cannot be stored: {error}"))?;
        if code.sha256() != sha256 {
            return Err(format!(
                "the package that the controller sent has the hash {}, not {sha256}",
                code.sha256()
            ));
        }
        Ok(code)
    }
}

/// The archives of an image's layers, each fetched from the controller once, when it is first read. Only for
/// threads that may wait.
struct Archives {
    uplink: Uplink,
    layers: Vec<Layer>,
    /// Goes with this.
    folder: PathBuf,
}

impl Archives {
    fn new(uplink: Uplink, image: &Image, staging: PathBuf) -> io::Result<Self> {
        let folder = staging.join(ids::staging());
        std::fs::create_dir(&folder)?;
        Ok(Self { uplink, layers: image.layers.clone(), folder })
    }
}

impl Drop for Archives {
    fn drop(&mut self) {
        // The staging folder is emptied at the next start.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Source for Archives {
    fn index(&self) -> Result<Index, ImageError> {
        Ok(Index { manifests: Vec::new() })
    }

    fn blob(&self, digest: &Digest) -> Result<Box<dyn Read + Send + '_>, ImageError> {
        let file = self.folder.join(digest.hex());
        if !file.is_file() {
            let layer = self.layers.iter().find(|layer| layer.blob.digest == *digest);
            let layer = layer.ok_or_else(|| ImageError::Missing(digest.to_string()))?;
            let archive = Handle::current().block_on(self.uplink.layer(layer));
            let archive = remote::Answer::from(archive.map_err(ImageError::Registry)?);
            // What it is, whoever unpacks it checks.
            let saved = save(archive, &file, layer.blob.size);
            saved.map_err(|error| match error {
                SaveError::Disk(error) => ImageError::Io(error),
                SaveError::Source(error) => ImageError::Registry(format!(
                    "the controller does not send all of the layer {digest}: {error}"
                )),
            })?;
        }
        Ok(Box::new(File::open(file)?))
    }
}
