//! A host for all tests, and functions to run on it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use tempfile::TempDir;
use uncia_worker::config::Config;
use uncia_worker::instance::{
    Capabilities, ChainService, Host, HostConfig, Instance, InstanceSpec, OciRuntime, Outcome,
    Reply, Request, Runtime, Sandbox, Started,
};

pub(crate) const MIB: u64 = 1024 * 1024;

/// How many times longer everything may take than on a machine of its own, such as on an emulated
/// processor. The tests in Python read it too, in `tests/patience.py`.
const TIME_FACTOR: &str = "UNCIA_TEST_TIME_FACTOR";

/// A bound of time, where everything takes as long as here.
pub(crate) fn scaled(bound: Duration) -> Duration {
    static FACTOR: OnceLock<f64> = OnceLock::new();
    let factor = FACTOR.get_or_init(|| {
        let given = std::env::var(TIME_FACTOR).unwrap_or_else(|_| "1".into());
        given.parse().unwrap_or_else(|_| panic!("{TIME_FACTOR} is {given:?}, and no number"))
    });
    bound.mul_f64(*factor)
}

/// Long enough for a busy machine; no test waits for it unless something is wrong.
pub(crate) fn patience() -> Duration {
    scaled(Duration::from_secs(60))
}

struct Shared {
    runtime: tokio::runtime::Runtime,
    host: Arc<Host>,
    state: TempDir,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

fn shared() -> &'static Shared {
    SHARED.get_or_init(|| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let state = tempfile::tempdir().expect("a folder");
        let host = runtime.block_on(Host::open(config(state.path()))).expect("a host");
        Shared { runtime, host, state }
    })
}

/// Closes the shared host.
pub(crate) fn finish() {
    if let Some(shared) = SHARED.get() {
        shared.runtime.block_on(shared.host.close());
        // Statics are not dropped.
        let _ = fs::remove_dir_all(shared.state.path());
    }
}

pub(crate) fn config(state: &Path) -> HostConfig {
    let store =
        json!({"address": crate::services::echo(), "environment": {"AWS_ACCESS_KEY_ID": "key"}});
    let config = Config::parse(&json!({"services": {"store": store}}).to_string());
    HostConfig {
        state: state.to_owned(),
        interpreters: BTreeMap::new(),
        runtimes_cache: None,
        chain: chain(),
        services: config.expect("a configuration").services,
        pool: 4,
        checkpoint_cache: 1 << 30,
        cpusets: false,
        shares_cpus: false,
        capacity_memory: None,
    }
}

/// Answers what it was asked.
fn chain() -> ChainService {
    Arc::new(|request| {
        Box::pin(async move {
            let text = format!("{} {}", request.method(), request.uri().path());
            http::Response::new(Bytes::from(text).into())
        })
    })
}

pub(crate) fn host() -> Arc<Host> {
    shared().host.clone()
}

pub(crate) fn state() -> &'static Path {
    shared().state.path()
}

