//! Files of earlier versions, and files that are damaged.

use std::fs;

use rusqlite::{Connection, params};

use uncia_record::Traffic;

use super::earlier::make_earlier;
use super::journal::kill;
use super::*;

/// The tables of version 1; version 2 added `instances.idle_cpu`.
const VERSION_1: &str = "
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
        allocated_cpu INTEGER, allocated_memory INTEGER, invocations INTEGER, idle BLOB
    ) STRICT;
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        function TEXT NOT NULL, request_id TEXT NOT NULL, invocation TEXT NOT NULL,
        attempt INTEGER NOT NULL, payload BLOB NOT NULL, client_context TEXT,
        accepted INTEGER NOT NULL
    ) STRICT;
    PRAGMA user_version = 1;
";
const VERSION_2: &str =
    "ALTER TABLE instances ADD COLUMN idle_cpu INTEGER; PRAGMA user_version = 2;";

/// A log of an earlier version: an invocation, an ended and a living instance, an event.
fn earlier(state: &Path, version: i64, last_id: i64) {
    let old = Connection::open(state.join("meter.sqlite")).unwrap();
    old.execute_batch(VERSION_1).unwrap();
    if version == 2 {
        old.execute_batch(VERSION_2).unwrap();
    }
    old.execute_batch(
        "INSERT INTO invocations (function, invocation, attempt, outcome)
         VALUES ('f', 'old', 1, 'ok');
         INSERT INTO events VALUES (3, 'f', 'r', 'gone', 0, x'7b7d', NULL, 7);
         INSERT INTO events VALUES (4, 'f', 'r', 'waits', 2, x'7b7d', 'context', 7);
         INSERT INTO events VALUES (9, 'f', 'r', 'gone', 0, x'7b7d', NULL, 7);
         DELETE FROM events WHERE invocation = 'gone';",
    )
    .unwrap();
    let idle: Vec<u8> = [10_i64, 20, 30, 40].into_iter().flat_map(i64::to_le_bytes).collect();
    let sql = "INSERT INTO instances (id, function, instance, started, initialized, ended, idle)
               VALUES (?1, 'f', ?2, 1, 10, ?3, ?4)";
    old.execute(sql, params![last_id - 1, "ended", 50, idle]).unwrap();
    old.execute(sql, params![last_id, "living", None::<i64>, &idle[..0]]).unwrap();
}

#[test]
fn logs_of_earlier_versions_are_read() {
    for version in [1, 2] {
        // The ids that 40 and 62 starts of version 2 would have come to.
        for last_id in [2, 1 << 40, i64::MAX - 1, i64::MAX] {
            let folder = tempfile::tempdir().unwrap();
            earlier(folder.path(), version, last_id);
            let log = open(folder.path());
            log.instance(instance("new"));
            barrier(&log);
            let reader = reader(folder.path());
            let page = reader.instances(&Query::default()).unwrap();
            let row = |row: &Instance| {
                (row.instance.to_string(), row.end_reason.clone(), row.idle.clone().unwrap())
            };
            let rows: Vec<_> = page.rows.iter().map(row).collect();
            let crash = Some(Arc::from("crash"));
            assert_eq!(rows[0], ("ended".to_owned(), None, vec![(10, 20), (30, 40)]));
            assert_eq!(rows[1], ("living".to_owned(), crash, vec![]));
            assert_eq!(rows[2].0, "new");
            let kept = if last_id < 1 << 53 { last_id } else { 2 };
            assert_eq!(page.last, kept + 2);
            assert_eq!(names(folder.path()), ["old"]);
            let left = log.left_events().unwrap();
            let event = (left[0].id, left[0].attempt, left[0].failures, left[0].payload.0);
            assert_eq!((left.len(), event), (1, (4, 2, 0, 2)));
            assert_eq!(left[0].client_context.as_deref(), Some("context"));
            assert_eq!((left[0].function_key.as_str(), left[0].parent.as_deref()), ("", None));
            assert_eq!(log.payload(4).unwrap().unwrap(), Bytes::from("{}"));
            assert_eq!(accept(&log, event_after()), 10, "an id is not used again");
            log.close();
            open(folder.path()).close();
        }
    }
}

