//! The functions and layers there are, in memory for whoever invokes them and in SQLite for the next start.

mod layers;
mod published;
mod rows;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rusqlite::Connection;
use uncia_policy::FunctionId;

use self::layers::LAYERS;
use self::published::{POLICIES, PUBLISHED};
use self::rows::{StoredFunction, TABLES, read_rows, save};
use super::database::{self, DatabaseError, Format};
use super::packages::{Code, PackageStore};
use crate::function::{Configuration, Function, Overrides};
use crate::layer::{Layer, Layers};

const FORMAT: Format = Format { version: 4, table: "functions", synchronous: "FULL" };

/// Why the registry could not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(
        "{path} is missing or empty, while there are packages of functions beside it: restore it \
         from a copy, or choose another state folder"
    )]
    Emptied { path: PathBuf },
    #[error("{path}: {source}")]
    Folder { path: PathBuf, source: std::io::Error },
}

/// All functions. Reading is a look into memory; changes are on disk before they are seen.
pub(crate) struct Registry {
    path: PathBuf,
    packages: Arc<PackageStore>,
    connection: Mutex<Connection>,
    index: RwLock<Index>,
    arn_prefix: String,
    memory_per_vcpu: u64,
    next_id: AtomicU64,
}

#[derive(Default)]
struct Index {
    by_name: BTreeMap<Arc<str>, Arc<Function>>,
    by_url: HashMap<String, Arc<str>>,
    layers: BTreeMap<String, Layer>,
}

/// The one place from which functions are changed; holding it keeps all others from it.
pub(crate) struct Changes<'a> {
    registry: &'a Registry,
    connection: MutexGuard<'a, Connection>,
}

impl Registry {
    /// Opens the registry in the state folder, with the functions that an earlier worker left.
    /// `arn_prefix`: what the ARN of every function begins with, up to its name. `memory_per_vcpu`: with which a function
    /// gets one vCPU, in bytes.
    pub(crate) fn open(
        state: &Path,
        arn_prefix: &str,
        memory_per_vcpu: u64,
    ) -> Result<Self, StoreError> {
        let path = state.join("registry.sqlite");
        let (connection, version) = database::open(&path, &FORMAT)?;
        let refused = |error: rusqlite::Error| DatabaseError::of(&path, &error);
        if version == 0 {
            // Beginning anew would remove them all.
            if PackageStore::has_packages(state) {
                return Err(StoreError::Emptied { path });
            }
            connection.execute_batch(TABLES).map_err(refused)?;
        }
        // It is small, and all that is known of the functions.
        let damage: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(refused)?;
        if damage != "ok" {
            return Err(DatabaseError::Damaged { path, message: damage }.into());
        }
        for (since, tables) in [(2, PUBLISHED), (3, LAYERS), (4, POLICIES)] {
            if version < since {
                connection.execute_batch(tables).map_err(refused)?;
            }
        }
        // A journal that is torn later takes only later changes with it, and never the tables. Where
        // there is no room for that, the journal is as good.
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let packages = PackageStore::open(state)
            .map_err(|source| StoreError::Folder { path: state.to_owned(), source })?;
        let registry = Self {
            path,
            packages,
            connection: Mutex::new(connection),
            index: RwLock::default(),
            arn_prefix: arn_prefix.to_owned(),
            memory_per_vcpu,
            next_id: AtomicU64::new(1),
        };
        registry.load()?;
        Ok(registry)
    }

