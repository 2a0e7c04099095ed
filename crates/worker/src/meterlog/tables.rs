//! How rows of [`uncia_record`] go into the log and come out.

use std::sync::{Arc, LazyLock};

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, Statement, params};
use uncia_record::{Instance, Invocation, Span, Traffic};

use super::entry::{
    AcceptedEvent, EventUpdate, KeptTrigger, Passed, PayloadSize, Record, TriggerUpdate,
    WaitingEvent,
};
use super::journal::{Left, LogId, Noted};
use super::schema::insert_idle_interval;

/// What the column `platform` of every row says.
const PLATFORM: &str = "embedded";

const INVOCATION_COLUMNS: &str = "function, invocation, request_id, attempt, parent, \
    request_bytes, response_bytes, outcome, status, error, start, instance, started, ended, \
    queued, initialization, execution, billed, allocated_cpu, allocated_memory, cpu_user, \
    cpu_system, memory_avg, memory_peak, throttled_count, throttled_time, reserved_cpu, spot_cpu, \
    preemptible, qos, shared, stage, worker, reserved_cpu_time, borrowed_cpu_time, lent_cpu_time, \
    lent_memory_avg, services, cpu_wait, page_faults, context_switches, cycles, instructions, \
    branch_misses, llc_misses";
const INSTANCE_COLUMNS: &str = "function, instance, started, initialized, ended, end_reason, \
    allocated_cpu, allocated_memory, invocations, idle_cpu, worker, cgroup, hint_idle, start";

/// Which log this is, and the number of the last record of its journal that is in it.
pub(super) fn applied(connection: &Connection) -> rusqlite::Result<(LogId, u64)> {
    connection.query_row("SELECT log, applied FROM journal", [], |row| {
        Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
    })
}

/// What is known of the journal's files.
pub(super) fn noted(connection: &Connection) -> rusqlite::Result<Noted> {
    connection.query_row("SELECT file, written, spare, begun FROM journal", [], |row| {
        let name =
            |index| row.get::<_, Option<i64>>(index).map(|name| name.map(i64::cast_unsigned));
        let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
        Ok(Noted { file: name(0)?, written: number(1)?, spare: name(2)?, begun: number(3)? })
    })
}

/// Notes, in the transaction that holds it, which record of the journal is the last.
pub(super) fn set_applied(connection: &Connection, number: u64) -> rusqlite::Result<()> {
    let sql = "UPDATE journal SET applied = ?1";
    connection.prepare_cached(sql)?.execute([number.cast_signed()])?;
    Ok(())
}

/// Notes which files the journal has.
pub(super) fn set_noted(connection: &Connection, noted: &Noted) -> rusqlite::Result<()> {
    let sql = "UPDATE journal SET file = ?1, written = ?2, spare = ?3, begun = ?4";
    let name = |name: Option<u64>| name.map(u64::cast_signed);
    let (written, begun) = (noted.written.cast_signed(), noted.begun.cast_signed());
    let values = params![name(noted.file), written, name(noted.spare), begun];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

/// Stores what a worker that was killed has left in the journal: all of it, or nothing. Its files are
/// not needed any more.
pub(super) fn insert_left(connection: &mut Connection, left: &Left) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for (_, record) in &left.records {
        insert(&transaction, record)?;
    }
    set_applied(&transaction, left.next - 1)?;
    set_noted(&transaction, &left.to_note())?;
    transaction.commit()
}

/// Stores a record; returns how many rows it is.
pub(super) fn insert(connection: &Connection, record: &Record) -> rusqlite::Result<usize> {
    match record {
        Record::Invocation(recorded) => {
            insert_invocation(connection, &recorded.row)?;
            for span in &recorded.spans {
                insert_span(connection, &recorded.row.function, span)?;
            }
            if let Some(idle) = &recorded.idle {
                insert_idle_interval(connection, &idle.instance, idle.start, idle.end)?;
            }
            if let Some(update) = recorded.event {
                update_event(connection, update)?;
            }
            Ok(1 + recorded.spans.len())
        }
        Record::Instance(row) => put_instance(connection, row).map(|()| 1),
        Record::DropEvents(ids) => {
            ids.iter().try_for_each(|id| delete_event(connection, *id)).map(|()| 0)
        }
    }
}