/// What version 3 had otherwise than version 4 and this.
const VERSION_3: &str = "
    DROP TABLE idle_intervals; DROP TABLE merged_idle; DROP TABLE events;
    CREATE TABLE idle_intervals (
        instance TEXT NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
        PRIMARY KEY (instance, start, end)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        function TEXT NOT NULL, request_id TEXT NOT NULL, invocation TEXT NOT NULL,
        attempt INTEGER NOT NULL, failures INTEGER NOT NULL, client_context TEXT,
        accepted INTEGER NOT NULL, payload BLOB NOT NULL
    ) STRICT;
    INSERT INTO idle_intervals VALUES ('few', 10, 20), ('few', 30, 40);
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100999)
    INSERT INTO idle_intervals SELECT 'many', 10 * n, 10 * n + 3 FROM numbers;
    INSERT INTO events VALUES (8, 'f', 'r', 'waits', 2, 1, 'context', 7, x'7b7d'),
                              (9, 'f', 'r', 'gone', 2, 1, 'context', 7, x'7b7d');
    DELETE FROM events WHERE id = 9;
";

#[test]
fn version_3_is_read_with_its_long_lists_of_intervals_merged() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    log.instance(ended("few"));
    log.instance(ended("many"));
    log.close();
    let database = Connection::open(log.path()).unwrap();
    make_earlier(&database, 3);
    database.execute_batch(VERSION_3).unwrap();
    drop(database);
    let log = open(folder.path());
    let reader = reader(folder.path());
    let rows = all(10, |query| reader.instances(query));
    assert_eq!(rows[0].idle, Some(vec![(10, 20), (30, 40)]));
    let idle = rows[1].idle.as_ref().unwrap();
    assert_eq!(idle.len(), 100_001);
    assert_eq!(idle[..2], [(9_993 - 3_000, 9_993), (10_000, 10_003)]);
    assert_eq!(idle.iter().map(|(start, end)| end - start).sum::<i64>(), 3 * 101_000);
    let left = log.left_events().unwrap();
    let event = (left[0].id, left[0].attempt, left[0].failures, left[0].payload.0);
    assert_eq!((left.len(), event), (1, (8, 2, 1, 2)));
    assert_eq!((left[0].function_key.as_str(), left[0].parent.as_deref()), ("", None));
    assert_eq!(accept(&log, event_after()), 10, "an id is not used again");
    log.close();
}

#[test]
fn rows_of_version_3_have_no_settings() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    record(&log, invocation("old")).unwrap();
    log.close();
    let database = Connection::open(folder.path().join("meter.sqlite")).unwrap();
    make_earlier(&database, 3);
    database.execute_batch(VERSION_3).unwrap();
    drop(database);

    let log = open(folder.path());
    let mut recorded = invocation("new");
    recorded.row = Invocation {
        reserved_cpu: Some(7),
        spot_cpu: Some(8),
        preemptible: Some(true),
        qos: Some(Arc::from("batch")),
        ..recorded.row
    };
    record(&log, recorded).unwrap();
    barrier(&log);
    let rows = reader(folder.path()).invocations(&Query::default()).unwrap().rows;
    let settings = |row: &Invocation| {
        (row.reserved_cpu, row.spot_cpu, row.preemptible, row.qos.as_deref().map(str::to_owned))
    };
    assert_eq!(settings(&rows[0]), (None, None, None, None));
    assert_eq!(settings(&rows[1]), (Some(7), Some(8), Some(true), Some("batch".to_owned())));
    log.close();
}

