//! The packages that a worker has from its controller.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Mutex as AsyncMutex;

use super::uplink::Uplink;
use crate::function::byte_code_mounts;
use crate::instance::{Host, InstanceSpec};
use crate::layer::Layers;
use crate::sandbox::SeenAt;
use crate::store::{Code, PackageStore};

/// Packages that are kept though no instance uses them, the last ones used.
const KEPT: usize = 64;

/// What instances on a worker start with.
pub(super) struct Packages {
    store: Arc<PackageStore>,
    uplink: Uplink,
    host: Arc<Host>,
    recent: Mutex<VecDeque<Arc<Code>>>,
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
        code: &str,
        layers: &[String],
    ) -> Result<Vec<Arc<Code>>, String> {
        let code = self.find(code).await?;
        let mut parts = Vec::new();
        for layer in layers {
            parts.push(self.find(layer).await?);
        }
        let (store, opt_parts) = (self.store.clone(), parts.clone());
        let merge = move || store.merge(&opt_parts).map(Layers::new);
        let merged = tokio::task::spawn_blocking(merge).await.map_err(|error| error.to_string())?;
        let layers = merged.map_err(|error| format!("its layers cannot be laid: {error}"))?;
        code.compile(&self.host, spec.runtime, SeenAt::Task).await;
        if let Some(opt) = layers.opt() {
            opt.compile(&self.host, spec.runtime, SeenAt::Layers).await;
        }
        spec.code = code.folder();
        spec.layers = layers.folder();
        spec.extensions = layers.extensions().to_vec();
        spec.mounts = byte_code_mounts(&code, &layers, spec.runtime);
        let mut used = vec![code];
        used.extend(layers.packages().cloned());
        Ok(used)
    }

    async fn find(&self, sha256: &str) -> Result<Arc<Code>, String> {
        let turn = {
            let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
            fetches.retain(|_, turn| turn.strong_count() > 0);
            let known = fetches.get(sha256).and_then(Weak::upgrade);
            let turn = known.unwrap_or_default();
            fetches.insert(sha256.to_owned(), Arc::downgrade(&turn));
            turn
        };
        let _turn = turn.lock().await;
        let code = match self.take(sha256) {
            Some(code) => code,
            None => self.fetch(sha256).await?,
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back(code.clone());
        if recent.len() > KEPT {
            recent.pop_front();
        }
        Ok(code)
    }

    fn take(&self, sha256: &str) -> Option<Arc<Code>> {
        // The queue is whole after every statement, so a panic elsewhere does not spoil it.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let index = recent.iter().position(|code| code.sha256() == sha256)?;
        recent.remove(index)
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
