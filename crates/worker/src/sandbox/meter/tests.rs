//! What a meter reads, and how often.

use std::thread;
use std::time::Duration;

use super::*;
use crate::sandbox::cgroup::{Counters, Version};
use crate::sandbox::enforcer::Enforcer;
use crate::sandbox::threads::Failure;

/// A meter of a group of version 2 whose files are in `folder`.
fn meter(folder: &std::path::Path) -> Arc<Meter> {
    let counters = Counters::open(Version::V2, |_| Some(folder));
    let failure = Failure::new();
    let enforcer = Arc::new(Enforcer::new(&failure).unwrap());
    let limits =
        Limits { memory_bytes: 1 << 30, pids_max: 64, cpu_micro: 1_000_000, period_us: 20_000 };
    let source = Source::groups(counters, 1 << 30, None, enforcer, None, QuotaUse::new(&limits));
    Arc::new(Meter::new(source, Sampler::new(&failure, None).unwrap(), true))
}

#[tokio::test]
async fn the_sampler_wakes_for_an_invocation() {
    let folder = tempfile::tempdir().unwrap();
    let memory = |bytes: &str| {
        std::fs::write(folder.path().join("memory.current"), bytes).unwrap();
    };
    memory("1000\n");
    let meter = meter(folder.path());
    meter.begin().await;
    memory("9000\n");
    while meter.lock().memory.peak() != Some(9000) {
        thread::yield_now();
    }
    memory("2000\n");
    let usage = meter.end().await;
    assert_eq!(usage.memory_peak, Some(9000));
    let average = usage.memory_avg.unwrap();
    assert!((1000..=9000).contains(&average), "{average}");
    assert_eq!(usage.cpu_user_ns, None);
    meter.sampler.end();
}

/// How often this thread has read a file, if the kernel counts that. It reads once itself, however
/// long the numbers have become.
fn reads() -> Option<u64> {
    use std::io::Read;
    let mut buffer = [0; 1024];
    let size = std::fs::File::open("/proc/thread-self/io").ok()?.read(&mut buffer).ok()?;
    let text = std::str::from_utf8(&buffer[..size]).ok()?;
    text.lines().find_map(|line| line.strip_prefix("syscr: "))?.parse().ok()
}

#[tokio::test]
async fn an_invocation_takes_seven_accesses_of_version_2_whatever_its_threads() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
    write("cpu.stat", "usage_usec 9\nuser_usec 6\nsystem_usec 3\n");
    write("memory.current", "4096\n");
    write("memory.peak", "4096\n");
    write("memory.events", "oom_kill 0\n");
    // Its threads could not be asked one by one.
    write("pids.current", "100000\n");
    let meter = meter(folder.path());
    let mut runtime = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    // Until it sleeps: one that runs, or will as soon as its pages are read, is looked at again.
    let name = format!("/proc/{}/stat", runtime.id());
    while !std::fs::read_to_string(&name).unwrap().contains(" (sleep) S ") {
        thread::sleep(Duration::from_millis(1));
    }
    meter.set_runtime(runtime.id().cast_signed());
    meter.ready();
    // The least of many: whatever else this thread does now and then only adds to it.
    let (mut counting, mut most) = (u64::MAX, u64::MAX);
    for _ in 0..100 {
        let before = reads().unwrap_or_default();
        let start = reads().unwrap_or_default();
        meter.begin().await;
        meter.end().await;
        let end = reads().unwrap_or_default();
        counting = counting.min(start - before);
        most = most.min(end - start);
    }
    runtime.kill().unwrap();
    runtime.wait().unwrap();
    assert!(most - counting <= 7, "{most} with the {counting} of the counting itself");
    meter.sampler.end();
}

#[tokio::test]
async fn a_killed_process_of_an_earlier_invocation_is_not_this_ones() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
    let limit = (1_i64 << 30).to_string();
    write("memory.peak", &limit);
    write("memory.events", "oom_kill 0\n");
    let meter = meter(folder.path());
    meter.begin().await;
    write("memory.peak", &limit);
    write("memory.events", "oom_kill 1\n");
    assert!(meter.out_of_memory());
    meter.end().await;
    assert!(meter.out_of_memory());
    meter.begin().await;
    assert!(!meter.out_of_memory());
    write("memory.events", "oom_kill 2\n");
    assert!(meter.out_of_memory());
    meter.finish();
    assert!(meter.out_of_memory());
    meter.sampler.end();
}

#[tokio::test]
async fn without_metering_only_kills_for_memory_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
    write("cpu.stat", "usage_usec 9\nuser_usec 6\nsystem_usec 3\n");
    write("memory.current", "4096\n");
    write("memory.events", "oom_kill 0\n");
    let meter = Arc::try_unwrap(meter(folder.path())).ok().unwrap().measuring(false);
    let meter = Arc::new(meter);
    meter.ready();
    let before = reads();
    meter.begin().await;
    assert_eq!(meter.end().await, Usage::default());
    let request = meter.join(|| {}).await;
    assert_eq!(meter.leave(request, || {}).await, (Usage::default(), false));
    // At each end, and the count itself reads once.
    assert_eq!(reads(), before.map(|count| count + 3));
    assert_eq!(meter.idle_cpu(), None);
    assert!(!meter.out_of_memory());
    write("memory.events", "oom_kill 1\n");
    assert!(meter.out_of_memory());
    // One of its processes was killed, and it survived.
    meter.begin().await;
    assert!(meter.out_of_memory());
    meter.end().await;
    assert!(meter.out_of_memory());
    meter.begin().await;
    assert!(!meter.out_of_memory());
    write("memory.events", "oom_kill 2\n");
    meter.finish();
    assert!(meter.out_of_memory());
    meter.sampler.end();
}
