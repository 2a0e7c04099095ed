use super::*;

/// The monitor beside a program that answers as that of BPF does.
fn started(command: &mut Command, groups: Watched<()>) -> Schedule {
    Schedule {
        watcher: Watcher::start(command).unwrap(),
        groups,
        has_patterns: true,
        limit: Duration::from_secs(60),
        is_late: false,
        before: None,
        notes: Vec::new(),
        has_failed: false,
    }
}

#[test]
fn groups_are_within_others_by_their_paths() {
    assert!(is_within("/a/b", "/a"));
    assert!(is_within("/a", "/a"));
    assert!(is_within("/a", "/"));
    assert!(is_within("/", "/"));
    assert!(!is_within("/ab", "/a"));
    assert!(!is_within("/a", "/a/b"));
}

const SLOW: &str = r#"
    answer() {
        echo '{"now": '$1', "cpu_ns": 0, "lost": 0, "events": 9, "groups":
            [{"path": null, "is_gone": true, "on_cpu_ns": 500, "queued_ns": 0, "waits": 3,
              "waited_ns": 30, "involuntary": 0, "bins": [[16, 3]]}]}' | tr -d '\n'
        echo
    }
    read line; answer 1000
    read line
    while [ ! -e "$0" ]; do sleep 0.01; done
    answer 2000
    read line; answer 3000
    read line"#;

#[test]
fn a_late_answer_is_a_lost_sample_and_comes_with_a_later_one() {
    let key = std::process::id();
    let go = env::temp_dir().join(format!("uncia-schedule-late-{key}"));
    let _ = std::fs::remove_file(&go);
    let mut command = Command::new("sh");
    command.arg("-c").arg(SLOW).arg(&go);
    let mut schedule = started(&mut command, Watched::new(&[]).unwrap());
    let sample = |schedule: &mut Schedule| {
        let mut samples = Samples::default();
        schedule.sample(&mut samples);
        (samples.rows.len(), samples.lost, samples.warnings)
    };
    assert_eq!(sample(&mut schedule), (0, 0, vec![]));
    schedule.limit = Duration::from_millis(20);
    let why = "sh did not answer within 20 ms: what it counts comes with a later sample";
    assert_eq!(sample(&mut schedule), (0, 1, vec![why.to_owned()]));
    assert_eq!(sample(&mut schedule), (0, 1, vec![]));
    std::fs::write(&go, "").unwrap();
    let mut samples = Samples::default();
    schedule.finish(&mut samples);
    std::fs::remove_file(&go).unwrap();
    let cpu = samples.rows.iter().filter(|row| row.counter.to_string() == "schedule.cpu_ns");
    let cpu: Vec<_> = cpu.map(|row| (row.at, row.interval, row.value)).collect();
    let expected = [2000, 3000].map(|at| (Some(at), Some(1000), 500.0));
    assert_eq!((cpu.as_slice(), samples.warnings), (expected.as_slice(), vec![]));
    // Of a group whose path nobody knows, three waits in each.
    assert_eq!(samples.lost, 6);
}

#[test]
fn counts_are_those_of_a_group_and_of_all_within() {
    let look = r#"{"now": 2000, "cpu_ns": 5, "lost": 1, "events": 9, "groups": [
        {"path": "/a", "is_gone": false, "on_cpu_ns": 500, "queued_ns": 250, "waits": 2, "waited_ns": 30,
         "involuntary": 1, "bins": [[16, 2]]},
        {"path": "/a/b", "is_gone": false, "on_cpu_ns": 500, "queued_ns": 0, "waits": 1, "waited_ns": 12,
         "involuntary": 0, "bins": [[12, 1]]},
        {"path": null, "is_gone": false, "on_cpu_ns": 1000, "queued_ns": 0, "waits": 0, "waited_ns": 0,
         "involuntary": 4, "bins": []}]}"#;
    let look: Look = serde_json::from_str(look).unwrap();
    let at = Moment { now: look.now, interval: 1_000 };
    let mut samples = Samples::default();
    let mut of = |group: &str| {
        let mut sum = Sum::default();
        let paths = look.groups.iter().filter(|it| match &it.path {
            Some(path) => is_within(path, group),
            None => group == "/",
        });
        paths.for_each(|it| sum.add(&it.counts));
        at.push_all(None, sum, &mut samples);
        let rows = samples.rows.drain(..);
        rows.map(|row| (row.counter.to_string(), row.value)).collect::<Vec<_>>()
    };
    let rows = of("/a");
    let expected = [
        ("schedule.running_threads", 1.0),
        ("schedule.runnable_threads", 1.25),
        ("schedule.cpu_ns", 1000.0),
        ("schedule.wait_ns", 42.0),
        ("schedule.wait_count", 3.0),
        ("schedule.involuntary_switches_count", 1.0),
        ("schedule.wait_within_12ns_count", 1.0),
        ("schedule.wait_within_16ns_count", 2.0),
    ];
    assert_eq!(rows, expected.map(|(counter, value)| (counter.to_owned(), value)));
    assert_eq!(of("/").first(), Some(&("schedule.running_threads".to_owned(), 2.0)));
}

const GONE: &str = r#"
    answer() {
        echo '{"now": '$1', "cpu_ns": 0, "lost": 0, "events": 9, "groups":
            [{"path": "/gone", "is_gone": false, "on_cpu_ns": '$2', "queued_ns": 0, "waits": 1,
              "waited_ns": 30, "involuntary": 0, "bins": [[16, 1]]},
             {"path": "/unseen/inner", "is_gone": false, "on_cpu_ns": '$3', "queued_ns": 0, "waits": 1,
              "waited_ns": 30, "involuntary": 0, "bins": [[16, 1]]}]}' | tr -d '\n'
        echo
    }
    read line; answer 1000 1 1
    read line; answer 2000 500 200
    read line; echo '{"now": 3000, "cpu_ns": 0, "lost": 0, "events": 0, "groups": []}'
    read line"#;

#[test]
fn groups_that_have_ended_have_rows_of_their_last_interval() {
    let tree = tempfile::tempdir().unwrap();
    std::fs::create_dir(tree.path().join("gone")).unwrap();
    let mut command = Command::new("sh");
    command.arg("-c").arg(GONE);
    let mut schedule = started(&mut command, Watched::in_tree(tree.path(), &["/*"]));
    let mut sample = || {
        let mut samples = Samples::default();
        schedule.sample(&mut samples);
        assert_eq!((samples.lost, samples.warnings), (0, vec![]));
        let rows = samples.rows.into_iter().filter(|row| &*row.counter == "schedule.cpu_ns");
        let of_groups = rows.filter_map(|row| Some((row.group?.to_string(), row.value)));
        of_groups.collect::<Vec<_>>()
    };
    assert_eq!(sample(), []);
    std::fs::remove_dir(tree.path().join("gone")).unwrap();
    assert_eq!(sample(), [("/gone".to_owned(), 500.0), ("/unseen".to_owned(), 200.0)]);
    assert_eq!(sample(), []);
}
