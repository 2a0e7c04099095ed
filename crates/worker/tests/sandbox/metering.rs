//! What an invocation used, as seen from outside.

use std::time::Duration;

use libtest_mimic::Trial;
use uncia_worker::instance::{Reply, Request};

use crate::fixture::{Function, MIB, Needs, answer, is_gvisor, request, test};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("cpu_time_is_what_the_function_sees", Needs::CpuAccounting, cpu_time),
        test("cpu_time_of_children_counts", Needs::CpuAccounting, children),
        test("sleeping_costs_no_cpu_time", Needs::CpuAccounting, sleeping),
        test("memory_average_and_peak", Needs::Memory, memory),
        test("a_peak_is_the_invocations_own", Needs::Memory, own_peak),
        test("throttling_is_counted", Needs::Cpu, throttling),
        test("initialization_is_throttled_only_if_asked_for", Needs::Cpu, throttled_initialization),
        test("a_killed_invocation_is_metered", Needs::CpuAccounting, killed),
    ]
}

const SPIN: &str = "
        import time
        def handler(event, context):
            before = time.process_time_ns()
            while time.process_time_ns() - before < event * 1000000:
                pass
            return time.process_time_ns() - before
        ";

fn cpu_ns(reply: &Reply) -> i64 {
    reply.usage.cpu_user_ns.unwrap() + reply.usage.cpu_system_ns.unwrap()
}

/// What surrounds the handler: reading the event, and writing the answer. What a host takes from a
/// virtual machine may count as well, so that now and then it is more.
const AROUND_NS: i64 = 20_000_000;

async fn cpu_time() {
    let instance = Function::python(SPIN).start().await;
    // Shorter and longer than the kernel's ticks, and often, because an account that lags behind by a
    // tick does so at random.
    let mut around = Vec::new();
    for millis in [0, 1, 3, 7, 100].into_iter().cycle().take(50) {
        let reply = instance.invoke(request(&millis.to_string())).await;
        let inside = answer(&reply).as_i64().unwrap();
        let outside = cpu_ns(&reply);
        assert!(outside >= inside, "{millis} ms: {outside} ns, and the function saw {inside}");
        around.push(outside - inside);
    }
    around.sort_unstable();
    assert!(around[around.len() * 9 / 10] <= AROUND_NS, "{around:?}");
    instance.stop(Duration::ZERO).await;
}

pub(crate) async fn children() {
    let code = "
        import os, time
        def handler(event, context):
            child = os.fork()
            if child == 0:
                while time.process_time_ns() < 100000000:
                    pass
                os._exit(0)
            os.waitpid(child, 0)
        ";
    let instance = Function::python(code).start().await;
    let reply = instance.invoke(request("{}")).await;
    // What gVisor calls CPU time are its clock's ticks, in some of which another process ran.
    let least = if is_gvisor() { 20_000_000 } else { 95_000_000 };
    assert!(cpu_ns(&reply) >= least, "{}", cpu_ns(&reply));
    instance.stop(Duration::ZERO).await;
}

async fn sleeping() {
    let code = "import time\ndef handler(event, context):\n    time.sleep(0.3)\n";
    let instance = Function::python(code).start().await;
    let reply = instance.invoke(request("{}")).await;
    assert!(reply.ended.since(reply.started) >= 300_000_000);
    assert!(cpu_ns(&reply) < 100_000_000, "{}", cpu_ns(&reply));
    instance.stop(Duration::ZERO).await;
}

const HOLD: &str = "
        import time
        def handler(event, context):
            keep = bytearray(event << 20)
            for page in range(0, len(keep), 4096):
                keep[page] = 1
            held = time.monotonic_ns()
            time.sleep(0.2)
            return time.monotonic_ns() - held
        ";

