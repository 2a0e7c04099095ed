//! What a function cannot see or touch.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use base64::Engine;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use uncia_worker::config::Config;
use uncia_worker::instance::{Network, Outcome};
use uncia_worker::listen::Listen;
use uncia_worker::serve::Worker;

use crate::fixture::{
    Function, MIB, Needs, answer, is_gvisor, mounts as host_mounts, request, state, test,
};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("the_root_is_read_only", Needs::Sandbox, read_only),
        test("no_files_of_the_host", Needs::Sandbox, no_host_files),
        test("no_processes_of_the_host", Needs::Sandbox, no_host_processes),
        test("no_rights", Needs::Sandbox, no_rights),
        test("the_first_process_is_out_of_reach", Needs::Sandbox, first_process),
        test("no_network", Needs::Sandbox, no_network),
        test("the_hosts_network_if_asked_for", Needs::Sandbox, host_network),
        test("runtime_apis_on_the_hosts_network", Needs::Users, foreign_runtime_api),
        test("the_control_api_on_the_hosts_network", Needs::Users, control_api),
        test("tmp_is_private", Needs::Sandbox, private_tmp),
        test("no_descriptors_of_the_worker", Needs::Sandbox, descriptors),
        test("mounts_do_not_leak", Needs::Sandbox, mounts),
        test("links_in_the_code_lead_nowhere", Needs::Sandbox, links),
        test("no_new_namespaces", Needs::Sandbox, no_new_namespaces),
        test("only_ordinary_sockets", Needs::Sandbox, socket_families),
        test("threads_and_processes_under_the_filter", Needs::Sandbox, python_threads),
        test("node_threads_under_the_filter", Needs::Node, node_threads),
        test("the_standard_streams_can_be_opened", Needs::Sandbox, standard_streams),
    ]
}

pub(crate) async fn read_only() {
    let function = Function::python(
        "
        import os
        def handler(event, context):
            written = []
            for place in ['/x', '/etc/x', '/var/task/x', '/var/lang/x', '/var/runtime/bootstrap.py',
                          '/dev/x', '/etc/passwd', '/proc/sys/kernel/hostname', '/var/task/main.py',
                          '/proc/sysrq-trigger', '/dev/.passwd']:
                try:
                    open(place, 'a').close()
                    written.append(place)
                except OSError:
                    pass
            open('/dev/null', 'w').write('x')
            open('/tmp/x', 'w').write('x')
            return written
        ",
    );
    assert_eq!(function.once("{}").await, json!([]));
}

async fn no_host_files() {
    let function = Function::python(
        "
        import os
        def handler(event, context):
            seen = [place for place in event if os.path.exists(place)]
            return [seen, sorted(os.listdir('/')), sorted(os.listdir('/etc')), sorted(os.listdir('/var')),
                    sorted(os.listdir('/dev')), open('/etc/passwd').read().count('\\n')]
        ",
    );
    let own = std::env::current_exe().unwrap();
    let hidden = json!([
        "/etc/shadow",
        "/etc/ssh",
        "/root",
        "/home",
        "/sys",
        "/boot",
        "/var/lib",
        "/run",
        "/mnt",
        "/usr/share",
        "/usr/sbin",
        "/dev/vda",
        "/dev/shm",
        "/dev/kmsg",
        "/dev/mem",
        "/dev/tty",
        state(),
        own,
        function.spec.code
    ]);
    let answer = function.once(&hidden.to_string()).await;
    assert_eq!(answer[0], json!([]));
    let top = ["bin", "dev", "etc", "lib", "lib64", "opt", "proc", "tmp", "usr", "var"];
    assert_eq!(answer[1], json!(top));
    let etc = ["group", "hosts", "nsswitch.conf", "passwd", "pki", "resolv.conf", "ssl"];
    assert_eq!(answer[2], json!(etc));
    assert_eq!(answer[3], json!(["lang", "runtime", "task"]));
    let dev =
        [".passwd", "fd", "full", "null", "random", "stderr", "stdin", "stdout", "urandom", "zero"];
    assert_eq!(answer[4], json!(dev));
    assert_eq!(answer[5], 1);
}

async fn no_host_processes() {
    let function = Function::python(
        "
        import os
        def handler(event, context):
            return [sorted(int(name) for name in os.listdir('/proc') if name.isdigit()), os.getpid(),
                    os.getppid(), os.uname().nodename]
        ",
    );
    assert_eq!(function.once("{}").await, json!([[2], 2, 1, "localhost"]));
}

