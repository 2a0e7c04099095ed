//! Paging, and what is kept.

use std::time::{Duration, Instant};

use super::*;

#[test]
fn pages_hold_every_row_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let wanted: Vec<String> = (0..25).map(|number| format!("x{number}")).collect();
    for name in &wanted {
        log.invocation(Recorded { spans: vec![span("a"), span("b")], ..invocation(name) }, |_| {});
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
        log.invocation(invocation("x"), |_| {});
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
    let log = MeterLog::open(folder.path(), Retention { rows: 1_000 }).unwrap();
    accept(&log, event("waits"));
    log.instance(instance("lives"));
    for number in 0..20 {
        let idle = (0..1_500).map(|start| (start, start + 1)).collect();
        log.instance(Instance { idle: Some(idle), ..ended(&format!("e{number}")) });
    }
    for number in 0..5_000 {
        let name = format!("x{number}");
        log.invocation(Recorded { spans: vec![span("a")], ..invocation(&name) }, |_| {});
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
    // The thread removes them when it has nothing else to do.
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
    assert_eq!(reader.invocations(&Query::default()).unwrap().last, 5_001);
}
