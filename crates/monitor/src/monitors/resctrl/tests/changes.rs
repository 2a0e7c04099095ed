//! Groups that come and go, threads that are moved, and limits that hold meanwhile.

use super::*;

/// The folder of the only group that counts in one.
fn only(lab: &Lab, below: &str) -> String {
    let [name] = &lab.made.groups(below)[..] else { panic!("one group") };
    format!("{below}/{name}")
}

/// What the machine and those groups moved in a second.
fn moved(monitor: &mut Resctrl, at: i64) -> (Option<(Option<i64>, f64)>, u64) {
    let (rows, samples) = sample(monitor, at);
    (value(&rows, "resctrl.mbm_total_bytes", None), samples.lost)
}

#[test]
fn bytes_of_a_group_that_is_removed_are_not_taken_from_the_machine() {
    let lab = Lab::new(&[("a", "10\n")]);
    lab.made.count("", "mbm_total_bytes", ["400000", "0"]);
    let mut monitor = lab.watch(&["/a"]);
    sample(&mut monitor, 0);
    lab.made.count(&only(&lab, "mon_groups"), "mbm_total_bytes", ["5000", "0"]);
    assert_eq!(moved(&mut monitor, 1), (Some((Some(1), 5000.0)), 0));
    // The control group ends: what it moved until then is there, and then nothing goes back.
    lab.made.count(&only(&lab, "mon_groups"), "mbm_total_bytes", ["5300", "0"]);
    fs::remove_dir_all(lab.cgroups.path().join("a")).unwrap();
    lab.made.count("", "mbm_total_bytes", ["400010", "0"]);
    assert_eq!(moved(&mut monitor, 2), (Some((Some(1), 310.0)), 0));
    assert!(lab.made.groups("mon_groups").is_empty());
    lab.made.count("", "mbm_total_bytes", ["400030", "0"]);
    assert_eq!(moved(&mut monitor, 3), (Some((Some(1), 20.0)), 0));
}

#[test]
fn a_group_that_others_remove_is_a_lost_sample() {
    for more in ["400000", "900000"] {
        let lab = Lab::new(&[]);
        lab.made.fill_group("mon_groups/theirs");
        lab.made.count("", "mbm_total_bytes", ["400000", "0"]);
        lab.made.count("mon_groups/theirs", "mbm_total_bytes", ["5000", "0"]);
        let mut monitor = lab.watch(&[]);
        sample(&mut monitor, 0);
        // The machine's counter goes back, or grows by more than that.
        fs::remove_dir_all(lab.made.root().join("mon_groups/theirs")).unwrap();
        lab.made.count("", "mbm_total_bytes", [more, "0"]);
        // Two counters of two domains.
        assert_eq!(moved(&mut monitor, 1), (None, 4));
        assert_eq!(moved(&mut monitor, 2), (Some((Some(1), 0.0)), 0));
    }
    // One that has the same name again, and a value that went back for no reason that is known.
    for group in ["mon_groups/theirs", "theirs"] {
        let lab = Lab::new(&[]);
        lab.made.fill_group(group);
        lab.made.count(group, "mbm_total_bytes", ["5000", "0"]);
        let mut monitor = lab.watch(&[]);
        sample(&mut monitor, 0);
        lab.made.count(group, "mbm_total_bytes", ["10", "0"]);
        lab.made.count("", "mbm_total_bytes", ["90000", "0"]);
        assert_eq!(moved(&mut monitor, 1), (None, 1));
        assert_eq!(moved(&mut monitor, 2), (Some((Some(1), 0.0)), 0));
    }
}

#[test]
fn a_group_that_tells_no_number_is_no_part_of_that_above_it() {
    let lab = Lab::new(&[]);
    lab.made.fill_group("mon_groups/theirs");
    let mut monitor = lab.watch(&[]);
    sample(&mut monitor, 0);
    // What it had is gone from the total, and what it will have appears in it at once.
    lab.made.count("mon_groups/theirs", "mbm_total_bytes", ["Unassigned", "0"]);
    lab.made.count("", "mbm_total_bytes", ["100", "0"]);
    assert_eq!(moved(&mut monitor, 1), (None, 1));
    lab.made.count("", "mbm_total_bytes", ["120", "0"]);
    assert_eq!(moved(&mut monitor, 2), (Some((Some(1), 20.0)), 0));
    lab.made.count("mon_groups/theirs", "mbm_total_bytes", ["70", "0"]);
    assert_eq!(moved(&mut monitor, 3), (None, 1));
    lab.made.count("mon_groups/theirs", "mbm_total_bytes", ["75", "0"]);
    assert_eq!(moved(&mut monitor, 4), (Some((Some(1), 5.0)), 0));
}

