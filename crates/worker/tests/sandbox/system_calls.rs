//! What a function may ask of the kernel, and programs that must run all the same.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::Duration;

use libtest_mimic::Trial;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde_json::{Value, json};
use tempfile::TempDir;
use uncia_worker::instance::{Capabilities, Host, Network, SystemCallFilter};

use crate::fixture::{Function, MIB, Needs, answer, config, request, test};

/// Set for this program when it plays a worker: what it is to find.
const WORKER: &str = "UNCIA_TEST_SYSTEM_CALLS";

/// The user `nobody`.
const NOBODY: u32 = 65534;

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("forbidden_system_calls", Needs::Filter, || forbidden(Network::None)),
        test("forbidden_system_calls_on_the_hosts_network", Needs::Filter, || {
            forbidden(Network::Host)
        }),
        test("forbidden_system_calls_without_root", Needs::Users, without_root),
        test("system_calls_of_another_machine", Needs::Filter, other_machine),
        test("the_first_process_is_filtered_too", Needs::Filter, first_process),
        test("a_kernel_without_filters", Needs::Filter, || async {
            unfiltered(libc::ENOSYS, "no filters");
        }),
        test("a_kernel_that_refuses_the_filter", Needs::Filter, || async {
            unfiltered(libc::ENOMEM, "refuses the filter");
        }),
        test("a_static_c_program_under_the_filter", Needs::Program("cc"), c_program),
        test("a_go_program_under_the_filter", Needs::Program("go"), go_program),
        test("java_under_the_filter", Needs::Program("javac"), java),
        test("node_under_the_filter", Needs::Node, node),
        test("numpy_under_the_filter", Needs::Module("numpy"), numpy),
        test("onnxruntime_under_the_filter", Needs::Module("onnxruntime"), onnxruntime),
    ]
}

/// Plays a worker on a machine that has less to offer than this one.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let role = std::env::var(WORKER).ok()?;
    let folder = TempDir::new().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let host = Host::open(config(folder.path())).await.expect("a host");
        if role == "without root" {
            refused_on(&host, Network::None).await;
            refused_on(&host, Network::Host).await;
        } else {
            let Capabilities { seccomp, warnings, .. } = host.capabilities();
            assert!(!seccomp);
            assert!(warnings.iter().any(|it| it.contains("not filtered") && it.contains(&role)));
            let function = Function::python("def handler(event, context):\n    return 'served'\n");
            assert_eq!(once(&host, &function, "{}").await, "served");
        }
        host.close().await;
    });
    Some(ExitCode::SUCCESS)
}

async fn once(host: &std::sync::Arc<Host>, function: &Function, event: &str) -> Value {
    let started = host.start(function.spec.clone()).await;
    let printed = String::from_utf8_lossy(&started.log_tail).into_owned();
    let instance = started.result.unwrap_or_else(|error| panic!("{error}: {printed}"));
    let reply = instance.invoke(request(event)).await;
    instance.stop(Duration::ZERO).await;
    answer(&reply)
}

macro_rules! refused {
    ($($errno:ident: $($name:ident)*;)*) => {
        [$($((stringify!($name), libc::$name, libc::$errno)),*),*]
    };
}

/// What no function may do, with the answer that it gets: written down here once more, apart from
/// the filter's own table.
fn refused() -> BTreeMap<i64, (&'static str, i32)> {
    let mut calls = refused![
        EPERM: SYS_setns SYS_chroot SYS_sethostname SYS_setdomainname SYS_mount SYS_umount2
            SYS_pivot_root SYS_open_tree SYS_move_mount SYS_fsopen SYS_fsconfig SYS_fsmount
            SYS_fspick SYS_mount_setattr SYS_swapon SYS_swapoff SYS_quotactl SYS_quotactl_fd
            SYS_name_to_handle_at SYS_open_by_handle_at SYS_fanotify_init SYS_fanotify_mark
            SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise
            SYS_process_mrelease SYS_pidfd_getfd SYS_kcmp SYS_bpf SYS_perf_event_open
            SYS_userfaultfd SYS_add_key SYS_request_key SYS_keyctl SYS_settimeofday
            SYS_clock_settime SYS_adjtimex SYS_clock_adjtime SYS_reboot SYS_kexec_load
            SYS_kexec_file_load SYS_init_module SYS_finit_module SYS_delete_module SYS_syslog
            SYS_acct SYS_vhangup SYS_unshare SYS_clone SYS_personality;
        ENOSYS: SYS_clone3 SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_io_setup
            SYS_io_destroy SYS_io_submit SYS_io_cancel SYS_io_getevents SYS_mbind SYS_set_mempolicy
            SYS_get_mempolicy SYS_set_mempolicy_home_node SYS_migrate_pages SYS_move_pages
            SYS_memfd_secret SYS_remap_file_pages SYS_lookup_dcookie SYS_nfsservctl;
        EAFNOSUPPORT: SYS_socket SYS_socketpair;
    ]
    .to_vec();
    #[cfg(target_arch = "x86_64")]
    calls.extend(refused![
        EPERM: SYS_iopl SYS_ioperm;
        ENOSYS: SYS_modify_ldt SYS_uselib SYS_ustat SYS_sysfs SYS__sysctl SYS_set_thread_area;
    ]);
    let mut refused: BTreeMap<_, _> =
        calls.into_iter().map(|(name, number, errno)| (number, (name, errno))).collect();
    for number in [470, 500, 1000, 0x4000_0000 + 39, 0x4000_0000 + 272] {
        refused.insert(number, ("unknown or of another convention", libc::ENOSYS));
    }
    refused
}

