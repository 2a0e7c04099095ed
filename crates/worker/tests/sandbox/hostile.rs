//! Functions that do their worst: each gets the right outcome, and nobody else is harmed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncia_worker::instance::{Outcome, Request, StartError};

use crate::fixture::{
    Function, MIB, Needs, answer, control_groups, error, processes, request, short_request, test,
};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("exits", Needs::Sandbox, exits),
        test("kills_itself", Needs::Sandbox, kills_itself),
        test("never_returns", Needs::Sandbox, never_returns),
        test("ignores_signals_and_never_returns", Needs::Sandbox, ignores_signals),
        test("fills_its_memory", Needs::Memory, fills_memory),
        test("fills_its_memory_at_once", Needs::Memory, fills_memory_in_initialization),
        test("a_child_fills_the_memory", Needs::Memory, child_fills_memory),
        test("forks_without_end", Needs::Pids, forks_without_end),
        test("fills_socket_buffers", Needs::Memory, fills_socket_buffers),
        test("fills_tmp", Needs::Memory, fills_tmp),
        test("fills_tmp_with_empty_files", Needs::Memory, fills_tmp_with_files),
        test("prints_megabytes", Needs::Sandbox, prints_megabytes),
        test("prints_without_end_from_a_child", Needs::Sandbox, prints_from_a_child),
        test("opens_many_connections", Needs::Sandbox, opens_many_connections),
        test("talks_nonsense_to_the_runtime_api", Needs::Sandbox, talks_nonsense),
        test("exits_while_idle", Needs::Sandbox, exits_while_idle),
        test("leaves_processes_behind", Needs::Sandbox, leaves_processes_behind),
    ]
}

async fn outcome(code: &str) -> Outcome {
    let function = Function::python(code);
    let instance = function.start().await;
    let reply = instance.invoke(request("{}")).await;
    // Already gone when the invocation returns.
    assert!(!reply.outcome.instance_survives(), "{:?}", reply.outcome);
    assert!(processes(&function.spec.id).is_empty());
    assert!(control_groups(&function.spec.id).is_empty());
    instance.stop(Duration::from_secs(1)).await;
    reply.outcome
}

pub(crate) async fn exits() {
    let exit = "import os, sys\ndef handler(event, context):\n    print('bye')\n    ";
    let with = |how: &str| format!("{exit}{how}\n");
    assert_eq!(outcome(&with("os._exit(3)")).await, Outcome::Exited("exit status 3".into()));
    assert_eq!(outcome(&with("sys.exit(4)")).await, Outcome::Exited("exit status 4".into()));
    assert_eq!(outcome(&with("os._exit(0)")).await, Outcome::Exited("exit status 0".into()));
}

async fn kills_itself() {
    let code = "import os\ndef handler(event, context):\n    os.kill(os.getpid(), 9)\n";
    assert_eq!(outcome(code).await, Outcome::Exited("signal: killed".into()));
    let code = "import os\ndef handler(event, context):\n    if os.fork() == 0:\n        while True:\n            pass\n    os.kill(-1, 9)\n    os.abort()\n";
    assert_eq!(outcome(code).await, Outcome::Exited("signal: aborted".into()));
    let code = "import ctypes\ndef handler(event, context):\n    ctypes.string_at(0)\n";
    assert_eq!(outcome(code).await, Outcome::Exited("signal: segmentation fault".into()));
}

async fn never_returns() {
    let function =
        Function::python("def handler(event, context):\n    while True:\n        pass\n");
    let instance = function.start().await;
    let reply = instance.invoke(short_request("{}")).await;
    assert_eq!(reply.outcome, Outcome::Timeout);
    assert!(reply.ended.since(reply.started) >= 300_000_000);
    assert!(processes(&function.spec.id).is_empty());
    assert!(control_groups(&function.spec.id).is_empty());
    assert_eq!(instance.exited().await, "signal: killed");
}