pub(crate) async fn memory() {
    let instance = Function::python(HOLD).start().await;
    let small = instance.invoke(request("0")).await.usage;
    let reply = instance.invoke(request("100")).await;
    let large = &reply.usage;
    let (average, peak) = (large.memory_avg.unwrap(), large.memory_peak.unwrap());
    let base = small.memory_avg.unwrap();
    let held = 100 * MIB as i64;
    assert!(
        peak >= base + held * 95 / 100 && peak <= base + held + 20 * MIB as i64,
        "{peak} {base}"
    );
    // On a busy machine it may take longer to begin and to end than to hold it all.
    let (whole, wall) = (answer(&reply).as_i64().unwrap(), reply.ended.since(reply.started));
    let least = base + (i128::from(held) * i128::from(whole) / i128::from(wall) / 2) as i64;
    assert!(average <= peak && average >= least, "{average}, at least {least}, base {base}");
    instance.stop(Duration::ZERO).await;
}

async fn own_peak() {
    let instance = Function::python(HOLD).start().await;
    let large = instance.invoke(request("100")).await.usage.memory_peak.unwrap();
    let small = instance.invoke(request("0")).await.usage.memory_peak.unwrap();
    assert!(small < large - 80 * MIB as i64, "{small}, after {large}");
    instance.stop(Duration::ZERO).await;
}

pub(crate) async fn throttling() {
    // So little that even on a busy machine the quota, not the others, is what stops it.
    let instance = Function::python(SPIN).with(|spec| spec.cpu_micro = 50_000).start().await;
    let usage = instance.invoke(request("30")).await.usage;
    assert!(usage.throttled_count.unwrap() > 0, "{usage:?}");
    assert!(usage.throttled_ns.unwrap() > 0, "{usage:?}");
    instance.stop(Duration::ZERO).await;

    let instance = Function::python("def handler(event, context):\n    pass\n").start().await;
    // What a host takes from a virtual machine may use a quota up, but not each time.
    let mut counts = Vec::new();
    while counts.last() != Some(&Some(0)) {
        assert!(counts.len() < 10, "{counts:?}");
        counts.push(instance.invoke(request("0")).await.usage.throttled_count);
    }
    instance.stop(Duration::ZERO).await;
}

/// A function whose import spins tells how often it was throttled meanwhile by how its CPU time
/// compares to the wall's: with a tenth of a CPU, 100 ms of CPU time take at least 800 ms.
async fn throttled_initialization() {
    let code = "
        import time
        began, used = time.monotonic_ns(), time.process_time_ns()
        while time.process_time_ns() - used < 100000000:
            pass
        took = time.monotonic_ns() - began
        def handler(event, context):
            return took
        ";
    let slow = Function::python(code).with(|spec| {
        spec.cpu_micro = 100_000;
        spec.init_throttled = true;
    });
    assert!(slow.once("{}").await.as_i64().unwrap() > 500_000_000);
    let fast = Function::python(code).with(|spec| spec.cpu_micro = 100_000);
    let instance = fast.start().await;
    // It had no quota during the import, in which it would have been throttled some fifty times, and
    // it has one now, which a slow machine may need more than once for an event.
    let reply = instance.invoke(request("{}")).await;
    assert!(reply.usage.throttled_count.unwrap() < 20, "{:?}", reply.usage);
    instance.stop(Duration::ZERO).await;
}

async fn killed() {
    let code = "
        import os, time
        def handler(event, context):
            began = time.process_time_ns()
            while time.process_time_ns() < began + 150000000:
                pass
            if event == 'exit':
                os._exit(1)
            print('spun', flush=True)
            while True:
                pass
        ";
    let instance = Function::python(code).start().await;
    let exited = instance.invoke(request(r#""exit""#)).await;
    assert!(cpu_ns(&exited) >= 100_000_000, "{:?}", exited.usage);
    let instance = Function::python(code).start().await;
    let timeout = Duration::from_millis(500);
    let killed = instance.invoke(Request { timeout, ..request(r#""spin""#) }).await;
    let spun = killed.log_tail.starts_with(b"spun");
    // On a busy machine its time may be up before. Its start is in the time that it looks at.
    let least = if spun { 100_000_000 } else { 1 };
    assert!(cpu_ns(&killed) >= least, "{:?}", killed.usage);
}
