//! Against a made-up file system.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::resctrl::made::MadeUp;

mod changes;

const SECOND: i64 = 1_000_000_000;

/// A machine with control groups, and a monitor of them.
struct Lab {
    made: Arc<MadeUp>,
    cgroups: TempDir,
}

/// Counter, group, interval in s, value.
type Row = (String, Option<String>, Option<i64>, f64);

impl Lab {
    fn new(cgroups: &[(&str, &str)]) -> Self {
        let lab = Self { made: MadeUp::new(), cgroups: tempfile::tempdir().unwrap() };
        for (path, threads) in cgroups {
            lab.set_threads(path, threads);
        }
        lab
    }

    fn set_threads(&self, cgroup: &str, threads: &str) {
        let folder = self.cgroups.path().join(cgroup);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cgroup.threads"), threads).unwrap();
    }

    fn monitor(&self, patterns: &[&str], limits: Value) -> Result<Resctrl, String> {
        let asked: Asked =
            serde_json::from_value(json!({"monitor": "resctrl", "limits": limits})).unwrap();
        let groups = Watched::in_tree(self.cgroups.path(), patterns);
        let patterns = patterns.iter().map(|&it| it.to_owned()).collect();
        Resctrl::with(self.made.tree(), &asked, groups, patterns)
    }

    fn watch(&self, patterns: &[&str]) -> Resctrl {
        self.monitor(patterns, Value::Null).unwrap()
    }

    /// Paths of groups that were made in the root or to count.
    fn left(&self) -> Vec<String> {
        [self.made.groups(""), self.made.groups("mon_groups")].concat()
    }
}

/// What a monitor reads after so many seconds; the first time after 0.
fn sample(monitor: &mut Resctrl, at: i64) -> (Vec<Row>, Samples) {
    let before = (at > 0).then_some((at - 1) * SECOND);
    let mut samples = Samples { now: at * SECOND, before, ..Samples::default() };
    monitor.sample(&mut samples);
    let rows = samples.rows.iter().map(|it| {
        let group = it.group.as_ref().map(ToString::to_string);
        (it.counter.to_string(), group, it.interval.map(|ns| ns / SECOND), it.value)
    });
    (rows.collect(), samples)
}

fn value(rows: &[Row], counter: &str, group: Option<&str>) -> Option<(Option<i64>, f64)> {
    let row = rows.iter().find(|it| it.0 == counter && it.1.as_deref() == group)?;
    Some((row.2, row.3))
}

#[test]
fn the_machine_and_control_groups_have_rows_by_domain_and_together() {
    let lab = Lab::new(&[("a", "10\n11\n"), ("b", "20\n")]);
    let mut monitor = lab.watch(&["/*"]);
    let (rows, samples) = sample(&mut monitor, 0);
    assert_eq!((samples.lost, samples.warnings.len()), (0, 0), "{:?}", samples.warnings);
    let occupied = |rows: &[Row], group| value(rows, "resctrl.llc_occupancy_bytes", group);
    assert_eq!(occupied(&rows, None), Some((None, 3000.0)));
    assert_eq!(occupied(&rows, Some("/a")), Some((None, 3000.0)));
    assert_eq!(value(&rows, "resctrl.l3_01.llc_occupancy_bytes", None), Some((None, 2000.0)));
    // Since when counters grew is not known yet.
    assert!(rows.iter().all(|it| !it.0.contains("mbm")));

    let groups = lab.made.groups("mon_groups");
    assert_eq!(groups.len(), 2);
    let of_a =
        groups.iter().find(|it| lab.made.text(&format!("mon_groups/{it}/tasks")) == "10\n11\n");
    let of_a = format!("mon_groups/{}", of_a.unwrap());
    lab.made.count(&of_a, "mbm_total_bytes", ["500", "70"]);
    lab.made.count("", "mbm_total_bytes", ["900", "100"]);
    let (rows, _) = sample(&mut monitor, 1);
    let moved = |group| value(&rows, "resctrl.mbm_total_bytes", group);
    assert_eq!(moved(Some("/a")), Some((Some(1), 570.0)));
    assert_eq!(moved(Some("/b")), Some((Some(1), 0.0)));
    // Of the root itself 1000, and what counts in it.
    assert_eq!(moved(None), Some((Some(1), 1570.0)));
    assert_eq!(value(&rows, "resctrl.l3_00.mbm_total_bytes", Some("/a")), Some((Some(1), 500.0)));

    let mut last = Samples { now: 2 * SECOND, before: Some(SECOND), ..Samples::default() };
    monitor.finish(&mut last);
    assert!(!last.rows.is_empty() && last.warnings.is_empty());
    assert_eq!(lab.left(), Vec::<String>::new());
}

