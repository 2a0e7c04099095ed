//! The functions there are, in memory for whoever invokes them and in SQLite for the next start.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rusqlite::{Connection, Row, params};
use uncia_policy::FunctionId;

use super::database::{self, DatabaseError, Format};
use super::packages::{Code, PackageStore};
use super::published::{PUBLISHED, read_published, read_versions, save_published};
use crate::function::{Configuration, Function, Overrides, UrlConfig};
use crate::instance::Runtime;
use crate::published::Published;

const FORMAT: Format = Format { version: 2, table: "functions", synchronous: "FULL" };
/// Version 1 of the tables.
const TABLES: &str = "
    BEGIN;
    CREATE TABLE functions (
        name TEXT PRIMARY KEY,
        configuration TEXT NOT NULL,
        code_sha256 TEXT NOT NULL
    ) STRICT;
    CREATE TABLE tags (
        function TEXT NOT NULL REFERENCES functions (name) ON DELETE CASCADE,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (function, key)
    ) STRICT;
    CREATE TABLE urls (
        id TEXT PRIMARY KEY,
        function TEXT NOT NULL UNIQUE REFERENCES functions (name) ON DELETE CASCADE,
        configuration TEXT NOT NULL
    ) STRICT;
    PRAGMA user_version = 1;
    COMMIT;
";

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
    next_id: AtomicU64,
}

#[derive(Default)]
struct Index {
    by_name: BTreeMap<Arc<str>, Arc<Function>>,
    by_url: HashMap<String, Arc<str>>,
}

/// The one place from which functions are changed; holding it keeps all others from it.
pub(crate) struct Changes<'a> {
    registry: &'a Registry,
    connection: MutexGuard<'a, Connection>,
}

impl Registry {
    /// Opens the registry in the state folder, with the functions that an earlier worker left.
    /// `arn_prefix`: what the ARN of every function begins with, up to its name.
    pub(crate) fn open(state: &Path, arn_prefix: &str) -> Result<Self, StoreError> {
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
        if version < 2 {
            connection.execute_batch(PUBLISHED).map_err(refused)?;
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
            next_id: AtomicU64::new(1),
        };
        registry.load()?;
        Ok(registry)
    }

    /// Reads the functions; one that cannot run is there too, with the reason.
    fn load(&self) -> Result<(), StoreError> {
        let connection = self.connection();
        let rows = read_rows(&connection).map_err(|error| self.refused(&error))?;
        let mut used = HashSet::new();
        for row in rows {
            let function = Arc::new(self.restore(row));
            used.extend(function.versions().map(|version| version.code.sha256().to_owned()));
            self.show(function);
        }
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
            self.packages.restore_image(&row.sha256)
        } else {
            self.packages.restore(&row.sha256)
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
                self.packages.zip(&row.sha256).display()
            )),
            (None, Ok(_)) => None,
        };
        let code = code.unwrap_or_else(|_| self.packages.missing(&row.sha256));
        code.set_used(true);
        let function = Function {
            url,
            broken,
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
            tags,
            overrides,
            url: None,
            code,
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

    /// Tells every package whether a function uses it.
    fn mark_code(&self, code: &Code) {
        let is_it = |version: &Arc<Function>| version.code.sha256() == code.sha256();
        let used = self.read().by_name.values().any(|function| function.versions().any(is_it));
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
            self.registry.mark_code(&version.code);
        }
        Ok(function)
    }

    /// Removes a function.
    pub(crate) fn remove(&mut self, function: &Function) -> Result<(), StoreError> {
        self.connection
            .execute("DELETE FROM functions WHERE name = ?1", [&*function.name])
            .map_err(|error| self.registry.refused(&error))?;
        self.registry.hide(function);
        self.registry.mark_code(&function.code);
        for version in function.published.versions.values() {
            self.registry.mark_code(&version.code);
        }
        Ok(())
    }
}

fn save(connection: &mut Connection, function: &Function) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute(
        "INSERT INTO functions (name, configuration, code_sha256, last_version)
         VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (name) DO UPDATE SET configuration = ?2, code_sha256 = ?3, last_version = ?4",
        params![
            &*function.name,
            json(&function.configuration),
            function.code.sha256(),
            function.published.last_version
        ],
    )?;
    transaction.execute("DELETE FROM tags WHERE function = ?1", [&*function.name])?;
    for (key, value) in &function.tags {
        transaction.execute(
            "INSERT INTO tags (function, key, value) VALUES (?1, ?2, ?3)",
            params![&*function.name, key, value],
        )?;
    }
    transaction.execute("DELETE FROM urls WHERE function = ?1", [&*function.name])?;
    if let Some(url) = &function.url {
        transaction.execute(
            "INSERT INTO urls (id, function, configuration) VALUES (?1, ?2, ?3)",
            params![url.id, &*function.name, json(url)],
        )?;
    }
    save_published(&transaction, &function.name, &function.published)?;
    transaction.commit()
}

