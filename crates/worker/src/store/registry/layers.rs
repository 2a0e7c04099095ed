//! Layers in the registry: published, deleted, and read again at the next start.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::rows::{json, lossy_text};
use super::{Changes, Registry, StoreError};
use crate::layer::{Layer, LayerAbout, LayerUse, LayerVersion, Layers};
use crate::store::packages::Code;

/// From version 2 to 3: layers. Of one whose versions are all deleted the last number stays.
pub(super) const LAYERS: &str = "
    BEGIN;
    CREATE TABLE layers (
        name TEXT PRIMARY KEY,
        last_version INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE layer_versions (
        layer TEXT NOT NULL REFERENCES layers (name) ON DELETE CASCADE,
        version INTEGER NOT NULL,
        about TEXT NOT NULL,
        code_sha256 TEXT NOT NULL,
        PRIMARY KEY (layer, version)
    ) STRICT;
    PRAGMA user_version = 3;
    COMMIT;
";

impl Registry {
    /// All layers with their versions, by name.
    pub(crate) fn layers(&self) -> BTreeMap<String, Layer> {
        self.read().layers.clone()
    }

    pub(crate) fn layer(&self, name: &str) -> Option<Layer> {
        self.read().layers.get(name).cloned()
    }

    pub(crate) fn layer_version(&self, name: &str, number: u32) -> Option<Arc<LayerVersion>> {
        self.read().layers.get(name)?.versions.get(&number).cloned()
    }

    /// The layers that a function names, ready to be mounted; the error says which cannot be. Only for
    /// threads that may wait.
    pub(crate) fn lay(&self, uses: &[LayerUse]) -> Result<Layers, String> {
        let mut parts = Vec::new();
        for LayerUse { arn, sha256, .. } in uses {
            let code = self.packages.restore(sha256).map_err(|error| {
                format!(
                    "the package of its layer {arn} is missing or damaged ({error}): publish the layer \
                     again, and name the new version"
                )
            })?;
            parts.push(code);
        }
        let opt = self.packages.merge(&parts);
        opt.map(Layers::new).map_err(|error| format!("its layers cannot be united: {error}"))
    }

    pub(super) fn load_layers(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut layers = connection.prepare("SELECT name, last_version FROM layers")?;
        let layers = layers.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut loaded = BTreeMap::new();
        for row in layers {
            let (name, last_version): (String, u32) = row?;
            let versions = self.load_versions(connection, &name)?;
            loaded.insert(name, Layer { last_version, versions });
        }
        self.write().layers = loaded;
        Ok(())
    }

    fn load_versions(
        &self,
        connection: &Connection,
        name: &str,
    ) -> rusqlite::Result<BTreeMap<u32, Arc<LayerVersion>>> {
        let mut versions = connection.prepare_cached(
            "SELECT version, about, code_sha256 FROM layer_versions WHERE layer = ?1",
        )?;
        let versions = versions.query_map([name], |row| {
            let sha256: String = row.get(2)?;
            let about = serde_json::from_str(&lossy_text(row, 1)?.unwrap_or_default());
            let code = self.packages.restore(&sha256);
            let broken = match (&about, &code) {
                (Err(error), _) => Some(format!("what is stored of it cannot be read ({error})")),
                (_, Err(error)) => Some(format!("its package is missing or damaged ({error})")),
                (Ok(_), Ok(_)) => None,
            };
            let code = code.unwrap_or_else(|_| self.packages.missing(&sha256));
            code.set_used(true);
            let number = row.get(0)?;
            let about = about.unwrap_or_default();
            let version = LayerVersion { name: name.to_owned(), number, about, code, broken };
            Ok((number, Arc::new(version)))
        })?;
        versions.collect()
    }
}

impl Changes<'_> {
    /// Stores a layer's next version.
    pub(crate) fn publish_layer(
        &mut self,
        name: &str,
        about: LayerAbout,
        code: Arc<Code>,
    ) -> Result<Arc<LayerVersion>, StoreError> {
        let mut layer = self.registry.layer(name).unwrap_or_default();
        let number = layer.last_version + 1;
        save(&mut self.connection, name, number, &about, code.sha256())
            .map_err(|error| self.registry.refused(&error))?;
        let version = LayerVersion { name: name.to_owned(), number, about, code, broken: None };
        let version = Arc::new(version);
        version.code.set_used(true);
        layer.last_version = number;
        layer.versions.insert(number, version.clone());
        self.registry.write().layers.insert(name.to_owned(), layer);
        Ok(version)
    }

    /// Deletes a version of a layer, if it is there. Functions that name it keep its package.
    pub(crate) fn delete_layer(&mut self, name: &str, number: u32) -> Result<(), StoreError> {
        let sql = "DELETE FROM layer_versions WHERE layer = ?1 AND version = ?2";
        self.connection
            .execute(sql, params![name, number])
            .map_err(|error| self.registry.refused(&error))?;
        let removed = {
            let mut index = self.registry.write();
            index.layers.get_mut(name).and_then(|layer| layer.versions.remove(&number))
        };
        if let Some(version) = removed {
            self.registry.mark_code(&version.code);
        }
        Ok(())
    }
}

