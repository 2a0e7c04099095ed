//! Paging, and what is kept.

use std::time::{Duration, Instant};

use super::*;

#[test]
fn pages_hold_every_row_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let wanted: Vec<String> = (0..25).map(|number| format!("x{number}")).collect();
    for name in &wanted {
        record(&log, Recorded { spans: vec![span("a"), span("b")], ..invocation(name) }).unwrap();
    }
    barrier(&log);
    let reader = reader(folder.path());
    for limit in [1, 7, 25, 26] {
        let rows = all(limit, |query| reader.invocations(query));
        assert!(rows.iter().map(|row| &row.invocation).eq(&wanted), "{limit}");
        assert_eq!(all(limit, |query| reader.spans(query)).len(), 50);
    }
    let query = Query { after: 25, ..Query::default() };
    let end = reader.invocations(&query).unwrap();
    assert_eq!((end.rows.len(), end.last, end.more), (0, 25, false));
    let other = Query { function: Some("g".to_owned()), ..Query::default() };
    assert!(reader.invocations(&other).unwrap().rows.is_empty());
}

#[test]
fn a_page_has_at_most_ten_thousand_rows() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    for _ in 0..=MAX_PAGE_ROWS {
        record(&log, invocation("x")).unwrap();
    }
    barrier(&log);
    let query = Query { limit: usize::MAX, ..Query::default() };
    let page = reader(folder.path()).invocations(&query).unwrap();
    assert_eq!((page.rows.len(), page.more), (MAX_PAGE_ROWS, true));
}

#[test]
fn long_lists_of_idle_intervals_end_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    for (name, intervals) in [("a", 4_000), ("b", 7_000), ("c", 12_000), ("d", 1)] {
        let idle = (0..intervals).map(|start| (start, start + 1)).collect();
        log.instance(Instance { idle: Some(idle), ..instance(name) });
    }
    barrier(&log);
    let reader = reader(folder.path());
    let mut query = Query::default();
    let mut pages = Vec::new();
    loop {
        let page = reader.instances(&query).unwrap();
        let row = |row: &Instance| (row.instance.to_string(), row.idle.as_ref().unwrap().len());
        pages.push(page.rows.iter().map(row).collect::<Vec<_>>());
        query.after = page.last;
        if !page.more {
            break;
        }
    }
    let row = |name: &str, intervals| vec![(name.to_owned(), intervals)];
    assert_eq!(pages, [row("a", 4_000), row("b", 7_000), row("c", 12_000), row("d", 1)]);
}

