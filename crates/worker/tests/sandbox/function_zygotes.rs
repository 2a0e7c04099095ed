//! Instances whose runtime is a copy of one that has run the function's imports.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use uncia_worker::instance::{Host, Instance, Network, StartFrom, Started, Tuning};

use crate::fixture::{
    Function, MIB, Needs, answer, config, control_groups, host, mounts, parent, processes, request,
    seen_as, test,
};
use crate::zygotes::{forget_ids, look};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("a_copy_has_what_its_import_made_and_nothing_else", Needs::Users, like_fresh),
        test("copies_of_one_import_share_no_randomness", Needs::Users, randomness),
        test("copies_of_one_import_do_not_meet", Needs::Users, apart),
        test("a_copy_goes_on_from_its_imports_state", Needs::Users, state),
        test("an_import_that_cannot_be_copied_is_refused", Needs::Users, refused),
        test("an_import_that_lies_gains_nothing", Needs::Users, hostile),
        test("a_copy_is_metered_as_the_kernel_counts_it", Needs::CpuAccounting, metered),
        test("an_import_has_the_functions_limits", Needs::Memory, limited),
        test("a_zygote_serves_one_function_as_it_is", Needs::Users, changed),
        test("copies_begin_in_their_group_of_version_2", Needs::Unified, version_2),
        test("nothing_is_left_of_a_functions_zygote", Needs::Users, gone),
        test("a_zygote_that_ends_again_and_again_is_not_made_again", Needs::Users, ending),
    ]
}

/// A function of its own, which has a zygote of its own.
fn function(code: &str) -> Function {
    own(Function::python(code))
}

fn own(function: Function) -> Function {
    function.with(|spec| {
        spec.function = spec.id.clone();
        spec.start_from = StartFrom::FunctionZygote;
    })
}

fn is_copy(started: &Started) -> bool {
    assert_eq!(started.restored, started.phases.iter().any(|phase| phase.name == "fork"));
    started.restored
}

/// Starts an instance, which must be a copy.
async fn copy(function: &Function) -> Instance {
    host().expect(&function.spec).await;
    let started = function.try_start().await;
    assert!(is_copy(&started), "{:?}; {:?}", started.phases, host().refusals());
    match started.result {
        Ok(instance) => instance,
        Err(error) => panic!("{error}; {}", String::from_utf8_lossy(&started.log_tail)),
    }
}

/// Starts an instance, which must be a copy, for one invocation.
async fn once(function: &Function, event: &str) -> Value {
    let instance = copy(function).await;
    let reply = instance.invoke(request(event)).await;
    instance.stop(Duration::ZERO).await;
    assert!(processes(&function.spec.id).is_empty());
    assert!(control_groups(&function.spec.id).is_empty());
    answer(&reply)
}

async fn like_fresh() {
    for network in [Network::None, Network::Platform] {
        let fresh = look(StartFrom::Fresh, network, "secret");
        let mut expected = fresh.once("{}").await;
        forget_ids(&mut expected);
        let function = look(StartFrom::FunctionZygote, network, "secret")
            .with(|spec| spec.function = spec.id.clone());
        for name in ["AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_LOG_GROUP_NAME"] {
            expected["environment"][name] = Value::Null;
        }
        for _ in 0..3 {
            let mut copy = once(&function, "{}").await;
            forget_ids(&mut copy);
            for name in ["AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_LOG_GROUP_NAME"] {
                copy["environment"][name] = Value::Null;
            }
            for (key, value) in expected.as_object().unwrap() {
                assert_eq!(copy[key], *value, "{key}");
            }
        }
        host().forget(&function.spec.function);
    }
}

async fn randomness() {
    let function = function(
        "
        import os, random, secrets, ssl, tempfile, uuid
        # Each has a state now that copies could share.
        random.random(), secrets.token_hex(), tempfile.mktemp(), uuid.uuid4(), ssl.RAND_bytes(8)
        def handler(event, context):
            return [str(random.random()), secrets.token_hex(), os.urandom(16).hex(), str(uuid.uuid4()),
                    tempfile.mktemp(), str(random.SystemRandom().random()), ssl.RAND_bytes(16).hex()]
        ",
    );
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        for number in once(&function, "{}").await.as_array().unwrap() {
            assert!(seen.insert(number.to_string()), "{number} twice");
        }
    }
    host().forget(&function.spec.function);
}

