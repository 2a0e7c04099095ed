//! Freezing, stopping, and what is left afterwards: nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncia_worker::instance::{
    Enforcement, Host, HostError, InstanceSpec, Metering, OciRuntime, Runtime, Tuning,
};

use crate::fixture::{
    Function, Needs, SANDBOX_NAME, answer, config, control_groups, is_gvisor, is_whole, mounts,
    processes, request, sandbox, state, test,
};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("a_frozen_instance_uses_no_cpu_time", Needs::Freezer, frozen),
        test("a_frozen_instance_can_be_stopped", Needs::Freezer, stop_frozen),
        test("freezing_while_stopping", Needs::Freezer, freeze_and_stop),
        test("nothing_is_left_after_a_stop", Needs::Sandbox, nothing_left),
        test("a_stop_asks_before_it_kills", Needs::Sandbox, asks_first),
        test("an_abandoned_invocation_ends_the_instance", Needs::Sandbox, abandoned),
        test("an_abandoned_start_leaves_nothing", Needs::Sandbox, abandoned_start),
        test("many_start_at_once", Needs::Sandbox, many),
        test("a_killed_worker_is_swept", Needs::Freezer, || swept(|_| ())),
        test("a_killed_worker_is_swept_without_its_record", Needs::Freezer, || {
            swept(|folder| fs::write(folder.join("cgroups.json"), "[\"/sys/fs/cgr").unwrap())
        }),
        test("a_killed_worker_is_swept_without_its_state_folder", Needs::Freezer, || {
            swept(emptied)
        }),
        test("a_test_that_fails_leaves_no_instances", Needs::Freezer, cleared_by_a_failing_test),
        test("a_living_worker_is_not_swept", Needs::Freezer, living),
        test("closing_ends_everything", Needs::Sandbox, closing),
        test("version_2_of_control_groups", Needs::Unified, unified),
        test("a_umask_that_lets_nobody_read", Needs::Sandbox, closed_umask),
        test("a_state_folder_that_cannot_be_used", Needs::Sandbox, bad_state),
    ]
}

const SPINNER: &str = "
        import threading
        def spin():
            while True:
                pass
        def handler(event, context):
            if event == 'spin':
                threading.Thread(target=spin, daemon=True).start()
            return event
        ";

/// CPU time of all the instance's processes, in ticks.
fn ticks(id: &str) -> u64 {
    let fields = |pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        rest.split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|it| it.parse::<u64>().ok())
            .sum::<u64>()
    };
    processes(id).into_iter().map(fields).sum()
}

