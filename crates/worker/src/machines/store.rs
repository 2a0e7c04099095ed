//! State machines and executions on disk.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;
use uncia_flow::{Failure, Status, names};

use super::history;
use crate::clock::unix_ns;
use crate::store::DatabaseError;
use crate::store::database::{self, Format};

const FORMAT: Format = Format { version: 1, table: "machines", synchronous: "NORMAL" };
const TABLES: &str = "
    BEGIN;
    CREATE TABLE machines (
        name TEXT PRIMARY KEY,
        definition TEXT NOT NULL,
        role TEXT NOT NULL,
        kind TEXT NOT NULL,
        created INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE executions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        arn TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        machine TEXT NOT NULL,
        input TEXT NOT NULL,
        started INTEGER NOT NULL,
        status TEXT,
        output TEXT,
        error TEXT,
        cause TEXT,
        ended INTEGER,
        history TEXT
    ) STRICT;
    CREATE INDEX executions_of ON executions (machine, id);
    PRAGMA user_version = 1;
    COMMIT;
";
/// Executions that have ended and are kept; of more the oldest are removed.
const MAX_KEPT: i64 = 10_000;

/// The type of a state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its executions are kept.
    Standard,
    /// Its executions are answered, and forgotten.
    Express,
}

impl Kind {
    /// Its name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Standard => "STANDARD",
            Self::Express => "EXPRESS",
        }
    }

    /// The type of this name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        [Self::Standard, Self::Express].into_iter().find(|kind| kind.name() == name)
    }
}

/// A state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub name: String,
    pub definition: String,
    pub role: String,
    pub kind: Kind,
    /// Unix time in ns.
    pub created: i64,
}

/// An execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecutionRow {
    pub arn: String,
    pub name: String,
    /// The machine's name.
    pub machine: String,
    pub input: String,
    /// Unix time in ns.
    pub started: i64,
    /// None while it runs.
    pub ended: Option<Ended>,
}

/// How and when an execution ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    /// In the API's words.
    pub status: String,
    pub output: Option<String>,
    pub error: Option<String>,
    pub cause: Option<String>,
    /// Unix time in ns.
    pub time: i64,
}

impl Ended {
    /// An end now.
    pub(crate) fn of(status: &Status) -> Self {
        let (status, output, failure) = match status {
            Status::Succeeded(output) => ("SUCCEEDED", Some(output.to_string()), None),
            Status::Failed(failure) => ("FAILED", None, Some(failure)),
            Status::TimedOut(failure) => ("TIMED_OUT", None, Some(failure)),
            Status::Aborted(failure) => ("ABORTED", None, Some(failure)),
        };
        Self {
            status: status.to_owned(),
            output,
            error: failure.and_then(|failure| history::given(failure.error.clone())),
            cause: failure.and_then(|failure| history::given(failure.cause.clone())),
            time: unix_ns(),
        }
    }
}

pub(super) struct Store {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Store {
    pub(super) fn open(state: &Path) -> Result<Self, DatabaseError> {
        let path = state.join("machines.sqlite");
        let (connection, version) = database::open(&path, &FORMAT)?;
        let store = Self { path, connection: Mutex::new(connection) };
        if version == 0 {
            store.try_to(|connection| connection.execute_batch(TABLES))?;
        }
        for row in store.running("instr(name, ':') = 0")? {
            store.fail(&row, "The platform ended while the execution ran".to_owned())?;
        }
        Ok(store)
    }

    /// Executions that triggers began and an earlier platform did not end: they have the name of a change,
    /// which the API gives to none, and are not failed.
    pub(super) fn cut_off(&self) -> Result<Vec<ExecutionRow>, DatabaseError> {
        self.running("instr(name, ':') > 0")
    }

