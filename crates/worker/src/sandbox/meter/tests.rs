//! What a meter reads, and how often.

use std::process::{Child, Command};
use std::thread;

use uncia_cgroup::{Group, discover, own_name};

use super::*;
use crate::sandbox::cgroup::{Counters, Running, Version};
use crate::sandbox::enforcer::Enforcer;
use crate::sandbox::threads::Failure;

/// A meter of a group of version 2 whose files are in `folder`.
fn meter(folder: &std::path::Path) -> Arc<Meter> {
    meter_of(Version::V2, folder)
}

fn meter_of(version: Version, folder: &std::path::Path) -> Arc<Meter> {
    let counters = Counters::open(version, |_| Some(folder));
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

/// How often a thread of this process has read and how often it has written, if the kernel counts that. It reads once
/// itself, however long the numbers have become.
fn accesses_of(thread: &str) -> Option<(u64, u64)> {
    use std::io::Read;
    let mut buffer = [0; 1024];
    let file = std::fs::File::open(format!("/proc/{thread}/io"));
    let size = file.ok()?.read(&mut buffer).ok()?;
    let text = std::str::from_utf8(&buffer[..size]).ok()?;
    let of = |key| text.lines().find_map(|line| line.strip_prefix(key))?.parse().ok();
    Some((of("syscr: ")?, of("syscw: ")?))
}

/// How often this thread has read.
fn reads() -> Option<u64> {
    Some(accesses_of("thread-self")?.0)
}

/// How often this thread has read and written.
fn own_accesses() -> Option<u64> {
    let (reads, writes) = accesses_of("thread-self")?;
    Some(reads + writes)
}

/// How many accesses an invocation takes, on this thread and on that which brings accounts up to date: the middle of many,
/// since whatever else is done now and then only adds to it. None if the kernel does not count them.
async fn accesses_of_an_invocation(meter: &Arc<Meter>, serve: impl Fn()) -> Option<u64> {
    let Source::Groups(groups) = &meter.source else { return None };
    let (name, named) = std::sync::mpsc::channel();
    let find = move || {
        name.send(format!("self/task/{}", nix::unistd::gettid())).unwrap();
        Running::default()
    };
    groups.enforcer.settle(find).await;
    let enforcer = named.recv().unwrap();
    let mut counts = Vec::new();
    for _ in 0..51 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let others = accesses_of(&enforcer)?.0;
        let start = own_accesses()?;
        meter.begin().await;
        let begun = own_accesses()?;
        serve();
        let served = own_accesses()?;
        meter.end().await;
        let ended = own_accesses()?;
        // Asking has read once each time; so has this thread, of the other.
        let own = (begun - start - 1) + (ended - served - 1);
        counts.push(own + accesses_of(&enforcer)?.0 - others);
    }
    counts.sort_unstable();
    Some(counts[counts.len() / 2])
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
    let mut runtime = sleeper();
    meter.set_runtime(runtime.id().cast_signed());
    meter.ready();
    let accesses = accesses_of_an_invocation(&meter, || {}).await;
    runtime.kill().unwrap();
    runtime.wait().unwrap();
    assert!(accesses.is_none_or(|accesses| accesses <= 7), "{accesses:?}");
    meter.sampler.end();
}

/// A process that sleeps.
fn sleeper() -> Child {
    let child = Command::new("sleep").arg("60").spawn().unwrap();
    // Until it does: one that runs, or will as soon as its pages are read, is looked at again.
    let name = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&name).unwrap().contains(" (sleep) S ") {
        thread::sleep(Duration::from_millis(1));
    }
    child
}

/// With real control groups, whose quota is so small that throttling is read at each begin and end.
#[tokio::test]
async fn an_invocation_takes_eight_accesses_at_most_whatever_its_threads() {
    let limits =
        Limits { memory_bytes: 1 << 30, pids_max: 64, cpu_micro: 100_000, period_us: 20_000 };
    let Some(layout) = discover(&own_name(), false) else {
        return eprintln!("skipped: no control groups");
    };
    let group = Group::create(&layout, "accesses", &limits).unwrap();
    group.set_quota(&limits).unwrap();
    let join = |child: Child| {
        for file in group.join_files() {
            std::fs::write(file, child.id().to_string()).unwrap();
        }
        child
    };
    let mut children = vec![join(sleeper())];
    let failure = Failure::new();
    let enforcer = Arc::new(Enforcer::new(&failure).unwrap());
    let quota = QuotaUse::new(&limits);
    let source = Source::groups(group.counters(), 1 << 30, None, enforcer.clone(), None, quota);
    let meter = Arc::new(Meter::new(source, Sampler::new(&failure, None).unwrap(), true));
    meter.set_runtime(children[0].id().cast_signed());
    meter.ready();
    let mut counts = vec![("alone", accesses_of_an_invocation(&meter, || {}).await)];
    children.extend((0..10).map(|_| join(sleeper())));
    counts.push(("ten that sleep", accesses_of_an_invocation(&meter, || {}).await));
    // One more each time.
    let more = Mutex::new(Vec::new());
    let start = || more.lock().unwrap().push(join(sleeper()));
    counts.push(("ten and more", accesses_of_an_invocation(&meter, start).await));
    children.append(&mut more.into_inner().unwrap());
    let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    children.extend((0..2).map(|_| join(busy())));
    counts.push(("two that work", accesses_of_an_invocation(&meter, || {}).await));
    assert!(meter.lock().background.is_some());
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    meter.sampler.end();
    enforcer.end();
    drop(meter);
    group.remove().unwrap();
    layout.remove().unwrap();
    for (threads, accesses) in &counts {
        let most = u64::from(MAX_ACCESSES);
        assert!(accesses.is_none_or(|accesses| accesses <= most), "{threads}: {counts:?}");
    }
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
async fn an_instance_that_ends_in_an_invocation_whose_begin_took_all_it_could_is_metered() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
    write("cpu.stat", "nr_periods 1\nnr_throttled 0\nthrottled_time 0\n");
    write("cpuacct.usage", "0\n");
    write("memory.usage_in_bytes", "4096\n");
    let meter = meter_of(Version::V1, folder.path());
    meter.ready();
    for used in [1, 2] {
        // In the background.
        write("cpuacct.usage", &format!("{used}000000000\n"));
        meter.begin().await;
        meter.end().await;
    }
    write("cpuacct.usage", "3000000000\n");
    meter.begin().await;
    write("cpuacct.usage", "3000000007\n");
    meter.finish();
    let usage = meter.end().await;
    assert_eq!(usage.cpu_user_ns.zip(usage.cpu_system_ns), Some((7, 0)));
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