#[test]
fn what_is_no_number_is_a_lost_sample_and_never_0() {
    for wrong in ["Unavailable", "Error", "Unassigned", "", "-5", "1 2", "9999999999999999999999"] {
        let lab = Lab::new(&[]);
        let mut monitor = lab.watch(&[]);
        sample(&mut monitor, 0);
        lab.made.count("", "mbm_local_bytes", ["50", "60"]);
        lab.made.set("mon_data/mon_L3_00/mbm_local_bytes", wrong);
        lab.made.set("mon_data/mon_L3_00/llc_occupancy", wrong);
        let (rows, samples) = sample(&mut monitor, 1);
        assert_eq!(samples.lost, 2, "{wrong}");
        // The other domain has its rows, and there is no sum.
        assert_eq!(value(&rows, "resctrl.l3_01.llc_occupancy_bytes", None), Some((None, 2000.0)));
        for counter in ["llc_occupancy_bytes", "mbm_local_bytes"] {
            assert_eq!(value(&rows, &format!("resctrl.{counter}"), None), None, "{wrong}");
            assert_eq!(value(&rows, &format!("resctrl.l3_00.{counter}"), None), None, "{wrong}");
        }
        // What it grew by meanwhile comes with the next, of the longer time.
        lab.made.count("", "mbm_local_bytes", ["80", "60"]);
        let (rows, _) = sample(&mut monitor, 2);
        assert_eq!(value(&rows, "resctrl.l3_00.mbm_local_bytes", None), Some((Some(2), 80.0)));
        assert_eq!(value(&rows, "resctrl.l3_01.mbm_local_bytes", None), Some((Some(1), 0.0)));
        // So do all domains together, of the time since all of them were known.
        assert_eq!(value(&rows, "resctrl.mbm_local_bytes", None), Some((Some(2), 140.0)));
    }
}

#[test]
fn files_that_are_missing_or_malformed_stop_nothing() {
    let lab = Lab::new(&[("a", "10\nx\n")]);
    lab.made.set("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes_config\nnew_event\n");
    lab.made.set("mon_data/mon_L3_00/mon_sub_L3_00/llc_occupancy", "7");
    lab.made.set("mon_data/mon_L2_00/llc_occupancy", "7");
    fs::remove_file(lab.made.root().join("mon_data/mon_L3_01/llc_occupancy")).unwrap();
    let mut monitor = lab.watch(&["/a"]);
    let (rows, samples) = sample(&mut monitor, 0);
    assert_eq!(samples.lost, 1);
    assert_eq!(value(&rows, "resctrl.l3_00.llc_occupancy_bytes", None), Some((None, 1000.0)));
    assert!(rows.iter().all(|it| it.0.ends_with("llc_occupancy_bytes")), "{rows:?}");

    lab.made.set("info/L3_MON/mon_features", "");
    let why = lab.monitor(&["/a"], Value::Null).err().unwrap();
    assert!(why.contains("no CMT or MBM: no info/L3_MON"), "{why}");
}

