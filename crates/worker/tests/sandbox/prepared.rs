//! Instances that are started from processes made ahead.

use std::path::PathBuf;
use std::time::Duration;

use libtest_mimic::Trial;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use uncia_worker::instance::{Instance, Network, StartFrom};

use crate::fixture::{
    Function, MIB, Needs, answer, control_groups, host, own_processes, processes, request, test,
};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        // One test, since what is prepared is not any instance's, and others would use it meanwhile.
        test("prepared_processes", Needs::Sandbox, || async {
            serves().await;
            killed().await;
            killed_when_taken().await;
        }),
        test("a_ready_group_is_its_functions", Needs::Memory, ready_group),
        test("killed_spawners_are_started_again", Needs::Sandbox, spawners),
    ]
}

const HANDLER: &str = "
        import os, sys
        def handler(event, context):
            print('printed')
            open('/dev/stdout', 'w').write('by name')
            written = os.path.exists('/tmp/left')
            open('/tmp/left', 'w').close()
            return [sorted(os.environ), sorted(os.listdir('/proc/self/fd')), os.getpid(), os.getppid(),
                    sorted(os.listdir('/tmp')), written, os.environ['SECRET']]
        ";

fn function(network: Network, secret: &str) -> Function {
    Function::python(HANDLER).with(|spec| {
        spec.start_from = StartFrom::Prepared;
        spec.network = network;
        spec.environment.insert("SECRET".into(), secret.into());
    })
}

/// Starts an instance when something is prepared; says whether it was started from that.
async fn start(function: &Function) -> (Instance, bool) {
    let started = function.try_start().await;
    let from_prepared = started.phases.iter().all(|phase| phase.name != "network");
    (started.result.unwrap(), from_prepared)
}

async fn serves() {
    for network in [Network::None, Network::Platform, Network::Host] {
        let fresh = Function::python(HANDLER).with(|spec| {
            spec.network = network;
            spec.environment.insert("SECRET".into(), "fresh".into());
        });
        let expected = fresh.once("{}").await;
        let mut from_prepared = 0;
        for turn in 0..20 {
            let secret = format!("secret {turn}");
            let function = function(network, &secret);
            let (instance, prepared) = start(&function).await;
            from_prepared += usize::from(prepared);
            let reply = instance.invoke(request("{}")).await;
            let mut answer = answer(&reply);
            assert_eq!(answer[6], json!(secret));
            answer[6] = json!("fresh");
            assert_eq!(answer, expected);
            assert_eq!(&*reply.log_tail, b"printed\nby name");
            // It goes by the instance's name.
            assert_eq!(processes(&function.spec.id).len(), 2);
            instance.stop(Duration::ZERO).await;
            assert!(processes(&function.spec.id).is_empty());
        }
        // The first was made for it, and some may be while others are being made ahead.
        assert_eq!(from_prepared > 0, network != Network::Host, "{network:?}: {from_prepared}");
    }
}

async fn killed() {
    let function = function(Network::None, "");
    start(&function).await.0.stop(Duration::ZERO).await;
    let prepared = loop {
        let prepared = own_processes("prepared");
        if prepared.len() >= 2 {
            break prepared;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    for pid in &prepared {
        // One may have ended since it was listed.
        let killed = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        assert!(matches!(killed, Ok(()) | Err(Errno::ESRCH)), "{killed:?}");
    }
    while prepared.iter().any(|pid| is_running(*pid)) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..3 {
        let (instance, _) = start(&function).await;
        answer(&instance.invoke(request("{}")).await);
        instance.stop(Duration::ZERO).await;
    }
}

async fn killed_when_taken() {
    let function = function(Network::None, "");
    start(&function).await.0.stop(Duration::ZERO).await;
    let prepared = loop {
        let prepared = own_processes("prepared");
        if prepared.len() >= 8 {
            break prepared;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    // They take what they are to build, and never build it.
    for pid in &prepared {
        kill(Pid::from_raw(*pid), Signal::SIGSTOP).unwrap();
    }
    let starting = {
        let spec = function.spec.clone();
        tokio::spawn(async move { host().start(spec).await })
    };
    while !starting.is_finished() {
        for pid in &prepared {
            // It may have ended.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let started = starting.await.unwrap();
    assert_eq!(started.phases[0].name, "cgroup");
    let instance = started.result.unwrap();
    answer(&instance.invoke(request("{}")).await);
    instance.stop(Duration::ZERO).await;
    assert!(control_groups(&function.spec.id).is_empty());
}

async fn ready_group() {
    let function = function(Network::None, "").with(|spec| {
        spec.function = "ready-group".into();
        spec.memory_bytes = 167 * MIB;
    });
    host().expect(&function.spec).await;
    let (instance, _) = start(&function).await;
    // There before the instance had a name.
    assert!(control_groups(&function.spec.id).is_empty());
    let runtime = processes(&function.spec.id)[1];
    let groups = std::fs::read_to_string(format!("/proc/{runtime}/cgroup")).unwrap();
    let names = groups.lines().filter_map(|line| line.rsplit_once('/').map(|(_, name)| name));
    let has_limit = |folder: &PathBuf| {
        let files = ["memory.limit_in_bytes", "memory.max"].map(|file| folder.join(file));
        let mut limits = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
        limits.any(|limit| limit == format!("{}\n", 167 * MIB))
    };
    let folder = names.flat_map(control_groups).find(has_limit).unwrap();
    instance.stop(Duration::ZERO).await;
    assert!(!folder.exists());
    host().forget(&function.spec.function);
}

async fn spawners() {
    let function = Function::python("def handler(event, context): return event");
    for turn in 0..3 {
        // All of this process, other hosts' too, whose starts go on as this one's do.
        for child in children() {
            let arguments = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            if arguments.split(|byte| *byte == 0).nth(1) == Some(b"__spawner") {
                // It may have ended by itself.
                let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
            }
        }
        assert_eq!(function.once(&turn.to_string()).await, turn);
    }
}

fn children() -> Vec<i32> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let text = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|it| it.parse::<i32>().ok()));
    }
    found
}

/// Whether a process is neither gone nor a zombie.
pub(crate) fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