/// Calls each number with arguments that no call accepts, should one get through: `clone` and
/// `unshare` for all namespaces, and a socket of the family that there is none of.
const CALL_EACH: &str = "
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        def call(number):
            arguments = [ctypes.c_long(-1)] * 6
            if number in PLAIN:
                arguments[0] = ctypes.c_long(0x20000)
            result = libc.syscall(ctypes.c_long(number), *arguments)
            return ctypes.get_errno() if result == -1 else 0
        def handler(event, context):
            return [call(number) for number in event]
        ";

async fn refused_on(host: &std::sync::Arc<Host>, network: Network) {
    let refused = refused();
    // Its argument -1 only asks.
    let code = CALL_EACH.replace("PLAIN", &format!("[{}]", libc::SYS_personality));
    let function = Function::python(&code).with(|spec| spec.network = network);
    let numbers: Vec<_> = refused.keys().copied().collect();
    let answers = once(host, &function, &json!(numbers).to_string()).await;
    for ((number, (name, errno)), answer) in refused.iter().zip(answers.as_array().unwrap()) {
        assert_eq!(answer, &json!(errno), "{number}: {name}, {network:?}");
    }
}

async fn forbidden(network: Network) {
    refused_on(&crate::fixture::host(), network).await;
}

/// `getpid` of a 32-bit program (`int 0x80`), made by a child: it ends by SIGSYS before the kernel takes
/// 20, which is `writev` here, for anything. A kernel without that convention ends it by SIGSEGV.
async fn other_machine() {
    let code = "
        import ctypes, mmap, os
        CODE = bytes.fromhex('b814000000cd80c3')  # mov eax, 20; int 0x80; ret
        def handler(event, context):
            memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            memory.write(CODE)
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            child = os.fork()
            if child == 0:
                os._exit(1 if ctypes.CFUNCTYPE(ctypes.c_long)(address)() >= 0 else 2)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        ";
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    for network in [Network::None, Network::Host] {
        let ended = Function::python(code).with(|spec| spec.network = network).once("{}").await;
        let refused = [-libc::SIGSYS, -libc::SIGSEGV].map(|it| json!(it));
        assert!(refused.contains(&ended), "{ended}");
    }
}

/// This program again, as a worker.
fn worker(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(WORKER, role);
    command
}

fn succeeds(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {printed}{errors}", output.status);
}

async fn without_root() {
    // Where another user can reach it.
    let folder = TempDir::new().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("open to all");
    let program = folder.path().join("worker");
    fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    let namespaces =
        Command::new("unshare").arg("-Ur").arg("true").uid(NOBODY).gid(NOBODY).status();
    if !namespaces.is_ok_and(|it| it.success()) {
        return;
    }
    let mut command = Command::new(program);
    command.env(WORKER, "without root").env("TMPDIR", folder.path()).uid(NOBODY).gid(NOBODY);
    succeeds(&command.output().expect("a worker"));
}

/// It has one filter, and what it started has another.
async fn first_process() {
    let function = Function::python("def handler(event, context):\n    pass\n");
    let instance = function.start().await;
    let processes = crate::fixture::processes(&function.spec.id);
    assert_eq!(processes.len(), 2);
    for pid in processes {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        assert_eq!(field("NoNewPrivs:").as_deref(), Some("1"), "{status}");
        assert_eq!(field("Seccomp:").as_deref(), Some("2"), "{status}");
        // Kernels before 5.9 do not say.
        assert!(field("Seccomp_filters:").is_none_or(|it| it == "1"), "{status}");
    }
    instance.stop(Duration::ZERO).await;
}