#[test]
fn threads_follow_their_control_group() {
    let lab = Lab::new(&[("a", "10\n"), ("a/inner", "12\n"), ("b", "")]);
    let mut monitor = lab.watch(&["/*"]);
    sample(&mut monitor, 0);
    let tasks = |at: &str| {
        let groups = lab.made.groups("mon_groups");
        let of = groups.iter().map(|it| lab.made.text(&format!("mon_groups/{it}/tasks")));
        of.filter(|text| text.contains(at)).collect::<Vec<_>>()
    };
    // Those of groups within it, too.
    assert_eq!(tasks("10"), ["10\n12\n"]);
    // One began, one joined another group, one has ended before it could be moved.
    lab.set_threads("a", "10\n15\n666\n");
    lab.set_threads("a/inner", "");
    lab.set_threads("b", "12\n");
    let (_, samples) = sample(&mut monitor, 1);
    assert_eq!((tasks("10"), tasks("12")), (vec!["10\n15\n".to_owned()], vec!["12\n".to_owned()]));
    assert!(samples.warnings.is_empty(), "{:?}", samples.warnings);
    // One went where nobody looks.
    lab.set_threads("b", "");
    sample(&mut monitor, 2);
    assert!(tasks("12").is_empty() && lab.made.text("tasks").contains("12\n"));
}

#[test]
fn a_control_group_that_is_watched_itself_is_not_part_of_another() {
    let lab = Lab::new(&[("a", "10\n"), ("a/inner", "12\n")]);
    let mut monitor = lab.watch(&["/a", "/a/inner"]);
    sample(&mut monitor, 0);
    let groups = lab.made.groups("mon_groups");
    let mut tasks: Vec<_> =
        groups.iter().map(|it| lab.made.text(&format!("mon_groups/{it}/tasks"))).collect();
    tasks.sort();
    assert_eq!(tasks, ["10\n", "12\n"]);
}

#[test]
fn groups_that_vanish_cost_their_rows() {
    let lab = Lab::new(&[("a", "10\n"), ("b", "20\n")]);
    lab.made.fill_group("theirs");
    let mut monitor = lab.watch(&["/*"]);
    let (rows, _) = sample(&mut monitor, 0);
    assert_eq!(value(&rows, "resctrl.llc_occupancy_bytes", None), Some((None, 6000.0)));
    // Somebody removed ours, another program its group, and a control group is gone.
    let gone = lab.made.groups("mon_groups");
    for name in &gone {
        fs::remove_dir_all(lab.made.root().join("mon_groups").join(name)).unwrap();
    }
    fs::remove_dir_all(lab.made.root().join("theirs")).unwrap();
    fs::remove_dir_all(lab.cgroups.path().join("b")).unwrap();
    let (rows, samples) = sample(&mut monitor, 1);
    assert_eq!(value(&rows, "resctrl.llc_occupancy_bytes", None), Some((None, 3000.0)));
    assert!(rows.iter().all(|it| it.1.is_none()));
    assert!(samples.lost >= 1);
    assert!(
        samples.warnings[0].starts_with("threads of /a cannot be moved"),
        "{:?}",
        samples.warnings
    );
    // It is not repeated.
    assert!(sample(&mut monitor, 2).1.warnings.is_empty());
}

#[test]
fn groups_of_others_and_their_tasks_are_left_alone() {
    let lab = Lab::new(&[("a", "10\n11\n12\n")]);
    lab.made.fill_group("theirs");
    lab.made.set("theirs/tasks", "11\n");
    lab.made.set("theirs/notes.txt", "keep");
    lab.made.fill_group("mon_groups/theirs-too");
    lab.made.set("mon_groups/theirs-too/tasks", "12\n");
    let mut monitor = lab.watch(&["/a"]);
    let (_, samples) = sample(&mut monitor, 0);
    assert_eq!((samples.lost, samples.warnings.len()), (1, 1));
    assert!(
        samples.warnings[0]
            .contains("threads of /a are in groups of resctrl that others have made")
    );
    assert_eq!(lab.made.text("theirs/tasks"), "11\n");
    assert_eq!(lab.made.text("mon_groups/theirs-too/tasks"), "12\n");
    drop(monitor);
    assert_eq!(lab.left(), ["theirs", "theirs-too"]);
    assert_eq!(lab.made.text("theirs/notes.txt"), "keep");
}