#[test]
fn the_newest_rows_are_kept_and_ids_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let log = MeterLog::open(folder.path(), Retention { rows: 1_000 }, Keeping::Durable).unwrap();
    accept(&log, event("waits"));
    log.instance(instance("lives"));
    for number in 0..20 {
        let idle = (0..1_500).map(|start| (start, start + 1)).collect();
        log.instance(Instance { idle: Some(idle), ..ended(&format!("e{number}")) });
    }
    for number in 0..5_000 {
        let name = format!("x{number}");
        record(&log, Recorded { spans: vec![span("a")], ..invocation(&name) }).unwrap();
    }
    // So many changes of instances later those above are the oldest.
    for _ in 0..1_600 {
        log.instance(instance("changes"));
    }
    barrier(&log);
    let reader = reader(folder.path());
    let left = || {
        let invocations = all(1_000, |query| reader.invocations(query));
        let spans = all(1_000, |query| reader.spans(query)).len();
        let instances = all(1_000, |query| reader.instances(query));
        let names: Vec<_> = instances.into_iter().map(|it| it.instance.to_string()).collect();
        (invocations, spans, names)
    };
    // The thread removes the last of them when it has nothing else to do.
    let began = Instant::now();
    let (invocations, spans, instances) = loop {
        let left = left();
        if (left.0.len(), left.1, left.2.len()) == (1_000, 1_000, 2) {
            break left;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{} {}", left.0.len(), left.2.len());
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!((invocations[0].invocation.as_str(), spans), ("x4000", 1_000));
    assert_eq!(instances, ["lives", "changes"]);
    assert_eq!(log.left_events().unwrap().len(), 1);
    log.close();
    let database = rusqlite::Connection::open(log.path()).unwrap();
    let intervals = "SELECT COUNT(*) FROM idle_intervals";
    assert_eq!(database.query_row(intervals, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    // Even after everything is gone an id does not come back.
    database.execute_batch("DELETE FROM invocations").unwrap();
    drop(database);
    let log = open(folder.path());
    record(&log, invocation("next")).unwrap();
    barrier(&log);
    assert_eq!(reader.invocations(&Query::default()).unwrap().last, 5_001);
}

#[test]
fn large_rows_end_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    for _ in 0..100 {
        let mut failed = invocation("x");
        failed.row.error = Some("e".repeat(256 * 1024));
        record(&log, failed).unwrap();
    }
    barrier(&log);
    let page = reader(folder.path()).invocations(&Query::default()).unwrap();
    assert_eq!((page.rows.len(), page.more), (31, true));
    let reader = reader(folder.path());
    assert_eq!(all(1_000, |query| reader.invocations(query)).len(), 100);
}

#[test]
fn a_page_of_one_function_ends_after_many_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    log.close();
    let database = rusqlite::Connection::open(log.path()).unwrap();
    database
        .execute_batch(
            "WITH RECURSIVE numbers (n) AS
                 (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 150000)
             INSERT INTO invocations (function, invocation, attempt, outcome)
             SELECT IIF(n % 60000 = 0, 'g', 'f'), n, 1, 'ok' FROM numbers",
        )
        .unwrap();
    let reader = reader(folder.path());
    let mut query = Query { function: Some("g".to_owned()), ..Query::default() };
    let page = reader.invocations(&query).unwrap();
    assert_eq!((page.rows.len(), page.last, page.more), (1, 100_000, true));
    query.after = page.last;
    let page = reader.invocations(&query).unwrap();
    assert_eq!(page.rows[0].invocation, "120000");
    assert_eq!((page.rows.len(), page.last, page.more), (1, 150_000, false));
}

#[test]
fn idle_intervals_are_merged_under_a_living_instance() {
    let folder = tempfile::tempdir().unwrap();
    let log = MeterLog::open(folder.path(), Retention { rows: 1_000 }, Keeping::Durable).unwrap();
    log.instance(instance("lives"));
    for number in 0..5_000 {
        let idle = Some(IdleInterval {
            instance: Arc::from("lives"),
            start: 10 * number,
            end: 10 * number + 1 + number % 3,
        });
        record(&log, Recorded { idle, ..invocation("x") }).unwrap();
    }
    barrier(&log);
    let reader = reader(folder.path());
    let lengths = (0..5_000).map(|number| 1 + number % 3);
    let began = Instant::now();
    loop {
        let row = reader.instances(&Query::default()).unwrap().rows.remove(0);
        let idle = row.idle.unwrap();
        let sum: i64 = idle.iter().map(|(start, end)| end - start).sum();
        assert_eq!(sum, lengths.clone().sum::<i64>());
        assert!(idle.windows(2).all(|pair| pair[0].1 <= pair[1].0), "they do not overlap");
        // The thread looks once so many rows are written.
        if idle.len() <= 1_001 + 500 {
            let merged = 5_000 - idle.len() as i64;
            assert_eq!(idle[0].1, 10 * merged + 1 + merged % 3);
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{}", idle.len());
        std::thread::sleep(Duration::from_millis(20));
    }
    // What was merged is not counted again, and goes with the instance.
    let again = Some(vec![(10, 12), (60_000, 60_001)]);
    log.instance(Instance { idle: again, ..ended("lives") });
    barrier(&log);
    let row = reader.instances(&Query::default()).unwrap().rows.remove(0);
    let sum = row.idle.unwrap().iter().map(|(start, end)| end - start).sum::<i64>();
    assert_eq!(sum, lengths.sum::<i64>() + 1);
}

#[test]
fn rows_in_memory_are_written_once_somebody_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let log = MeterLog::open(folder.path(), Retention::default(), Keeping::Memory).unwrap();
    let files = || {
        let mut lengths: Vec<_> = std::fs::read_dir(folder.path().join("journal"))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        lengths.sort_unstable();
        lengths
    };
    let empty = files();
    for number in 0..1_000 {
        record(&log, invocation(&format!("{number:03}"))).unwrap();
        log.instance(instance(&number.to_string()));
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(names(folder.path()), [""; 0]);
    assert_eq!(files(), empty);
    barrier(&log);
    assert_eq!(names(folder.path()).len(), 1_000);
    record(&log, invocation("last")).unwrap();
    log.close();
    drop(log);
    // What a worker that is stopped has is written.
    drop(open(folder.path()));
    assert_eq!(names(folder.path()).len(), 1_001);
}

#[test]
fn no_more_rows_wait_in_memory_than_there_is_room_for() {
    let folder = tempfile::tempdir().unwrap();
    let log = MeterLog::open(folder.path(), Retention::default(), Keeping::Memory).unwrap();
    for number in 0..10_000 {
        record(&log, invocation(&number.to_string())).unwrap();
    }
    // Nobody reads by way of the log.
    while names(folder.path()).len() < 8_000 {
        std::thread::sleep(Duration::from_millis(10));
    }
    barrier(&log);
    assert_eq!(names(folder.path()).len(), 10_000);
}
