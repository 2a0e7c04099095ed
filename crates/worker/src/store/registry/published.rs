//! What is published of a function, in the registry's tables.

use std::collections::{BTreeMap, HashSet};

use rusqlite::{Connection, params};

use super::rows::{StoredFunction, json, lossy_text};
use crate::published::{Alias, Provisioned, Published, Statement};

/// From version 1 to 2: what is published of a function. `version` is null for `$LATEST`.
pub(super) const PUBLISHED: &str = "
    BEGIN;
    ALTER TABLE functions ADD COLUMN last_version INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE versions (
        function TEXT NOT NULL REFERENCES functions (name) ON DELETE CASCADE,
        version INTEGER NOT NULL,
        configuration TEXT NOT NULL,
        code_sha256 TEXT NOT NULL,
        tags TEXT NOT NULL,
        PRIMARY KEY (function, version)
    ) STRICT;
    CREATE TABLE aliases (
        function TEXT NOT NULL REFERENCES functions (name) ON DELETE CASCADE,
        name TEXT NOT NULL,
        version INTEGER,
        description TEXT NOT NULL,
        revision TEXT NOT NULL,
        additional_version INTEGER,
        additional_weight REAL,
        PRIMARY KEY (function, name)
    ) STRICT;
    CREATE TABLE provisioned (
        function TEXT NOT NULL REFERENCES functions (name) ON DELETE CASCADE,
        qualifier TEXT NOT NULL,
        instances INTEGER NOT NULL,
        modified_unix_ms INTEGER NOT NULL,
        PRIMARY KEY (function, qualifier)
    ) STRICT;
    PRAGMA user_version = 2;
    COMMIT;
";

/// From version 3 to 4: policies. `qualifier` is empty for the function as such.
pub(super) const POLICIES: &str = "
    BEGIN;
    CREATE TABLE permissions (
        function TEXT NOT NULL REFERENCES functions (name) ON DELETE CASCADE,
        qualifier TEXT NOT NULL,
        position INTEGER NOT NULL,
        statement TEXT NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (function, qualifier, statement)
    ) STRICT;
    PRAGMA user_version = 4;
    COMMIT;
";

/// Writes the versions that are new and removes those that are gone; a version that is there stays as
/// it was written, whether or not it could be read.
pub(super) fn save_published(
    connection: &Connection,
    name: &str,
    published: &Published,
) -> rusqlite::Result<()> {
    let mut stored = connection.prepare("SELECT version FROM versions WHERE function = ?1")?;
    let stored = stored.query_map([name], |row| row.get(0))?;
    let stored = stored.collect::<rusqlite::Result<HashSet<u32>>>()?;
    for gone in stored.iter().filter(|number| !published.versions.contains_key(number)) {
        connection.execute(
            "DELETE FROM versions WHERE function = ?1 AND version = ?2",
            params![name, gone],
        )?;
    }
    for (number, version) in published.versions.iter().filter(|(it, _)| !stored.contains(it)) {
        connection.execute(
            "INSERT INTO versions (function, version, configuration, code_sha256, tags)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                name,
                number,
                json(&version.configuration),
                version.code.name(),
                json(&version.tags)
            ],
        )?;
    }
    connection.execute("DELETE FROM aliases WHERE function = ?1", [name])?;
    for (alias, it) in &published.aliases {
        let (additional_version, additional_weight) = it.additional.unzip();
        connection.execute(
            "INSERT INTO aliases (function, name, version, description, revision,
                                  additional_version, additional_weight)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                name,
                alias,
                it.version,
                it.description,
                it.revision,
                additional_version,
                additional_weight
            ],
        )?;
    }
    connection.execute("DELETE FROM permissions WHERE function = ?1", [name])?;
    for (qualifier, statements) in &published.policies {
        for (position, it) in (0_i64..).zip(statements) {
            connection.execute(
                "INSERT INTO permissions (function, qualifier, position, statement, text)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![name, qualifier, position, it.id, it.text.to_string()],
            )?;
        }
    }
    connection.execute("DELETE FROM provisioned WHERE function = ?1", [name])?;
    for (qualifier, it) in &published.provisioned {
        connection.execute(
            "INSERT INTO provisioned (function, qualifier, instances, modified_unix_ms)
             VALUES (?1, ?2, ?3, ?4)",
            params![name, qualifier, it.instances, it.modified_unix_ms],
        )?;
    }
    Ok(())
}