pub(crate) async fn frozen() {
    let function = Function::python(SPINNER);
    let id = &function.spec.id;
    let instance = function.start().await;
    instance.invoke(request(r#""spin""#)).await;
    instance.freeze().await.unwrap();
    let before = ticks(id);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(ticks(id), before);
    instance.thaw().await.unwrap();
    assert_eq!(answer(&instance.invoke(request("1")).await), 1);
    while ticks(id) == before {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Twice is as good as once.
    instance.freeze().await.unwrap();
    instance.freeze().await.unwrap();
    instance.thaw().await.unwrap();
    instance.thaw().await.unwrap();
    assert_eq!(answer(&instance.invoke(request("2")).await), 2);
    instance.stop(Duration::ZERO).await;
    assert!(instance.freeze().await.is_err());
}

pub(crate) async fn stop_frozen() {
    for grace in [Duration::ZERO, Duration::from_secs(5)] {
        let function = Function::python(SPINNER);
        let instance = function.start().await;
        instance.freeze().await.unwrap();
        instance.stop(grace).await;
        assert!(processes(&function.spec.id).is_empty());
        assert!(control_groups(&function.spec.id).is_empty());
    }
}

async fn freeze_and_stop() {
    for wait_us in [0, 20, 50, 100, 300, 1000] {
        let function = Function::python(SPINNER);
        let instance = function.start().await;
        instance.invoke(request(r#""spin""#)).await;
        let (_, ()) = tokio::join!(instance.freeze(), async {
            tokio::time::sleep(Duration::from_micros(wait_us)).await;
            instance.stop(Duration::ZERO).await;
        });
        assert!(processes(&function.spec.id).is_empty());
        assert!(control_groups(&function.spec.id).is_empty());
    }
}

fn listing(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Without the folder of containers, which the first of them makes.
fn own_listing(folder: &Path) -> Vec<String> {
    listing(folder).into_iter().filter(|name| name != "containers").collect()
}

pub(crate) async fn nothing_left() {
    let (before, files) = (mounts(), own_listing(state()));
    let function =
        Function::python("def handler(event, context):\n    open('/tmp/x', 'w').write('x')\n");
    let instance = function.start().await;
    instance.invoke(request("{}")).await;
    assert!(is_whole(&function.spec.id));
    instance.stop(Duration::from_secs(5)).await;
    instance.stop(Duration::from_secs(5)).await;
    assert!(processes(&function.spec.id).is_empty());
    assert!(control_groups(&function.spec.id).is_empty());
    assert_eq!(mounts(), before);
    assert_eq!(own_listing(state()), files);
}

pub(crate) async fn asks_first() {
    let code = "
        import os, signal
        def leave(number, frame):
            os._exit(42)
        signal.signal(signal.SIGTERM, leave)
        def handler(event, context):
            pass
        ";
    let instance = Function::python(code).start().await;
    instance.stop(Duration::from_secs(20)).await;
    assert_eq!(instance.exited().await, "exit status 42");

    let stubborn = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ndef handler(event, context):\n    pass\n";
    let instance = Function::python(stubborn).start().await;
    instance.stop(Duration::from_millis(50)).await;
    assert_eq!(instance.exited().await, "signal: killed");
}

pub(crate) async fn abandoned() {
    let code = "import time\ndef handler(event, context):\n    time.sleep(1000)\n";
    let function = Function::python(code);
    let instance = function.start().await;
    let invoking = instance.invoke(request("{}"));
    assert!(tokio::time::timeout(Duration::from_millis(100), invoking).await.is_err());
    instance.exited().await;
    assert!(processes(&function.spec.id).is_empty());
}

async fn abandoned_start() {
    const LOOKS: u32 = 20;
    const MOST_LOOKS: u32 = 6_000;
    for wait_us in [0, 100, 300, 1_000, 3_000, 10_000, 50_000] {
        let function = Function::python("import time\ntime.sleep(1000)\n");
        let starting = function.try_start();
        assert!(tokio::time::timeout(Duration::from_micros(wait_us), starting).await.is_err());
        // Nobody is left who could say when it is gone, and what had begun may show itself only later.
        let id = &function.spec.id;
        let (mut looks, mut gone) = (0, 0);
        while gone < LOOKS && looks < MOST_LOOKS {
            tokio::time::sleep(Duration::from_millis(10)).await;
            looks += 1;
            gone = if processes(id).is_empty() && control_groups(id).is_empty() {
                gone + 1
            } else {
                0
            };
        }
        assert_eq!(gone, LOOKS, "after {wait_us} us");
    }
}

async fn many() {
    let functions: Vec<_> = (0..20)
        .map(|_| Function::python("def handler(event, context):\n    return event\n"))
        .collect();
    let starting: Vec<_> = functions
        .iter()
        .map(|function| {
            let spec = function.spec.clone();
            tokio::spawn(async move { crate::fixture::host().start(spec).await })
        })
        .collect();
    for (index, started) in starting.into_iter().enumerate() {
        let instance = started.await.unwrap().result.unwrap();
        assert_eq!(answer(&instance.invoke(request(&index.to_string())).await), index);
        instance.stop(Duration::ZERO).await;
    }
}

/// Names the state folder to the worker that is going to be killed.
const WORKER: &str = "UNCIA_TEST_WORKER";

/// Names the state folder to the worker with a closed umask.
const CLOSED: &str = "UNCIA_TEST_CLOSED_WORKER";

/// Plays a worker whose umask lets nobody else read what it makes: runs one function of each runtime
/// that is here.
fn run_closed(folder: &Path) {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let host = Host::open(config(&folder.join("state"))).await.expect("a host");
        let python = "def handler(event, context):\n    return event\n";
        let mut functions = vec![Function::python(python)];
        if host.runtime_version(Runtime::named("node").expect("a runtime")).is_some() {
            let node = "exports.handler = async (event) => event;";
            functions.push(Function::new("node", &[("main.js", node)], "main.handler"));
        }
        for function in functions {
            let started = host.start(function.spec.clone()).await;
            let instance = started.result.expect("an instance");
            assert_eq!(answer(&instance.invoke(request("1")).await), 1);
            instance.stop(Duration::ZERO).await;
        }
        host.close().await;
    });
}

async fn closed_umask() {
    let folder = tempfile::tempdir().unwrap();
    // A process of its own, since all threads of one share the umask.
    let output = tokio::task::spawn_blocking(move || {
        let own = std::env::current_exe().unwrap();
        Command::new(own).env(CLOSED, folder.path()).output().unwrap()
    });
    let output = output.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Plays a worker: starts one instance that is frozen, one that runs, and one that it holds almost
/// all of the time, says so, and waits. All of them spin.
#[expect(clippy::print_stdout, reason = "the test reads it")]
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    if let Some(folder) = std::env::var_os(CLOSED) {
        run_closed(Path::new(&folder));
        return Some(ExitCode::SUCCESS);
    }
    let folder = std::env::var_os(WORKER)?;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let host = Host::open(config(Path::new(&folder))).await.expect("a host");
        let function = Function::python(SPINNER);
        let spec = |id: &str| InstanceSpec { id: id.into(), ..function.spec.clone() };
        let name = |it| format!("{it}-{}", std::process::id());
        let frozen = host.start(spec(&name("frozen"))).await.result.expect("an instance");
        let spinning = host.start(spec(&name("spinning"))).await.result.expect("an instance");
        let limited = InstanceSpec {
            // A request takes gVisor's kernel some ms, too, and has to end within its time.
            cpu_micro: if is_gvisor() { 200_000 } else { 10_000 },
            enforcement: Enforcement::EventDriven,
            ..spec(&name("held"))
        };
        let held = host.start(limited).await.result.expect("an instance");
        held.invoke(request(r#""spin""#)).await;
        spinning.invoke(request(r#""spin""#)).await;
        frozen.invoke(request(r#""spin""#)).await;
        frozen.freeze().await.expect("frozen");
        println!("ready");
        std::future::pending::<()>().await;
    });
    Some(ExitCode::SUCCESS)
}

fn emptied(folder: &Path) {
    fs::remove_dir_all(folder).unwrap();
    fs::create_dir(folder).unwrap();
}

async fn living() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::open(config(folder.path())).await.unwrap();
    let function = Function::python("def handler(event, context):\n    return event\n");
    let instance = host.start(function.spec.clone()).await.result.unwrap();
    emptied(folder.path());
    let message = Host::open(config(folder.path())).await.err().unwrap().to_string();
    assert!(message.contains("still runs"), "{message}");
    assert_eq!(answer(&instance.invoke(request("1")).await), 1);
    assert!(!control_groups(instance.id()).is_empty());
    host.close().await;
}

/// `damage`: what happens to the state folder before the next worker has it.
async fn swept(damage: fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let killed = kill_worker(folder.path());
    let ids = &killed.ids;
    // The other instances end without anybody's help.
    while !processes(&ids[1]).is_empty() || !processes(&ids[2]).is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!control_groups(&ids[0]).is_empty());

    damage(folder.path());
    let host = Host::open(config(folder.path())).await.unwrap();
    for id in ids {
        assert!(processes(id).is_empty(), "{id}");
        assert!(control_groups(id).is_empty(), "{id}");
    }
    let function = Function::python("def handler(event, context):\n    return event\n");
    let instance = host.start(function.spec.clone()).await.result.unwrap();
    assert_eq!(answer(&instance.invoke(request("1")).await), 1);
    host.close().await;
    assert!(processes(&function.spec.id).is_empty());
}

/// A worker that was killed, and its instances. If a test fails, another worker clears what is left of them.
pub(crate) struct Killed {
    worker: Child,
    folder: PathBuf,
    pub ids: [String; 3],
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It has ended, unless the test has failed before that.
        let _ = self.worker.kill();
        let _ = self.worker.wait();
        if thread::panicking() {
            let config = config(&self.folder);
            let clear = async {
                // Whoever has the folder already has cleared it.
                if let Ok(host) = Host::open(config).await {
                    host.close().await;
                }
            };
            let clear = || tokio::runtime::Runtime::new().map(|runtime| runtime.block_on(clear));
            let _ = thread::scope(|scope| scope.spawn(clear).join());
        }
    }
}

async fn cleared_by_a_failing_test() {
    let folder = tempfile::tempdir().unwrap();
    let mut ids = None;
    let failing = || {
        let killed = kill_worker(folder.path());
        ids = Some(killed.ids.clone());
        resume_unwind(Box::new("it fails"));
    };
    assert!(catch_unwind(AssertUnwindSafe(failing)).is_err());
    for id in ids.expect("it was killed") {
        while !processes(&id).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(control_groups(&id).is_empty(), "{id}");
    }
}

/// Kills a worker with this state folder, and three instances: one that is frozen, whose first process is killed
/// too, one that runs, and one that is held.
pub(crate) fn kill_worker(folder: &Path) -> Killed {
    let worker = Command::new(std::env::current_exe().unwrap())
        .env(WORKER, folder)
        .env(SANDBOX_NAME, sandbox().runtime().map_or("process", OciRuntime::name))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let ids = ["frozen", "spinning", "held"].map(|it| format!("{it}-{}", worker.id()));
    let mut killed = Killed { worker, folder: folder.to_owned(), ids };
    let (worker, ids) = (&mut killed.worker, &killed.ids);
    let mut line = String::new();
    BufReader::new(worker.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    for id in ids {
        assert!(is_whole(id), "{id}: {:?}", processes(id));
        assert!(!control_groups(id).is_empty(), "{id}");
    }
    // The worst case: the first process of the frozen instance is killed too, so that nobody is left
    // to thaw it, and the worker has no chance to do anything about that.
    let stop = |pid: u32, signal| kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
    stop(worker.id(), Signal::SIGSTOP);
    stop(processes(&ids[0])[0].try_into().unwrap(), Signal::SIGKILL);
    worker.kill().unwrap();
    worker.wait().unwrap();
    killed
}

async fn closing() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::open(config(folder.path())).await.unwrap();
    let function = Function::python(SPINNER);
    let mut instances = Vec::new();
    for index in 0..3 {
        let id = format!("closing-{index}-{}", std::process::id());
        let spec = InstanceSpec { id, ..function.spec.clone() };
        instances.push(host.start(spec).await.result.unwrap());
    }
    if host.capabilities().freezer {
        instances[0].freeze().await.unwrap();
    }
    let (reply, ()) = tokio::join!(instances[1].invoke(request("1")), host.close());
    drop(reply);
    for instance in &instances {
        instance.exited().await;
        assert!(processes(instance.id()).is_empty());
        assert!(control_groups(instance.id()).is_empty());
    }
    let files = listing(folder.path());
    let stays = |name: &String| {
        ["cgroups.json", "checkpoints", "mounts", "runtimes", "shared"].contains(&&**name)
    };
    assert!(files.iter().all(stays), "{files:?}");
    // A host that is closed starts nothing.
    let spec = InstanceSpec { id: "closing-late".into(), ..function.spec.clone() };
    assert!(host.start(spec).await.result.is_err());
}

/// On a machine with version 1, version 2 may be there without controllers; joining, counting CPU
/// time, freezing and removing work even so.
async fn unified() {
    let folder = tempfile::tempdir().unwrap();
    let tuning = Tuning { unified: true, ..Tuning::default() };
    let host = Host::open_tuned(config(folder.path()), tuning).await.unwrap();
    assert_eq!(host.capabilities().metering, Metering::CgroupV2);
    let function = Function::python(SPINNER);
    let id = &function.spec.id;
    let instance = host.start(function.spec.clone()).await.result.unwrap();
    let reply = instance.invoke(request(r#""spin""#)).await;
    assert!(reply.usage.cpu_user_ns.unwrap() + reply.usage.cpu_system_ns.unwrap() > 0);
    assert_eq!(control_groups(id).len(), 1);
    instance.freeze().await.unwrap();
    let before = ticks(id);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(ticks(id), before);
    instance.thaw().await.unwrap();
    assert_eq!(answer(&instance.invoke(request("1")).await), 1);
    instance.freeze().await.unwrap();
    instance.stop(Duration::from_secs(5)).await;
    assert!(processes(id).is_empty() && control_groups(id).is_empty());
    host.close().await;
}

async fn bad_state() {
    match Host::open(config(Path::new("/proc/nowhere"))).await {
        Err(error @ HostError::State(..)) => {
            assert!(error.to_string().contains("/proc/nowhere"), "{error}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it opened"),
    }
}