async fn ignores_signals() {
    let function = Function::python(
        "
        import os, signal, time
        def handler(event, context):
            for number in range(1, 65):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            for _ in range(5):
                if os.fork() == 0:
                    os.setsid()
            while True:
                time.sleep(1)
        ",
    );
    let instance = function.start().await;
    assert_eq!(instance.invoke(short_request("{}")).await.outcome, Outcome::Timeout);
    assert!(processes(&function.spec.id).is_empty());
    assert!(control_groups(&function.spec.id).is_empty());

    let instance = function.start().await;
    let reply = tokio::join!(instance.invoke(request("{}")), async {
        // It ignores signals before it makes the first child.
        while processes(&function.spec.id).len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        instance.stop(Duration::from_millis(50)).await;
    });
    assert_eq!(reply.0.outcome, Outcome::Exited("signal: killed".into()));
}

pub(crate) async fn fills_memory() {
    let code = "
        def handler(event, context):
            print('filling')
            keep = []
            while True:
                keep.append(bytearray(1 << 20))
        ";
    let function = Function::python(code).with(|spec| spec.memory_bytes = 128 * MIB);
    let instance = function.start().await;
    let reply = instance.invoke(request("{}")).await;
    assert_eq!(reply.outcome, Outcome::OutOfMemory);
    assert_eq!(reply.log_tail, "filling\n");
    let peak = reply.usage.memory_peak.unwrap();
    assert!(peak > 120 * MIB as i64 && peak <= 128 * MIB as i64, "{peak}");
    assert!(control_groups(&function.spec.id).is_empty());
}

async fn fills_memory_in_initialization() {
    let function = Function::python("keep = bytearray(1 << 30)\n");
    match function.try_start().await.result {
        Err(StartError::OutOfMemory) => {}
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started"),
    }
}

async fn child_fills_memory() {
    let code = "
        import os
        def handler(event, context):
            child = os.fork()
            if child == 0:
                open('/proc/self/oom_score_adj', 'w').write('1000')
                keep = []
                while True:
                    keep.append(bytearray(1 << 20))
            return os.waitpid(child, 0)[1]
        ";
    assert_eq!(Function::python(code).once("{}").await, 9);
}

