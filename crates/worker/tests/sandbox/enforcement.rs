//! CPU shares that the worker enforces, not the kernel.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use uncia_worker::instance::{Enforcement, Instance, Outcome, Reply};

use crate::fixture::{
    Function, Needs, answer, control_groups, processes, request, scaled, short_request, test,
};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("event_driven_a_share_holds_in_the_long_run", Needs::Freezer, one_thread),
        test("event_driven_a_share_holds_for_several_processes", Needs::Freezer, processes_too),
        test("event_driven_a_short_task_is_not_held", Needs::Freezer, short),
        test(
            "event_driven_initialization_is_held_only_if_asked_for",
            Needs::Freezer,
            initialization,
        ),
        test("event_driven_holding_and_freezing_do_not_collide", Needs::Freezer, collisions),
        test("event_driven_work_in_keep_alive_is_held_too", Needs::Freezer, scaled_down),
        test("event_driven_what_is_held_can_be_killed", Needs::Freezer, killed),
        test("event_driven_many_at_once", Needs::Freezer, many),
    ]
}

const NS_PER_MS: i64 = 1_000_000;

/// Uses so many ms of CPU time, in so many processes.
const SPIN: &str = "
        import os, time
        def spin(ms):
            end = time.process_time_ns() + ms * 1000000
            while time.process_time_ns() < end:
                pass
        def handler(event, context):
            children = []
            for _ in range(event.get('children', 0)):
                child = os.fork()
                if child == 0:
                    spin(event['ms'])
                    os._exit(0)
                children.append(child)
            if not children:
                spin(event['ms'])
            for child in children:
                os.waitpid(child, 0)
            return 'done'
        ";

/// A tenth of a CPU, of which the kernel's ticks would give steps of 4 ms.
const TENTH: u64 = 100_000;

fn function(cpu_micro: u64) -> Function {
    Function::python(SPIN).with(|spec| {
        spec.cpu_micro = cpu_micro;
        spec.enforcement = Enforcement::EventDriven;
    })
}

fn cpu_ns(reply: &Reply) -> i64 {
    reply.usage.cpu_user_ns.unwrap() + reply.usage.cpu_system_ns.unwrap()
}

async fn spin(instance: &Instance, event: &str) -> Reply {
    let reply = instance.invoke(request(event)).await;
    assert_eq!(answer(&reply), "done");
    reply
}

/// Invokes all at once, until the CPU time of each invocation is at most what the periods that it
/// touched allow, and `slack_ns`. On a busy machine the worker may be late for the last period of some;
/// it is so each time only if it does not hold the share.
async fn until_shares_hold(
    instances: &[Instance],
    event: &'static str,
    cpu_micro: i64,
    slack_ns: i64,
) -> Vec<Reply> {
    let mut excesses = Vec::new();
    loop {
        let running: Vec<_> = instances
            .iter()
            .cloned()
            .map(|instance| tokio::spawn(async move { spin(&instance, event).await }))
            .collect();
        let mut replies = Vec::new();
        for reply in running {
            replies.push(reply.await.unwrap());
        }
        for reply in &replies {
            check_hold(reply, cpu_micro, excesses.is_empty());
        }
        let excess = replies.iter().map(|reply| excess_ns(reply, cpu_micro)).max();
        if excess <= Some(slack_ns) {
            return replies;
        }
        excesses.extend(excess);
        assert!(excesses.len() < 8, "{excesses:?} ns of CPU time too much");
    }
}

/// CPU time beyond what the periods allow that an invocation touched.
fn excess_ns(reply: &Reply, cpu_micro: i64) -> i64 {
    let wall = reply.ended.since(reply.started);
    cpu_ns(reply) - (wall + 20 * NS_PER_MS) * cpu_micro / 1_000_000
}

/// An invocation that used its share was held, for no longer than there was time.
fn check_hold(reply: &Reply, cpu_micro: i64, is_first: bool) {
    let wall = reply.ended.since(reply.started);
    let used = cpu_ns(reply);
    if used < wall * cpu_micro / 1_000_000 {
        // Others had the CPUs for so long that it may not have got its share in any period.
        return;
    }
    // One after another may have been held for what that used, and not once more.
    assert!(!is_first || reply.usage.throttled_count.unwrap() > 0, "{:?}", reply.usage);
    // What it did not run of the time, it was held; others had the CPU for the rest. On an emulated
    // processor it goes on for some milliseconds after it was told to stop.
    let late = scaled(Duration::from_millis(2)).saturating_sub(Duration::from_millis(2));
    let (held, late) = (reply.usage.throttled_ns.unwrap(), i64::try_from(late.as_nanos()).unwrap());
    assert!(held > 0 && held <= wall - used / 2 + late, "{held} ns of {wall} ns");
}

