//! What an instance may do while it is kept alive, and what of it is seen.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use uncia_worker::instance::{Instance, Reply};

use crate::fixture::{Function, Needs, answer, control_groups, patience, processes, request, test};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("scaled_down_is_next_to_nothing_until_scaled_up", Needs::Cpu, scaled_down),
        test("a_scaled_down_instance_can_be_frozen_and_stopped", Needs::Freezer, stop_scaled_down),
        test("idle_cpu_is_not_an_invocations", Needs::CpuAccounting, background),
        test("idle_cpu_of_children_is_not_an_invocations", Needs::CpuAccounting, children),
        test("a_frozen_instance_has_no_idle_cpu", Needs::Freezer, frozen),
        test("a_frozen_instance_gives_memory_back_if_it_is_to", Needs::Freezer, reclaimed),
    ]
}

/// Works on in the background once it was asked to, in a thread or in a process.
const BACKGROUND: &str = "
        import os, threading
        count = 0
        def work():
            global count
            while True:
                count += 1
        def handler(event, context):
            if event == 'thread':
                threading.Thread(target=work, daemon=True).start()
            if event == 'process' and os.fork() == 0:
                work()
            return count
        ";

const NS_PER_MS: i64 = 1_000_000;

/// Long enough for some hundred ms of CPU time.
const REST: Duration = Duration::from_secs(2);

fn cpu_ns(reply: &Reply) -> i64 {
    reply.usage.cpu_user_ns.unwrap() + reply.usage.cpu_system_ns.unwrap()
}

fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap()
}

async fn count(instance: &Instance) -> i64 {
    answer(&instance.invoke(request("1")).await).as_i64().unwrap()
}

