//! The functions in the registry's tables.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row, params};

use super::published::{read_published, read_versions, save_published};
use crate::function::{Configuration, Function, Overrides, UrlConfig};
use crate::instance::Runtime;
use crate::published::Published;

/// Version 1 of the tables.
pub(super) const TABLES: &str = "
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

pub(super) fn save(connection: &mut Connection, function: &Function) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute(
        "INSERT INTO functions (name, configuration, code_sha256, last_version)
         VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (name) DO UPDATE SET configuration = ?2, code_sha256 = ?3, last_version = ?4",
        params![
            &*function.name,
            json(&function.configuration),
            function.code.name(),
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
    /// The name of its code in the store, from the column `code_sha256`.
    pub code: String,
    pub url: Option<String>,
    pub tags: BTreeMap<String, String>,
    /// Aliases and provisioned concurrency, without the versions.
    pub published: Published,
    pub versions: BTreeMap<u32, Self>,
}

impl StoredFunction {
    /// Reads what is stored as text; the error is a description.
    pub(super) fn parse(&self) -> Result<(Configuration, Option<UrlConfig>, Overrides), String> {
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

pub(super) fn read_rows(connection: &Connection) -> rusqlite::Result<Vec<StoredFunction>> {
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
            code: row.get(2)?,
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