#[test]
fn the_machine_has_rows_beside_a_group_that_never_tells_a_number() {
    let lab = Lab::new(&[]);
    lab.made.fill_group("mon_groups/theirs");
    for event in ["llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"] {
        lab.made.count("mon_groups/theirs", event, ["Unassigned", "Unassigned"]);
    }
    let mut monitor = lab.watch(&[]);
    let (rows, samples) = sample(&mut monitor, 0);
    assert_eq!(
        (value(&rows, "resctrl.llc_occupancy_bytes", None), samples.lost),
        (Some((None, 3000.0)), 0)
    );
    lab.made.count("", "mbm_total_bytes", ["100", "30"]);
    assert_eq!(moved(&mut monitor, 1), (Some((Some(1), 130.0)), 0));
    // It ends, and had nothing that anything has lost.
    fs::remove_dir_all(lab.made.root().join("mon_groups/theirs")).unwrap();
    lab.made.count("", "mbm_total_bytes", ["100", "40"]);
    assert_eq!(moved(&mut monitor, 2), (Some((Some(1), 10.0)), 0));
}

#[test]
fn a_sum_of_domains_is_missing_once_where_one_went_back() {
    let lab = Lab::new(&[]);
    let mut monitor = lab.watch(&[]);
    lab.made.count("", "mbm_total_bytes", ["100", "100"]);
    sample(&mut monitor, 0);
    // One domain goes back while the other is not known: later both stand above what they were together.
    lab.made.count("", "mbm_total_bytes", ["50", "Error"]);
    assert_eq!(moved(&mut monitor, 1), (None, 2));
    lab.made.count("", "mbm_total_bytes", ["150", "150"]);
    assert_eq!(moved(&mut monitor, 2), (None, 0));
    lab.made.count("", "mbm_total_bytes", ["151", "152"]);
    assert_eq!(moved(&mut monitor, 3), (Some((Some(1), 3.0)), 0));
}

#[test]
fn a_thread_that_begins_while_others_are_moved_stays_where_it_is() {
    let lab = Lab::new(&[("a", "10\n")]);
    let mut monitor = lab.watch(&["/a"]);
    sample(&mut monitor, 0);
    let threads = lab.cgroups.path().join("a/cgroup.threads");
    // As the kernel does it: in the control group and in the group of its parent at once.
    *lab.made.begins.lock().unwrap() = Some((99, threads));
    sample(&mut monitor, 1);
    assert!(lab.made.begins.lock().unwrap().is_none());
    assert_eq!(lab.made.text(&format!("{}/tasks", only(&lab, "mon_groups"))), "10\n99\n");
}

#[test]
fn threads_that_cannot_be_moved_and_those_of_other_namespaces_keep_no_others_back() {
    let lab = Lab::new(&[("a", "0\n13\n20\n")]);
    lab.made.set("tasks", "");
    let mut monitor = lab.watch(&["/a"]);
    let (_, samples) = sample(&mut monitor, 0);
    assert_eq!(lab.made.text(&format!("{}/tasks", only(&lab, "mon_groups"))), "20\n");
    assert_eq!((samples.lost, samples.warnings.len()), (1, 1), "{:?}", samples.warnings);
}