/// What a test needs of the machine.
#[derive(Clone, Copy)]
pub(crate) enum Needs {
    Sandbox,
    Node,
    /// Node.js, and a freezer to write to.
    FreezerAndNode,
    Bash,
    Ruby,
    Java,
    /// A Java whose caches hold how often methods ran.
    JavaProfiles,
    /// A Java whose caches do not.
    OldJava,
    /// A CRIU that works, Java and Ruby.
    Criu,
    Memory,
    Cpu,
    CpuAccounting,
    Pids,
    Freezer,
    /// Filters of system calls.
    Filter,
    /// A program, and filters of system calls for it.
    Program(&'static str),
    /// A module of the tests' Python, and filters of system calls for it.
    Module(&'static str),
    /// Users of their own for instances.
    Users,
    /// Version 2 of control groups, to which this process may write.
    Unified,
}

impl Needs {
    pub(crate) fn is_met(self) -> bool {
        self.missing().is_none()
    }

    fn missing(self) -> Option<&'static str> {
        static CAPABILITIES: OnceLock<Capabilities> = OnceLock::new();
        let it = CAPABILITIES.get_or_init(Host::probe);
        let (fine, reason) = match self {
            Self::Sandbox => (true, ""),
            Self::Node => (runs("node"), "there is no Node.js"),
            Self::FreezerAndNode => {
                (it.freezer && runs("node"), "there is no Node.js, or no freezer to write to")
            }
            Self::Bash => (runs("bash"), "there is no Bash"),
            Self::Ruby => (runs("ruby"), "there is no Ruby"),
            Self::Java => (compiles_java(), "there is no Java with a compiler"),
            Self::JavaProfiles => (
                java_version() >= 25,
                "the Java on the PATH is older than 25, which makes no profiles",
            ),
            Self::OldJava => (
                compiles_java() && java_version() < 25,
                "there is no Java, or one that makes profiles",
            ),
            Self::Criu => (restores(), "CRIU does not work here, or there is no Java or Ruby"),
            Self::Memory => (it.enforced.memory, "no memory controller to write to"),
            Self::Cpu => (it.enforced.cpu, "no cpu controller to write to"),
            Self::CpuAccounting => (it.cgroup.controllers["cpuacct"].writable, "no control groups"),
            Self::Pids => (it.enforced.pids, "no pids controller to write to"),
            Self::Freezer => (it.freezer, "no freezer to write to"),
            Self::Filter => (it.seccomp, "the kernel has no filters of system calls"),
            Self::Program(name) => (it.seccomp && is_installed(name), "it is not installed"),
            Self::Module(name) => (it.seccomp && can_import(name), "Python cannot import it"),
            Self::Users => (it.root, "only root may run functions as other users"),
            Self::Unified => (unified(), "no version 2 of control groups to write to"),
        };
        if !it.namespaces.pid || !it.namespaces.mount || !it.namespaces.net {
            return Some("this process may not make namespaces");
        }
        (!fine).then_some(reason)
    }
}

fn runs(program: &str) -> bool {
    std::process::Command::new(program).arg("--version").output().is_ok()
}

fn restores() -> bool {
    static RESTORES: OnceLock<Result<(), String>> = OnceLock::new();
    let works = RESTORES.get_or_init(Host::probe_checkpoints);
    works.is_ok() && compiles_java() && runs("ruby")
}

fn compiles_java() -> bool {
    static COMPILES: OnceLock<bool> = OnceLock::new();
    let compiler = ["-m", "jdk.compiler/com.sun.tools.javac.Main", "-version"];
    let run = || std::process::Command::new("java").args(compiler).output();
    *COMPILES.get_or_init(|| run().is_ok_and(|output| output.status.success()))
}

/// The major version of the Java on the PATH; 0 if there is none.
fn java_version() -> u32 {
    let run = std::process::Command::new("java").arg("--version").output();
    let text = run.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = text.unwrap_or_default();
    let major = version.split(' ').nth(1).and_then(|it| it.split(['.', '-', '+']).next());
    major.and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// Asks by a word that ends each of them at once, if in error.
fn is_installed(program: &str) -> bool {
    std::process::Command::new(program).arg("version").output().is_ok()
}

fn can_import(module: &str) -> bool {
    let mut command = std::process::Command::new(crate::system_calls::python());
    command.arg("-c").arg(format!("import {module}"));
    command.output().is_ok_and(|output| output.status.success())
}

fn unified() -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = fields.find(|fields| fields[2] == "cgroup2").map(|fields| fields[1].to_owned());
    mount.is_some_and(|mount| {
        let place = Path::new(&mount).join(format!("uncia-test-{}", std::process::id()));
        fs::create_dir(&place).and_then(|()| fs::remove_dir(&place)).is_ok()
    })
}

/// A test that runs on the shared host.
#[expect(clippy::print_stderr, reason = "whoever runs the tests reads it")]
pub(crate) fn test<F>(name: &'static str, needs: Needs, body: fn() -> F) -> Trial
where
    F: Future<Output = ()> + Send + 'static,
{
    let missing = needs.missing();
    if let Some(reason) = missing {
        eprintln!("{name} is not run: {reason}");
    }
    Trial::test(name, move || run(body)).with_ignored_flag(missing.is_some())
}

fn run<F: Future<Output = ()>>(body: fn() -> F) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(|| shared().runtime.block_on(body()))).map_err(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        let text = text.or_else(|| cause.downcast_ref::<&str>().map(|it| (*it).to_owned()));
        Failed::from(text.unwrap_or_default())
    })
}

