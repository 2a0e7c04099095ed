//! Instances that are made of runtimes which were started ahead.

use std::collections::BTreeSet;
use std::time::Duration;

use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use uncia_worker::instance::{Instance, Network, Outcome, StartFrom, Started};

use crate::fixture::{
    Function, MIB, Needs, answer, host, own_processes, parent, processes, request, test,
};
use crate::prepared::is_running;
use crate::waiting::{until_some_wait, waiting_with};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        // One test, since what waits is not any instance's, and others would use it meanwhile.
        test("started_runtimes", Needs::Node, || async {
            are_what_a_fresh_instance_is().await;
            keep_the_limits().await;
            load_what_others_load().await;
            know_what_time_it_is().await;
            are_replaced_when_they_are_killed().await;
        }),
        test("what_a_started_runtime_has_missed", Needs::Node, starts_fresh),
        test("a_burst_on_started_runtimes", Needs::Node, burst),
        test("a_runtime_that_cannot_wait", Needs::Bash, no_runtime_that_waits),
    ]
}

/// Says all that there is to say about its process.
const HANDLER: &str = "
const fs = require('fs');
const net = require('net');
const own = (number) => { try { return fs.readlinkSync('/proc/self/fd/' + number); } catch { return null; } };
const cached = Object.keys(require.cache);
const children = require.main.children.length;
exports.handler = async (event) => {
  console.log('printed');
  fs.writeFileSync('/dev/stdout', 'by name');
  const status = fs.readFileSync('/proc/self/status', 'utf8');
  const field = (name) => new RegExp('^' + name + ':\\\\s*(.*)$', 'm').exec(status)[1];
  const left = fs.readdirSync('/tmp');
  fs.writeFileSync('/tmp/left', 'x');
  const space = fs.statfsSync('/tmp');
  const connects = (port) => new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1', () => { socket.destroy(); resolve(true); });
    socket.on('error', () => resolve(false));
  });
  return {
    environment: Object.entries(process.env).filter(([name]) => !name.startsWith('AWS_LAMBDA_LOG') && name !== '_X_AMZN_TRACE_ID'),
    directory: process.cwd(),
    arguments: [process.argv, process.execArgv, process.argv0, fs.readFileSync('/proc/self/cmdline', 'utf8')],
    descriptors: fs.readdirSync('/proc/self/fd').map((it) => [it, own(it)]).filter(([, it]) => it !== null)
      .map(([number, it]) => [number, it.replace(/\\[\\d+\\]/, '')]),
    status: ['Groups', 'NoNewPrivs', 'Seccomp', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NSpid', 'SigBlk',
      'SigIgn', 'Umask'].map(field),
    limits: fs.readFileSync('/proc/self/limits', 'utf8'),
    left,
    space: [space.blocks * space.bsize, space.files],
    root: fs.readdirSync('/').sort(),
    code: fs.readdirSync('/var/task'),
    writable: ['/', '/var/task', '/dev', '/tmp', '/var/runtime'].map((it) => {
      try { fs.accessSync(it, fs.constants.W_OK); return true; } catch { return false; }
    }),
    mounts: fs.readFileSync('/proc/self/mounts', 'utf8').split('\\n').map((it) => it.split(' ').slice(1, 4).join(' ')).sort(),
    heap: require('v8').getHeapStatistics().heap_size_limit,
    time: [new Date(0).getTimezoneOffset(), process.env.TZ, new Date(0).toString()],
    cached, children,
    invoke: await connects(9002),
    name: require('os').hostname(),
    user: require('os').userInfo().username,
    pids: [process.pid, process.ppid],
    timers: process.getActiveResourcesInfo(),
  };
};
";

fn function(network: Network, secret: &str) -> Function {
    Function::new("node", &[("main.js", HANDLER)], "main.handler").with(|spec| {
        spec.start_from = StartFrom::Pool;
        spec.network = network;
        spec.environment.insert("SECRET".into(), secret.into());
        spec.environment.insert("TZ".into(), "America/New_York".into());
    })
}