fn insert_invocation(connection: &Connection, row: &Invocation) -> rusqlite::Result<usize> {
    // Made once, not for every row.
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "INSERT INTO invocations ({INVOCATION_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, \
             ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, \
             ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40, \
             ?41, ?42, ?43, ?44, ?45)"
        )
    });
    connection.prepare_cached(&SQL)?.execute(params![
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
        row.reserved_cpu,
        row.spot_cpu,
        row.preemptible,
        row.qos.as_deref(),
        row.shared,
        row.stage.as_deref(),
        row.worker.as_deref(),
        row.reserved_cpu_time,
        row.borrowed_cpu_time,
        row.lent_cpu_time,
        row.lent_memory_avg,
        row.services.as_ref().map(serde_json::to_string).transpose().map_err(unwritable)?,
        row.cpu_wait,
        row.page_faults,
        row.context_switches,
        row.cycles,
        row.instructions,
        row.branch_misses,
        row.llc_misses,
    ])
}

pub(super) fn select_invocations(connection: &Connection) -> rusqlite::Result<Statement<'_>> {
    connection.prepare(&format!(
        "SELECT id, {INVOCATION_COLUMNS} FROM invocations
         WHERE id > ?1 ORDER BY id"
    ))
}

pub(super) fn read_invocation(row: &Row<'_>) -> rusqlite::Result<Invocation> {
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
        shared: match row.get("shared")? {
            // Before this was written down, each had its instance to itself.
            None => row.get::<_, Option<i64>>("started")?.map(|_| false),
            shared => shared,
        },
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
        reserved_cpu: row.get("reserved_cpu")?,
        spot_cpu: row.get("spot_cpu")?,
        preemptible: row.get("preemptible")?,
        qos: row.get("qos")?,
        stage: row.get("stage")?,
        worker: row.get("worker")?,
        reserved_cpu_time: row.get("reserved_cpu_time")?,
        borrowed_cpu_time: row.get("borrowed_cpu_time")?,
        lent_cpu_time: row.get("lent_cpu_time")?,
        lent_memory_avg: row.get("lent_memory_avg")?,
        services: traffic(row)?,
        cpu_wait: row.get("cpu_wait")?,
        page_faults: row.get("page_faults")?,
        context_switches: row.get("context_switches")?,
        cycles: row.get("cycles")?,
        instructions: row.get("instructions")?,
        branch_misses: row.get("branch_misses")?,
        llc_misses: row.get("llc_misses")?,
        ..Invocation::default()
    })
}

fn unwritable(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}

/// What passed between the instance and services, which is kept as JSON.
fn traffic(row: &Row<'_>) -> rusqlite::Result<Option<Vec<Traffic>>> {
    let Some(text) = row.get_ref("services")?.as_str_or_null()? else { return Ok(None) };
    let column = row.as_ref().column_index("services")?;
    serde_json::from_str(text).map(Some).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
    })
}

fn insert_span(connection: &Connection, function: &str, span: &Span) -> rusqlite::Result<usize> {
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

pub(super) fn select_spans(connection: &Connection) -> rusqlite::Result<Statement<'_>> {
    connection.prepare(
        "SELECT id, function, invocation, instance, name, start, end FROM spans
         WHERE id > ?1 ORDER BY id",
    )
}

pub(super) fn read_span(row: &Row<'_>) -> rusqlite::Result<Span> {
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

/// Stores an instance, or its new state, and adds the idle intervals that the row carries; the row
/// gets a new id, so that whoever reads what came after an id sees the change.
pub(super) fn put_instance(connection: &Connection, row: &Instance) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT OR REPLACE INTO instances ({INSTANCE_COLUMNS})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
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
        row.idle_cpu,
        row.worker.as_deref(),
        row.cgroup,
        row.hint_idle,
        row.start.as_deref(),
    ])?;
    for &(start, end) in row.idle.iter().flatten() {
        insert_idle_interval(connection, &row.instance, start, end)?;
    }
    Ok(())
}

/// The newest invocations among which the last of an instance is looked for.
const LATEST_INVOCATIONS: i64 = 100_000;