const CALLS: &str = "
        import ctypes, errno, os, platform
        libc = ctypes.CDLL(None, use_errno=True)
        NUMBERS = {
            'x86_64': {'clone': 56, 'clone3': 435, 'unshare': 272, 'setns': 308, 'io_uring_setup': 425},
            'aarch64': {'clone': 220, 'clone3': 435, 'unshare': 97, 'setns': 268, 'io_uring_setup': 425},
        }[platform.machine()]
        def call(name, *arguments):
            result = libc.syscall(NUMBERS[name], *arguments)
            if name == 'clone' and result == 0:
                os._exit(0)
            return 'allowed' if result >= 0 else errno.errorcode[ctypes.get_errno()]
        ";

/// User namespaces would give a function rights over what it makes in them, and with those a much
/// larger part of the kernel.
pub(crate) async fn no_new_namespaces() {
    let code = format!(
        "{CALLS}
        def handler(event, context):
            files = os.open('/proc/self/ns/net', os.O_RDONLY)
            return [call('unshare', 0x10000000), call('clone', 0x10000000 | 17, 0, 0, 0, 0),
                    call('clone3', 0, 0), call('setns', files, 0), call('io_uring_setup', 1, 0),
                    call('clone', 17, 0, 0, 0, 0)]
        "
    );
    let refused = if is_gvisor() {
        // Its own kernel's, of which the host's knows nothing; processes with others it does not make.
        json!(["allowed", "EPERM", "EINVAL", "EPERM", "ENOSYS", "allowed"])
    } else {
        json!(["EPERM", "EPERM", "ENOSYS", "EPERM", "ENOSYS", "allowed"])
    };
    assert_eq!(Function::python(&code).once("{}").await, refused);
}

/// AF_VSOCK knows no network namespaces: two functions without any network could talk through it.
async fn socket_families() {
    let function = Function::python(
        "
        import errno, socket
        def attempt(family, kind, protocol=0):
            try:
                socket.socket(family, kind, protocol).close()
                return 'allowed'
            except OSError as error:
                return errno.errorcode[error.errno]
        def handler(event, context):
            vsock, alg, tipc, packet, audit = 40, 38, 30, 10, 9
            return [attempt(*one) for one in (
                (vsock, socket.SOCK_STREAM), (vsock, socket.SOCK_DGRAM), (alg, socket.SOCK_SEQPACKET),
                (tipc, socket.SOCK_STREAM), (socket.AF_PACKET, socket.SOCK_RAW),
                (socket.AF_INET, packet), (socket.AF_NETLINK, socket.SOCK_RAW, audit), (socket.AF_UNIX, socket.SOCK_STREAM),
                (socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET6, socket.SOCK_DGRAM),
                (socket.AF_NETLINK, socket.SOCK_RAW))]
        ",
    );
    let no = "EAFNOSUPPORT";
    let yes = "allowed";
    assert_eq!(function.once("{}").await, json!([no, no, no, no, no, no, no, yes, yes, yes, yes]));
}