fn save(
    connection: &mut Connection,
    name: &str,
    number: u32,
    about: &LayerAbout,
    sha256: &str,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute(
        "INSERT INTO layers (name, last_version) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET last_version = ?2",
        params![name, number],
    )?;
    transaction.execute(
        "INSERT INTO layer_versions (layer, version, about, code_sha256) VALUES (?1, ?2, ?3, ?4)",
        params![name, number, json(about), sha256],
    )?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::function::{Configuration, Function, Overrides};

    fn open(state: &Path) -> Registry {
        Registry::open(state, "arn:", 1_769 << 20).unwrap()
    }

    fn zip(files: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, text) in files {
            archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            archive.write_all(text.as_bytes()).unwrap();
        }
        archive.finish().unwrap().into_inner()
    }

    fn publish(registry: &Registry, name: &str, files: &[(&str, &str)]) -> LayerUse {
        let code = registry.packages().store(&zip(files), |_| Ok(())).unwrap();
        let version =
            registry.change().publish_layer(name, LayerAbout::default(), code.clone()).unwrap();
        LayerUse {
            arn: format!("{name}:{}", version.number),
            sha256: code.sha256().to_owned(),
            bytes: code.zip_bytes(),
        }
    }

    fn put(registry: &Registry, name: &str, layers: &[LayerUse]) -> Arc<Function> {
        let code = registry.packages().store(&zip(&[("f", name)]), |_| Ok(())).unwrap();
        let configuration =
            Configuration { layers: layers.to_vec(), ..Configuration::unreadable() };
        let mut function =
            registry.new_function(name, configuration, BTreeMap::new(), Overrides::default(), code);
        function.layers = registry.lay(layers).unwrap();
        registry.change().put(function, |_| {}).unwrap()
    }

    #[test]
    fn a_functions_layers_outlive_their_versions_and_the_worker() {
        let folder = tempfile::tempdir().unwrap();
        let registry = open(folder.path());
        let low = publish(&registry, "low", &[("a", "low"), ("b", "low")]);
        let high = publish(&registry, "high", &[("b", "high"), ("extensions/x", "")]);
        put(&registry, "f", &[low.clone(), high.clone()]);
        registry.change().delete_layer("low", 1).unwrap();
        registry.change().delete_layer("high", 1).unwrap();
        drop(registry);
        for _ in 0..2 {
            let registry = open(folder.path());
            assert!(registry.layer_version("low", 1).is_none());
            let function = registry.get("f").unwrap();
            let opt = function.layers.folder().unwrap();
            let read = |name: &str| fs::read_to_string(opt.join(name)).unwrap();
            assert_eq!(
                (function.broken.clone(), read("a"), read("b")),
                (None, "low".into(), "high".into())
            );
            // It may not be executed.
            assert!(function.layers.extensions().is_empty());
            // What was united is made anew from what was stored.
            fs::remove_dir_all(opt).unwrap();
        }
        let registry = open(folder.path());
        assert_eq!(
            publish(&registry, "low", &[("a", "new")]).arn,
            "low:2",
            "no number is given twice"
        );
        let function = registry.get("f").unwrap();
        registry.change().remove(&function).unwrap();
        drop(function);
        let packages = folder.path().join("packages");
        while fs::read_dir(&packages).unwrap().count() > 1 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_lost_layer_breaks_the_functions_that_name_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let registry = open(folder.path());
        let lost = publish(&registry, "lost", &[("a", "lost")]);
        let kept = publish(&registry, "kept", &[("a", "kept")]);
        put(&registry, "unlucky", &[kept.clone(), lost.clone()]);
        put(&registry, "lucky", &[kept]);
        drop(registry);
        fs::remove_file(folder.path().join(format!("packages/{}.zip", lost.sha256))).unwrap();
        let registry = open(folder.path());
        let reason = registry.get("unlucky").unwrap().broken.clone().unwrap();
        assert!(reason.contains("its layer lost:1 is missing"), "{reason}");
        assert_eq!(registry.get("lucky").unwrap().broken, None);
        assert!(registry.layer_version("lost", 1).unwrap().broken.is_some());
        assert!(registry.layer_version("kept", 1).unwrap().broken.is_none());
        drop(registry);
        // Another zip file than the one that was published, found when that is to be unpacked again.
        let path = folder.path().join(format!("packages/{}.zip", lost.sha256));
        fs::write(path, zip(&[("a", "other")])).unwrap();
        fs::remove_dir_all(folder.path().join("code").join(&lost.sha256)).unwrap();
        let registry = open(folder.path());
        let reason = registry.get("unlucky").unwrap().broken.clone().unwrap();
        assert!(reason.contains("not the one that was uploaded"), "{reason}");
        assert!(registry.layer_version("lost", 1).unwrap().broken.is_some());
    }
}
