//! Programs of one's own as monitors.

#[allow(dead_code, reason = "groups are of other tests")]
mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use common::watch;
use serde_json::{Value, json};

fn shell(script: &str) -> Value {
    json!([{"monitor": "command", "name": "mine", "interval_ns": 20_000_000, "command": ["sh", "-c", script]}])
}

#[test]
fn lines_become_rows_and_scripts_run_before_and_after() {
    let folder = tempfile::tempdir().unwrap();
    let script = script(folder.path(), "[ \"$1\" = after ] || sleep 600");
    let mut monitors =
        shell("i=0; while :; do echo \"{\\\"a_count\\\": $i}\"; i=$((i+1)); sleep 0.05; done");
    monitors[0]["start"] = json!([script, "7"]);
    monitors[0]["after"] = json!([script, "after"]);
    let (rows, sentences) = watch(monitors, 400);
    assert_eq!(sentences, Vec::<String>::new());
    let values: Vec<_> =
        rows.iter().filter(|it| it.counter == "mine.a_count").map(|it| it.value).collect();
    assert!(
        values.len() >= 2 && values.iter().enumerate().all(|(at, value)| *value == at as f64),
        "{values:?}"
    );
    let log = fs::read_to_string(script.with_extension("log")).unwrap();
    assert_eq!(log, "7\nafter\n");
    // Nothing of it is left, not even the shell's children.
    std::thread::sleep(Duration::from_millis(20));
    let script_path = script.to_str().unwrap();
    let lives = fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        fs::read(entry.path().join("cmdline"))
            .is_ok_and(|text| String::from_utf8_lossy(&text).contains(script_path))
    });
    assert!(!lives);
}

/// A script that writes its arguments to a file beside it; and how it begins to run.
fn script(folder: &std::path::Path, more: &str) -> std::path::PathBuf {
    let script = folder.join("script");
    fs::write(&script, format!("#!/bin/sh\necho \"$@\" >> \"$0.log\"\n{more}\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

#[test]
fn what_was_begun_is_undone_where_the_rest_cannot_be_run() {
    let folder = tempfile::tempdir().unwrap();
    let script = script(folder.path(), "[ \"$1\" = after ] || exec sleep 600.25");
    let log = || fs::read_to_string(script.with_extension("log")).unwrap_or_default();
    let monitors = |start: &[&str]| {
        json!([{
            "monitor": "command", "start": start, "command": ["/no/such/program"],
            "after": [script.to_str().unwrap(), "after"],
        }])
    };
    let (_, sentences) = watch(monitors(&[script.to_str().unwrap(), "before"]), 300);
    assert!(sentences[0].contains("/no/such/program cannot be run"), "{sentences:?}");
    // It may be ended before it writes.
    assert!(["before\nafter\n", "after\n"].contains(&log().as_str()), "{}", log());
    let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    assert_eq!(children, "");
    // What was not begun is not undone.
    let before = log();
    watch(monitors(&["/no/such/program"]), 10);
    assert_eq!(log(), before);
}

#[test]
fn monitors_do_not_wait_for_what_others_run_after_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let script = script(folder.path(), "date +%s%N >> \"${0%/*}/began\"; exit 3");
    let monitors = json!([
        {"monitor": "command", "name": "first", "after": [script, "first"]},
        {"monitor": "command", "name": "second", "after": [script, "second"]},
        {"monitor": "machine", "interval_ns": 10_000_000},
    ]);
    let (rows, sentences) = watch(monitors, 300);
    let last = rows.iter().map(|it| it.time).max().unwrap();
    let began = fs::read_to_string(folder.path().join("began")).unwrap();
    let began: i64 = began.lines().next().unwrap().parse().unwrap();
    assert!(last <= began, "{last} is after {began}");
    assert_eq!(fs::read_to_string(script.with_extension("log")).unwrap(), "first\nsecond\n");
    assert_eq!(sentences.iter().filter(|it| it.contains("failed: exit status: 3")).count(), 2);
}

#[test]
fn a_program_of_the_beginning_that_fails_is_told() {
    let monitors = json!([{"monitor": "command", "start": ["sh", "-c", "exit 3"]}]);
    let (_, sentences) = watch(monitors, 2_000);
    assert_eq!(sentences, ["sh failed: exit code 3"]);
    let monitors = json!([{"monitor": "command", "start": ["true"]}]);
    assert_eq!(watch(monitors, 300).1, Vec::<String>::new());
}

#[test]
fn programs_that_hang_flood_or_print_garbage_are_told() {
    let (rows, sentences) = watch(shell("exec sleep 600"), 100);
    assert_eq!(sentences, ["sh printed nothing that could be read"]);
    assert!(rows.iter().all(|it| it.counter.starts_with("monitor.")));

    let (rows, sentences) = watch(shell("printf 'a\\000b\\nb\\nc\\nd\\n{\"x_count\": 1}\\n'"), 300);
    assert_eq!(rows.iter().filter(|it| it.counter == "mine.x_count").count(), 1);
    assert_eq!(common::sum(&rows, "monitor.lost_count", None), 4.0);
    assert_eq!(
        sentences.iter().filter(|it| it.contains("not understood")).count(),
        3,
        "{sentences:?}"
    );
    assert!(sentences.iter().any(|it| it.contains("ended early")), "{sentences:?}");

    let mut flood = shell("exec yes '{\"x_count\": 1}'");
    flood[0]["interval_ns"] = json!(100_000_000);
    let (rows, _) = watch(flood, 150);
    let read = rows.iter().filter(|it| it.counter == "mine.x_count").count();
    assert!(read > 0 && common::sum(&rows, "monitor.lost_count", None) > 0.0);
    // What the program used is the monitor's.
    assert!(common::sum(&rows, "monitor.cpu_ns", None) > 0.0);

    let absent = json!([{"monitor": "command", "command": ["/no/such/program"]}]);
    let (rows, sentences) = watch(absent, 10);
    assert!(
        rows.is_empty() && sentences[0].contains("/no/such/program cannot be run"),
        "{sentences:?}"
    );
}

#[test]
fn a_budget_lengthens_the_interval() {
    let monitors = json!([{"monitor": "machine", "interval_ns": 1_000_000, "budget": 0.000_1}]);
    let (rows, sentences) = watch(monitors, 1_300);
    let intervals: Vec<_> =
        rows.iter().filter(|it| it.counter == "monitor.interval_ns").map(|it| it.value).collect();
    assert!(intervals.iter().all(|it| *it > 1_000_000.0) && !intervals.is_empty(), "{intervals:?}");
    assert!(sentences[0].contains("more than its budget of 0.0 %"), "{sentences:?}");
}