/// The index makes it cost what the living instances do, and not what all there ever were.
const END_LEFT_INSTANCES: &str = "
    WITH latest AS MATERIALIZED (
        SELECT instance, MAX(ended) AS ended FROM invocations
        WHERE id > (SELECT MAX(id) FROM invocations) - ?1 GROUP BY instance)
    INSERT OR REPLACE INTO instances
        (function, instance, started, initialized, ended, end_reason, allocated_cpu,
         allocated_memory, worker, cgroup, start)
    SELECT function, gone.instance, started, initialized,
           MAX(started, IFNULL(initialized, started), IFNULL(latest.ended, started),
               IFNULL((SELECT last_end FROM merged_idle WHERE instance = gone.instance), started),
               IFNULL((SELECT end FROM idle_intervals WHERE instance = gone.instance
                       ORDER BY start DESC LIMIT 1), started)),
           'crash', allocated_cpu, allocated_memory, worker, cgroup, start
    FROM instances AS gone INDEXED BY living_instances
    LEFT JOIN latest ON latest.instance = gone.instance
    WHERE gone.ended IS NULL ORDER BY id";

/// Records the end of the instances that a worker which was killed left running: the last moment of
/// which the log knows that they lived. How much they served since they became ready, nobody knows any
/// more.
pub(super) fn end_left_instances(connection: &Connection) -> rusqlite::Result<usize> {
    let any = "SELECT EXISTS (SELECT 1 FROM instances INDEXED BY living_instances
                              WHERE ended IS NULL)";
    if !connection.query_row(any, [], |row| row.get::<_, bool>(0))? {
        return Ok(0);
    }
    connection.execute(END_LEFT_INSTANCES, [LATEST_INVOCATIONS])
}

pub(super) fn select_instances(connection: &Connection) -> rusqlite::Result<Statement<'_>> {
    connection.prepare(&format!(
        "SELECT id, {INSTANCE_COLUMNS} FROM instances
         WHERE id > ?1 ORDER BY id"
    ))
}

/// Reads an instance, but for its idle intervals.
pub(super) fn read_instance(row: &Row<'_>) -> rusqlite::Result<Instance> {
    Ok(Instance {
        run: None,
        platform: Some(Arc::from(PLATFORM)),
        function: row.get("function")?,
        instance: row.get("instance")?,
        started: row.get("started")?,
        initialized: row.get("initialized")?,
        ended: row.get("ended")?,
        end_reason: row.get("end_reason")?,
        start: row.get("start")?,
        allocated_cpu: row.get("allocated_cpu")?,
        allocated_memory: row.get("allocated_memory")?,
        invocations: row.get("invocations")?,
        idle: None,
        idle_cpu: row.get("idle_cpu")?,
        worker: row.get("worker")?,
        cgroup: row.get("cgroup")?,
        hint_idle: row.get("hint_idle")?,
    })
}

/// The first `limit` idle intervals of an instance. Those that were merged are the first: one interval,
/// as long as all of them, that ends where the last of them did.
pub(super) fn read_idle_intervals(
    connection: &Connection,
    instance: &str,
    limit: i64,
) -> rusqlite::Result<Vec<(i64, i64)>> {
    let sql =
        "SELECT last_end - total AS start, last_end AS end FROM merged_idle WHERE instance = ?1
               UNION ALL SELECT start, end FROM idle_intervals WHERE instance = ?1
               ORDER BY start, end LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![instance, limit], |row| Ok((row.get(0)?, row.get(1)?)));
    rows?.collect()
}

/// Stores what becomes of a trigger.
pub(super) fn update_trigger(
    connection: &Connection,
    update: &TriggerUpdate,
) -> rusqlite::Result<()> {
    match update {
        TriggerUpdate::Put(KeptTrigger { name, definition, position, feed, digest }) => connection
            .prepare_cached(
                "INSERT OR REPLACE INTO triggers (name, definition, position, feed, digest)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![name, definition, position, feed, digest])?,
        TriggerUpdate::Passed(passed) => return pass_change(connection, passed),
        TriggerUpdate::Removed(name) => {
            connection.prepare_cached("DELETE FROM triggers WHERE name = ?1")?.execute([name])?
        }
    };
    Ok(())
}

/// Notes up to where a trigger has come.
pub(super) fn pass_change(connection: &Connection, passed: &Passed) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE triggers SET position = ?2, digest = ?3 WHERE name = ?1")?
        .execute(params![&*passed.trigger, passed.position, passed.digest])?;
    Ok(())
}