#[test]
fn limits_hold_for_the_threads_of_control_groups() {
    let lab = Lab::new(&[("a", "10\n")]);
    let root = lab.made.text("schemata");
    let mut monitor =
        lab.monitor(&["/a"], json!({"llc_bytes": 4 << 20, "bandwidth_percent": 50.0})).unwrap();
    let (rows, samples) = sample(&mut monitor, 0);
    assert!(samples.warnings.is_empty(), "{:?}", samples.warnings);
    let [ours] = &lab.made.groups("")[..] else { panic!("one group") };
    assert_eq!(lab.made.text(&format!("{ours}/schemata")), "L3:0=f;1=f\nMB:0=50;1=50\n");
    assert_eq!(lab.made.text(&format!("{ours}/tasks")), "10\n");
    let [counting] = &lab.made.groups(&format!("{ours}/mon_groups"))[..] else {
        panic!("one group")
    };
    assert_eq!(lab.made.text(&format!("{ours}/mon_groups/{counting}/tasks")), "10\n");
    let mib = 1024.0 * 1024.0;
    assert_eq!(value(&rows, "resctrl.llc_limit_bytes", None), Some((None, 8.0 * mib)));
    assert_eq!(value(&rows, "resctrl.l3_01.llc_limit_bytes", None), Some((None, 4.0 * mib)));
    assert_eq!(value(&rows, "resctrl.bandwidth_limit_percent", None), Some((None, 50.0)));
    // The machine is all groups with limits.
    assert_eq!(value(&rows, "resctrl.llc_occupancy_bytes", None), Some((None, 6000.0)));
    let (rows, _) = sample(&mut monitor, 1);
    assert_eq!(value(&rows, "resctrl.llc_limit_bytes", None), None);
    let mut last = Samples { now: 2 * SECOND, before: Some(SECOND), ..Samples::default() };
    monitor.finish(&mut last);
    assert_eq!(last.warnings, Vec::<String>::new());
    assert_eq!((lab.left(), lab.made.text("schemata")), (vec![], root));
}

#[test]
fn limits_work_without_counting() {
    let lab = Lab::new(&[("a", "10\n")]);
    lab.made.set("info/L3_MON/mon_features", "");
    let mut monitor = lab.monitor(&["/a"], json!({"ways": 2})).unwrap();
    let (rows, samples) = sample(&mut monitor, 0);
    let [ours] = &lab.made.groups("")[..] else { panic!("one group") };
    assert_eq!(lab.made.text(&format!("{ours}/tasks")), "10\n");
    assert!(rows.iter().all(|it| it.0.contains("limit")), "{rows:?}");
    assert!(samples.warnings[0].contains("rows of limits alone"), "{:?}", samples.warnings);
    drop(monitor);
    assert_eq!(lab.left(), Vec::<String>::new());
}

#[test]
fn limits_that_cannot_be_are_a_sentence_and_leave_nothing() {
    let lab = Lab::new(&[("a", "10\n")]);
    let refused = |limits: Value| {
        let why = lab.monitor(&["/a"], limits).err().unwrap();
        assert_eq!(lab.left(), Vec::<String>::new(), "{why}");
        assert!(why.starts_with("limits cannot be set: "), "{why}");
        why
    };
    assert!(refused(json!({"llc_bytes": 64 << 20})).contains("out of range"));
    assert!(refused(json!({"ways": 1})).contains("a limit at least 2"));
    assert!(refused(json!({"mask": "f00000"})).contains("its mask is 7ff"));
    assert!(refused(json!({"bandwidth_percent": 45.0})).contains("in steps of 10 %"));
    lab.made.set("info/L3/bit_usage", "0=SSSSSSSSSSS;1=EEEEEEEEEES\n");
    assert!(refused(json!({"ways": 2})).contains("no 2 ways of the last-level cache 1"));
    lab.made.set("info/L3/bit_usage", "nonsense\n");
    lab.made.refuses_schemata.store(true, Ordering::Relaxed);
    assert!(refused(json!({"ways": 2})).contains("(overlaps with exclusive group)"));
    lab.made.refuses_schemata.store(false, Ordering::Relaxed);
    lab.made.ignores_schemata.store(true, Ordering::Relaxed);
    assert!(refused(json!({"ways": 2})).contains("holds instead"));
    for schemata in ["    MB:0=2048;1=2048\n    L3:0=7ff;1=7ff\n", "MB:0=4294967295\nL3:0=7ff\n"] {
        lab.made.set("schemata", schemata);
        assert!(
            refused(json!({"bandwidth_percent": 50.0})).contains("not limited in per cent here")
        );
    }
    for broken in ["", "L3:0=xyz\n", "L3:7ff\n"] {
        lab.made.set("schemata", broken);
        assert!(refused(json!({"ways": 2})).contains("no CAT"), "{broken}");
    }
}