async fn apart() {
    let function = function(
        "
        import os
        found = os.getpid()
        def handler(event, context):
            if event is not None:
                open('/tmp/mine', 'w').write(event)
                os.environ['MINE'] = event
            return {
                'tmp': os.listdir('/tmp'), 'environment': os.environ.get('MINE'), 'user': os.getuid(),
                'processes': sorted(int(it) for it in os.listdir('/proc') if it.isdigit()),
                'network': os.readlink('/proc/self/ns/net'), 'number': os.getpid() != found,
            }
        ",
    );
    let first = copy(&function).await;
    let one = answer(&first.invoke(request("\"one\"")).await);
    let mut second = Function::python("").with(|spec| *spec = function.spec.clone());
    second.spec.id = format!("{}-b", function.spec.id);
    let other = copy(&second).await;
    let two = answer(&other.invoke(request("null")).await);
    assert_eq!((&one["tmp"], &one["environment"]), (&json!(["mine"]), &json!("one")));
    assert_eq!((&two["tmp"], &two["environment"]), (&json!([]), &Value::Null));
    assert_ne!(one["user"], two["user"]);
    assert_ne!(one["network"], two["network"]);
    for answer in [&one, &two] {
        assert_eq!(answer["processes"].as_array().unwrap().len(), 1);
        // By which libraries know that they are in a copy.
        assert_eq!(answer["number"], true);
    }
    first.stop(Duration::ZERO).await;
    other.stop(Duration::ZERO).await;
    host().forget(&function.spec.function);
}

async fn state() {
    let function = function(
        "
        import os, signal, time
        began = time.monotonic_ns()
        os.environ['SET'] = 'at import'
        os.umask(0o27)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        fraction = 1 / 3
        def handler(event, context):
            return {
                'began': began, 'set': os.environ['SET'], 'umask': os.umask(0),
                'handler': signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN,
                'blocked': signal.SIGUSR2 in signal.pthread_sigmask(signal.SIG_BLOCK, set()),
                'own': context.log_stream_name.endswith(event), 'fraction': fraction,
            }
        ",
    );
    let id = json!(function.spec.id).to_string();
    let (one, two) = (once(&function, &id).await, once(&function, &id).await);
    // One import for both.
    assert_eq!(one, two);
    assert_eq!(one["set"], "at import");
    assert_eq!(one["umask"], 0o27);
    assert_eq!((&one["handler"], &one["blocked"]), (&json!(true), &json!(true)));
    assert_eq!((&one["own"], &one["fraction"]), (&json!(true), &json!(1.0 / 3.0)));
    host().forget(&function.spec.function);
}

async fn refused() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap().to_owned();
    let host = Host::open(config(folder.path())).await.unwrap();
    let serves = "def handler(event, context): return event";
    for (code, reason) in [
        (
            "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
            "thread",
        ),
        ("import socket; kept = socket.socket()", "socket"),
        ("kept = open('/etc/passwd')", "a file open (/etc/passwd)"),
        ("import os, time\nif os.fork() == 0: time.sleep(1000)", "left 1 processes"),
        (
            "import subprocess; kept = subprocess.Popen(['/var/lang/bin/python3', '-c', 'input()'], stdin=subprocess.PIPE)",
            "process",
        ),
        ("open('/tmp/left', 'w').close()", "/tmp"),
        ("import os; os.chdir('/tmp')", "folder"),
        ("import mmap; kept = mmap.mmap(-1, 4096)", "memory that its copies would share"),
        (
            "import mmap; kept = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); kept.madvise(mmap.MADV_DONTFORK)",
            "memory that its copies would lack",
        ),
        ("raise ValueError('on purpose')", "ValueError: on purpose"),
        ("import missing", "No module named 'missing'"),
        ("import os; os._exit(3)", "exit status 3"),
        ("import os; os.kill(os.getpid(), 11)", "signal 11"),
        ("import os; os.execv('/var/lang/bin/python3', ['python3', '-c', ''])", "another program"),
    ] {
        let function = function(&format!("{code}\n{serves}"));
        host.expect(&function.spec).await;
        let refusals = host.refusals();
        let refusal = refusals.iter().find(|it| it.contains(&function.spec.function));
        let refusal = refusal.unwrap_or_else(|| panic!("{code} is not refused"));
        assert!(refusal.contains(reason), "{code}: {refusal}");
        // It is served as others are, and its errors are its own.
        let started = host.start(function.spec.clone()).await;
        assert!(!is_copy(&started), "{code}");
        if let Ok(instance) = started.result {
            assert_eq!(answer(&instance.invoke(request("7")).await), 7, "{code}");
            instance.stop(Duration::ZERO).await;
        }
        host.forget(&function.spec.function);
        assert!(!host.refusals().iter().any(|it| it.contains(&function.spec.function)));
    }
    let slow = function("import time; time.sleep(1000)")
        .with(|spec| spec.init_timeout = Duration::from_millis(300));
    host.expect(&slow.spec).await;
    assert!(host.refusals().iter().any(|it| it.contains("longer than 300 ms")));
    host.forget(&slow.spec.function);
    // Whatever its import has left is gone.
    while !left(&state).is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    host.close().await;
}