async fn one_thread() {
    let instance = function(TENTH).start().await;
    for _ in 0..2 {
        let one = std::slice::from_ref(&instance);
        let replies = until_shares_hold(one, r#"{"ms": 60}"#, 100_000, 4 * NS_PER_MS).await;
        assert!(cpu_ns(&replies[0]) >= 60 * NS_PER_MS);
    }
    instance.stop(Duration::ZERO).await;
}

async fn processes_too() {
    let instance = function(2 * TENTH).start().await;
    let (one, event) = (std::slice::from_ref(&instance), r#"{"ms": 40, "children": 3}"#);
    let replies = until_shares_hold(one, event, 200_000, 8 * NS_PER_MS).await;
    assert!(cpu_ns(&replies[0]) >= 120 * NS_PER_MS);
    instance.stop(Duration::ZERO).await;
}

async fn short() {
    let instance = function(1_000_000).start().await;
    // What a host takes from a virtual machine may use a quota up, but not each time.
    let mut held = Vec::new();
    while held.last() != Some(&(Some(0), Some(0))) {
        assert!(held.len() < 10, "{held:?}");
        let usage = spin(&instance, r#"{"ms": 1}"#).await.usage;
        held.push((usage.throttled_count, usage.throttled_ns));
    }
    instance.stop(Duration::ZERO).await;
}

async fn initialization() {
    let code = "
        import time
        began, used = time.monotonic_ns(), time.process_time_ns()
        while time.process_time_ns() - used < 100000000:
            pass
        took = time.monotonic_ns() - began
        def handler(event, context):
            return took
        ";
    let tenth = |throttled| {
        Function::python(code).with(|spec| {
            spec.cpu_micro = TENTH;
            spec.enforcement = Enforcement::EventDriven;
            spec.init_throttled = throttled;
        })
    };
    assert!(tenth(true).once("{}").await.as_i64().unwrap() > 500_000_000);
    let instance = tenth(false).start().await;
    let reply = instance.invoke(request("{}")).await;
    // That would be a second; on a slow machine the request itself may take more than a period's budget.
    let held_ns = reply.usage.throttled_ns.unwrap();
    assert!(held_ns < 500 * NS_PER_MS, "what it used before is charged: held for {held_ns} ns");
    instance.stop(Duration::ZERO).await;
}

async fn collisions() {
    let function = function(TENTH);
    let instance = function.start().await;
    for pause_ms in [0, 1, 3, 10, 25] {
        // It ends in the middle of a period whose budget is used up, or is overdrawn.
        spin(&instance, r#"{"ms": 7}"#).await;
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        instance.freeze().await.unwrap();
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        instance.thaw().await.unwrap();
    }
    spin(&instance, r#"{"ms": 1}"#).await;
    instance.freeze().await.unwrap();
    instance.stop(Duration::from_secs(5)).await;
    assert!(
        processes(&function.spec.id).is_empty() && control_groups(&function.spec.id).is_empty()
    );
}

async fn scaled_down() {
    let code = "
        import threading
        def work():
            while True:
                pass
        def handler(event, context):
            if event == 'begin':
                threading.Thread(target=work, daemon=True).start()
        ";
    let instance = Function::python(code)
        .with(|spec| spec.enforcement = Enforcement::EventDriven)
        .start()
        .await;
    instance.invoke(request(r#""begin""#)).await;
    instance.scale_down().unwrap();
    let before = instance.idle_cpu().unwrap();
    let rest = Duration::from_secs(2);
    tokio::time::sleep(rest).await;
    instance.scale_up().unwrap();
    instance.invoke(request("1")).await;
    let used = instance.idle_cpu().unwrap() - before;
    assert!(used > 0 && used < 100 * NS_PER_MS, "{used} ns of CPU time in {rest:?}");
    instance.stop(Duration::ZERO).await;
}

async fn killed() {
    let endless = r#"{"ms": 1000000}"#;
    let function = function(10_000);
    // Held for almost all of the time.
    let instance = function.start().await;
    let reply = instance.invoke(short_request(endless)).await;
    assert_eq!(reply.outcome, Outcome::Timeout);
    assert!(
        processes(&function.spec.id).is_empty() && control_groups(&function.spec.id).is_empty()
    );

    for grace in [Duration::ZERO, Duration::from_millis(100)] {
        let instance = function.start().await;
        let asked = Instant::now();
        let (reply, ()) = tokio::join!(instance.invoke(request(endless)), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            instance.stop(grace).await;
        });
        assert!(matches!(reply.outcome, Outcome::Exited(_)), "{:?}", reply.outcome);
        assert!(asked.elapsed() < crate::fixture::patience());
        let id = &function.spec.id;
        assert!(processes(id).is_empty() && control_groups(id).is_empty());
    }
}

async fn many() {
    let functions: Vec<_> = (0..8).map(|_| function(50_000)).collect();
    let mut instances = Vec::new();
    for function in &functions {
        instances.push(function.start().await);
    }
    // An emulated processor stops late; whoever is not held at all has 8.5 ms too much.
    let slack = scaled(Duration::from_millis(4)).min(Duration::from_millis(8));
    let slack_ns = i64::try_from(slack.as_nanos()).unwrap();
    until_shares_hold(&instances, r#"{"ms": 10}"#, 50_000, slack_ns).await;
    for instance in &instances {
        instance.stop(Duration::ZERO).await;
        assert!(control_groups(instance.id()).is_empty());
    }
}
