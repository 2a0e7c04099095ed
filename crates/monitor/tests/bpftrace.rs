//! Programs of bpftrace as monitors, where it is installed and may run.

#[allow(dead_code, reason = "groups are of other tests")]
mod common;

use std::fs;
use std::process::Command;

use common::{Row, sum, watch};
use serde_json::{Value, json};

/// Whether bpftrace runs programs here; else says why not.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn is_there() -> bool {
    match Command::new("bpftrace").args(["-e", "BEGIN { exit(); }"]).output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => {
            eprintln!(
                "skipped: bpftrace does not run: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Err(error) => eprintln!("skipped: bpftrace is not installed: {error}"),
    }
    false
}

fn program(text: &str) -> Value {
    json!([{
        "monitor": "bpftrace", "name": "mine", "interval_ns": 50_000_000, "program": text, "file": "mine.bt",
    }])
}

fn values(rows: &[Row], counter: &str) -> Vec<f64> {
    rows.iter().filter(|it| it.counter == counter).map(|it| it.value).collect()
}

#[test]
fn maps_become_rows_while_the_program_runs() {
    if !is_there() {
        return;
    }
    let text = "BEGIN { @last_ns = 7; } interval:ms:10 { @ticks = count(); @by[cpu] = count(); @size_bytes = hist(4096); \
                @start[1] = nsecs; delete(@start[1]); @text = comm; }";
    let (rows, sentences) = watch(program(text), 1_500);
    assert_eq!(sentences, Vec::<String>::new());
    let ticks = values(&rows, "mine.ticks_count");
    assert!(ticks.len() >= 3, "{ticks:?}");
    let all: f64 = ticks.iter().sum();
    assert!(all > 10.0, "{ticks:?}");
    // Each is added in the same run of the program.
    assert_eq!(sum(&rows, "mine.by_count", None), all);
    assert_eq!(sum(&rows, "mine.size_count", None), all);
    assert_eq!(sum(&rows, "mine.size_within_8191bytes_count", None), all);
    assert!(values(&rows, "mine.last_ns").iter().all(|it| *it == 7.0));
    assert_eq!(values(&rows, "mine.attach_ns").len(), 1);
    assert!(rows.iter().all(|it| !it.counter.contains("start") && !it.counter.contains("text")));
    assert!(sum(&rows, "monitor.cpu_ns", None) > 0.0);
}

#[test]
fn what_the_program_prints_is_kept_and_its_end_told() {
    if !is_there() {
        return;
    }
    let text = "BEGIN { printf(\"Tracing...\\n\"); } interval:ms:20 { @n = count(); } \
                interval:ms:100 { print(@n); clear(@n); printf(\"{\\\"x_count\\\": 3}\\n\"); } interval:ms:450 { exit(); }";
    let (rows, sentences) = watch(program(text), 1_500);
    assert!(values(&rows, "mine.x_count").len() >= 2);
    assert!(values(&rows, "mine.n_count").iter().all(|it| *it < 30.0));
    assert!(sentences.iter().any(|it| it.contains("bpftrace has ended early")), "{sentences:?}");
}

#[test]
fn mistakes_of_the_program_are_told_in_bpftraces_words() {
    if !is_there() {
        return;
    }
    for (text, words) in [
        (
            "BEGIN { foo(); }",
            "bpftrace does not run mine.bt: mine.bt:1:9-12: ERROR: Unknown function: foo",
        ),
        ("BEGIN { @a = ", "syntax error"),
        ("tracepoint:none:such { @a = count(); }", "tracepoint not found: none:such"),
    ] {
        let (rows, sentences) = watch(program(text), 100);
        assert!(rows.is_empty());
        assert!(sentences.len() == 1 && sentences[0].contains(words), "{sentences:?}");
        assert!(
            !sentences[0].contains("RLIMIT_MEMLOCK") && !sentences[0].contains("not supported")
        );
    }
}

#[test]
fn nothing_of_it_is_left() {
    if !is_there() {
        return;
    }
    let mark = format!("{}0", std::process::id());
    let (rows, _) = watch(program(&format!("interval:ms:50 {{ @a_{mark} = count(); }}")), 300);
    assert!(rows.iter().any(|it| it.counter.contains(&mark)));
    let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    assert_eq!(children, "");
}