async fn hostile() {
    // What it replaces is what the zygote's own code uses afterwards.
    let function = function(
        "
        import ctypes, os, signal, sys
        libc = ctypes.CDLL(None, use_errno=True)
        attempts = {}
        def attempt(name, number, *arguments):
            result = libc.syscall(number, *arguments)
            attempts[name] = 'done' if result >= 0 else ctypes.get_errno()
        # unshare, setns, mount, ptrace, and the rights to enter anything
        attempt('unshare', 272, 0x20000000)
        attempt('setns', 308, 0, 0)
        attempt('ptrace', 101, 16, 1, 0, 0)
        attempt('write', 1, 1, b'', 0)
        true_fork = os.fork
        def fork():
            number = true_fork()
            if number == 0:
                # The first that runs in each copy.
                attempt('unshare again', 272, 0x20000000)
                attempt('setuid', 105, 0)
                attempts['user'] = os.getuid()
                attempts['capabilities'] = [
                    line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')]
                attempts['descriptors'] = sorted(os.listdir('/proc/self/fd'))
            return number
        os.fork = fork
        def handler(event, context):
            return attempts
        ",
    );
    let answer = once(&function, "{}").await;
    assert_eq!(answer["write"], "done");
    for name in ["unshare", "setns", "ptrace", "unshare again", "setuid"] {
        assert_eq!(answer[name], libc::EPERM, "{name}");
    }
    assert_ne!(answer["user"], 0);
    assert_eq!(answer["capabilities"], json!(vec!["0000000000000000"; 5]));
    // The streams, its environment, and the folder's own.
    assert_eq!(answer["descriptors"], json!(["0", "1", "2", "3", "4"]));
    host().forget(&function.spec.function);

    // One that announces its fork and makes other calls, or forks otherwise, is refused or is a copy: it never
    // has more rights than that.
    for code in [
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)\nwhile True: os.getpid()",
        "import ctypes, os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nctypes.CDLL(None).syscall(56, 0x50f00, 0, 0, 0, 0)",
    ] {
        let function = crate::function_zygotes::function(code)
            .with(|spec| spec.init_timeout = Duration::from_secs(20));
        host().expect(&function.spec).await;
        assert!(
            host().refusals().iter().any(|it| it.contains(&function.spec.function)),
            "{code} is not refused"
        );
        host().forget(&function.spec.function);
    }
}

async fn metered() {
    let function = function(
        "
        import resource, time
        end = time.process_time() + 0.2
        while time.process_time() < end: pass
        imported = time.process_time()
        def handler(event, context):
            before = resource.getrusage(resource.RUSAGE_SELF)
            end = time.process_time() + 0.1
            while time.process_time() < end: pass
            after = resource.getrusage(resource.RUSAGE_SELF)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return [used, after.ru_utime + after.ru_stime, imported]
        ",
    );
    host().expect(&function.spec).await;
    let instance = copy(&function).await;
    let reply = instance.invoke(request("{}")).await;
    let usage = reply.usage;
    let answer = answer(&reply);
    let [used, all, imported] = [0, 1, 2].map(|index| answer[index].as_f64().unwrap());
    let metered = (usage.cpu_user_ns.unwrap() + usage.cpu_system_ns.unwrap()) as f64 / 1e9;
    assert!((metered - used).abs() < 0.05, "{metered} and {used}");
    // The import is not its own, though its process has it in its memory.
    assert!(imported >= 0.2 && all < used + imported, "{all}, {used} and {imported}");
    instance.stop(Duration::ZERO).await;
    host().forget(&function.spec.function);
}

async fn limited() {
    let large = |megabytes: usize| {
        function(&format!(
            "kept = bytearray({megabytes} * 1024 * 1024)\ndef handler(event, context): return len(bytearray(event << 20))"
        ))
        .with(|spec| spec.memory_bytes = 64 * MIB)
    };
    let fits = large(16);
    assert_eq!(once(&fits, "16").await, 16 << 20);
    // A copy has the limit for itself.
    let instance = copy(&fits).await;
    assert!(!instance.invoke(request("128")).await.outcome.instance_survives());
    host().forget(&fits.spec.function);
    let too_large = large(128);
    host().expect(&too_large.spec).await;
    assert!(host().refusals().iter().any(|it| it.contains(&too_large.spec.function)));
    assert!(too_large.try_start().await.result.is_err());
    host().forget(&too_large.spec.function);
}