/// Has the kernel refuse filters to a worker, by a filter.
fn unfiltered(errno: i32, words: &str) {
    let refusal = SeccompFilter::new(
        [(libc::SYS_seccomp, vec![])].into_iter().collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        std::env::consts::ARCH.try_into().expect("a known machine"),
    );
    let program: BpfProgram = refusal.and_then(TryInto::try_into).expect("a program");
    let mut command = worker(words);
    // SAFETY: the closure makes only system calls.
    unsafe {
        command.pre_exec(move || {
            seccompiler::apply_filter(&program).map_err(|_| io::Error::last_os_error())
        });
    }
    succeeds(&command.output().expect("a worker"));
}

/// The command under the filter of functions, but outside of a sandbox.
fn filtered(mut command: Command) -> Output {
    let filter = SystemCallFilter::for_functions();
    // SAFETY: the closure makes only system calls.
    unsafe {
        command.pre_exec(move || filter.install().map_err(io::Error::from));
    }
    command.output().expect("a program")
}

fn run(command: &mut Command) {
    succeeds(&command.output().expect("a program"));
}

fn prints(output: &Output, expected: &str) {
    succeeds(output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

/// Runs a program that is in the package, in an instance.
const RUN: &str = "
        import subprocess
        def handler(event, context):
            done = subprocess.run(['/var/task/program'], capture_output=True, text=True)
            return [done.returncode, done.stdout, done.stderr[-2000:]]
        ";

async fn in_an_instance(build: impl FnOnce(&Path, &Path)) {
    let function = Function::python(RUN).with(|spec| spec.memory_bytes = 512 * MIB);
    let folder = TempDir::new().expect("a folder");
    build(folder.path(), &function.spec.code.join("program"));
    assert_eq!(function.once("{}").await, json!([0, "fine\n", ""]));
}

const C_PROGRAM: &str = r#"
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define CHECK(it) do { if (!(it)) { perror(#it); return 1; } } while (0)
static void *work(void *sum) { __atomic_fetch_add((int *)sum, 1, __ATOMIC_SEQ_CST); return NULL; }
int main(void) {
    int sum = 0, status, pair[2], length;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, work, &sum) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(sum == 4);
    pid_t child = fork();
    if (child == 0) _exit(7);
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    CHECK(system("exit 3") >> 8 == 3);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && write(pair[0], "x", 1) == 1);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_create("m", 0), 0) != MAP_FAILED);
    int wait = epoll_create1(0), event = eventfd(1, 0);
    struct epoll_event told = {.events = EPOLLIN};
    CHECK(epoll_ctl(wait, EPOLL_CTL_ADD, event, &told) == 0 && epoll_wait(wait, &told, 1, -1) == 1);
    struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0 && read(timer, &(long){0}, 8) == 8);
    int server = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(server, 1) == 0);
    FILE *file = tmpfile();
    CHECK(file && fputs("text", file) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0);
    length = ftell(file);
    CHECK(length == 4);
    puts("fine");
    return 0;
}
"#;

async fn c_program() {
    in_an_instance(|folder, program| {
        let source = folder.join("program.c");
        fs::write(&source, C_PROGRAM).expect("a file");
        let mut command = Command::new("cc");
        command.args(["-D_GNU_SOURCE", "-static", "-pthread", "-w", "-o"]);
        run(command.arg(program).arg(source));
    })
    .await;
}

const GO_PROGRAM: &str = r#"
package main

import ("fmt"; "io"; "net"; "os"; "os/exec"; "runtime"; "sync"; "time")

func check(err error) {
    if err != nil {
        fmt.Fprintln(os.Stderr, err)
        os.Exit(1)
    }
}

func main() {
    var group sync.WaitGroup
    for i := 0; i < 100; i++ {
        group.Add(1)
        go func() { defer group.Done(); runtime.Gosched(); time.Sleep(time.Millisecond) }()
    }
    group.Wait()
    listener, err := net.Listen("tcp", "127.0.0.1:0")
    check(err)
    go func() {
        connection, err := listener.Accept()
        check(err)
        connection.Write([]byte("over the network"))
        connection.Close()
    }()
    connection, err := net.Dial("tcp", listener.Addr().String())
    check(err)
    _, err = io.ReadAll(connection)
    check(err)
    check(exec.Command("/bin/sh", "-c", "exit 0").Run())
    check(os.WriteFile(os.TempDir()+"/file", []byte("text"), 0o600))
    _, err = net.Interfaces()
    check(err)
    runtime.GC()
    fmt.Println("fine")
}
"#;