pub(super) fn read_published(
    connection: &Connection,
    name: &str,
    last_version: u32,
) -> rusqlite::Result<Published> {
    let mut aliases = connection.prepare_cached(
        "SELECT name, version, description, revision, additional_version, additional_weight
         FROM aliases WHERE function = ?1",
    )?;
    let aliases = aliases.query_map([name], |row| {
        let additional: (Option<u32>, Option<f64>) = (row.get(4)?, row.get(5)?);
        let alias = Alias {
            version: row.get(1)?,
            description: row.get(2)?,
            revision: row.get(3)?,
            additional: additional.0.zip(additional.1),
        };
        Ok((row.get(0)?, alias))
    })?;
    let mut provisioned = connection.prepare_cached(
        "SELECT qualifier, instances, modified_unix_ms FROM provisioned WHERE function = ?1",
    )?;
    let provisioned = provisioned.query_map([name], |row| {
        Ok((row.get(0)?, Provisioned { instances: row.get(1)?, modified_unix_ms: row.get(2)? }))
    })?;
    let mut permissions = connection.prepare_cached(
        "SELECT qualifier, statement, text FROM permissions WHERE function = ?1 ORDER BY position",
    )?;
    let permissions = permissions.query_map([name], |row| {
        let text: String = row.get(2)?;
        // One that cannot be read says nothing.
        let text = serde_json::from_str(&text).unwrap_or_default();
        Ok((row.get::<_, String>(0)?, Statement { id: row.get(1)?, text }))
    })?;
    let mut policies: BTreeMap<String, Vec<Statement>> = BTreeMap::new();
    for row in permissions {
        let (qualifier, statement) = row?;
        policies.entry(qualifier).or_default().push(statement);
    }
    Ok(Published {
        last_version,
        policies,
        versions: BTreeMap::new(),
        aliases: aliases.collect::<rusqlite::Result<_>>()?,
        provisioned: provisioned.collect::<rusqlite::Result<_>>()?,
    })
}

