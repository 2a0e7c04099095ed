//! The tables of the log, and how those of earlier versions become these.

use rusqlite::{Connection, Transaction, params};

use super::retention;
use crate::store::database::Format;

/// A commit survives the end of the process, however it comes, and may be lost only with the power.
pub(super) const FORMAT: Format =
    Format { version: 18, table: "invocations", synchronous: "NORMAL" };

/// Earlier versions have no journal.
const FIRST_WITH_JOURNAL: i64 = 5;
const FIRST_WITH_JOURNAL_FILES: i64 = 6;

/// `AUTOINCREMENT`, so that a row's id is never used again, and "after" means the same for ever.
/// Every change of an instance replaces its row by one with the next id.
const INVOCATIONS_AND_SPANS: &str = "
    CREATE TABLE invocations (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        function TEXT NOT NULL, invocation TEXT NOT NULL, request_id TEXT,
        attempt INTEGER NOT NULL, parent TEXT, request_bytes INTEGER, response_bytes INTEGER,
        outcome TEXT NOT NULL, status INTEGER, error TEXT, start TEXT, instance TEXT,
        started INTEGER, ended INTEGER, queued INTEGER, initialization INTEGER,
        execution INTEGER, billed INTEGER, allocated_cpu INTEGER, allocated_memory INTEGER,
        cpu_user INTEGER, cpu_system INTEGER, memory_avg INTEGER, memory_peak INTEGER,
        throttled_count INTEGER, throttled_time INTEGER
    ) STRICT;
    CREATE TABLE spans (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        function TEXT NOT NULL, invocation TEXT, instance TEXT,
        name TEXT NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL
    ) STRICT;
";

const INSTANCES: &str = "
    CREATE TABLE instances (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        function TEXT NOT NULL, instance TEXT NOT NULL UNIQUE,
        started INTEGER NOT NULL, initialized INTEGER, ended INTEGER, end_reason TEXT,
        allocated_cpu INTEGER, allocated_memory INTEGER, invocations INTEGER, idle_cpu INTEGER
    ) STRICT;
    CREATE INDEX living_instances ON instances (instance) WHERE ended IS NULL;
";

/// Ids of intervals are in the order of their writing, so that the oldest can go first. Of those that
/// are not kept, `merged_idle` has the sum of their lengths and the end of the last.
const INTERVALS: &str = "
    CREATE TABLE idle_intervals (
        id INTEGER PRIMARY KEY,
        instance TEXT NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
        UNIQUE (instance, start, end)
    ) STRICT;
    CREATE TABLE merged_idle (
        instance TEXT PRIMARY KEY, last_end INTEGER NOT NULL, total INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// The payload comes last, so that reading the other columns does not read it.
const EVENTS: &str = "
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        function TEXT NOT NULL, function_key TEXT NOT NULL, request_id TEXT NOT NULL,
        invocation TEXT NOT NULL, parent TEXT, attempt INTEGER NOT NULL,
        failures INTEGER NOT NULL, client_context TEXT, accepted INTEGER NOT NULL,
        stage TEXT, payload BLOB NOT NULL
    ) STRICT;
";

/// What functions set for themselves; the rows of version 3 have no such columns.
const SETTINGS: &str = "
    ALTER TABLE invocations ADD COLUMN reserved_cpu INTEGER;
    ALTER TABLE invocations ADD COLUMN spot_cpu INTEGER;
    ALTER TABLE invocations ADD COLUMN preemptible INTEGER;
    ALTER TABLE invocations ADD COLUMN qos TEXT;
";

/// One row: which log this is, and the number of the last record of its journal that is in it.
const JOURNAL: &str = "
    CREATE TABLE journal (log BLOB NOT NULL, applied INTEGER NOT NULL) STRICT;
    INSERT INTO journal VALUES (randomblob(16), 0);
";

/// Which files the journal has; version 5 does not know.
const JOURNAL_FILES: &str = "
    ALTER TABLE journal ADD COLUMN file INTEGER;
    ALTER TABLE journal ADD COLUMN written INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE journal ADD COLUMN spare INTEGER;
";

/// Whether requests overlapped; before version 7 none did.
const SHARED: &str = "ALTER TABLE invocations ADD COLUMN shared INTEGER";
const FIRST_SHARED: i64 = 7;

/// The stages of chains.
const STAGES: &str = "ALTER TABLE invocations ADD COLUMN stage TEXT";
const FIRST_WITH_STAGES: i64 = 8;

/// The workers of a controller.
const WORKERS: &str = "
    ALTER TABLE invocations ADD COLUMN worker TEXT;
    ALTER TABLE instances ADD COLUMN worker TEXT;
";
const FIRST_WITH_WORKERS: i64 = 9;

/// What was reserved, borrowed and lent.
const RESERVATIONS: &str = "
    ALTER TABLE invocations ADD COLUMN reserved_cpu_time INTEGER;
    ALTER TABLE invocations ADD COLUMN borrowed_cpu_time INTEGER;
    ALTER TABLE invocations ADD COLUMN lent_cpu_time INTEGER;
    ALTER TABLE invocations ADD COLUMN lent_memory_avg INTEGER;
