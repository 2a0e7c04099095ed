//! Instances whose runtime is a copy of a zygote.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use uncia_worker::instance::{Host, Network, StartError, StartFrom, Started};

use crate::fixture::{
    Function, MIB, Needs, answer, config, control_groups, host, processes, request, seen_as, state,
    test,
};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("a_copy_of_a_zygote_is_like_a_fresh_process", Needs::Users, like_fresh),
        test("copies_of_a_zygote_share_no_randomness", Needs::Users, randomness),
        test("a_copy_finds_nothing_of_others_in_its_memory", Needs::Users, memory),
        test("a_copy_cannot_reach_its_zygote", Needs::Users, out_of_reach),
        test("copies_of_a_zygote_fail_as_fresh_ones_do", Needs::Users, failures),
        test("a_copy_of_a_zygote_is_limited", Needs::Memory, limits),
        test("what_only_a_start_obeys_is_started_fresh", Needs::Users, obeyed_at_start),
        test("zygotes_that_are_killed_are_made_again", Needs::Users, killed),
    ]
}

const LOOK: &str = "
        import ctypes, os, resource, signal, socket, sys, threading, time
        def read(path):
            try:
                with open(path) as file:
                    return file.read()
            except OSError as error:
                return repr(error)
        def descriptors():
            names = {}
            for name in os.listdir('/proc/self/fd'):
                try:
                    names[name] = os.readlink('/proc/self/fd/' + name).split(':')[0]
                except OSError:
                    pass
            return names
        def status():
            wanted = {'Name', 'Umask', 'PPid', 'TracerPid', 'Groups', 'SigBlk', 'SigIgn', 'SigCgt', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb',
                      'NoNewPrivs', 'Seccomp', 'Seccomp_filters', 'Threads'}
            lines = (line.split(':\\t') for line in read('/proc/self/status').splitlines())
            return {line[0]: line[1] for line in lines if line[0] in wanted}
        def inherited():
            environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), 'environ')
            names = []
            while environ[len(names)] is not None:
                names.append(environ[len(names)].partition(b'=')[0].decode())
            return sorted(names)
        def at(libc, cpu):
            before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {cpu})
            seen = libc.sched_getcpu() == cpu
            os.sched_setaffinity(0, before)
            return seen
        def child():
            number = os.fork()
            if number == 0:
                os._exit(3)
            return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        def c_library():
            libc = ctypes.CDLL(None)
            number, locks = ctypes.c_void_p(), ctypes.c_void_p()
            size = ctypes.c_size_t()
            libc.prctl(40, ctypes.byref(number), 0, 0, 0)
            libc.syscall({'x86_64': 274, 'aarch64': 100}[os.uname().machine], 0, ctypes.byref(locks), ctypes.byref(size))
            seen = []
            signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
            libc['raise'](signal.SIGUSR1)
            thread = threading.Thread(target=lambda: seen.append(threading.get_native_id() != os.getpid()))
            thread.start()
            thread.join()
            return {
                'number': bool(number) and ctypes.c_int.from_address(number.value).value == os.getpid(),
                'locks': [bool(locks), size.value],
                'cpus': [at(libc, cpu) for cpu in sorted(os.sched_getaffinity(0))[-2:]],
                'seen': seen, 'native': threading.main_thread().native_id == os.getpid(),
                'child': child(),
            }
        def handler(event, context):
            print('printed')
            open('/dev/stdout', 'w').write('by name')
            left = os.path.exists('/tmp/left')
            open('/tmp/left', 'w').close()

            limits = [resource.getrlimit(it) for it in range(16) if it not in (6, 11)]
            return {
                'environment': dict(os.environ), 'inherited': inherited(), 'c': ctypes.CDLL(None).getenv(b'SECRET') != 0,
                'descriptors': descriptors(), 'tmp': sorted(os.listdir('/tmp')), 'left': left,
                'status': status(), 'limits': limits, 'cwd': os.getcwd(), 'session': os.getsid(0) == os.getpid(),
                'group': os.getpgid(0) == os.getpid(), 'host': socket.gethostname(), 'arguments': sys.argv,
                'command': read('/proc/self/cmdline'), 'path': sys.path, 'flags': repr(sys.flags),
                'cgroup': read('/proc/self/cgroup'), 'passwd': read('/etc/passwd').split(':')[0],
                'mounts': sorted(line.split()[1:3] + [line.split()[3].split(',')[0]]
                                 for line in read('/proc/mounts').splitlines()),
                'oom': read('/proc/self/oom_score_adj'), 'exe': os.readlink('/proc/self/exe'),
                'zone': time.tzname, 'encoding': sys.stdout.encoding,
                'processes': [int(it) - os.getpid() for it in os.listdir('/proc') if it.isdigit()],
                'root': sorted(os.listdir('/')), 'task': sorted(os.listdir('.')),
                'namespaces': sorted(os.listdir('/proc/self/ns')),
                'children': read('/proc/thread-self/children'), 'c_library': c_library(),
                'main': sorted(it for it in sys.modules if 'zygote' in it),
            }
        ";