async fn changed() {
    let function = function(
        "import os\nmade = os.environ['SECRET']\ndef handler(event, context): return made",
    )
    .with(|spec| drop(spec.environment.insert("SECRET".into(), "first".into())));
    assert_eq!(once(&function, "{}").await, "first");
    let function =
        function.with(|spec| drop(spec.environment.insert("SECRET".into(), "second".into())));
    // Its import has run in no zygote yet.
    let started = function.try_start().await;
    assert!(!is_copy(&started));
    let instance = started.result.unwrap();
    assert_eq!(answer(&instance.invoke(request("{}")).await), "second");
    instance.stop(Duration::ZERO).await;
    assert_eq!(once(&function, "{}").await, "second");
    host().forget(&function.spec.function);
}

async fn version_2() {
    let folder = tempfile::tempdir().unwrap();
    let tuning = Tuning { unified: true, ..Tuning::default() };
    let host = Host::open_tuned(config(folder.path()), tuning).await.unwrap();
    // A process that joined would have the number 3 with either; one that a fork had to make, 5.
    let number = if cfg!(target_arch = "x86_64") { 4 } else { 5 };
    for (start_from, number) in [(StartFrom::Zygote, number), (StartFrom::FunctionZygote, 3)] {
        let function = function(
            "
            import os
            end = sum(range(100000))
            def handler(event, context):
                groups = [line.split(':', 2)[2].strip() for line in open('/proc/self/cgroup')]
                session = os.getsid(0) == os.getpid() and os.getppid() == 1
                return [os.getpid(), sum(range(100000)) == end, session, groups]
            ",
        )
        .with(|spec| spec.start_from = start_from);
        host.expect(&function.spec).await;
        let started = host.start(function.spec.clone()).await;
        assert!(is_copy(&started), "{:?}; {:?}", started.phases, host.refusals());
        let instance = started.result.unwrap();
        let reply = instance.invoke(request("{}")).await;
        assert!(reply.usage.cpu_user_ns.unwrap() + reply.usage.cpu_system_ns.unwrap() > 0);
        let answer = answer(&reply);
        assert_eq!(answer[0], number);
        assert_eq!((&answer[1], &answer[2]), (&json!(true), &json!(true)));
        instance.stop(Duration::ZERO).await;
    }
    host.close().await;
    assert_eq!(left(folder.path().to_str().unwrap()), [0; 0]);
}

/// What keeps zygotes and what is in their sandboxes: all that descends from this process and shows their
/// state folder.
fn left(state: &str) -> Vec<i32> {
    let state = seen_as(Path::new(state));
    let own = i32::try_from(std::process::id()).unwrap();
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
    let descends = |pid: &i32| {
        *pid != own && std::iter::successors(Some(*pid), |it| parent(*it)).any(|it| it == own)
    };
    let shows = |pid: &i32| {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        mounts.contains(&state)
    };
    numbers.filter(descends).filter(shows).collect()
}

async fn gone() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap().to_owned();
    let host = Host::open(config(folder.path())).await.unwrap();
    let function = function("def handler(event, context): return event");
    host.expect(&function.spec).await;
    assert!(!left(&state).is_empty());
    let start = || async {
        let started = host.start(function.spec.clone()).await;
        let instance = started.result.unwrap();
        assert_eq!(answer(&instance.invoke(request("1")).await), 1);
        instance.stop(Duration::ZERO).await;
        started.restored
    };
    assert!(start().await);
    // Each part of it may be killed: what is started next is served, and the next zygote makes copies.
    for _ in 0..4 {
        let Some(victim) = left(&state).into_iter().next_back() else { break };
        kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
        start().await;
        while !start().await {
            host.expect(&function.spec).await;
        }
    }
    host.forget(&function.spec.function);
    while !left(&state).is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    host.expect(&function.spec).await;
    host.close().await;
    assert_eq!(left(&state), [0; 0]);
    assert!(mounts().iter().all(|it| !it.contains(&state)));
}

/// An import is paid for by the platform, so whoever ends its zygote cannot have it run for ever.
async fn ending() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap().to_owned();
    let host = Host::open(config(folder.path())).await.unwrap();
    let function = function("def handler(event, context): return event");
    let mut made = 0;
    while host.refusals().is_empty() {
        host.expect(&function.spec).await;
        made += 1;
        assert!(made < 100, "it is made again and again");
        for process in left(&state) {
            // It may have ended with another.
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
        let started = host.start(function.spec.clone()).await;
        if let Ok(instance) = started.result {
            instance.stop(Duration::ZERO).await;
        }
    }
    assert!(host.refusals()[0].contains("its zygote has ended by itself 8 times"));
    let started = host.start(function.spec.clone()).await;
    assert!(!is_copy(&started));
    let instance = started.result.unwrap();
    assert_eq!(answer(&instance.invoke(request("1")).await), 1);
    instance.stop(Duration::ZERO).await;
    host.close().await;
    assert_eq!(left(&state), [0; 0]);
}