pub(super) fn read_versions(
    connection: &Connection,
    name: &str,
) -> rusqlite::Result<BTreeMap<u32, StoredFunction>> {
    let mut versions = connection.prepare_cached(
        "SELECT version, configuration, code_sha256, tags FROM versions WHERE function = ?1",
    )?;
    let rows = versions.query_map([name], |row| {
        let tags = lossy_text(row, 3)?.unwrap_or_default();
        let version = StoredFunction {
            name: name.to_owned(),
            configuration: lossy_text(row, 1)?.unwrap_or_default(),
            code: row.get(2)?,
            url: None,
            // Damaged ones make no version that could run with others.
            tags: serde_json::from_str(&tags)
                .unwrap_or_else(|_| BTreeMap::from([("uncia:damaged".to_owned(), tags)])),
            published: Published::default(),
            versions: BTreeMap::new(),
        };
        Ok((row.get(0)?, version))
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::function::{Configuration, Function, Overrides};
    use crate::store::Registry;

    fn open(state: &Path) -> Registry {
        Registry::open(state, "arn:", 1_769 << 20).unwrap()
    }

    fn zip(text: &str) -> Vec<u8> {
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        archive.start_file("bootstrap", zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
        archive.finish().unwrap().into_inner()
    }

    fn put(registry: &Registry, text: &str) -> Arc<Function> {
        let code = registry.packages().store(&zip(text), |_| Ok(())).unwrap();
        let mut function = match registry.get("f") {
            Some(function) => Function::clone(&function),
            None => registry.new_function(
                "f",
                Configuration::unreadable(),
                BTreeMap::from([("team".to_owned(), "a".to_owned())]),
                Overrides::default(),
                code.clone(),
            ),
        };
        function.code = code;
        registry.change().put(function, |_| {}).unwrap()
    }

    /// Publishes the function as it is; returns the names of what was made known.
    fn publish(registry: &Registry, number: u32) -> Vec<String> {
        let mut function = Function::clone(&registry.get("f").unwrap());
        let version = Arc::new(registry.new_version(&function, number));
        let published = Arc::make_mut(&mut function.published);
        published.versions.insert(number, version);
        published.last_version = number;
        let known = std::cell::RefCell::new(Vec::new());
        let note = |version: &Arc<Function>| {
            known.borrow_mut().push(version.qualified_name.to_string());
        };
        registry.change().put(function, note).unwrap();
        known.into_inner()
    }

    fn edit(registry: &Registry, edit: impl FnOnce(&mut Published)) {
        let mut function = Function::clone(&registry.get("f").unwrap());
        edit(Arc::make_mut(&mut function.published));
        registry.change().put(function, |_| {}).unwrap();
    }

    #[test]
    fn versions_aliases_and_provision_are_there_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let registry = open(folder.path());
        put(&registry, "one");
        assert_eq!(publish(&registry, 1), ["f", "f:1"]);
        put(&registry, "two");
        assert_eq!(publish(&registry, 2), ["f", "f:2"], "what has not changed is not made known");
        let alias = Alias {
            version: Some(1),
            description: "d".to_owned(),
            revision: "r".to_owned(),
            additional: Some((2, 0.1)),
        };
        let provisioned = Provisioned { instances: 3, modified_unix_ms: 7 };
        edit(&registry, |published| {
            published.aliases.insert("live".to_owned(), alias.clone());
            published.provisioned.insert("live".to_owned(), provisioned);
        });
        put(&registry, "three");
        drop(registry);
        let registry = open(folder.path());
        let function = registry.get("f").unwrap();
        let text = |it: &Function| fs::read_to_string(it.code.folder().join("bootstrap")).unwrap();
        let versions: Vec<_> = function
            .versions()
            .map(|it| (it.qualified_name.to_string(), it.arn.clone(), text(it), it.provisioned))
            .collect();
        assert_eq!(
            versions,
            [
                ("f".to_owned(), "arn:f".to_owned(), "three".to_owned(), 0),
                ("f:1".to_owned(), "arn:f:1".to_owned(), "one".to_owned(), 3),
                ("f:2".to_owned(), "arn:f:2".to_owned(), "two".to_owned(), 0),
            ]
        );
        let published = &function.published;
        assert_eq!(published.last_version, 2);
        assert_eq!(published.aliases, BTreeMap::from([("live".to_owned(), alias)]));
        assert_eq!(published.provisioned, BTreeMap::from([("live".to_owned(), provisioned)]));
        assert!(published.versions[&1].tags.contains_key("team"));
        // The number of a version that was deleted is not given again.
        edit(&registry, |published| drop(published.versions.remove(&2)));
        drop((registry, function));
        let function = open(folder.path()).get("f").unwrap();
        assert_eq!(function.published.last_version, 2);
        assert_eq!(function.published.versions.keys().collect::<Vec<_>>(), [&1]);
    }

    #[test]
    fn a_deleted_function_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let registry = open(folder.path());
        put(&registry, "one");
        publish(&registry, 1);
        let function = registry.get("f").unwrap();
        registry.change().remove(&function).unwrap();
        drop((registry, function));
        let database = Connection::open(folder.path().join("registry.sqlite")).unwrap();
        for table in ["functions", "versions", "aliases", "provisioned", "tags"] {
            let sql = format!("SELECT COUNT(*) FROM {table}");
            let rows: i64 = database.query_row(&sql, [], |row| row.get(0)).unwrap();
            assert_eq!(rows, 0, "{table}");
        }
        drop(database);
        open(folder.path());
        let packages = folder.path().join("packages");
        assert_eq!(fs::read_dir(packages).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_version_is_broken_alone_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let registry = open(folder.path());
        put(&registry, "one");
        publish(&registry, 1);
        put(&registry, "two");
        publish(&registry, 2);
        drop(registry);
        let path = folder.path().join("registry.sqlite");
        let database = Connection::open(&path).unwrap();
        let sql = "UPDATE versions SET configuration = '{' WHERE version = 1";
        database.execute_batch(sql).unwrap();
        drop(database);
        let registry = open(folder.path());
        let function = registry.get("f").unwrap();
        let broken: Vec<_> = function.versions().map(|it| it.broken.is_some()).collect();
        assert_eq!(broken, [false, true, false]);
        let reason = function.published.versions[&1].broken.clone().unwrap();
        assert!(reason.contains("delete the version and publish another"), "{reason}");
        put(&registry, "three");
        drop((registry, function));
        let database = Connection::open(&path).unwrap();
        let sql = "SELECT configuration FROM versions WHERE version = 1";
        let kept: String = database.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(kept, "{");
    }

    #[test]
    fn a_registry_of_version_1_is_converted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry.sqlite");
        let before = put(&open(folder.path()), "one");
        let database = Connection::open(&path).unwrap();
        // As the version before this one wrote it.
        database
            .execute_batch(
                "DROP TABLE permissions; DROP TABLE layer_versions; DROP TABLE layers;
                 DROP TABLE versions; DROP TABLE aliases; DROP TABLE provisioned;
                 ALTER TABLE functions DROP COLUMN last_version; PRAGMA user_version = 1",
            )
            .unwrap();
        drop(database);
        for _ in 0..2 {
            let registry = open(folder.path());
            let function = registry.get("f").unwrap();
            assert_eq!(function.configuration, before.configuration);
            assert_eq!((&function.tags, function.broken.clone()), (&before.tags, None));
            assert_eq!(function.published.last_version, 0);
        }
        let registry = open(folder.path());
        publish(&registry, 1);
        drop(registry);
        assert_eq!(open(folder.path()).get("f").unwrap().published.versions.len(), 1);
    }
}