#[test]
fn limits_hold_where_no_group_is_left_that_counts() {
    let lab = Lab::new(&[("a", "10\n"), ("a/inner", "12\n")]);
    // With the root's and that with limits one is left.
    for number in 0..5 {
        lab.made.fill_group(&format!("mon_groups/theirs{number}"));
    }
    let mut monitor = lab.monitor(&["/a", "/a/inner"], json!({"ways": 2})).unwrap();
    let (rows, samples) = sample(&mut monitor, 0);
    let [ours] = &lab.made.groups("")[..] else { panic!("one group") };
    let tasks = |group: &str| lab.made.text(&format!("{group}/tasks"));
    assert!(samples.warnings[0].contains("control groups are not counted"), "{samples:?}");
    assert_eq!(
        rows.iter().filter(|it| it.1.is_some()).map(|it| &it.1).min(),
        Some(&Some("/a".into()))
    );
    assert_eq!(tasks(ours).lines().collect::<BTreeSet<_>>(), ["10", "12"].into());
    // Those of the group within it are not counted for it.
    let below = format!("{ours}/mon_groups");
    assert_eq!(tasks(&only(&lab, &below)), "10\n");
    sample(&mut monitor, 1);
    assert_eq!(tasks(&only(&lab, &below)), "10\n");
    // It is tried again.
    fs::remove_dir_all(lab.made.root().join("mon_groups/theirs0")).unwrap();
    let (rows, _) = sample(&mut monitor, 2);
    assert!(value(&rows, "resctrl.llc_occupancy_bytes", Some("/a/inner")).is_some());
    assert_eq!(lab.made.groups(&below).len(), 2);
}

#[test]
fn what_is_not_counted_for_a_group_within_another_is_not_counted_for_that() {
    let lab = Lab::new(&[("a", "10\n12\n")]);
    let mut monitor = lab.watch(&["/a", "/a/inner"]);
    sample(&mut monitor, 0);
    for number in 0..6 {
        lab.made.fill_group(&format!("mon_groups/theirs{number}"));
    }
    lab.set_threads("a", "10\n");
    lab.set_threads("a/inner", "12\n");
    sample(&mut monitor, 1);
    let ours = lab.made.groups("mon_groups");
    let ours: Vec<_> = ours.iter().filter(|it| !it.starts_with("theirs")).collect();
    assert_eq!(ours.len(), 1);
    assert_eq!(lab.made.text(&format!("mon_groups/{}/tasks", ours[0])), "10\n");
}

#[test]
fn what_is_not_limited_or_never_there_is_told() {
    let lab = Lab::new(&[("a", "10\n11\n")]);
    lab.made.fill_group("theirs");
    lab.made.set("theirs/tasks", "11\n");
    let mut monitor = lab.monitor(&["/a"], json!({"ways": 2})).unwrap();
    let (_, samples) = sample(&mut monitor, 0);
    assert!(samples.warnings[0].contains("neither counted nor limited"), "{samples:?}");
    let ended = |monitor: &mut Resctrl| {
        let mut last = Samples { now: SECOND, before: Some(0), ..Samples::default() };
        monitor.finish(&mut last);
        last.warnings
    };
    assert_eq!(ended(&mut monitor), Vec::<String>::new());
    for (limits, words) in [(Value::Null, "counted"), (json!({"ways": 2}), "counted or limited")] {
        let lab = Lab::new(&[("a", "10\n")]);
        let mut monitor = lab.monitor(&["/b", "/c/*"], limits).unwrap();
        sample(&mut monitor, 0);
        let sentence = format!("no control group is named /b or /c/*: nothing was {words}");
        assert_eq!(ended(&mut monitor), [sentence]);
    }
}

#[test]
fn a_group_with_limits_keeps_the_machines_other_limits() {
    let lab = Lab::new(&[("a", "10\n")]);
    lab.made.set("schemata", "    MB:0= 70;1=100\n    L3:0=00f;1=7ff\n");
    let schemata = |limits: Value| {
        let monitor = lab.monitor(&["/a"], limits).unwrap();
        let [ours] = &lab.made.groups("")[..] else { panic!("one group") };
        let text = lab.made.text(&format!("{ours}/schemata"));
        drop(monitor);
        text
    };
    assert_eq!(schemata(json!({"ways": 2})), "MB:0=70;1=100\nL3:0=3;1=3\n");
    assert_eq!(schemata(json!({"bandwidth_percent": 50.0})), "L3:0=00f;1=7ff\nMB:0=50;1=50\n");
}

#[test]
fn what_a_processor_does_not_count_is_told() {
    let lab = Lab::new(&[]);
    lab.made.set("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes_config\n");
    let (rows, samples) = sample(&mut lab.watch(&[]), 0);
    assert!(rows.iter().all(|it| it.0.ends_with("llc_occupancy_bytes")), "{rows:?}");
    assert_eq!(
        samples.warnings,
        ["the processor or kernel does not count mbm_total_bytes and mbm_local_bytes"]
    );
    lab.made.set("info/L3_MON/mon_features", "mbm_total_bytes_config\n");
    assert!(lab.monitor(&[], Value::Null).is_err());
}