async fn go_program() {
    in_an_instance(|folder, program| {
        let source = folder.join("program.go");
        fs::write(&source, GO_PROGRAM).expect("a file");
        let mut command = Command::new("go");
        command.args(["build", "-o"]).arg(program).arg(source).current_dir(folder);
        run(command.env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local").env("GOFLAGS", ""));
    })
    .await;
}

const JAVA_PROGRAM: &str = r#"
import java.net.*;
import java.nio.file.*;
import java.util.stream.*;

public class Program {
    public static void main(String[] arguments) throws Exception {
        long sum = LongStream.range(0, 1_000_000).parallel().sum();
        Thread[] threads = new Thread[8];
        for (int i = 0; i < 8; i++) { threads[i] = new Thread(() -> { byte[] b = new byte[1 << 20]; }); threads[i].start(); }
        for (Thread thread : threads) thread.join();
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
             Socket client = new Socket(server.getInetAddress(), server.getLocalPort());
             Socket accepted = server.accept()) {
            accepted.getOutputStream().write(1);
            client.getInputStream().read();
        }
        Path file = Files.createTempFile("x", "y");
        Files.writeString(file, "text");
        Files.delete(file);
        NetworkInterface.getNetworkInterfaces();
        int code = new ProcessBuilder("/bin/sh", "-c", "exit 3").start().waitFor();
        System.gc();
        System.out.println(sum + " " + code);
    }
}
"#;

async fn java() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("Program.java"), JAVA_PROGRAM).expect("a file");
    run(Command::new("javac").arg("Program.java").current_dir(&folder));
    for collector in ["-XX:+UseSerialGC", "-XX:+UseG1GC"] {
        let mut command = Command::new("java");
        command.args([collector, "-Xmx256m", "Program"]).current_dir(&folder);
        prints(&filtered(command), "499999500000 3\n");
    }
}

const NODE_PROGRAM: &str = r"
const { Worker } = require('worker_threads');
const { execFileSync } = require('child_process');
const { promises: fs } = require('fs');
const http = require('http');
const os = require('os');
(async () => {
    await new Promise((resolve) => new Worker('0', { eval: true }).on('exit', resolve));
    execFileSync('/bin/sh', ['-c', 'exit 0']);
    const file = os.tmpdir() + '/uncia-test-' + process.pid;
    await fs.writeFile(file, 'text');
    await fs.unlink(file);
    os.networkInterfaces();
    const server = http.createServer((request, response) => response.end('fine')).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.on('listening', resolve));
    const text = await (await fetch(`http://127.0.0.1:${server.address().port}/`)).text();
    console.log(text);
    process.exit(0);
})();
";

async fn node() {
    let mut command = Command::new("node");
    command.arg("-e").arg(NODE_PROGRAM);
    prints(&filtered(command), "fine\n");
}

/// The tests' Python, with the libraries of their environment.
pub(crate) fn python() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    std::env::var_os("UNCIA_TEST_PYTHON")
        .map(PathBuf::from)
        .or_else(|| own.exists().then_some(own))
        .unwrap_or_else(|| "python3".into())
}

fn python_prints(code: &str, expected: &str) {
    let mut command = Command::new(python());
    command.arg("-c").arg(code);
    prints(&filtered(command), expected);
}

async fn numpy() {
    let code = "
import numpy
a = numpy.random.default_rng(1).normal(size=(600, 600))
b = numpy.linalg.solve(a, a @ a)
memory = numpy.memmap('/dev/zero', dtype='u1', mode='c', shape=(4096,))
print(numpy.allclose(a, b), memory.sum(), numpy.fft.fft(a).shape)
";
    python_prints(code, "True 0 (600, 600)\n");
}

/// Sessions start threads for each CPU, pin them, and read what processors there are.
async fn onnxruntime() {
    let code = "
import numpy, onnxruntime
from onnxruntime import capi
# An empty model: IR version 8, opset 17, a graph whose output is its input.
def field(number, payload):
    return bytes([number << 3 | 2, len(payload)]) + payload
shape = field(1, field(1, bytes([8, 1]) + field(2, field(1, bytes([8, 2])))))
value = lambda name: field(1, name) + field(2, field(1, bytes([8, 1]) + field(2, field(1, bytes([8, 2])))))
node = field(1, b'x') + field(2, b'y') + field(4, b'Relu')
graph = field(1, node) + field(2, b'g') + field(11, value(b'x')) + field(12, value(b'y'))
model = bytes([8, 8]) + field(7, graph) + field(8, bytes([16, 17]))
session = onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider'])
print(session.run(None, {'x': numpy.array([-1, 2], dtype=numpy.float32)})[0].tolist())
";
    python_prints(code, "[0.0, 2.0]\n");
}
