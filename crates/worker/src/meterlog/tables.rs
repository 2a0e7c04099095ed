//! The tables of the log, and how rows of [`uncia_record`] go in and come out.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, Row, Statement, params};
use uncia_record::{Instance, Invocation, Span};

/// Version of the tables, in `PRAGMA user_version`.
pub const VERSION: i64 = 2;

/// What the column `platform` of every row says.
pub const PLATFORM: &str = "embedded";

/// `AUTOINCREMENT`, so that a row's id is never used again, and "after" means the same for ever.
pub const TABLES: &str = "
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
    CREATE TABLE instances (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        function TEXT NOT NULL, instance TEXT NOT NULL UNIQUE,
        started INTEGER NOT NULL, initialized INTEGER, ended INTEGER, end_reason TEXT,
        allocated_cpu INTEGER, allocated_memory INTEGER, invocations INTEGER, idle BLOB,
        idle_cpu INTEGER
    ) STRICT;
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        function TEXT NOT NULL, request_id TEXT NOT NULL, invocation TEXT NOT NULL,
        attempt INTEGER NOT NULL, payload BLOB NOT NULL, client_context TEXT,
        accepted INTEGER NOT NULL
    ) STRICT;
    PRAGMA user_version = 2;
";

/// What version 2 has more than version 1.
pub const FROM_1: &str = "
    BEGIN;
    ALTER TABLE instances ADD COLUMN idle_cpu INTEGER;
    PRAGMA user_version = 2;
    COMMIT;
";

const INVOCATION_COLUMNS: &str = "function, invocation, request_id, attempt, parent, \
    request_bytes, response_bytes, outcome, status, error, start, instance, started, ended, \
    queued, initialization, execution, billed, allocated_cpu, allocated_memory, cpu_user, \
    cpu_system, memory_avg, memory_peak, throttled_count, throttled_time";
const INSTANCE_COLUMNS: &str = "function, instance, started, initialized, ended, end_reason, \
    allocated_cpu, allocated_memory, invocations, idle, idle_cpu";

/// Opens the database such that readers do not block the writer.
///
/// `synchronous = NORMAL`: a commit survives the end of the process, however it comes, and may be
/// lost only with the power.
pub fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

pub fn insert_invocation(connection: &Connection, row: &Invocation) -> rusqlite::Result<usize> {
    let sql = format!(
        "INSERT INTO invocations ({INVOCATION_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, \
         ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)"
    );
    connection.prepare_cached(&sql)?.execute(params![
        &*row.function,
        row.invocation,
        row.request_id,
        row.attempt,
        row.parent,
        row.request_bytes,
        row.response_bytes,
        &*row.outcome,
        row.status,
        row.error,
        row.start.as_deref(),
        row.instance.as_deref(),
        row.started,
        row.ended,
        row.queued,
        row.initialization,
        row.execution,
        row.billed,
        row.allocated_cpu,
        row.allocated_memory,
        row.cpu_user,
        row.cpu_system,
        row.memory_avg,
        row.memory_peak,
        row.throttled_count,
        row.throttled_time,
    ])
}

pub fn select_invocations(connection: &Connection) -> rusqlite::Result<Statement<'_>> {
    connection.prepare(&format!(
        "SELECT id, {INVOCATION_COLUMNS} FROM invocations
         WHERE id > ?1 AND (?2 IS NULL OR function = ?2) ORDER BY id LIMIT ?3"
    ))
}

pub fn read_invocation(row: &Row<'_>) -> rusqlite::Result<Invocation> {
    Ok(Invocation {
        platform: Some(Arc::from(PLATFORM)),
        function: row.get("function")?,
        invocation: row.get("invocation")?,
        request_id: row.get("request_id")?,
        attempt: row.get("attempt")?,
        parent: row.get("parent")?,
        request_bytes: row.get("request_bytes")?,
        response_bytes: row.get("response_bytes")?,
        outcome: row.get("outcome")?,
        status: row.get("status")?,
        error: row.get("error")?,
        start: row.get("start")?,
        instance: row.get("instance")?,
        // One request at a time is what makes the cgroup's counters an invocation's own.
        shared: row.get::<_, Option<i64>>("started")?.map(|_| false),
        started: row.get("started")?,
        ended: row.get("ended")?,
        queued: row.get("queued")?,
        initialization: row.get("initialization")?,
        execution: row.get("execution")?,
        billed: row.get("billed")?,
        allocated_cpu: row.get("allocated_cpu")?,
        allocated_memory: row.get("allocated_memory")?,
        cpu_user: row.get("cpu_user")?,
        cpu_system: row.get("cpu_system")?,
        memory_avg: row.get("memory_avg")?,
        memory_peak: row.get("memory_peak")?,
        throttled_count: row.get("throttled_count")?,
        throttled_time: row.get("throttled_time")?,
        ..Invocation::default()
    })
}