    /// Executions without an end that meet this condition.
    fn running(&self, condition: &str) -> Result<Vec<ExecutionRow>, DatabaseError> {
        self.try_to(|connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM executions WHERE ended IS NULL AND {condition} ORDER BY id"
            );
            connection.prepare(&sql)?.query_map([], execution)?.collect()
        })
    }

    /// Ends an execution that an earlier platform left: it has failed.
    pub(super) fn fail(&self, row: &ExecutionRow, cause: String) -> Result<(), DatabaseError> {
        let failure = Failure { error: names::RUNTIME.to_owned(), cause };
        let ended = Ended::of(&Status::Failed(failure.clone()));
        let express = self.machine(&row.machine)?.is_some_and(|it| it.kind == Kind::Express);
        let history =
            if express { "[]".to_owned() } else { history::cut_off(row, failure, ended.time) };
        self.end(&row.arn, &ended, &history)
    }

    pub(super) fn machine(&self, name: &str) -> Result<Option<Machine>, DatabaseError> {
        self.try_to(|connection| {
            let sql = "SELECT name, definition, role, kind, created FROM machines WHERE name = ?1";
            connection.query_row(sql, [name], machine).optional()
        })
    }

    pub(super) fn machines(&self) -> Result<Vec<Machine>, DatabaseError> {
        self.try_to(|connection| {
            let sql = "SELECT name, definition, role, kind, created FROM machines ORDER BY name";
            connection.prepare(sql)?.query_map([], machine)?.collect()
        })
    }

    pub(super) fn put(&self, machine: &Machine) -> Result<(), DatabaseError> {
        let Machine { name, definition, role, kind, created } = machine;
        self.try_to(|connection| {
            connection.execute(
                "INSERT OR REPLACE INTO machines VALUES (?1, ?2, ?3, ?4, ?5)",
                params![name, definition, role, kind.name(), created],
            )
        })?;
        Ok(())
    }

    pub(super) fn delete(&self, name: &str) -> Result<(), DatabaseError> {
        self.try_to(|connection| {
            connection.execute("DELETE FROM machines WHERE name = ?1", [name])
        })?;
        Ok(())
    }

    /// Stores an execution that begins, and forgets the oldest that have ended, if there are many; or
    /// returns the one that has its ARN.
    pub(super) fn begin(&self, row: &ExecutionRow) -> Result<Option<ExecutionRow>, DatabaseError> {
        let ExecutionRow { arn, name, machine, input, started, .. } = row;
        self.try_to(|connection| {
            let inserted = connection.execute(
                "INSERT INTO executions (arn, name, machine, input, started)
                 VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (arn) DO NOTHING",
                params![arn, name, machine, input, started],
            )?;
            if inserted == 0 {
                return by_arn(connection, arn);
            }
            let newest = connection.last_insert_rowid();
            connection.execute(
                "DELETE FROM executions WHERE id <= ?1 AND ended IS NOT NULL",
                [newest - MAX_KEPT],
            )?;
            Ok(None)
        })
    }

    pub(super) fn end(&self, arn: &str, ended: &Ended, history: &str) -> Result<(), DatabaseError> {
        let Ended { status, output, error, cause, time } = ended;
        self.try_to(|connection| {
            connection.execute(
                "UPDATE executions SET status = ?2, output = ?3, error = ?4, cause = ?5, ended = ?6,
                 history = ?7 WHERE arn = ?1",
                params![arn, status, output, error, cause, time, history],
            )
        })?;
        Ok(())
    }

    pub(super) fn execution(&self, arn: &str) -> Result<Option<ExecutionRow>, DatabaseError> {
        self.try_to(|connection| by_arn(connection, arn))
    }

    /// Executions without their data: with that, all of them would have gigabytes.
    pub(super) fn executions(
        &self,
        machine: &str,
        status: Option<&str>,
        from: usize,
        most: usize,
    ) -> Result<Vec<ExecutionRow>, DatabaseError> {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.try_to(|connection| {
            let sql = "SELECT arn, name, machine, '', started, status, NULL, NULL, NULL, ended
                 FROM executions
                 WHERE machine = ?1 AND (?2 IS NULL OR coalesce(status, 'RUNNING') = ?2)
                 ORDER BY id DESC LIMIT ?3 OFFSET ?4";
            let values = params![machine, status, number(most), number(from)];
            connection.prepare(sql)?.query_map(values, execution)?.collect()
        })
    }

    pub(super) fn history(&self, arn: &str) -> Result<Vec<Value>, DatabaseError> {
        let text: Option<String> = self.try_to(|connection| {
            let sql = "SELECT history FROM executions WHERE arn = ?1";
            connection.query_row(sql, [arn], |row| row.get(0)).optional().map(Option::flatten)
        })?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    /// Takes a table away from the statements that use it.
    #[cfg(test)]
    pub(super) fn rename(&self, table: &str, name: &str) -> Result<(), DatabaseError> {
        self.try_to(|connection| {
            connection.execute_batch(&format!("ALTER TABLE {table} RENAME TO {name}"))
        })
    }

    fn try_to<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        work(&self.lock()).map_err(|error| DatabaseError::of(&self.path, &error))
    }

    /// SQLite undoes what a panic leaves half done.
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const COLUMNS: &str = "arn, name, machine, input, started, status, output, error, cause, ended";