    /// Reads the functions; one that cannot run is there too, with the reason.
    fn load(&self) -> Result<(), StoreError> {
        let connection = self.connection();
        let rows = read_rows(&connection).map_err(|error| self.refused(&error))?;
        self.load_layers(&connection).map_err(|error| self.refused(&error))?;
        let mut used = HashSet::new();
        for row in rows {
            let function = Arc::new(self.restore(row));
            let packages = function.versions().flat_map(|version| version.packages());
            used.extend(packages.map(|code| code.name().to_owned()));
            let layers = function.versions().flat_map(|version| &version.configuration.layers);
            used.extend(layers.map(|layer| layer.sha256.clone()));
            self.show(function);
        }
        let layers = self.layers();
        let versions = layers.values().flat_map(|layer| layer.versions.values());
        used.extend(versions.map(|version| version.code.name().to_owned()));
        self.packages
            .sweep(&used)
            .map_err(|source| StoreError::Folder { path: self.path.clone(), source })
    }

    fn restore(&self, mut row: StoredFunction) -> Function {
        let mut published = std::mem::take(&mut row.published);
        let versions = std::mem::take(&mut row.versions);
        let mut function = self.restore_version(row, None);
        for (number, row) in versions {
            let version = self.restore_version(row, Some(number));
            published.versions.insert(number, Arc::new(version));
        }
        function.published = Arc::new(published);
        function.update_versions();
        function
    }

    fn restore_version(&self, row: StoredFunction, version: Option<u32>) -> Function {
        let (configuration, url, overrides, unreadable) = match row.parse() {
            Ok((configuration, url, overrides)) => (configuration, url, overrides, None),
            Err(reason) => (Configuration::unreadable(), None, Overrides::default(), Some(reason)),
        };
        let is_image = configuration.image.is_some();
        let code = if is_image {
            self.packages.restore_image(&row.code)
        } else if let Some(zip) = &configuration.fetched {
            Ok(self.packages.restore_fetched(&row.code, zip.clone()))
        } else {
            self.packages.restore(&row.code)
        };
        let (renew, heal) = match version {
            None => ("delete the function and create it again", "update the function's code"),
            Some(_) => {
                ("delete the version and publish another", "delete the version and publish another")
            }
        };
        let broken = match (&unreadable, &code) {
            (Some(reason), _) => Some(format!(
                "its configuration in {} cannot be read ({reason}): {renew}",
                self.path.display()
            )),
            (None, Err(error)) if is_image => {
                Some(format!("its image is missing or damaged ({error}): {heal}"))
            }
            (None, Err(error)) => Some(format!(
                "its package {} is missing or damaged ({error}): {heal}",
                self.packages.zip(&row.code).display()
            )),
            (None, Ok(_)) => None,
        };
        let code = code.unwrap_or_else(|_| self.packages.missing(&row.code));
        let layers = self.lay(&configuration.layers);
        let broken = broken.or_else(|| layers.as_ref().err().cloned());
        let layers = layers.unwrap_or_default();
        for code in std::iter::once(&code).chain(layers.packages()) {
            code.set_used(true);
        }
        let function = Function {
            url,
            broken,
            layers,
            unreadable: unreadable.is_some(),
            ..self.new_function(&row.name, configuration, row.tags, overrides, code)
        };
        match version {
            Some(number) => self.new_version(&function, number),
            None => function,
        }
    }

    fn refused(&self, error: &rusqlite::Error) -> StoreError {
        DatabaseError::of(&self.path, error).into()
    }

    /// A function that is in no registry yet.
    pub(crate) fn new_function(
        &self,
        name: &str,
        configuration: Configuration,
        tags: BTreeMap<String, String>,
        overrides: Overrides,
        code: Arc<Code>,
    ) -> Function {
        Function {
            id: FunctionId(self.next_id.fetch_add(1, Ordering::Relaxed)),
            name: Arc::from(name),
            version: None,
            qualified_name: Arc::from(name),
            arn: format!("{}{name}", self.arn_prefix),
            configuration,
            memory_per_vcpu: self.memory_per_vcpu,
            tags,
            overrides,
            url: None,
            code,
            layers: Layers::default(),
            broken: None,
            unreadable: false,
            published: Arc::default(),
            provisioned: 0,
        }
    }