pub(super) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("text and numbers always serialize")
}

/// A function's rows.
pub(super) struct StoredFunction {
    pub name: String,
    pub configuration: String,
    pub sha256: String,
    pub url: Option<String>,
    pub tags: BTreeMap<String, String>,
    /// Aliases and provisioned concurrency, without the versions.
    pub published: Published,
    pub versions: BTreeMap<u32, Self>,
}

impl StoredFunction {
    /// Reads what is stored as text; the error is a description.
    fn parse(&self) -> Result<(Configuration, Option<UrlConfig>, Overrides), String> {
        let configuration: Configuration =
            serde_json::from_str(&self.configuration).map_err(|error| error.to_string())?;
        if Runtime::serving(&configuration.runtime).is_none() {
            return Err(format!("the runtime {:?} is not known", configuration.runtime));
        }
        let url = self.url.as_deref().map(serde_json::from_str).transpose();
        let url = url.map_err(|error| error.to_string())?;
        Ok((configuration, url, Overrides::parse(&self.tags)?))
    }
}

fn read_rows(connection: &Connection) -> rusqlite::Result<Vec<StoredFunction>> {
    let mut functions = connection.prepare(
        "SELECT name, f.configuration, code_sha256, u.configuration, last_version
         FROM functions f LEFT JOIN urls u ON u.function = f.name",
    )?;
    let mut tags = connection.prepare("SELECT key, value FROM tags WHERE function = ?1")?;
    let rows = functions.query_map([], |row| {
        let name: String = row.get(0)?;
        let pairs = tags.query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(StoredFunction {
            tags: pairs.collect::<rusqlite::Result<_>>()?,
            published: read_published(connection, &name, row.get(4)?)?,
            versions: read_versions(connection, &name)?,
            name,
            configuration: lossy_text(row, 1)?.unwrap_or_default(),
            sha256: row.get(2)?,
            url: lossy_text(row, 3)?,
        })
    })?;
    rows.collect()
}