pub(crate) async fn python_threads() {
    let function = Function::python(
        "
        import os, subprocess, threading
        def handler(event, context):
            results = []
            threads = [threading.Thread(target=results.append, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            child = os.fork()
            if child == 0:
                os._exit(7)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            printed = subprocess.run(['/bin/sh', '-c', 'echo $(echo inner)'], stdout=subprocess.PIPE).stdout
            return [sorted(results), status, printed.decode()]
        ",
    );
    assert_eq!(function.once("{}").await, json!([[0, 1, 2, 3, 4, 5, 6, 7], 7, "inner\n"]));
}

async fn node_threads() {
    let code = "
        const { Worker } = require('worker_threads');
        const { execFileSync } = require('child_process');
        exports.handler = async () => {
            const answers = [1, 2, 3].map((number) => new Promise((resolve, reject) => {
                const source = `require('worker_threads').parentPort.postMessage(${number} * 2)`;
                new Worker(source, { eval: true }).on('message', resolve).on('error', reject);
            }));
            return [await Promise.all(answers), execFileSync('/bin/sh', ['-c', 'echo inner']).toString()];
        };";
    let function = Function::new("node", &[("main.js", code)], "main.handler")
        .with(|spec| spec.memory_bytes = 512 * MIB);
    assert_eq!(function.once("{}").await, json!([[2, 4, 6], "inner\n"]));
}

/// Programs write to /dev/stdout by name, which opens the pipe anew.
pub(crate) async fn standard_streams() {
    let function = Function::python(
        "
        import subprocess
        def handler(event, context):
            for name in ('/dev/stdout', '/dev/stderr', '/proc/self/fd/1'):
                with open(name, 'w') as stream:
                    stream.write('python to ' + name + '\\n')
            subprocess.run(['/bin/sh', '-c', 'echo shell >/dev/stdout; echo shell >/dev/stderr'], check=True)
            return open('/dev/stdin').read()
        ",
    );
    let instance = function.start().await;
    let reply = instance.invoke(request("{}")).await;
    let printed = String::from_utf8_lossy(&reply.log_tail).into_owned();
    assert_eq!(answer(&reply), "");
    let expected = "python to /dev/stdout\npython to /dev/stderr\npython to /proc/self/fd/1\n\
                    shell\nshell\n";
    assert_eq!(printed, expected);
    instance.stop(Duration::ZERO).await;
}

pub(crate) async fn no_rights() {
    let function = Function::python(
        "
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        def call(name, *arguments):
            return getattr(libc, name)(*arguments)
        def handler(event, context):
            status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)
            refused = [
                call('mount', b'tmpfs', b'/tmp', b'tmpfs', 0, None),
                call('umount', b'/tmp'),
                call('chroot', b'/tmp'),
                call('setuid', 0),
                call('sethostname', b'x', 1),
                call('unshare', 0x00020000),
                call('reboot', 0x01234567),
                call('mknod', b'/tmp/device', 0o20666, ctypes.c_ulong(0x103)),
            ]
            return [set(refused) == {-1}, [status[name].strip() for name in
                    ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs')],
                    os.getuid() > 0 and os.getuid() == os.geteuid(), os.getgid(), os.getgroups() in ([], [65534])]
        ",
    );
    let none = "0000000000000000";
    let expected = json!([true, [none, none, none, none, none, "1"], true, 990, true]);
    assert_eq!(function.once("{}").await, expected);
}

async fn first_process() {
    let function = Function::python(
        "
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        def handler(event, context):
            results = [libc.ptrace(16, 1, 0, 0)]
            for number in (9, 19, 15, 11):
                try:
                    os.kill(1, number)
                except PermissionError:
                    pass
            for name in ('mem', 'environ', 'maps', 'fd', 'exe', 'root', 'cwd'):
                try:
                    path = '/proc/1/' + name
                    os.listdir(path) if name in ('fd', 'root', 'cwd') else os.readlink(path) if name == 'exe' else open(path).read(1)
                    results.append(name)
                except OSError:
                    pass
            return results
        ",
    );
    let instance = function.start().await;
    for _ in 0..2 {
        assert_eq!(answer(&instance.invoke(request("{}")).await), json!([-1]));
    }
    instance.stop(Duration::ZERO).await;
}

const REACH: &str = "
        import socket
        def handler(event, context):
            try:
                socket.create_connection(('127.0.0.1', event), timeout=5).close()
                return 'reached'
            except OSError as error:
                return error.strerror
        ";

pub(crate) async fn no_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    for network in [Network::None, Network::Platform] {
        let function = Function::python(REACH).with(|spec| spec.network = network);
        assert_eq!(function.once(&port).await, "Connection refused");
    }
    let function = Function::python(
        "
        import socket
        def handler(event, context):
            try:
                socket.create_connection(('192.0.2.1', 80), timeout=5)
            except OSError as error:
                return [error.strerror, [name for _, name in socket.if_nameindex() if name == 'lo']]
        ",
    );
    assert_eq!(function.once("{}").await, json!(["Network is unreachable", ["lo"]]));
}

async fn host_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let function = Function::python(REACH).with(|spec| spec.network = Network::Host);
    assert_eq!(function.once(&port).await, "reached");
}