thread_local! {
    /// What the functions of the test on this thread are in.
    static SANDBOX: Cell<Sandbox> = const { Cell::new(Sandbox::Process) };
}

/// Names the same to a worker that a test starts.
pub(crate) const SANDBOX_NAME: &str = "UNCIA_TEST_SANDBOX";

/// What the functions of this test are in.
pub(crate) fn sandbox() -> Sandbox {
    let named = std::env::var(SANDBOX_NAME).map(|name| Sandbox::named(&name));
    named.unwrap_or_else(|_| SANDBOX.get())
}

/// Whether functions run under gVisor's kernel, which does some of what the kernel's part is otherwise.
pub(crate) fn is_gvisor() -> bool {
    sandbox().runtime().is_some_and(|runtime| runtime.name() == "runsc")
}

/// Whether an instance has the processes of one that runs: the first, and its program's; or gVisor's kernel, what opens
/// files for it, and what it runs programs in.
pub(crate) fn is_whole(id: &str) -> bool {
    let processes = processes(id).len();
    if is_gvisor() { processes >= 3 } else { processes == 2 }
}

/// A test whose functions are in containers of `runtime`, if that is here.
#[expect(clippy::print_stderr, reason = "whoever runs the tests reads it")]
pub(crate) fn in_container<F>(
    runtime: OciRuntime,
    name: &'static str,
    needs: Needs,
    body: fn() -> F,
) -> Trial
where
    F: Future<Output = ()> + Send + 'static,
{
    let named = format!("{}_{name}", runtime.name());
    let missing = needs.missing().or_else(|| missing_runtime(runtime));
    if let Some(reason) = missing {
        eprintln!("{named} is not run: {reason}");
    }
    let run = move || {
        SANDBOX.set(Sandbox::Container(runtime));
        let result = run(body);
        SANDBOX.set(Sandbox::Process);
        result
    };
    Trial::test(named, run).with_ignored_flag(missing.is_some())
}

fn missing_runtime(runtime: OciRuntime) -> Option<&'static str> {
    static MISSING: OnceLock<Mutex<BTreeMap<&'static str, bool>>> = OnceLock::new();
    let mut missing = MISSING.get_or_init(Mutex::default).lock().expect("whole");
    let is_missing = *missing.entry(runtime.name()).or_insert_with(|| runtime.version().is_none());
    if Needs::Users.missing().is_some() {
        return Some("only root makes containers");
    }
    is_missing.then_some("the OCI runtime is not installed")
}

/// Code in a folder, and what it runs with.
pub(crate) struct Function {
    pub spec: InstanceSpec,
    _folder: TempDir,
}

impl Function {
    /// A Python handler; its text may be indented.
    pub(crate) fn python(code: &str) -> Self {
        Self::new("python", &[("main.py", &dedent(code))], "main.handler")
    }

    pub(crate) fn new(runtime: &str, files: &[(&str, &str)], handler: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().expect("a folder");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open.clone()).expect("a folder for all");
        for (name, text) in files {
            let path = folder.path().join(name);
            let parent = path.parent().expect("a parent");
            fs::create_dir_all(parent).expect("a folder");
            fs::set_permissions(parent, open.clone()).expect("a folder for all");
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, open.clone()).expect("a file for all");
        }
        // Of this process alone: others on the machine may run the same tests.
        let id = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let runtime = Runtime::named(runtime).expect("a runtime");
        let spec = InstanceSpec {
            function_arn: "arn:aws:lambda:us-east-1:000000000000:function:test".into(),
            version: "$LATEST".into(),
            period_us: 20_000,
            ephemeral_bytes: 512 * MIB,
            sandbox: sandbox(),
            init_timeout: patience(),
            ..InstanceSpec::new(id, "test", runtime, handler, folder.path().into())
        };
        Self { spec, _folder: folder }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut InstanceSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    pub(crate) async fn try_start(&self) -> Started {
        host().start(self.spec.clone()).await
    }

    pub(crate) async fn start(&self) -> Instance {
        let started = self.try_start().await;
        match started.result {
            Ok(instance) => instance,
            Err(error) => {
                panic!("{error}; it printed: {}", String::from_utf8_lossy(&started.log_tail))
            }
        }
    }

    /// Starts an instance for one invocation with `event`, and returns the answer.
    pub(crate) async fn once(&self, event: &str) -> Value {
        let instance = self.start().await;
        let reply = instance.invoke(request(event)).await;
        instance.stop(Duration::ZERO).await;
        answer(&reply)
    }
}

