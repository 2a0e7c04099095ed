//! Changes of instances and their ids.

use std::collections::{HashMap, HashSet};

use super::*;

#[test]
fn two_hundred_crashes_leave_ids_that_grow_by_one_per_change() {
    let folder = tempfile::tempdir().unwrap();
    let mut after = 0;
    let mut changes: HashMap<String, Vec<Option<String>>> = HashMap::new();
    let mut ids = HashSet::new();
    for start in 0..200 {
        // Dropped without a word, so that its instances are left.
        let log = open(folder.path());
        log.instance(Instance { initialized: None, ..instance(&format!("a{start}")) });
        log.instance(instance(&format!("b{start}")));
        barrier(&log);
        loop {
            let page = reader(folder.path())
                .instances(&Query { after, limit: 1, ..Query::default() })
                .unwrap();
            for row in &page.rows {
                assert!(page.last > after && ids.insert(page.last));
                let reason = row.end_reason.as_deref().map(str::to_owned);
                changes.entry(row.instance.to_string()).or_default().push(reason);
            }
            after = page.last;
            if !page.more {
                break;
            }
        }
        std::mem::drop(log);
    }
    assert_eq!(changes.len(), 400);
    for (name, seen) in changes {
        let last_start = name.ends_with("199") && name.len() == 4;
        let expected = if last_start { vec![None] } else { vec![None, Some("crash".to_owned())] };
        assert_eq!(seen, expected, "{name}");
    }
    assert_eq!(after, 400 + 398, "one id per change");
}

#[test]
fn idle_intervals_come_with_the_invocations_that_end_them() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    log.instance(instance("i"));
    for start in [10, 20, 30] {
        let idle = Some(idle("i", start));
        record(&log, Recorded { idle, ..invocation("x") }).unwrap();
    }
    barrier(&log);
    let living = reader(folder.path()).instances(&Query::default()).unwrap().rows;
    assert_eq!(living[0].idle, Some(vec![(10, 11), (20, 21), (30, 31)]));
    log.instance(Instance { idle: Some(vec![(30, 31), (40, 41)]), ..ended("i") });
    // It never became ready, so that nobody knows of idle time.
    log.instance(Instance { initialized: None, ..ended("j") });
    barrier(&log);
    let rows = reader(folder.path()).instances(&Query::default()).unwrap().rows;
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].idle, Some(vec![(10, 11), (20, 21), (30, 31), (40, 41)]));
    assert_eq!((rows[1].idle.clone(), rows[0].invocations), (None, Some(0)));
}

#[test]
fn a_crash_keeps_what_is_known_and_says_what_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    log.instance(instance("i"));
    record(&log, Recorded { idle: Some(idle("i", 10)), ..invocation("x") }).unwrap();
    for name in ["i", "served"] {
        let mut served = invocation("x");
        served.row.instance = Some(Arc::from(name));
        served.row.ended = Some(if name == "i" { 5 } else { 77 });
        record(&log, served).unwrap();
    }
    log.instance(Instance { initialized: Some(20), ..instance("served") });
    let restored = Some(Arc::from("restored"));
    log.instance(Instance { initialized: Some(30), start: restored, ..instance("ready") });
    log.instance(Instance { initialized: None, ..instance("started") });
    barrier(&log);
    drop(log);
    drop(open(folder.path()));
    let rows = reader(folder.path()).instances(&Query::default()).unwrap().rows;
    // It is not known to have lived longer.
    let ends: Vec<_> = rows.iter().map(|row| (&*row.instance, row.ended.unwrap())).collect();
    assert_eq!(ends, [("i", 11), ("served", 77), ("ready", 30), ("started", 1)]);
    assert_eq!(rows[0].end_reason.as_deref(), Some("crash"));
    assert_eq!((rows[0].idle.clone(), rows[0].invocations), (Some(vec![(10, 11)]), None));
    assert_eq!((rows[2].start.as_deref(), rows[3].start.as_deref()), (Some("restored"), None));
}