/// With the host's network, a function's Runtime API is on the host's loopback interface.
async fn foreign_runtime_api() {
    let code = "
        import os, socket
        def handler(event, context):
            if not event:
                return os.environ['AWS_LAMBDA_RUNTIME_API']
            host, port = event.split(':')
            connection = socket.create_connection((host, int(port)), timeout=30)
            try:
                connection.sendall(b'GET /2018-06-01/runtime/invocation/next HTTP/1.1\\r\\n\\r\\n')
                return connection.recv(1000).decode()
            except ConnectionError:
                return ''
        ";
    let on_host = || Function::python(code).with(|spec| spec.network = Network::Host);
    let (one, other) = (on_host(), on_host());
    let (one, other) = (one.start().await, other.start().await);
    let address = answer(&one.invoke(request("null")).await).as_str().unwrap().to_owned();
    let quoted = json!(address).to_string();
    assert_eq!(answer(&other.invoke(request(&quoted)).await), "");
    // Nor may the host's other users have the function's events, be it root.
    let mut stream = TcpStream::connect(&address).unwrap();
    let asked = stream.write_all(b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\n\r\n");
    let mut text = String::new();
    let read = asked.and_then(|()| stream.read_to_string(&mut text));
    assert!(read.is_err() || text.is_empty(), "{text}");
    // Its own runtime goes on.
    assert_eq!(answer(&one.invoke(request("null")).await), address);
    one.stop(Duration::ZERO).await;
    other.stop(Duration::ZERO).await;
}

/// Sends a request to the control API, and returns status and body.
fn control(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A zip file with one file, neither compressed nor checked by anybody but the unpacker.
fn zip(name: &str, text: &str) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
    writer.write_all(text.as_bytes()).unwrap();
    writer.finish().unwrap().into_inner()
}

async fn control_api() {
    let code = "
import socket
def handler(event, context):
    answers = []
    for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::ffff:127.0.0.1')):
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.connect((host, event))
        connection.sendall(b'DELETE /2015-03-31/functions/f HTTP/1.1\\r\\nHost: localhost\\r\\n'
                           b'Connection: close\\r\\n\\r\\n')
        answers.append(connection.recv(1000).split()[1].decode())
    # Gone before the platform looks who it was.
    for _ in range(200):
        connection = socket.create_connection(('127.0.0.1', event))
        connection.sendall(b'DELETE /2015-03-31/functions/f HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')
        connection.close()
    return answers
";
    let state = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let worker = Worker::start(Listen::on_loopback(any), state.path(), Config::default(), false)
        .await
        .unwrap();
    let address = worker.address();
    let package = base64::engine::general_purpose::STANDARD.encode(zip("main.py", code));
    let create = json!({
        "FunctionName": "f", "Runtime": "python3.12", "Handler": "main.handler",
        "Role": "arn:aws:iam::000000000000:role/any", "Code": {"ZipFile": package},
        "Timeout": 60, "Tags": {"uncia:network": "host"},
    });
    let asked = tokio::task::spawn_blocking(move || {
        let functions = "/2015-03-31/functions";
        let created = control(address, "POST", functions, &create.to_string());
        assert_eq!(created.0, 201, "{}", created.1);
        let invoke = format!("{functions}/f/invocations");
        let invoked = control(address, "POST", &invoke, &address.port().to_string());
        // It is still there, and whoever is no function may see it.
        let seen = control(address, "GET", &format!("{functions}/f"), "");
        (invoked, seen.0)
    });
    let (invoked, seen) = asked.await.unwrap();
    assert_eq!(invoked, (200, r#"["403", "403"]"#.to_owned()));
    assert_eq!(seen, 200);
    worker.stop(std::future::pending()).await;
}

pub(crate) async fn private_tmp() {
    let code = "
        import os
        def handler(event, context):
            before = os.listdir('/tmp')
            open('/tmp/' + event, 'w').write('secret')
            return before
        ";
    let (one, other) = (Function::python(code), Function::python(code));
    let (one, other) = (one.start().await, other.start().await);
    assert_eq!(answer(&one.invoke(request(r#""a""#)).await), json!([]));
    assert_eq!(answer(&other.invoke(request(r#""b""#)).await), json!([]));
    assert_eq!(answer(&one.invoke(request(r#""c""#)).await), json!(["a"]));
    one.stop(Duration::ZERO).await;
    other.stop(Duration::ZERO).await;
}

pub(crate) async fn descriptors() {
    let function = Function::python(
        "
        import os
        def handler(event, context):
            targets = {int(fd): os.readlink('/proc/self/fd/' + fd).split(':')[0] for fd in os.listdir('/proc/self/fd')
                       if os.path.exists('/proc/self/fd/' + fd) or int(fd) < 4}
            return [targets[0], targets[1], targets[2], targets[3], len(targets)]
        ",
    );
    let Value::Array(found) = function.once("{}").await else { panic!() };
    // gVisor says of what came from outside only that.
    let outside = if is_gvisor() { ["host"; 3] } else { ["/dev/null", "pipe", "pipe"] };
    assert_eq!(found[..3], outside.map(|it| json!(it)));
    assert_eq!(found[3], "socket");
    // The connection to the Runtime API is the runtime's own.
    assert_eq!(found[4], 4);
}

async fn mounts() {
    let before = host_mounts();
    let function = Function::python(
        "
        def handler(event, context):
            return [place for place in (line.split()[1] for line in open('/proc/mounts'))
                    if not place.startswith('/dev/')]
        ",
    );
    let instance = function.start().await;
    let seen = answer(&instance.invoke(request("{}")).await);
    assert_eq!(seen, json!(["/", "/dev", "/etc/passwd", "/proc", "/var/task", "/tmp"]));
    assert_eq!(host_mounts(), before);
    instance.stop(Duration::ZERO).await;
}

async fn links() {
    let function = Function::python(
        "def handler(event, context):\n    return open('/var/task/link').read()\n",
    );
    std::os::unix::fs::symlink("/etc/shadow", function.spec.code.join("link")).unwrap();
    let instance = function.start().await;
    let reply = instance.invoke(request("{}")).await;
    assert!(matches!(reply.outcome, Outcome::FunctionError(_)), "{:?}", reply.outcome);
    instance.stop(Duration::ZERO).await;
}