#[test]
fn requests_of_version_6_never_overlapped() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let row = |name: &str, started, shared| {
        let mut recorded = invocation(name);
        recorded.row = Invocation { started, shared, ..recorded.row };
        record(&log, recorded).unwrap();
    };
    row("ran", Some(1), Some(false));
    row("turned away", None, None);
    barrier(&log);
    log.close();
    let database = Connection::open(log.path()).unwrap();
    make_earlier(&database, 6);
    drop(database);

    let log = open(folder.path());
    let mut recorded = invocation("new");
    recorded.row = Invocation { started: Some(1), shared: Some(true), ..recorded.row };
    record(&log, recorded).unwrap();
    barrier(&log);
    let rows = reader(folder.path()).invocations(&Query::default()).unwrap().rows;
    let shared: Vec<_> = rows.iter().map(|row| row.shared).collect();
    assert_eq!(shared, [Some(false), None, Some(true)]);
    log.close();
}

#[test]
fn events_of_version_7_keep_their_parents_and_have_no_stage() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    accept(&log, AcceptedEvent { stage: None, ..event("old") });
    log.close();
    let database = Connection::open(log.path()).unwrap();
    make_earlier(&database, 7);
    drop(database);

    let log = open(folder.path());
    assert_eq!(accept(&log, AcceptedEvent { stage: Some("b".to_owned()), ..event("new") }), 2);
    let mut recorded = invocation("new");
    recorded.row = Invocation { stage: Some("b".into()), ..recorded.row };
    record(&log, recorded).unwrap();
    barrier(&log);
    let left = log.left_events().unwrap();
    let events: Vec<_> =
        left.iter().map(|it| (it.parent.as_deref(), it.stage.as_deref())).collect();
    assert_eq!(events, [(Some("parent-old"), None), (Some("parent-new"), Some("b"))]);
    let rows = reader(folder.path()).invocations(&Query::default()).unwrap().rows;
    assert_eq!(rows[0].stage.as_deref(), Some("b"));
    log.close();
}

#[test]
fn rows_of_version_8_name_no_worker_and_no_reservation() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    accept(&log, AcceptedEvent { stage: Some("a".to_owned()), ..event("old") });
    record(&log, invocation("old")).unwrap();
    log.close();
    let database = Connection::open(log.path()).unwrap();
    make_earlier(&database, 8);
    drop(database);

    let log = open(folder.path());
    let mut recorded = invocation("new");
    recorded.row = Invocation {
        worker: Some("w".into()),
        reserved_cpu_time: Some(4),
        borrowed_cpu_time: Some(3),
        lent_cpu_time: Some(2),
        lent_memory_avg: Some(1),
        ..recorded.row
    };
    record(&log, recorded).unwrap();
    barrier(&log);
    let left = log.left_events().unwrap();
    assert_eq!(left[0].stage.as_deref(), Some("a"), "events are as they were");
    let rows = reader(folder.path()).invocations(&Query::default()).unwrap().rows;
    let workers: Vec<_> = rows.iter().map(|row| row.worker.as_deref()).collect();
    assert_eq!(workers, [None, Some("w")]);
    let reservations: Vec<_> = rows
        .iter()
        .map(|row| [row.reserved_cpu_time, row.borrowed_cpu_time, row.lent_cpu_time])
        .collect();
    assert_eq!(reservations, [[None; 3], [Some(4), Some(3), Some(2)]]);
    assert_eq!(rows[1].lent_memory_avg, Some(1));
    log.close();
}

