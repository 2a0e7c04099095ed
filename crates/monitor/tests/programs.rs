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
    let script = folder.path().join("script");
    fs::write(&script, "#!/bin/sh\necho \"$@\" >> \"$0.log\"\n[ \"$1\" = after ] || sleep 600\n")
        .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
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