fn by_arn(connection: &Connection, arn: &str) -> rusqlite::Result<Option<ExecutionRow>> {
    let sql = format!("SELECT {COLUMNS} FROM executions WHERE arn = ?1");
    connection.query_row(&sql, [arn], execution).optional()
}

fn machine(row: &Row<'_>) -> rusqlite::Result<Machine> {
    let kind: String = row.get(3)?;
    Ok(Machine {
        name: row.get(0)?,
        definition: row.get(1)?,
        role: row.get(2)?,
        kind: Kind::of(&kind).unwrap_or(Kind::Standard),
        created: row.get(4)?,
    })
}

fn execution(row: &Row<'_>) -> rusqlite::Result<ExecutionRow> {
    let status: Option<String> = row.get(5)?;
    let time: Option<i64> = row.get(9)?;
    let ended = match (status, time) {
        (Some(status), Some(time)) => Some(Ended {
            status,
            output: row.get(6)?,
            error: row.get(7)?,
            cause: row.get(8)?,
            time,
        }),
        _ => None,
    };
    Ok(ExecutionRow {
        arn: row.get(0)?,
        name: row.get(1)?,
        machine: row.get(2)?,
        input: row.get(3)?,
        started: row.get(4)?,
        ended,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(arn: &str) -> ExecutionRow {
        ExecutionRow {
            arn: arn.to_owned(),
            name: arn.to_owned(),
            machine: "m".to_owned(),
            input: "{}".to_owned(),
            started: 1,
            ended: None,
        }
    }

    fn listed(store: &Store, status: Option<&str>) -> Vec<String> {
        let rows = store.executions("m", status, 0, usize::MAX).unwrap();
        rows.into_iter().map(|row| row.arn).collect()
    }

    #[test]
    fn an_arn_begins_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.begin(&row("a")).unwrap(), None);
        let other = ExecutionRow { input: "1".to_owned(), ..row("a") };
        assert_eq!(store.begin(&other).unwrap(), Some(row("a")));
    }

    #[test]
    fn what_ran_when_the_platform_ended_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let machine = Machine {
            name: "m".to_owned(),
            definition: "{}".to_owned(),
            role: "r".to_owned(),
            kind: Kind::Express,
            created: 7,
        };
        store.put(&machine).unwrap();
        store.begin(&row("a")).unwrap();
        store.begin(&row("b")).unwrap();
        let ended = Ended {
            status: "SUCCEEDED".to_owned(),
            output: Some("1".to_owned()),
            error: None,
            cause: None,
            time: 9,
        };
        store.end("a", &ended, "[{\"id\":1}]").unwrap();
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.machine("m").unwrap(), Some(machine));
        assert_eq!(listed(&store, None), ["b", "a"]);
        assert_eq!(listed(&store, Some("SUCCEEDED")), ["a"]);
        assert!(listed(&store, Some("RUNNING")).is_empty());
        let page = store.executions("m", None, 1, 5).unwrap();
        assert_eq!((page.len(), &*page[0].arn, &*page[0].input), (1, "a", ""));
        assert_eq!(store.execution("a").unwrap().unwrap().ended, Some(ended));
        let failed = store.execution("b").unwrap().unwrap().ended.unwrap();
        assert_eq!((&*failed.status, failed.error.as_deref()), ("FAILED", Some(names::RUNTIME)));
        assert_eq!(store.history("a").unwrap().len(), 1);
        assert!(store.history("b").unwrap().is_empty());
        store
            .put(&Machine { kind: Kind::Standard, ..store.machine("m").unwrap().unwrap() })
            .unwrap();
        store.begin(&row("c")).unwrap();
        drop(store);
        let history = Store::open(folder.path()).unwrap().history("c").unwrap();
        let kinds: Vec<_> = history.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["ExecutionStarted", "ExecutionFailed"]);
        assert_eq!(history[0]["executionStartedEventDetails"]["input"], "{}");
        let failed = &history[1]["executionFailedEventDetails"];
        assert_eq!(failed["error"], names::RUNTIME);
    }

    #[test]
    fn old_executions_are_removed_once_they_have_ended() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.begin(&row("runs")).unwrap();
        store.begin(&row("ended")).unwrap();
        store
            .end("ended", &Ended::of(&Status::Succeeded(std::sync::Arc::default())), "[]")
            .unwrap();
        let sql = "UPDATE sqlite_sequence SET seq = seq + ?1";
        store.try_to(|connection| connection.execute(sql, [MAX_KEPT])).unwrap();
        store.begin(&row("new")).unwrap();
        assert_eq!(listed(&store, None), ["new", "runs"]);
    }
}