async fn scaled_down() {
    // Two CPUs, so that the background does not stand in the invocation's way.
    let function = Function::python(BACKGROUND).with(|spec| spec.cpu_micro = 2_000_000);
    let instance = function.start().await;
    instance.invoke(request(r#""thread""#)).await;
    instance.scale_down().unwrap();
    let before = instance.idle_cpu().unwrap();
    tokio::time::sleep(REST).await;
    instance.scale_up().unwrap();
    let first = count(&instance).await;
    let used = instance.idle_cpu().unwrap() - before;
    // 20 ms; the kernel gives whole ticks, and is owed the last one.
    assert!(used > 0, "it runs on");
    assert!(used < 100 * NS_PER_MS, "{used} ns of CPU time in {REST:?}");
    // At the full speed it gets more than twice the hundredth, sooner or later if others have the CPUs.
    let restored = Instant::now();
    loop {
        tokio::time::sleep(REST / 4).await;
        let counted = count(&instance).await;
        let used_since = instance.idle_cpu().unwrap() - before - used;
        let passed = restored.elapsed();
        if counted > first && used_since > ns(passed) / 50 + 10 * NS_PER_MS {
            break;
        }
        assert!(passed < patience(), "{used_since} ns in {passed:?} after {used} ns in {REST:?}");
    }
    instance.stop(Duration::ZERO).await;
    assert!(instance.scale_down().is_err(), "there is nothing left to scale");
}

/// Freezes an instance; with next to no CPU time it may not stop in the time that a freeze has.
async fn freeze(instance: &Instance) {
    let began = Instant::now();
    while let Err(error) = instance.freeze().await {
        assert!(began.elapsed() < patience(), "{error}");
    }
}

async fn stop_scaled_down() {
    for frozen in [false, true] {
        let function = Function::python(BACKGROUND);
        let instance = function.start().await;
        instance.invoke(request(r#""process""#)).await;
        instance.scale_down().unwrap();
        if frozen {
            freeze(&instance).await;
        }
        instance.stop(Duration::ZERO).await;
        assert!(processes(&function.spec.id).is_empty());
        assert!(control_groups(&function.spec.id).is_empty());
    }
}

/// What an instance has in memory of a file of its package is had again from there.
async fn reclaimed() {
    const FILE_BYTES: u64 = 48 << 20;
    let reads = "
        def handler(event, context):
            with open('large.bin', 'rb') as file:
                return sum(len(piece) for piece in iter(lambda: file.read(1 << 20), b''))
        ";
    for reclaims in [false, true] {
        let function = Function::python(reads).with(|spec| {
            spec.memory_bytes = 256 << 20;
            spec.reclaim_memory = reclaims;
        });
        let path = function.spec.code.join("large.bin");
        std::fs::write(&path, vec![7; FILE_BYTES as usize]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        // What this process has written is in its own account, until somebody else reads it from the disk.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let instance = function.start().await;
        let read = instance.invoke(request("1")).await;
        assert_eq!(answer(&read).as_u64(), Some(FILE_BYTES));
        let used = || {
            let groups = control_groups(&function.spec.id);
            let files = ["memory.usage_in_bytes", "memory.current"];
            let mut paths = groups.iter().flat_map(|group| files.map(|file| group.join(file)));
            let text = paths.find_map(|path| std::fs::read_to_string(path).ok()).unwrap();
            text.trim().parse::<u64>().unwrap()
        };
        let before = used();
        if before < FILE_BYTES {
            // Its files are in memory alone (tmpfs), and there is nothing to be had again.
            instance.stop(Duration::ZERO).await;
            return;
        }
        instance.freeze().await.unwrap();
        if reclaims {
            let began = Instant::now();
            while used() > before - FILE_BYTES / 2 {
                assert!(began.elapsed() < patience(), "{} of {before} bytes are left", used());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        } else {
            tokio::time::sleep(REST / 4).await;
            assert!(used() > FILE_BYTES, "it keeps what it has");
        }
        instance.thaw().await.unwrap();
        let again = instance.invoke(request("1")).await;
        assert_eq!(answer(&again).as_u64(), Some(FILE_BYTES));
        instance.stop(Duration::ZERO).await;
    }
}

async fn background() {
    let instance = Function::python(BACKGROUND).start().await;
    instance.invoke(request(r#""thread""#)).await;
    let began = Instant::now();
    let (reply, wall, idle) = loop {
        tokio::time::sleep(REST / 4).await;
        let asked = Instant::now();
        let reply = instance.invoke(request("1")).await;
        let (wall, idle) = (ns(asked.elapsed()), instance.idle_cpu().unwrap());
        if idle > 200 * NS_PER_MS {
            break (reply, wall, idle);
        }
        // Others may have the CPUs.
        assert!(began.elapsed() < patience(), "{idle} ns of CPU time in {:?}", began.elapsed());
    };
    // At most two CPUs at a time: nothing of the time before is in it.
    assert!(cpu_ns(&reply) <= 2 * wall, "{} ns in {wall} ns", cpu_ns(&reply));
    instance.stop(Duration::ZERO).await;
    assert!(instance.idle_cpu().unwrap() >= idle, "the end counts");
}

/// A child's account lags behind by up to a tick unless it is asked for; it must not be the next
/// invocation's. Often, because it lags at random.
async fn children() {
    let instance = Function::python(BACKGROUND).start().await;
    instance.invoke(request(r#""process""#)).await;
    for _ in 0..100 {
        let asked = Instant::now();
        let reply = instance.invoke(request("1")).await;
        let wall = ns(asked.elapsed());
        // The runtime and its child; a tick would be 4 ms more.
        let most = 2 * wall + NS_PER_MS / 2;
        assert!(cpu_ns(&reply) <= most, "{} ns, at most {most}", cpu_ns(&reply));
    }
    instance.stop(Duration::ZERO).await;
}

async fn frozen() {
    let instance = Function::python(BACKGROUND).start().await;
    instance.invoke(request(r#""thread""#)).await;
    instance.freeze().await.unwrap();
    let before = instance.idle_cpu().unwrap();
    tokio::time::sleep(REST / 4).await;
    instance.thaw().await.unwrap();
    count(&instance).await;
    let used = instance.idle_cpu().unwrap() - before;
    // Between the answer and the freezing, and between the thawing and the request.
    assert!(used < 100 * NS_PER_MS, "{used} ns");
    instance.stop(Duration::ZERO).await;
}
