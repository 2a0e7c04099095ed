//! The functions there are, in memory for whoever invokes them and in SQLite for the next start.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rusqlite::{Connection, params};
use uncia_policy::FunctionId;

use super::package::PackageError;
use super::shelf::{Code, Shelf};
use crate::function::{Configuration, Function, Overrides, UrlConfig};

/// Version of the tables, in `PRAGMA user_version`.
const VERSION: i64 = 1;
const TABLES: &str = "
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
";

/// Why the registry could not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path}: {source}")]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("{path} was written by another version of uncia (its tables are version {found})")]
    Version { path: PathBuf, found: i64 },
    #[error("the function {function} in {path} cannot be read: {reason}")]
    Unreadable { path: PathBuf, function: String, reason: String },
    #[error("the code of the function {function} is damaged: {source}")]
    Code { function: String, source: PackageError },
    #[error("{path}: {source}")]
    Folder { path: PathBuf, source: std::io::Error },
}

/// All functions. Reading is a look into memory; changes are on disk before they are seen.
pub struct Registry {
    path: PathBuf,
    shelf: Arc<Shelf>,
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
pub struct Changes<'a> {
    registry: &'a Registry,
    connection: MutexGuard<'a, Connection>,
}

impl Registry {
    /// Opens the registry in the state folder, with the functions that an earlier worker left.
    /// `arn_prefix`: what the ARN of every function begins with, up to its name.
    pub fn open(state: &Path, arn_prefix: &str) -> Result<Self, StoreError> {
        let path = state.join("registry.sqlite");
        let database = |source| StoreError::Database { path: path.clone(), source };
        let connection = open_database(&path).map_err(database)?;
        let version: i64 =
            connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(database)?;
        match version {
            0 => connection.execute_batch(TABLES).map_err(database)?,
            VERSION => {}
            found => return Err(StoreError::Version { path, found }),
        }
        let shelf = Shelf::open(state)
            .map_err(|source| StoreError::Folder { path: state.to_owned(), source })?;
        let registry = Self {
            path,
            shelf,
            connection: Mutex::new(connection),
            index: RwLock::default(),
            arn_prefix: arn_prefix.to_owned(),
            next_id: AtomicU64::new(1),
        };
        registry.load()?;
        Ok(registry)
    }

    fn load(&self) -> Result<(), StoreError> {
        let database = |source| StoreError::Database { path: self.path.clone(), source };
        let connection = self.connection();
        let mut used = HashSet::new();
        let mut statement = connection
            .prepare(
                "SELECT name, f.configuration, code_sha256, u.configuration
                 FROM functions f LEFT JOIN urls u ON u.function = f.name",
            )
            .map_err(database)?;
        let mut tags_of = connection
            .prepare("SELECT key, value FROM tags WHERE function = ?1")
            .map_err(database)?;
        let rows: Vec<(String, String, String, Option<String>)> = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .and_then(Iterator::collect)
            .map_err(database)?;
        for (name, configuration, sha256, url) in rows {
            let unreadable = |reason: String| StoreError::Unreadable {
                path: self.path.clone(),
                function: name.clone(),
                reason,
            };
            let configuration: Configuration =
                serde_json::from_str(&configuration).map_err(|e| unreadable(e.to_string()))?;
            let url: Option<UrlConfig> = url
                .map(|url| serde_json::from_str(&url))
                .transpose()
                .map_err(|e| unreadable(e.to_string()))?;
            let tags: BTreeMap<String, String> = tags_of
                .query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))
                .and_then(Iterator::collect)
                .map_err(database)?;
            let overrides = Overrides::parse(&tags).map_err(unreadable)?;
            let code = self
                .shelf
                .restore(&sha256)
                .map_err(|source| StoreError::Code { function: name.clone(), source })?;
            code.set_used(true);
            used.insert(sha256);
            let function = self.assemble(&name, configuration, tags, overrides, url, code);
            self.show(Arc::new(function));
        }
        self.shelf
            .sweep(&used)
            .map_err(|source| StoreError::Folder { path: self.path.clone(), source })
    }

    fn assemble(
        &self,
        name: &str,
        configuration: Configuration,
        tags: BTreeMap<String, String>,
        overrides: Overrides,
        url: Option<UrlConfig>,
        code: Arc<Code>,
    ) -> Function {
        Function {
            id: FunctionId(self.next_id.fetch_add(1, Ordering::Relaxed)),
            name: Arc::from(name),
            arn: format!("{}{name}", self.arn_prefix),
            configuration,
            tags,
            overrides,
            url,
            code,
        }
    }

    /// A function that is in no registry yet.
    pub fn new_function(
        &self,
        name: &str,
        configuration: Configuration,
        tags: BTreeMap<String, String>,
        overrides: Overrides,
        code: Arc<Code>,
    ) -> Function {
        self.assemble(name, configuration, tags, overrides, None, code)
    }

    pub fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    pub fn get(&self, name: &str) -> Option<Arc<Function>> {
        self.read().by_name.get(name).cloned()
    }

    /// The function that a URL's id names.
    pub fn by_url(&self, id: &str) -> Option<Arc<Function>> {
        let index = self.read();
        index.by_name.get(index.by_url.get(id)?).cloned()
    }

    /// All functions, by name.
    pub fn all(&self) -> Vec<Arc<Function>> {
        self.read().by_name.values().cloned().collect()
    }

    /// Begins a change; waits for any other to end.
    pub fn change(&self) -> Changes<'_> {
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
        let used =
            self.read().by_name.values().any(|function| function.code.sha256() == code.sha256());
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
    pub fn get(&self, name: &str) -> Option<Arc<Function>> {
        self.registry.get(name)
    }

    /// Stores a function, new or changed, and shows it to everybody; `before_shown` runs once it is
    /// on disk.
    pub fn put(
        &mut self,
        function: Function,
        before_shown: impl FnOnce(&Arc<Function>),
    ) -> Result<Arc<Function>, StoreError> {
        let path = &self.registry.path;
        save(&mut self.connection, &function)
            .map_err(|source| StoreError::Database { path: path.clone(), source })?;
        let function = Arc::new(function);
        let old = self.registry.get(&function.name);
        before_shown(&function);
        self.registry.show(function.clone());
        self.registry.mark_code(&function.code);
        if let Some(old) = old {
            self.registry.mark_code(&old.code);
        }
        Ok(function)
    }

    /// Removes a function.
    pub fn remove(&mut self, function: &Function) -> Result<(), StoreError> {
        self.connection
            .execute("DELETE FROM functions WHERE name = ?1", [&*function.name])
            .map_err(|source| StoreError::Database { path: self.registry.path.clone(), source })?;
        self.registry.hide(function);
        self.registry.mark_code(&function.code);
        Ok(())
    }
}

fn save(connection: &mut Connection, function: &Function) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute(
        "INSERT INTO functions (name, configuration, code_sha256) VALUES (?1, ?2, ?3)
         ON CONFLICT (name) DO UPDATE SET configuration = ?2, code_sha256 = ?3",
        params![&*function.name, json(&function.configuration), function.code.sha256()],
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
    transaction.commit()
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("text and numbers always serialize")
}

/// Opens an SQLite database such that readers do not block the writer, and references hold.
fn open_database(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}