#[test]
fn a_machine_that_has_no_more_groups_says_so() {
    let lab = Lab::new(&[("a", "10\n"), ("b", "20\n")]);
    lab.made.fill_group("theirs");
    lab.made.fill_group("theirs-too");
    // The smallest number of all resources counts: 3, with the root.
    let why = lab.monitor(&["/*"], json!({"ways": 2})).err().unwrap();
    assert!(why.contains("all 3 groups with limits") && why.contains("(num_closids)"), "{why}");
    // Another program was faster than what was read of it.
    lab.made.set("info/MB/num_closids", "9\n");
    lab.made.set("info/L3/num_closids", "9\n");
    let why = lab.monitor(&["/*"], json!({"ways": 2})).err().unwrap();
    assert!(why.contains("no group can be made") && why.contains("(Out of CLOSIDs)"), "{why}");
    for number in 0..4 {
        lab.made.fill_group(&format!("mon_groups/theirs{number}"));
    }
    // One is left: one of the two control groups has rows.
    let mut monitor = lab.watch(&["/*"]);
    let (rows, samples) = sample(&mut monitor, 0);
    assert_eq!(rows.iter().filter(|it| it.0 == "resctrl.llc_occupancy_bytes").count(), 2);
    assert_eq!((samples.lost, samples.warnings.len()), (1, 1), "{:?}", samples.warnings);
    assert!(samples.warnings[0].contains("(Out of RMIDs)"), "{:?}", samples.warnings);
    assert!(sample(&mut monitor, 1).1.warnings.is_empty());
    // It is tried again.
    fs::remove_dir_all(lab.made.root().join("mon_groups/theirs0")).unwrap();
    let (rows, _) = sample(&mut monitor, 2);
    assert_eq!(rows.iter().filter(|it| it.0 == "resctrl.llc_occupancy_bytes").count(), 3);
}

#[test]
fn nothing_is_left_after_an_error() {
    let lab = Lab::new(&[("a", "10\n")]);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut monitor = lab.monitor(&["/a"], json!({"ways": 2})).unwrap();
        sample(&mut monitor, 0);
        assert_eq!(lab.left().len(), 1);
        panic!("in the midst of a run");
    }));
    assert!(panicked.is_err());
    assert_eq!(lab.left(), Vec::<String>::new());
}

#[test]
fn what_an_earlier_run_left_is_removed_and_what_lives_is_not() {
    let lab = Lab::new(&[]);
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let own = uncia_cgroup::own_name_with("uncia-monitor-");
    let namespace = own.split('-').nth(4).unwrap();
    let dead = format!("uncia-monitor-{pid}-1-{namespace}-0");
    for group in
        [dead.clone(), format!("mon_groups/{dead}"), own.clone(), "uncia-monitor-mine".into()]
    {
        lab.made.fill_group(&group);
    }
    lab.made.fill_group(&format!("{dead}/mon_groups/{dead}"));
    let seen = lab.made.tree().left(false);
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|it| it.removed.is_none()) && lab.left().len() == 4);
    let mut monitor = lab.watch(&[]);
    assert_eq!(lab.left(), [own, "uncia-monitor-mine".to_owned()]);
    let (_, samples) = sample(&mut monitor, 0);
    assert_eq!(samples.warnings.len(), 2);
    assert!(
        samples.warnings.iter().all(|it| it.contains("which an earlier run left, was removed"))
    );
}