    /// A function as it is now, as a version with this number.
    pub(crate) fn new_version(&self, function: &Function, number: u32) -> Function {
        Function {
            id: FunctionId(self.next_id.fetch_add(1, Ordering::Relaxed)),
            version: Some(number),
            qualified_name: format!("{}:{number}", function.name).into(),
            arn: format!("{}:{number}", function.arn),
            url: None,
            published: Arc::default(),
            ..function.clone()
        }
    }

    pub(crate) fn packages(&self) -> &Arc<PackageStore> {
        &self.packages
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Function>> {
        self.read().by_name.get(name).cloned()
    }

    /// The function that a URL's id names.
    pub(crate) fn by_url(&self, id: &str) -> Option<Arc<Function>> {
        let index = self.read();
        index.by_name.get(index.by_url.get(id)?).cloned()
    }

    /// All functions, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Function>> {
        self.read().by_name.values().cloned().collect()
    }

    /// Begins a change; waits for any other to end.
    pub(crate) fn change(&self) -> Changes<'_> {
        Changes { registry: self, connection: self.connection() }
    }

    fn show(&self, function: Arc<Function>) {
        let mut index = self.write();
        let old = index.by_name.get(&function.name).and_then(|old| old.url.clone());
        if let Some(old) = old {
            index.by_url.remove(&old.id);
        }
        if let Some(url) = &function.url {
            index.by_url.insert(url.id.clone(), function.name.clone());
        }
        index.by_name.insert(function.name.clone(), function);
    }

    fn hide(&self, function: &Function) {
        let mut index = self.write();
        index.by_name.remove(&function.name);
        if let Some(url) = &function.url {
            index.by_url.remove(&url.id);
        }
    }

    /// Tells a package whether a function or a layer uses it.
    fn mark_code(&self, code: &Code) {
        let is_it = |other: &Arc<Code>| other.is_same(code);
        let index = self.read();
        let mut functions = index.by_name.values().flat_map(Function::versions);
        let mut layers = index.layers.values().flat_map(|layer| layer.versions.values());
        let used = functions.any(|version| version.packages().any(is_it))
            || layers.any(|version| is_it(&version.code));
        code.set_used(used);
    }

    // The index is whole after every statement, so a panic elsewhere does not spoil it.
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changes<'_> {
    /// The function as it is now.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Function>> {
        self.registry.get(name)
    }

    /// Stores a function, new or changed, and shows it to everybody; `before_shown` runs once it is
    /// on disk, for the function and for each version that is new or changed.
    pub(crate) fn put(
        &mut self,
        mut function: Function,
        before_shown: impl Fn(&Arc<Function>),
    ) -> Result<Arc<Function>, StoreError> {
        function.update_versions();
        save(&mut self.connection, &function).map_err(|error| self.registry.refused(&error))?;
        let function = Arc::new(function);
        let old = self.registry.get(&function.name);
        let is_known = |version: &Arc<Function>| {
            let number = version.version.unwrap_or_default();
            let before = old.as_ref().and_then(|old| old.published.versions.get(&number));
            before.is_some_and(|before| Arc::ptr_eq(before, version))
        };
        for version in function.versions().filter(|version| !is_known(version)) {
            before_shown(version);
        }
        self.registry.show(function.clone());
        for version in function.versions().chain(old.iter().flat_map(Function::versions)) {
            version.packages().for_each(|code| self.registry.mark_code(code));
        }
        Ok(function)
    }

    /// Removes a function.
    pub(crate) fn remove(&mut self, function: &Function) -> Result<(), StoreError> {
        self.connection
            .execute("DELETE FROM functions WHERE name = ?1", [&*function.name])
            .map_err(|error| self.registry.refused(&error))?;
        self.registry.hide(function);
        let versions = function.published.versions.values().map(Arc::as_ref);
        for version in std::iter::once(function).chain(versions) {
            version.packages().for_each(|code| self.registry.mark_code(code));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
