//! That all rows handed over are in the table, of every kind of answer, and what one costs in CPU time
//! of the recording thread, which is printed: `UNCIA_ROWS=500000 cargo test --release -p uncia-load
//! --lib cost:: -- --nocapture --test-threads 1`.

use std::time::Duration;

use arrow_array::RecordBatch;
use uncia_clock::thread_cpu_ns;
use uncia_record::Epoch;

use super::batch::{Completion, Received, channel};
use super::recorder::Recorder;
use super::support;
use crate::plan::Entry;

/// Enough for many batches of the table.
const FEWEST_ROWS: u64 = 20_000;
const BATCH: u64 = 1_000;

fn completion(number: u64) -> Completion {
    let entry = Entry { at: 0, stream: (number % 2) as usize, number, burst: None };
    let at = number as i64 * 5_000;
    let mut completion = Completion::new(entry, Some(at), at + 900);
    completion.reused = Some(true);
    completion.request_bytes = Some(0);
    completion.first_byte = Some(at + 150_000 + (at * 7_919) % 50_000);
    completion.received = completion.first_byte;
    completion.status = Some(200);
    completion.response_bytes = Some(12);
    completion
}

fn measure(name: &str, head: &[u8], body: &[u8]) {
    let asked = std::env::var("UNCIA_ROWS").ok().and_then(|text| text.parse().ok());
    let rows = asked.unwrap_or(0).max(FEWEST_ROWS) / BATCH * BATCH;
    let plan = support::plan(2, true);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("rows.arrows");
    let mut recorder = Recorder::create(&plan, Epoch::UNIX, 0, &out, None).unwrap();
    let mut spent = 0;
    for start in (0..rows).step_by(BATCH as usize) {
        let (mut outbox, inbox) = channel();
        for number in start..start + BATCH {
            outbox.push(completion(number), head, body, 0);
        }
        outbox.hand_over();
        drop(outbox);
        while let Received::Batch(batch) = inbox.receive(Duration::ZERO) {
            let before = thread_cpu_ns();
            recorder.write(&batch).unwrap();
            spent += thread_cpu_ns() - before;
        }
    }
    let before = thread_cpu_ns();
    let closed = recorder.close().unwrap();
    spent += thread_cpu_ns() - before;
    assert_eq!((closed.statistics.rows, closed.statistics.ok), (rows, rows));
    let bytes = std::fs::metadata(&out).unwrap().len();
    let mut kept = 0;
    let count = |batch: RecordBatch| {
        kept += batch.num_rows() as u64;
        Ok(())
    };
    let (_, whole) = uncia_record::read_stream(&out, count).unwrap();
    assert_eq!((kept, whole), (rows, true));
    let each = |total: f64| total / rows as f64;
    eprintln!("{name}: {:.0} ns and {:.0} bytes a row", each(spent as f64), each(bytes as f64));
}

#[test]
fn plain_rows_are_all_kept() {
    measure("plain", b"", b"");
}

#[test]
fn rows_with_a_platform_s_headers_are_all_kept() {
    let head = b"HTTP/1.1 200 OK\r\nx-uncia-start: warm\r\nx-uncia-instance: i-17\r\n\
        x-uncia-execution-ns: 1200\r\nx-uncia-queued-ns: 10\r\n\r\n";
    measure("headers", head, b"");
}

#[test]
fn rows_with_a_function_s_report_are_all_kept() {
    let body = br#"{"uncia": {"fresh": false, "instance": "p-1", "handler_start_ns": 1005,
        "handler_end_ns": 1009}, "sum": 5}"#;
    measure("report", b"", body);
}