pub fn insert_span(
    connection: &Connection,
    function: &str,
    span: &Span,
) -> rusqlite::Result<usize> {
    let sql = "INSERT INTO spans (function, invocation, instance, name, start, end)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    connection.prepare_cached(sql)?.execute(params![
        function,
        span.invocation,
        span.instance.as_deref(),
        &*span.name,
        span.start,
        span.end,
    ])
}

pub fn select_spans(connection: &Connection) -> rusqlite::Result<Statement<'_>> {
    connection.prepare(
        "SELECT id, invocation, instance, name, start, end FROM spans
         WHERE id > ?1 AND (?2 IS NULL OR function = ?2) ORDER BY id LIMIT ?3",
    )
}

pub fn read_span(row: &Row<'_>) -> rusqlite::Result<Span> {
    Ok(Span {
        run: None,
        invocation: row.get("invocation")?,
        instance: row.get("instance")?,
        name: row.get("name")?,
        start: row.get("start")?,
        end: row.get("end")?,
        clock: Arc::from("platform"),
    })
}

/// Stores an instance, or its new state; the row gets a new id, so that whoever reads what came
/// after an id sees the change.
pub fn put_instance(connection: &Connection, row: &Instance) -> rusqlite::Result<usize> {
    let sql = format!(
        "INSERT OR REPLACE INTO instances ({INSTANCE_COLUMNS})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
    );
    connection.prepare_cached(&sql)?.execute(params![
        &*row.function,
        &*row.instance,
        row.started,
        row.initialized,
        row.ended,
        row.end_reason.as_deref(),
        row.allocated_cpu,
        row.allocated_memory,
        row.invocations,
        row.idle.as_deref().map(pack),
        row.idle_cpu,
    ])
}

pub fn select_ended_instances(connection: &Connection) -> rusqlite::Result<Statement<'_>> {
    connection.prepare(&format!(
        "SELECT id, {INSTANCE_COLUMNS} FROM instances
         WHERE ended IS NOT NULL AND id > ?1 AND (?2 IS NULL OR function = ?2)
         ORDER BY id LIMIT ?3"
    ))
}

pub fn read_instance(row: &Row<'_>) -> rusqlite::Result<Instance> {
    Ok(Instance {
        run: None,
        platform: Some(Arc::from(PLATFORM)),
        function: row.get("function")?,
        instance: row.get("instance")?,
        started: row.get("started")?,
        initialized: row.get("initialized")?,
        ended: row.get("ended")?,
        end_reason: row.get("end_reason")?,
        start: Some(Arc::from("cold")),
        allocated_cpu: row.get("allocated_cpu")?,
        allocated_memory: row.get("allocated_memory")?,
        invocations: row.get("invocations")?,
        idle: row.get::<_, Option<Vec<u8>>>("idle")?.as_deref().map(unpack),
        idle_cpu: row.get("idle_cpu")?,
    })
}

/// Intervals as their times one after the other, eight bytes each, least significant first.
fn pack(intervals: &[(i64, i64)]) -> Vec<u8> {
    intervals.iter().flat_map(|&(start, end)| [start, end]).flat_map(i64::to_le_bytes).collect()
}

fn unpack(bytes: &[u8]) -> Vec<(i64, i64)> {
    let time = |bytes: &[u8]| {
        let mut time = [0; 8];
        time.copy_from_slice(bytes);
        i64::from_le_bytes(time)
    };
    bytes.chunks_exact(16).map(|pair| (time(&pair[..8]), time(&pair[8..]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_survive() {
        let intervals = vec![(1, 2), (i64::MIN, i64::MAX), (-5, 0)];
        assert_eq!(unpack(&pack(&intervals)), intervals);
    }
}