";
const FIRST_WITH_RESERVATIONS: i64 = 10;

/// What passed between instances and services, in JSON.
const SERVICES: &str = "ALTER TABLE invocations ADD COLUMN services TEXT";
const FIRST_WITH_SERVICES: i64 = 11;

/// Triggers, and up to where in the feed of changes each has begun what follows. A position is
/// written with the event that a change became, so that none is begun twice or never.
const TRIGGERS: &str = "
    CREATE TABLE triggers (
        name TEXT PRIMARY KEY, definition TEXT NOT NULL, position INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";
const FIRST_WITH_TRIGGERS: i64 = 12;

/// What the kernel counted of invocations, and where it counts instances.
const COUNTERS: &str = "
    ALTER TABLE invocations ADD COLUMN cpu_wait INTEGER;
    ALTER TABLE invocations ADD COLUMN page_faults INTEGER;
    ALTER TABLE invocations ADD COLUMN context_switches INTEGER;
    ALTER TABLE invocations ADD COLUMN cycles INTEGER;
    ALTER TABLE invocations ADD COLUMN instructions INTEGER;
    ALTER TABLE invocations ADD COLUMN branch_misses INTEGER;
    ALTER TABLE invocations ADD COLUMN llc_misses INTEGER;
    ALTER TABLE instances ADD COLUMN cgroup TEXT;
";
const FIRST_WITH_COUNTERS: i64 = 13;

/// What instances idled on the account of hints.
const HINTS: &str = "ALTER TABLE instances ADD COLUMN hint_idle INTEGER";
const FIRST_WITH_HINTS: i64 = 14;

/// How instances started, which nobody knows of earlier ones.
const STARTS: &str = "ALTER TABLE instances ADD COLUMN start TEXT";
const FIRST_WITH_STARTS: i64 = 15;

/// Of which feed a trigger's position is, which nobody knows of earlier ones.
const FEEDS: &str = "ALTER TABLE triggers ADD COLUMN feed TEXT";
const FIRST_WITH_FEEDS: i64 = 16;

/// Which change a trigger's position is, which nobody knows of earlier ones.
const DIGESTS: &str = "ALTER TABLE triggers ADD COLUMN digest TEXT";
const FIRST_WITH_DIGESTS: i64 = 17;

/// Which record was the first since the last start; of an earlier one it is not known.
const BEGUN: &str = "
    ALTER TABLE journal ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;
    PRAGMA user_version = 18;
";

/// Ids beyond this one came about by doubling at every start, as version 2 did; too few are left.
const MAX_SOUND_ID: i64 = 1 << 53;

/// Makes the tables, or makes those of an earlier version these: all or nothing.
pub(super) fn migrate(connection: &mut Connection, version: i64) -> rusqlite::Result<()> {
    if version == FORMAT.version {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    match version {
        0 => {
            transaction.execute_batch(INVOCATIONS_AND_SPANS)?;
            transaction.execute_batch(INSTANCES)?;
            transaction.execute_batch(INTERVALS)?;
            transaction.execute_batch(EVENTS)?;
        }
        1 => {
            transaction.execute_batch("ALTER TABLE instances ADD COLUMN idle_cpu INTEGER")?;
            from_2(&transaction)?;
        }
        2 => from_2(&transaction)?,
        3 => from_3(&transaction)?,
        FIRST_WITH_STAGES.. => {}
        _ => {
            transaction.execute_batch("ALTER TABLE events RENAME TO old_events")?;
            transaction.execute_batch(EVENTS)?;
            move_events(&transaction, "function_key", "parent", "failures")?;
        }
    }
    if version < 4 {
        transaction.execute_batch(SETTINGS)?;
        merge_long_lists(&transaction)?;
    }
    if version < FIRST_WITH_JOURNAL {
        transaction.execute_batch(JOURNAL)?;
    }
    if version < FIRST_WITH_JOURNAL_FILES {
        transaction.execute_batch(JOURNAL_FILES)?;
    }
    if version < FIRST_SHARED {
        transaction.execute_batch(SHARED)?;
    }
    if version < FIRST_WITH_STAGES {
        transaction.execute_batch(STAGES)?;
    }
    if version < FIRST_WITH_WORKERS {
        transaction.execute_batch(WORKERS)?;
    }
    if version < FIRST_WITH_RESERVATIONS {
        transaction.execute_batch(RESERVATIONS)?;
    }
    if version < FIRST_WITH_SERVICES {
        transaction.execute_batch(SERVICES)?;
    }
    if version < FIRST_WITH_TRIGGERS {
        transaction.execute_batch(TRIGGERS)?;
    }
    if version < FIRST_WITH_COUNTERS {
        transaction.execute_batch(COUNTERS)?;
    }
    if version < FIRST_WITH_HINTS {
        transaction.execute_batch(HINTS)?;
    }
    if version < FIRST_WITH_STARTS {
        transaction.execute_batch(STARTS)?;
    }
    if version < FIRST_WITH_FEEDS {
        transaction.execute_batch(FEEDS)?;
    }
    if version < FIRST_WITH_DIGESTS {
        transaction.execute_batch(DIGESTS)?;
    }
    transaction.execute_batch(BEGUN)?;
    transaction.commit()?;
    // So that which log this is outlives even the loss of what was written last.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

fn from_3(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(
        "ALTER TABLE idle_intervals RENAME TO old_intervals;
         ALTER TABLE events RENAME TO old_events;",
    )?;
    transaction.execute_batch(INTERVALS)?;
    transaction.execute_batch(EVENTS)?;
    transaction.execute_batch(
        "INSERT INTO idle_intervals (instance, start, end)
         SELECT instance, start, end FROM old_intervals ORDER BY start;
         DROP TABLE old_intervals;",
    )?;
    move_events(transaction, "''", "NULL", "failures")
}

fn from_2(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(
        "ALTER TABLE instances RENAME TO old_instances; ALTER TABLE events RENAME TO old_events;",
    )?;
    transaction.execute_batch(INSTANCES)?;
    transaction.execute_batch(INTERVALS)?;
    transaction.execute_batch(EVENTS)?;
    let last: Option<i64> =
        transaction.query_row("SELECT MAX(id) FROM old_instances", [], |row| row.get(0))?;
    let id = if last.is_some_and(|last| last > MAX_SOUND_ID) { "NULL" } else { "id" };
    transaction.execute_batch(&format!(
        "INSERT INTO instances
         SELECT {id}, function, instance, started, initialized, ended, end_reason, allocated_cpu,
                allocated_memory, invocations, idle_cpu
         FROM old_instances ORDER BY id;"
    ))?;
    let mut idle = transaction
        .prepare("SELECT instance, idle FROM old_instances WHERE idle IS NOT NULL ORDER BY id")?;
    let mut rows = idle.query([])?;
    while let Some(row) = rows.next()? {
        let instance: String = row.get(0)?;
        for (start, end) in unpack(row.get_ref(1)?.as_blob()?) {
            insert_idle_interval(transaction, &instance, start, end)?;
        }
    }
    drop(rows);
    drop(idle);
    transaction.execute_batch("DROP TABLE old_instances")?;
    // What ran and failed was not counted apart from what was turned away.
    move_events(transaction, "''", "NULL", "0")
}

/// Moves `old_events` to `events`, and with them the number after which ids go on. The other arguments
/// are what stands for columns that earlier versions did not have.
fn move_events(
    transaction: &Transaction<'_>,
    function_key: &str,
    parent: &str,
    failures: &str,
) -> rusqlite::Result<()> {
    transaction.execute_batch(&format!(
        "INSERT INTO events (id, function, function_key, request_id, invocation, parent, attempt,
                             failures, client_context, accepted, payload)
         SELECT id, function, {function_key}, request_id, invocation, {parent}, attempt, {failures},
                client_context, accepted, payload
         FROM old_events ORDER BY id;
         DELETE FROM sqlite_sequence WHERE name = 'events';
         UPDATE sqlite_sequence SET name = 'events' WHERE name = 'old_events';
         DROP TABLE old_events;"
    ))
}

/// Earlier versions kept any number of idle intervals.
fn merge_long_lists(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let sql =
        "SELECT instance, COUNT(*) FROM idle_intervals GROUP BY instance HAVING COUNT(*) > ?1";
    let long: Vec<(String, i64)> = transaction
        .prepare(sql)?
        .query_map([retention::INSTANCE_INTERVALS], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (instance, count) in long {
        let surplus = count - retention::INSTANCE_INTERVALS;
        retention::merge_oldest_of(transaction, &instance, surplus)?;
    }
    Ok(())
}

/// Adds an interval. One that is there already, or was merged with others, stays as it is.
pub(super) fn insert_idle_interval(
    connection: &Connection,
    instance: &str,
    start: i64,
    end: i64,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO idle_intervals (instance, start, end)
               SELECT ?1, ?2, ?3 WHERE NOT EXISTS
               (SELECT 1 FROM merged_idle WHERE instance = ?1 AND last_end >= ?3)";
    connection.prepare_cached(sql)?.execute(params![instance, start, end])?;
    Ok(())
}

/// Intervals as version 2 wrote them: their times one after the other, eight bytes each, least
/// significant first.
fn unpack(bytes: &[u8]) -> impl Iterator<Item = (i64, i64)> {
    let time = |bytes: &[u8]| {
        let mut time = [0; 8];
        time.copy_from_slice(bytes);
        i64::from_le_bytes(time)
    };
    bytes.chunks_exact(16).map(move |pair| (time(&pair[..8]), time(&pair[8..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_version_2_are_read() {
        let intervals = [(1, 2), (i64::MIN, i64::MAX), (-5, 0)];
        let bytes: Vec<u8> =
            intervals.iter().flat_map(|&(a, b)| [a, b]).flat_map(i64::to_le_bytes).collect();
        assert!(unpack(&bytes).eq(intervals));
    }
}