fn zygote(code: &str) -> Function {
    Function::python(code).with(|spec| spec.start_from = StartFrom::Zygote)
}

fn is_copy(started: &Started) -> bool {
    assert_eq!(started.restored, started.phases.iter().any(|phase| phase.name == "fork"));
    started.restored
}

/// Starts an instance, which must be a copy, for one invocation.
async fn once(function: &Function, event: &str) -> Value {
    host().expect(&function.spec).await;
    let started = function.try_start().await;
    assert!(is_copy(&started), "{:?}", started.phases);
    let instance = started.result.unwrap();
    let reply = instance.invoke(request(event)).await;
    instance.stop(Duration::ZERO).await;
    assert!(processes(&function.spec.id).is_empty());
    assert!(control_groups(&function.spec.id).is_empty());
    answer(&reply)
}

/// A function that answers with all that it can see.
pub(crate) fn look(start_from: StartFrom, network: Network, secret: &str) -> Function {
    Function::python(LOOK).with(|spec| {
        spec.start_from = start_from;
        spec.network = network;
        spec.environment.insert("SECRET".into(), secret.into());
        spec.environment.insert("TZ".into(), "XYZ-3".into());
    })
}

async fn like_fresh() {
    for network in [Network::None, Network::Platform] {
        let function = |start_from, secret: &str| look(start_from, network, secret);
        let mut fresh = function(StartFrom::Fresh, "fresh").once("{}").await;
        forget_ids(&mut fresh);
        for turn in 0..4 {
            let secret = format!("secret {turn}");
            let mut copy = once(&function(StartFrom::Zygote, &secret), "{}").await;
            assert_eq!(copy["environment"]["SECRET"], json!(secret));
            copy["environment"]["SECRET"] = json!("fresh");
            forget_ids(&mut copy);
            for (key, value) in fresh.as_object().unwrap() {
                assert_eq!(copy[key], *value, "{key}");
            }
        }
        // What that is, in case both are wrong.
        let status = &fresh["status"];
        assert_eq!(status["CapEff"], "0000000000000000");
        assert_eq!(status["CapBnd"], "0000000000000000");
        assert_eq!(status["NoNewPrivs"], "1");
        assert_eq!(status["Seccomp"], "2");
        assert_eq!(status["PPid"], "1");
        let library = &fresh["c_library"];
        assert_eq!(library["number"], true);
        assert_eq!(library["cpus"][0], true);
        assert_eq!(library["native"], true);
        assert_eq!(library["child"], 3);
        assert_eq!(library["seen"], json!([10, true]));
    }
}

/// Forgets what is another's for each instance or invocation.
pub(crate) fn forget_ids(answer: &mut Value) {
    for name in ["AWS_LAMBDA_LOG_STREAM_NAME", "_X_AMZN_TRACE_ID"] {
        answer["environment"][name] = Value::Null;
    }
}

async fn randomness() {
    let function = zygote(
        "
        import os, random, secrets, tempfile, uuid
        def handler(event, context):
            return [str(random.random()), secrets.token_hex(), os.urandom(16).hex(), str(uuid.uuid4()),
                    tempfile.mktemp(), str(random.SystemRandom().random())]
        ",
    );
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        for number in once(&function, "{}").await.as_array().unwrap() {
            assert!(seen.insert(number.to_string()), "{number} twice");
        }
    }
}

async fn memory() {
    // Neither name nor value is in the code, nor any part of it that is as long.
    let secret = |number: usize| format!("{}{number}", "SeCrEt".repeat(4));
    let function = |number: usize| {
        zygote(
            "
            import os
            def handler(event, context):
                wanted = b'SeCr' + b'EtSeCrEtSeCrEt'
                found = set()
                with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:
                    for line in maps:
                        span, rights = line.split()[:2]
                        if rights[:2] == 'rw':
                            start, end = (int(it, 16) for it in span.split('-'))
                            memory.seek(start)
                            data = memory.read(end - start)
                            at = data.find(wanted)
                            while at >= 0:
                                found.add(data[at:at + 25].decode('latin-1'))
                                at = data.find(wanted, at + 25)
                return sorted(it for it in found if len(it) == 25 and it[24:].isdigit())
            ",
        )
        .with(|spec| drop(spec.environment.insert("OWN".into(), secret(number))))
    };
    for number in 1..5 {
        assert_eq!(once(&function(number), "{}").await, json!([secret(number)]));
    }
}