/// Takes the first line's indentation off every line.
fn dedent(text: &str) -> String {
    let text = text.trim_start_matches('\n');
    let indent = text.len() - text.trim_start_matches(' ').len();
    text.lines().map(|line| format!("{}\n", line.get(indent..).unwrap_or(line.trim()))).collect()
}

pub(crate) fn request(payload: &str) -> Request {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let request_id = format!("request-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    Request {
        invocation: request_id.clone(),
        request_id,
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        timeout: patience(),
        ..Request::default()
    }
}

/// A request with a client context, in base64, and a minute's time.
pub(crate) fn with_context(context: String) -> Request {
    let timeout = Duration::from_secs(60);
    Request { client_context: Some(context), timeout, ..request("{}") }
}

/// A request whose time is up soon.
pub(crate) fn short_request(payload: &str) -> Request {
    Request { timeout: scaled(Duration::from_millis(300)), ..request(payload) }
}

/// The answer as JSON, or a panic with what happened instead.
pub(crate) fn answer(reply: &Reply) -> Value {
    match &reply.outcome {
        Outcome::Ok(bytes) => serde_json::from_slice(bytes).expect("JSON"),
        Outcome::FunctionError(bytes) => panic!("{}", String::from_utf8_lossy(bytes)),
        other => panic!("{other:?}; it printed: {}", String::from_utf8_lossy(&reply.log_tail)),
    }
}

/// The error object of a handler that failed.
pub(crate) fn error(reply: &Reply) -> Value {
    match &reply.outcome {
        Outcome::FunctionError(bytes) => serde_json::from_slice(bytes).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

/// The processes of an instance in this process's numbering: its first process, and what is below.
pub(crate) fn processes(id: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc") {
        let path = entry.expect("an entry").path();
        let Some(pid) = path.file_name().and_then(|it| it.to_str()).and_then(|it| it.parse().ok())
        else {
            continue;
        };
        let arguments = fs::read(path.join("cmdline")).unwrap_or_default();
        let mut arguments = arguments.split(|byte| *byte == 0).skip(1);
        let label = format!("/{id}");
        if arguments.next() == Some(b"__instance")
            && arguments.next().is_some_and(|it| it.ends_with(label.as_bytes()))
        {
            found.push(pid);
            below(pid, &mut found);
        }
    }
    found
}

/// Those of them that descend from this process: what waits has no name of its own, and others on the
/// machine may run the same tests.
pub(crate) fn own_processes(id: &str) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).expect("a number of a process");
    let descends =
        |pid: &i32| std::iter::successors(Some(*pid), |it| parent(*it)).any(|it| it == own);
    processes(id).into_iter().filter(descends).collect()
}

pub(crate) fn parent(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The option by which mounts that tests make themselves are known.
pub(crate) const OF_A_TEST: &str = "size=64k";

/// The mounts of this process, but for those that another test has made meanwhile.
pub(crate) fn mounts() -> Vec<String> {
    let text = fs::read_to_string("/proc/mounts").expect("mounts");
    text.lines().filter(|line| !line.contains(OF_A_TEST)).map(str::to_owned).collect()
}

/// How the mounts of sandboxes show a folder of a test: by its name alone if temporary files have a file
/// system of their own.
pub(crate) fn seen_as(folder: &Path) -> String {
    format!("/{}/", folder.file_name().and_then(|it| it.to_str()).expect("a name"))
}

fn below(pid: i32, found: &mut Vec<i32>) {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    for child in children.unwrap_or_default().split_whitespace().filter_map(|it| it.parse().ok()) {
        found.push(child);
        below(child, found);
    }
}

/// The control groups of that name, anywhere.
pub(crate) fn control_groups(name: &str) -> Vec<PathBuf> {
    let is_named = |folder: &PathBuf| folder.file_name().is_some_and(|it| it == name);
    all_control_groups().into_iter().filter(is_named).collect()
}

/// All control groups of the machine, in every tree.
pub(crate) fn all_control_groups() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(entry.path());
                walk(&entry.path(), found);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), &mut found);
    found
}