#[test]
fn rows_of_version_10_do_not_say_what_was_counted() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    record(&log, invocation("old")).unwrap();
    log.close();
    let database = Connection::open(log.path()).unwrap();
    make_earlier(&database, 10);
    drop(database);

    let log = open(folder.path());
    let store = vec![Traffic { service: "store".into(), sent: 7, received: i64::MAX }];
    let mut recorded = invocation("new");
    recorded.row = Invocation {
        services: Some(store.clone()),
        cpu_wait: Some(1),
        page_faults: Some(2),
        context_switches: Some(3),
        cycles: Some(4),
        instructions: Some(5),
        branch_misses: Some(6),
        llc_misses: Some(7),
        ..recorded.row
    };
    record(&log, recorded).unwrap();
    // By way of the journal, as well.
    let killed = kill(folder.path());
    log.close();
    drop(open(killed.path()));
    for state in [folder.path(), killed.path()] {
        let rows = reader(state).invocations(&Query::default()).unwrap().rows;
        let counters: Vec<_> = rows
            .iter()
            .map(|row| {
                let events = [row.page_faults, row.context_switches, row.cycles, row.instructions];
                (row.cpu_wait, events, row.branch_misses, row.llc_misses)
            })
            .collect();
        let new = (Some(1), [Some(2), Some(3), Some(4), Some(5)], Some(6), Some(7));
        assert_eq!(counters, [(None, [None; 4], None, None), new]);
        let services: Vec<_> = rows.into_iter().map(|row| row.services).collect();
        assert_eq!(services, [None, Some(store.clone())]);
    }
}

#[test]
fn version_4_has_no_journal() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    record(&log, invocation("old")).unwrap();
    log.close();
    let database = Connection::open(log.path()).unwrap();
    make_earlier(&database, 4);
    drop(database);
    let log = open(folder.path());
    record(&log, invocation("new")).unwrap();
    let killed = kill(folder.path());
    log.close();
    drop(open(killed.path()));
    for state in [folder.path(), killed.path()] {
        assert_eq!(names(state), ["old", "new"]);
    }
}

fn event_after() -> AcceptedEvent {
    event("after")
}

#[test]
fn triggers_of_version_16_do_not_say_which_change_they_passed() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let kept = |name: &str, digest: Option<&str>| KeptTrigger {
        name: name.to_owned(),
        definition: "{}".to_owned(),
        position: 3,
        feed: Some("f".to_owned()),
        digest: digest.map(str::to_owned),
    };
    block_on(log.trigger(TriggerUpdate::Put(kept("old", Some("d"))))).unwrap();
    log.close();
    let database = Connection::open(log.path()).unwrap();
    make_earlier(&database, 16);
    drop(database);

    let log = open(folder.path());
    block_on(log.trigger(TriggerUpdate::Put(kept("new", Some("d"))))).unwrap();
    assert_eq!(log.triggers().unwrap(), [kept("new", Some("d")), kept("old", None)]);
    log.close();
}

#[test]
fn a_later_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).close();
    let path = folder.path().join("meter.sqlite");
    let database = Connection::open(&path).unwrap();
    database.pragma_update(None, "user_version", schema::FORMAT.version + 1).unwrap();
    drop(database);
    let error = MeterLog::open(folder.path(), Retention::default(), Keeping::Durable)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("newer version") && error.contains("meter.sqlite"), "{error}");
}

#[test]
fn a_torn_journal_costs_no_more_than_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let wanted: Vec<String> = (0..20).map(|number| format!("x{number}")).collect();
    for name in &wanted {
        record(&log, invocation(name)).unwrap();
        barrier(&log);
    }
    let database = fs::read(folder.path().join("meter.sqlite")).unwrap();
    let journal = fs::read(folder.path().join("meter.sqlite-wal")).unwrap();
    let mut most = 0;
    for cut in (0..=journal.len()).step_by(journal.len() / 40).chain([journal.len()]) {
        let copy = tempfile::tempdir().unwrap();
        fs::write(copy.path().join("meter.sqlite"), &database).unwrap();
        fs::write(copy.path().join("meter.sqlite-wal"), &journal[..cut]).unwrap();
        let log = open(copy.path());
        let names = names(copy.path());
        assert!(wanted.starts_with(&names), "{names:?}");
        assert!(names.len() >= most, "a longer journal holds more");
        most = names.len();
        record(&log, invocation("next")).unwrap();
        log.close();
    }
    assert_eq!(most, wanted.len(), "the whole journal holds all");
}
