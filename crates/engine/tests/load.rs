//! `uncia-engine load` as a process: signals, crashes, exit codes.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use serde_json::{Value, json};

const SECOND: i64 = 1_000_000_000;

/// Answers every request with `hello`, on threads that end with the test process.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(&stream);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|size| size > 0) {
                    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
                    if line == "\r\n" && (&stream).write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                    line.clear();
                }
            });
        }
    });
    address
}

fn config(folder: &Path, address: SocketAddr) -> Value {
    json!({
        "run": "test", "out": folder.join("rows.arrows"), "seed": 1,
        "streams": [{
            "function": "hello",
            "targets": [{"function": "hello", "url": format!("http://{address}/")}],
            "arrivals": {"kind": "constant", "rate_per_s": 200, "duration_ns": 600 * SECOND},
        }],
    })
}

fn start(config: &str) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_uncia-engine"))
        .args(["load", "--config", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    child
}

/// Reads events until `enough`, and then sends a signal.
fn signal_when(child: &mut Child, signal: &str, enough: impl Fn(&Value) -> bool) {
    let stderr = child.stderr.as_mut().unwrap();
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "the engine ended too early");
        if byte[0] != b'\n' {
            line.push(byte[0]);
            continue;
        }
        let event: Value = serde_json::from_slice(&line).unwrap();
        line.clear();
        if enough(&event) {
            break;
        }
    }
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn has_sent(event: &Value, requests: i64) -> bool {
    event["event"] == "progress" && event["sent"].as_i64() >= Some(requests)
}

/// How many rows there are, and whether the table has its proper end.
fn read(folder: &Path) -> (u64, bool) {
    let mut rows = 0;
    let (_, whole) = uncia_record::read_stream(&folder.join("rows.arrows"), |batch| {
        rows += batch.num_rows() as u64;
        Ok(())
    })
    .unwrap();
    (rows, whole)
}

/// The last event.
fn last(output: &Output) -> Value {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn ended_by_code(status: ExitStatus) -> i32 {
    status.code().expect("the engine ends by itself")
}

#[test]
fn signals_end_a_run_cleanly_with_every_row() {
    for (signal, name, code) in [("-INT", "SIGINT", 130), ("-TERM", "SIGTERM", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = start(&config(folder.path(), server()).to_string());
        signal_when(&mut child, signal, |event| has_sent(event, 100));
        let output = child.wait_with_output().unwrap();
        assert_eq!(ended_by_code(output.status), code);
        let done = last(&output);
        assert_eq!(done["event"], "done");
        assert_eq!(done["interrupted"], name);
        assert_eq!(done["rows"], done["sent"]);
        assert_eq!(done["scheduled"], 120_000);
        let unsent = 120_000 - done["sent"].as_i64().unwrap();
        assert_eq!(done["unsent"].as_i64(), Some(unsent));
        assert!(unsent > 0);
        assert!(read(folder.path()).1, "the stream has its end");
    }
}

#[test]
fn a_kill_loses_no_more_than_the_last_second() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(&config(folder.path(), server()).to_string());
    let progress = std::cell::RefCell::new(Vec::new());
    signal_when(&mut child, "-KILL", |event| {
        if event["event"] == "progress" {
            let elapsed_s = event["elapsed_s"].as_f64().unwrap();
            progress.borrow_mut().push((elapsed_s, event["done"].as_u64().unwrap()));
        }
        has_sent(event, 1_200)
    });
    child.wait().unwrap();
    let (rows, whole) = read(folder.path());
    assert!(!whole);
    // On a busy machine a row is up to a second old before anybody sees to it, and what sees to it may
    // be late by as much again.
    let progress = progress.into_inner();
    let last = progress.last().unwrap().0;
    let expected = progress.iter().filter(|(elapsed_s, _)| *elapsed_s <= last - 3.0);
    let expected = expected.map(|(_, done)| *done).max().unwrap();
    assert!(expected >= 200, "{progress:?}");
    assert!(rows >= expected, "{rows} rows of at least {expected}");
}

#[test]
fn bad_input_is_a_sentence_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let good = config(folder.path(), server());
    let with = |key: &str, value: Value| {
        let mut bad = good.clone();
        bad["streams"][0][key] = value;
        bad.to_string()
    };
    let unknown = json!([{"function": "f", "url": "http://does-not-exist.invalid/"}]);
    let cases = [
        ("{", "EOF"),
        (&with("colour", json!("red")), "unknown field `colour`"),
        (&with("targets", json!([])), "no targets"),
        (&with("targets", unknown), "does not resolve"),
        (
            &with("arrivals", json!({"kind": "constant", "rate_per_s": "NaN", "duration_ns": 1})),
            "\"NaN\" is not a rate",
        ),
        (
            &with("arrivals", json!({"kind": "constant", "rate_per_s": 1, "duration_ns": -1})),
            "duration_ns is -1",
        ),
    ];
    for (config, expected) in cases {
        let output = start(config).wait_with_output().unwrap();
        assert_eq!(ended_by_code(output.status), 2, "{config}");
        let event = last(&output);
        assert_eq!(event["event"], "error");
        let message = event["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{config}");
    }
    let missing = Command::new(env!("CARGO_BIN_EXE_uncia-engine"))
        .args(["load", "--config", "/nonexistent.json"])
        .output()
        .unwrap();
    assert_eq!(ended_by_code(missing.status), 2);
}

#[test]
fn more_at_once_than_files_allowed_is_said_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut bad = config(folder.path(), server());
    bad["streams"][0]["arrivals"] =
        json!({"kind": "burst", "sizes": [10_000], "interval_ns": 0, "bursts": 1});
    let path = folder.path().join("config.json");
    std::fs::write(&path, bad.to_string()).unwrap();
    let engine = env!("CARGO_BIN_EXE_uncia-engine");
    let script = format!("ulimit -n 256; exec {engine} load --config {}", path.display());
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(ended_by_code(output.status), 2);
    let message = last(&output)["message"].to_string();
    assert!(message.contains("10000") && message.contains("256"), "{message}");
}