async fn out_of_reach() {
    let function = zygote(
        "
        import os, signal, socket
        def attempt(action):
            try:
                action()
                return 'done'
            except OSError as error:
                return type(error).__name__
        def handler(event, context):
            zygote = event['zygote']
            numbers = [it for it in range(3, 1024) if attempt(lambda: os.fstat(it)) == 'done']
            sockets = [it for it in numbers if os.readlink('/proc/self/fd/%d' % it).startswith('socket')]
            return {
                'signal': attempt(lambda: os.kill(zygote, signal.SIGKILL)),
                'look': attempt(lambda: open('/proc/%d/status' % zygote)),
                'parent': attempt(lambda: os.kill(1, signal.SIGKILL)),
                'memory': attempt(lambda: open('/proc/1/mem')),
                'sockets': len(sockets),
            }
        ",
    );
    // There is one from here on.
    host().expect(&function.spec).await;
    let instance = function.start().await;
    let event = json!({ "zygote": zygotes(state())[0] }).to_string();
    let answer = answer(&instance.invoke(request(&event)).await);
    assert_eq!(answer["signal"], "ProcessLookupError");
    assert_eq!(answer["look"], "FileNotFoundError");
    assert_ne!(answer["parent"], "done");
    assert_eq!(answer["memory"], "FileNotFoundError");
    // The one of the Runtime API.
    assert_eq!(answer["sockets"], 1);
    instance.stop(Duration::ZERO).await;
}

async fn failures() {
    for code in [
        "import missing",
        "x = (",
        "raise ValueError('on purpose')",
        "import os; os._exit(3)",
        "import sys; sys.exit(4)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "other = 1",
    ] {
        let fresh = Function::python(code).try_start().await;
        let copied = zygote(code);
        host().expect(&copied.spec).await;
        let copy = copied.try_start().await;
        assert!(copy.phases.iter().any(|phase| phase.name == "fork"), "{code}: {:?}", copy.phases);
        let (fresh_error, copy_error) = (fresh.result.err().unwrap(), copy.result.err().unwrap());
        assert_eq!(fresh_error.to_string(), copy_error.to_string(), "{code}");
        if let (StartError::Init { payload: a, .. }, StartError::Init { payload: b, .. }) =
            (&fresh_error, &copy_error)
        {
            assert_eq!(a, b, "{code}");
        }
        assert_eq!(fresh.log_tail, copy.log_tail, "{code}");
    }
    let slow = zygote("import time; time.sleep(1000)")
        .with(|spec| spec.init_timeout = Duration::from_millis(300));
    let started = slow.try_start().await;
    assert!(matches!(started.result, Err(StartError::Timeout(_))));
    assert!(processes(&slow.spec.id).is_empty());
}

async fn limits() {
    let function = zygote(
        "
        import os
        def handler(event, context):
            return len(bytearray(event * 1024 * 1024))
        ",
    )
    .with(|spec| spec.memory_bytes = 64 * MIB);
    assert_eq!(once(&function, "32").await, 32 * 1024 * 1024);
    let instance = function.start().await;
    let reply = instance.invoke(request("128")).await;
    assert!(!reply.outcome.instance_survives(), "{:?}", reply.outcome);
}

async fn obeyed_at_start() {
    let function = zygote("import sys\ndef handler(event, context): return sys.flags.optimize")
        .with(|spec| drop(spec.environment.insert("PYTHONOPTIMIZE".into(), "2".into())));
    let started = function.try_start().await;
    assert!(!is_copy(&started));
    let instance = started.result.unwrap();
    assert_eq!(answer(&instance.invoke(request("{}")).await), 2);
    instance.stop(Duration::ZERO).await;
}

/// The zygotes of the host whose state is in this folder.
fn zygotes(state: &Path) -> Vec<i32> {
    let state = seen_as(state);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let mounts = fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        if environment.windows(13).any(|it| it == b"UNCIA_ZYGOTE=") && mounts.contains(&state) {
            found.extend(entry.file_name().to_str().and_then(|it| it.parse::<i32>().ok()));
        }
    }
    found
}

async fn killed() {
    // Of its own: others' starts meanwhile must be copies.
    let state = tempfile::tempdir().unwrap();
    let host = Host::open(config(state.path())).await.unwrap();
    let function = || zygote("def handler(event, context): return event");
    let start = |number: usize| {
        let (host, function) = (host.clone(), function());
        async move {
            // Whole: its folder goes with it.
            let function = function;
            let started = host.start(function.spec.clone()).await;
            let instance = started.result.unwrap();
            let reply = instance.invoke(request(&number.to_string())).await;
            assert_eq!(answer(&reply), number);
            instance.stop(Duration::ZERO).await;
            assert!(processes(&function.spec.id).is_empty());
            assert!(control_groups(&function.spec.id).is_empty());
            started.restored
        }
    };
    // Nobody waits until there is one.
    assert!(!start(0).await);
    host.expect(&function().spec).await;
    assert!(start(0).await);
    let before = zygotes(state.path());
    assert_eq!(before.len(), 1);
    let starts: Vec<_> = (0..20).map(|number| tokio::spawn(start(number))).collect();
    kill(Pid::from_raw(before[0]), Signal::SIGKILL).unwrap();
    for start in starts {
        start.await.unwrap();
    }
    host.expect(&function().spec).await;
    assert!(start(20).await);
    let silent = zygotes(state.path());
    assert_ne!(silent, before);

    // One that does not answer is given up, and made again. Copies that it has made before are of use.
    kill(Pid::from_raw(silent[0]), Signal::SIGSTOP).unwrap();
    while start(21).await {}
    while zygotes(state.path()) == silent {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    host.expect(&function().spec).await;
    assert!(start(22).await);
    host.close().await;
    assert_eq!(zygotes(state.path()), [0; 0]);
}