/// Starts instances until one is of a started runtime.
pub(crate) async fn restored(function: &Function) -> Instance {
    loop {
        let Started { result, restored, phases, .. } = function.try_start().await;
        let instance = result.unwrap();
        let names: Vec<_> = phases.iter().map(|phase| phase.name).collect();
        assert_eq!(names.contains(&"assign"), restored, "{names:?}");
        assert_eq!(names.contains(&"exec"), !restored, "{names:?}");
        if restored {
            return instance;
        }
        instance.stop(Duration::ZERO).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn are_what_a_fresh_instance_is() {
    for network in [Network::None, Network::Platform] {
        let fresh = function(network, "one").with(|spec| spec.start_from = StartFrom::Fresh);
        let expected = fresh.once("{}").await;
        for turn in 0..6 {
            let secret = format!("secret {turn}");
            let function = function(network, &secret);
            let instance = restored(&function).await;
            let reply = instance.invoke(request("{}")).await;
            let mut answer = answer(&reply);
            let text = answer.to_string();
            assert_eq!(text.matches("secret").count(), 1, "{text}");
            let variables = answer["environment"].as_array_mut().unwrap();
            let own = variables.iter_mut().find(|it| it[0] == "SECRET").unwrap();
            own[1] = json!("one");
            for (key, value) in expected.as_object().unwrap() {
                assert_eq!(&answer[key], value, "{key}");
            }
            assert_eq!(&*reply.log_tail, b"printed\nby name");
            // It goes by the instance's name, and is nobody else's.
            assert_eq!(processes(&function.spec.id).len(), 2);
            instance.stop(Duration::ZERO).await;
            assert!(processes(&function.spec.id).is_empty());
        }
    }
}

async fn keep_the_limits() {
    let code = "
exports.handler = async (event) => {
  if (event === 'memory') { const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1)); }
  if (event === 'cpu') { const begun = process.cpuUsage(); while (process.cpuUsage(begun).user < 400000); }
  return process.memoryUsage().rss;
};
";
    let function = Function::new("node", &[("main.js", code)], "main.handler").with(|spec| {
        spec.start_from = StartFrom::Pool;
        spec.cpu_micro = 250_000;
    });
    let fresh = Function::new("node", &[("main.js", code)], "main.handler").start().await;
    let instance = restored(&function).await;
    let replies = [&fresh, &instance].map(|it| it.invoke(request("{}")));
    let [fresh_reply, reply] = {
        let [first, second] = replies;
        [first.await, second.await]
    };
    fresh.stop(Duration::ZERO).await;
    // A few modules more are loaded.
    let [expected, used] = [&fresh_reply, &reply].map(|it| answer(it).as_i64().unwrap());
    assert!((used - expected).abs() < 16 << 20, "{used} and {expected} bytes");
    let peaks = (fresh_reply.usage.memory_peak, reply.usage.memory_peak);
    if let (Some(expected), Some(peak)) = peaks {
        assert!((peak - expected).abs() < 16 << 20, "{peak} and {expected} bytes at most");
    }
    let reply = instance.invoke(request("\"cpu\"")).await;
    if Needs::Cpu.is_met() {
        let used = reply.usage.cpu_user_ns.unwrap() + reply.usage.cpu_system_ns.unwrap();
        let passed = reply.ended.since(reply.started);
        // A quarter, however busy the machine is.
        assert!((400_000_000..passed / 2).contains(&used), "{used} ns of CPU in {passed} ns");
    }
    if Needs::Memory.is_met() {
        assert_eq!(instance.invoke(request("\"memory\"")).await.outcome, Outcome::OutOfMemory);
    }
    instance.stop(Duration::ZERO).await;
}