/// All triggers, by name.
pub(super) fn read_triggers(connection: &Connection) -> rusqlite::Result<Vec<KeptTrigger>> {
    let sql = "SELECT name, definition, position, feed, digest FROM triggers ORDER BY name";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let [name, definition] = [row.get(0)?, row.get(1)?];
        let (position, feed, digest) = (row.get(2)?, row.get(3)?, row.get(4)?);
        Ok(KeptTrigger { name, definition, position, feed, digest })
    })?;
    rows.collect()
}

/// The name of the invocation that a request was, if it is among the newest `most` rows.
pub(super) fn read_invocation_of(
    connection: &Connection,
    request_id: &str,
    most: i64,
) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT invocation FROM invocations
               WHERE id > (SELECT IFNULL(MAX(id), 0) FROM invocations) - ?2 AND request_id = ?1";
    connection
        .prepare_cached(sql)?
        .query_row(params![request_id, most], |row| row.get(0))
        .optional()
}

/// Stores an event, and returns its id.
pub(super) fn insert_event(
    connection: &Connection,
    event: &AcceptedEvent,
) -> rusqlite::Result<i64> {
    let sql = "INSERT INTO events (function, function_key, request_id, invocation, parent, attempt,
                                   failures, client_context, accepted, payload, stage)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    connection.prepare_cached(sql)?.execute(params![
        event.function,
        event.function_key,
        event.request_id,
        event.invocation,
        event.parent,
        event.attempt,
        event.failures,
        event.client_context,
        event.accepted,
        &event.payload[..],
        event.stage,
    ])?;
    Ok(connection.last_insert_rowid())
}

fn update_event(connection: &Connection, update: EventUpdate) -> rusqlite::Result<()> {
    match update {
        EventUpdate::Done { id } => return delete_event(connection, id),
        EventUpdate::Failed { id, attempt, failures } => connection
            .prepare_cached("UPDATE events SET attempt = ?2, failures = ?3 WHERE id = ?1")?
            .execute([id, attempt, failures])?,
        EventUpdate::Attempted { id, attempt } => connection
            .prepare_cached("UPDATE events SET attempt = ?2 WHERE id = ?1")?
            .execute([id, attempt])?,
    };
    Ok(())
}

fn delete_event(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM events WHERE id = ?1")?.execute([id])?;
    Ok(())
}

/// All events, oldest first.
pub(super) fn read_events(connection: &Connection) -> rusqlite::Result<Vec<WaitingEvent>> {
    let mut statement = connection.prepare(
        "SELECT id, function, function_key, request_id, invocation, parent, attempt, failures,
                LENGTH(payload) AS payload_bytes, client_context, accepted, stage
         FROM events ORDER BY id",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(WaitingEvent {
            id: row.get("id")?,
            function: row.get("function")?,
            function_key: row.get("function_key")?,
            request_id: row.get("request_id")?,
            invocation: row.get("invocation")?,
            parent: row.get("parent")?,
            stage: row.get("stage")?,
            attempt: row.get("attempt")?,
            failures: row.get("failures")?,
            payload: PayloadSize(row.get("payload_bytes")?),
            client_context: row.get("client_context")?,
            accepted: row.get("accepted")?,
        })
    })?;
    rows.collect()
}

pub(super) fn read_payload(connection: &Connection, id: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    connection
        .prepare_cached("SELECT payload FROM events WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()
}

#[cfg(test)]
mod tests {
    use super::super::schema;
    use super::*;

    #[test]
    fn a_start_looks_at_living_instances_only() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, 0).unwrap();
        let mut plan =
            connection.prepare(&format!("EXPLAIN QUERY PLAN {END_LEFT_INSTANCES}")).unwrap();
        let steps = plan.query_map([1], |row| row.get::<_, String>("detail")).unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).collect();
        let gone: Vec<_> = steps.iter().filter(|step| step.contains(" gone")).collect();
        assert!(
            matches!(&gone[..], [step] if step.contains("INDEX living_instances")),
            "{steps:?}"
        );
    }
}