async fn forks_without_end() {
    let bomb = Function::python(
        "
        import os
        def handler(event, context):
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
        ",
    )
    .with(|spec| {
        spec.pids_max = 40;
        spec.cpu_micro = 200_000;
    });
    let calm = Function::python("def handler(event, context):\n    return event\n");
    let (bomb_instance, calm_instance) = (bomb.start().await, calm.start().await);
    let id = bomb.spec.id.clone();
    let over = AtomicBool::new(false);
    let bombing = async {
        let request_own = request("{}");
        let timeout = Duration::from_secs(2);
        let reply = bomb_instance.invoke(Request { timeout, ..request_own }).await;
        over.store(true, Ordering::Relaxed);
        reply
    };
    let watching = async {
        let (mut count, mut most) = (0, 0);
        while count < 20 || !over.load(Ordering::Relaxed) {
            let reply = calm_instance.invoke(request(&count.to_string())).await;
            assert_eq!(answer(&reply), count);
            most = most.max(processes(&id).len());
            count += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        most
    };
    let (reply, most) = tokio::join!(bombing, watching);
    assert_eq!(reply.outcome, Outcome::Timeout);
    // The first process is not the function's.
    assert!(most > 2 && most <= 41, "{most}");
    assert!(processes(&id).is_empty());
    assert!(control_groups(&id).is_empty());
    calm_instance.stop(Duration::ZERO).await;
}

/// Bytes of the whole machine in buffers of TCP sockets.
fn tcp_buffers() -> u64 {
    let text = std::fs::read_to_string("/proc/net/sockstat").unwrap();
    let tcp = text.lines().find(|line| line.starts_with("TCP:")).unwrap();
    let pages: u64 = tcp.rsplit(' ').next().unwrap().parse().unwrap();
    pages * 4096
}

async fn fills_socket_buffers() {
    let function = Function::python(
        "
        import socket, time
        keep = []
        def handler(event, context):
            listener = socket.create_server(('127.0.0.1', 5000))
            for _ in range(200):
                try:
                    sender = socket.create_connection(('127.0.0.1', 5000), timeout=0.1)
                    keep.append((sender, listener.accept()[0]))
                except OSError:
                    break
            sent, idle = 0, 0
            block = bytes(1 << 16)
            for sender, _ in keep:
                sender.setblocking(False)
            while idle < 5 and sent < 1 << 30:
                before = sent
                for sender, _ in keep:
                    try:
                        sent += sender.send(block)
                    except OSError:
                        pass
                idle = 0 if sent > before else idle + 1
                if idle:
                    time.sleep(0.02)
            return sent
        ",
    )
    .with(|spec| spec.memory_bytes = 128 * MIB);
    let before = tcp_buffers();
    let instance = function.start().await;
    let reply = instance.invoke(request("{}")).await;
    let grown = tcp_buffers().saturating_sub(before);
    // Version 2 counts the buffers as memory, so it may have been killed.
    if reply.outcome != Outcome::OutOfMemory {
        assert!(answer(&reply).as_u64().unwrap() > 0);
    }
    assert!(grown < 128 * MIB, "{} MiB of the machine's TCP buffers", grown / MIB);
    instance.stop(Duration::ZERO).await;
}

async fn fills_tmp() {
    let function = Function::python(
        "
        import os, shutil
        def handler(event, context):
            size = shutil.disk_usage('/tmp').total
            try:
                with open('/tmp/large', 'wb') as file:
                    while True:
                        file.write(bytes(1 << 20))
            finally:
                os.unlink('/tmp/large')
        ",
    )
    .with(|spec| spec.memory_bytes = 128 * MIB);
    let instance = function.start().await;
    for _ in 0..2 {
        let object = error(&instance.invoke(request("{}")).await);
        assert_eq!(object["errorType"], "OSError");
        assert!(object["errorMessage"].as_str().unwrap().contains("No space left"), "{object}");
    }
    instance.stop(Duration::ZERO).await;

    let small = Function::python(
        "import shutil\ndef handler(event, context):\n    return shutil.disk_usage('/tmp').total\n",
    );
    let small = small.with(|spec| spec.ephemeral_bytes = 16 * MIB);
    assert_eq!(small.once("{}").await, 16 * MIB);
}

async fn fills_tmp_with_files() {
    let function = Function::python(
        "
        def handler(event, context):
            count = 0
            while True:
                open('/tmp/%d' % count, 'w').close()
                count += 1
        ",
    )
    .with(|spec| spec.ephemeral_bytes = 16 * MIB);
    let instance = function.start().await;
    let object = error(&instance.invoke(request("{}")).await);
    assert!(object["errorMessage"].as_str().unwrap().contains("No space left"), "{object}");
    instance.stop(Duration::ZERO).await;
}

async fn prints_megabytes() {
    let function = Function::python(
        "
        import os
        def handler(event, context):
            for _ in range(50):
                os.write(1, b'x' * (1 << 20))
            print('end')
            return 'printed'
        ",
    );
    let instance = function.start().await;
    let reply = instance.invoke(request("{}")).await;
    assert_eq!(answer(&reply), "printed");
    assert_eq!(reply.log_tail.len(), 4096);
    assert!(reply.log_tail.ends_with(b"xend\n"));
    instance.stop(Duration::ZERO).await;
}

async fn prints_from_a_child() {
    let function = Function::python(
        "
        import os
        def handler(event, context):
            if os.fork() == 0:
                while True:
                    os.write(1, b'y' * 65536)
            return 'back'
        ",
    );
    let instance = function.start().await;
    let reply = instance.invoke(request("{}")).await;
    assert_eq!(answer(&reply), "back");
    assert!(reply.log_tail.len() <= 4096);
    assert_eq!(answer(&instance.invoke(request("{}")).await), "back");
    instance.stop(Duration::ZERO).await;
    assert!(processes(&function.spec.id).is_empty());
}

async fn opens_many_connections() {
    let function = Function::python(
        "
        import select, socket, time
        keep = set()
        def handler(event, context):
            closed = 0
            for _ in range(200):
                try:
                    keep.add(socket.create_connection(('127.0.0.1', 9001)))
                except OSError:
                    closed += 1
            # A busy machine may be late to close them.
            end = time.monotonic() + 30
            while closed < 175 and time.monotonic() < end:
                for s in select.select(keep, [], [], 1)[0]:
                    try:
                        open = s.recv(1) != b''
                    except OSError:
                        open = False
                    if not open:
                        keep.remove(s)
                        closed += 1
            return closed
        ",
    );
    let closed = function.once("{}").await.as_u64().unwrap();
    assert!(closed >= 175, "{closed}");
}

async fn talks_nonsense() {
    let function = Function::python(
        "
        import socket
        def say(text):
            s = socket.create_connection(('127.0.0.1', 9001))
            s.sendall(text.encode())
            s.settimeout(50)
            return s.recv(1000).decode().split('\\r\\n')[0]
        def handler(event, context):
            p = '/2018-06-01/runtime/invocation/'
            answers = [
                say('GET / HTTP/1.1\\r\\n\\r\\n'),
                say('GET ' + p + 'next HTTP/1.1\\r\\n\\r\\n'),
                say('POST ' + p + 'other/response HTTP/1.1\\r\\nContent-Length: 2\\r\\n\\r\\n{}'),
                say('POST /2018-06-01/runtime/init/error HTTP/1.1\\r\\nContent-Length: 2\\r\\n\\r\\n{}'),
                say('nonsense\\r\\n\\r\\n'),
            ]
            return answers
        ",
    );
    let answers = function.once("{}").await;
    let expected = [
        "HTTP/1.1 404 Not Found",
        "HTTP/1.1 403 Forbidden",
        "HTTP/1.1 400 Bad Request",
        "HTTP/1.1 403 Forbidden",
        "HTTP/1.1 400 Bad Request",
    ];
    assert_eq!(answers, serde_json::json!(expected));
}

async fn exits_while_idle() {
    let function = Function::python(
        "
        import os, signal
        signal.signal(signal.SIGUSR1, lambda number, frame: os._exit(5))
        def handler(event, context):
            return 'answered'
        ",
    );
    let instance = function.start().await;
    assert_eq!(answer(&instance.invoke(request("{}")).await), "answered");
    let runtime = processes(&function.spec.id)[1];
    kill(Pid::from_raw(runtime), Signal::SIGUSR1).unwrap();
    assert_eq!(instance.exited().await, "exit status 5");
    // Whoever did not look gets to know that no code has seen the request.
    let reply = instance.invoke(request("{}")).await;
    assert_eq!(reply.outcome, Outcome::Exited("exit status 5".into()));
    assert!(!reply.delivered);
    assert!(control_groups(&function.spec.id).is_empty());
}

async fn leaves_processes_behind() {
    let function = Function::python(
        "
        import os, time
        def handler(event, context):
            for _ in range(3):
                if os.fork() == 0:
                    os.setsid()
                    if os.fork():
                        os._exit(0)
                    time.sleep(1000)
            return 'left'
        ",
    );
    let instance = function.start().await;
    assert_eq!(answer(&instance.invoke(request("{}")).await), "left");
    // They go from parent to parent while they are counted.
    while processes(&function.spec.id).len() < 5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    instance.stop(Duration::from_secs(5)).await;
    assert!(processes(&function.spec.id).is_empty());
}