/// Text of a column, even if its bytes were damaged.
pub(super) fn lossy_text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let text = row.get_ref(column)?.as_bytes_or_null()?;
    Ok(text.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn zip(text: &str) -> Vec<u8> {
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        archive.start_file("deep/bootstrap", zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
        archive.finish().unwrap().into_inner()
    }

    /// Stores a function whose package holds its name.
    fn put(registry: &Registry, name: &str) -> Arc<Function> {
        let code = registry.packages().store(&zip(name), |_| Ok(())).unwrap();
        let configuration = Configuration { memory_mb: 512, ..Configuration::unreadable() };
        let function =
            registry.new_function(name, configuration, BTreeMap::new(), Overrides::default(), code);
        registry.change().put(function, |_| {}).unwrap()
    }

    fn open(state: &Path) -> Registry {
        Registry::open(state, "arn:").unwrap()
    }

    #[test]
    fn a_lost_package_breaks_its_function_alone_until_its_code_is_updated() {
        let folder = tempfile::tempdir().unwrap();
        let registry = open(folder.path());
        let (lost, damaged) = (put(&registry, "lost"), put(&registry, "damaged"));
        put(&registry, "fine");
        fs::remove_file(lost.code.zip()).unwrap();
        fs::write(damaged.code.zip(), "PK").unwrap();
        fs::remove_dir_all(damaged.code.folder()).unwrap();
        let zips = [lost.code.zip(), damaged.code.zip()];
        drop((registry, lost, damaged));
        for _ in 0..2 {
            let registry = open(folder.path());
            for (name, zip) in [("lost", &zips[0]), ("damaged", &zips[1])] {
                let function = registry.get(name).unwrap();
                let reason = function.broken.clone().unwrap();
                assert!(reason.contains(&zip.display().to_string()), "{reason}");
                assert!(reason.contains("update the function's code"), "{reason}");
                assert_eq!((function.configuration.memory_mb, function.unreadable), (512, false));
            }
            assert_eq!(registry.get("fine").unwrap().broken, None);
        }
        assert_eq!(fs::read(&zips[1]).unwrap(), b"PK", "nothing is removed");
        let registry = open(folder.path());
        for name in ["lost", "damaged"] {
            let code = registry.packages().store(&zip(name), |_| Ok(())).unwrap();
            let mut function = (*registry.get(name).unwrap()).clone();
            (function.code, function.broken) = (code, None);
            registry.change().put(function, |_| {}).unwrap();
        }
        drop(registry);
        let registry = open(folder.path());
        for function in registry.all() {
            assert_eq!(function.broken, None);
            let file = function.code.folder().join("deep/bootstrap");
            assert_eq!(fs::read_to_string(file).unwrap(), *function.name);
        }
    }

    #[test]
    fn a_damaged_row_breaks_its_function_alone() {
        let folder = tempfile::tempdir().unwrap();
        let registry = open(folder.path());
        for name in ["fine", "json", "text", "later"] {
            put(&registry, name);
        }
        drop(registry);
        let database = Connection::open(folder.path().join("registry.sqlite")).unwrap();
        database
            .execute_batch(
                "UPDATE functions SET configuration = '{' WHERE name = 'json';
                 UPDATE functions SET configuration = CAST(x'ff00' AS TEXT) WHERE name = 'text';
                 UPDATE functions SET configuration =
                     json_set(configuration, '$.runtime', 'cobol85') WHERE name = 'later';",
            )
            .unwrap();
        drop(database);
        let registry = open(folder.path());
        for name in ["json", "text", "later"] {
            let function = registry.get(name).unwrap();
            assert!(function.unreadable);
            let reason = function.broken.clone().unwrap();
            assert!(reason.contains("delete the function and create it again"), "{reason}");
            registry.change().remove(&function).unwrap();
        }
        assert_eq!(registry.get("fine").unwrap().broken, None);
        drop(registry);
        assert_eq!(open(folder.path()).all().len(), 1);
    }

    #[test]
    fn packages_outlive_a_registry_that_was_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry.sqlite");
        let zip = put(&open(folder.path()), "f").code.zip();
        let saved = fs::read(&path).unwrap();
        for emptied in [true, false] {
            if emptied {
                fs::write(&path, "").unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
            let error = Registry::open(folder.path(), "arn:").err().unwrap();
            assert!(matches!(error, StoreError::Emptied { .. }), "{error}");
            assert!(zip.is_file());
        }
        fs::write(&path, saved).unwrap();
        assert_eq!(open(folder.path()).all().len(), 1);
    }

    #[test]
    fn a_torn_registry_is_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let registry = open(folder.path());
        for number in 0..40 {
            put(&registry, &format!("f{number}"));
        }
        drop(registry);
        let path = folder.path().join("registry.sqlite");
        let whole = fs::read(&path).unwrap();
        assert!(whole.len() > 20_000);
        for cut in [100, 4_096, whole.len() / 2, whole.len() - 4_096] {
            fs::write(&path, &whole[..cut]).unwrap();
            let error = Registry::open(folder.path(), "arn:").err().unwrap().to_string();
            assert!(error.contains("registry.sqlite is"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), whole[..cut], "it is left as it was");
        }
        let mut scratched = whole.clone();
        scratched[8_192..12_288].fill(0xa5);
        fs::write(&path, &scratched).unwrap();
        let error = Registry::open(folder.path(), "arn:").err().unwrap().to_string();
        assert!(error.contains("is damaged"), "{error}");
        fs::write(&path, &whole).unwrap();
        assert_eq!(open(folder.path()).all().len(), 40);
    }

    #[test]
    fn the_umask_does_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        // Of the whole process; the other tests do not look at it.
        let before = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        crate::store::StateLock::take(&state).unwrap();
        let function = put(&open(&state), "f");
        nix::sys::stat::umask(before);
        let code = function.code.folder();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join("code"))), (0o711, 0o711));
        assert_eq!((mode(&state.join("packages")), mode(&state.join("staging"))), (0o700, 0o700));
        assert_eq!((mode(&state.join("lock")), mode(&function.code.zip())), (0o600, 0o600));
        assert_eq!(mode(&state.join("registry.sqlite")), 0o600);
        assert_eq!((mode(&code), mode(&code.join("deep"))), (0o755, 0o755));
        assert_eq!(mode(&code.join("deep/bootstrap")), 0o644);
        // What an earlier version unpacked under that umask is unpacked again.
        fs::set_permissions(code.join("deep"), Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(&code, Permissions::from_mode(0o700)).unwrap();
        drop(function);
        let function = open(&state).get("f").unwrap();
        assert_eq!(
            (function.broken.clone(), mode(&code), mode(&code.join("deep"))),
            (None, 0o755, 0o755)
        );
    }
}