async fn load_what_others_load() {
    let files = [
        (
            "main.mjs",
            "import { value } from './lib/part.mjs'; export const handler = async () => [value, import.meta.url, process.env.SECRET, process.env._UNCIA_WAITS_AT];",
        ),
        (
            "lib/part.mjs",
            "import { createRequire } from 'node:module'; export const value = createRequire(import.meta.url)('./other.cjs');",
        ),
        ("lib/other.cjs", "module.exports = require.main.filename;"),
    ];
    let function = Function::new("node", &files, "main.handler").with(|spec| {
        spec.start_from = StartFrom::Pool;
        spec.environment.insert("SECRET".into(), "s".into());
    });
    let instance = restored(&function).await;
    let loaded = answer(&instance.invoke(request("{}")).await);
    let expected = json!(["/var/runtime/bootstrap.js", "file:///var/task/main.mjs", "s", null]);
    assert_eq!(loaded, expected);
    instance.stop(Duration::ZERO).await;
    // What fails, fails as always.
    for (code, error_type) in [
        ("require('./missing')", "Runtime.ImportModuleError"),
        ("throw new RangeError('x')", "RangeError"),
        ("exports.other = 1", "Runtime.HandlerNotFound"),
        ("{", "Runtime.UserCodeSyntaxError"),
    ] {
        let function = Function::new("node", &[("main.js", code)], "main.handler")
            .with(|spec| spec.start_from = StartFrom::Pool);
        loop {
            let started = function.try_start().await;
            let error = started.result.err().expect("an error").to_string();
            assert!(error.starts_with(error_type), "{error}");
            if started.restored {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A timer that is set while the handler is loaded runs from then on, not from when the runtime began
/// to wait.
async fn know_what_time_it_is() {
    let code = "
const set = Date.now();
const due = new Promise((resolve) => setTimeout(() => resolve(Date.now() - set), 300));
exports.handler = () => due;
";
    let function = Function::new("node", &[("main.js", code)], "main.handler")
        .with(|spec| spec.start_from = StartFrom::Pool);
    restored(&function).await.stop(Duration::ZERO).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let instance = restored(&function).await;
    let after = answer(&instance.invoke(request("{}")).await).as_i64().unwrap();
    assert!(after >= 295, "{after} ms");
    instance.stop(Duration::ZERO).await;
}

/// The first processes of those that wait, and their runtimes. Some may be about to become one.
async fn waiting(least: usize, memory_bytes: u64) -> Vec<(i32, i32)> {
    let is_node = |pid: &i32| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline"));
        arguments.is_ok_and(|it| it.starts_with(b"/var/lang/bin/node"))
    };
    loop {
        let runtimes = if Needs::Memory.is_met() {
            // Other tests' are not killed.
            waiting_with(memory_bytes)
        } else {
            own_processes("pool").into_iter().filter(is_node).collect()
        };
        let waiting: Vec<_> =
            runtimes.into_iter().filter_map(|it| Some((parent(it)?, it))).collect();
        if waiting.len() >= least {
            return waiting;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn are_replaced_when_they_are_killed() {
    let function = function(Network::None, "");
    restored(&function).await.stop(Duration::ZERO).await;
    for runtimes in [false, true] {
        let waiting = waiting(4, function.spec.memory_bytes).await;
        for (first, runtime) in &waiting {
            kill(Pid::from_raw(if runtimes { *runtime } else { *first }), Signal::SIGKILL).unwrap();
        }
        // A first process ends with its runtime. One that is chosen between the two ends is a function's
        // that was killed.
        while waiting.iter().any(|(first, _)| is_running(*first)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let instance = restored(&function).await;
        answer(&instance.invoke(request("{}")).await);
        instance.stop(Duration::ZERO).await;
    }
}

async fn starts_fresh() {
    let code = "exports.handler = async (name) => process.env[name];";
    let function = || Function::new("node", &[("main.js", code)], "main.handler");
    let variables = [
        ("NODE_OPTIONS", "--stack-trace-limit=3", false),
        ("NODE_EXTRA_CA_CERTS", "/var/task/main.js", false),
        ("UV_THREADPOOL_SIZE", "1", false),
        ("LD_LIBRARY_PATH", "/opt", false),
        ("NODE_ENV", "production", true),
    ];
    starts_fresh_with(function, &variables).await;
}

/// Starts a function that answers with the variable it is asked for, with each of these, and looks
/// whether it is made of a started runtime.
pub(crate) async fn starts_fresh_with(
    function: impl Fn() -> Function,
    variables: &[(&str, &str, bool)],
) {
    for (name, value, restores) in variables {
        let function = function().with(|spec| {
            spec.start_from = StartFrom::Pool;
            // Not what others take.
            spec.memory_bytes = 200 * MIB;
            spec.environment.insert((*name).into(), (*value).into());
        });
        let instance = if *restores {
            restored(&function).await
        } else {
            let started = function.try_start().await;
            assert!(!started.restored, "{name}");
            started.result.unwrap()
        };
        let event = json!(name).to_string();
        assert_eq!(answer(&instance.invoke(request(&event)).await), json!(value));
        instance.stop(Duration::ZERO).await;
    }
}

async fn burst() {
    let code = "exports.handler = async () => [process.env.NUMBER, require('crypto').randomUUID(), Math.random()];";
    let numbered = |number: usize| {
        Function::new("node", &[("main.js", code)], "main.handler").with(|spec| {
            spec.start_from = StartFrom::Pool;
            spec.function = format!("function-{number}");
            spec.memory_bytes = 192 * MIB;
            spec.environment.insert("NUMBER".into(), number.to_string());
        })
    };
    restored(&numbered(0)).await.stop(Duration::ZERO).await;
    // Until as many wait as are kept.
    if Needs::Memory.is_met() {
        until_some_wait(&numbered(0)).await;
    } else {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let functions: Vec<_> = (0..20).map(numbered).collect();
    let starts = functions.iter().map(|function| {
        let spec = function.spec.clone();
        tokio::spawn(async move { host().start(spec).await })
    });
    let mut all = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        all.push(start.await.unwrap());
    }
    let count = all.iter().filter(|started| started.restored).count();
    // Those that waited, and few that were made meanwhile.
    assert!((1..=8).contains(&count), "{count}");
    let mut random = BTreeSet::new();
    for (number, started) in all.into_iter().enumerate() {
        let instance = started.result.unwrap();
        let answered = answer(&instance.invoke(request("{}")).await);
        assert_eq!(answered[0], json!(number.to_string()));
        random.insert(answered[1].to_string());
        random.insert(answered[2].to_string());
        instance.stop(Duration::ZERO).await;
    }
    assert_eq!(random.len(), 40);
}

async fn no_runtime_that_waits() {
    let function = Function::new("bash", &[("main.sh", "handler() { echo 1; }")], "main.handler")
        .with(|spec| spec.start_from = StartFrom::Pool);
    for _ in 0..2 {
        let started = function.try_start().await;
        assert!(!started.restored);
        let instance = started.result.unwrap();
        assert_eq!(answer(&instance.invoke(request("{}")).await), Value::from(1));
        instance.stop(Duration::ZERO).await;
    }
}
