//! The seam between what decides and what runs: a [`Host`] starts [`Instance`]s, an instance
//! serves one request at a time, and everything it used is in the [`Reply`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use uncia_clock::Moment;
use uncia_record::Traffic;

use crate::cpu_list::CpuList;

pub use crate::answer_body::AnswerBody;
pub use crate::passage::Passage;
pub(crate) use crate::sandbox::InUse;
pub use crate::sandbox::{
    Caller, Capabilities, CgroupCapabilities, ControllerCapability, Enforced, EnforcerUse, Host,
    HostError, Instance, LoadedCode, Metering, Namespaces, OciRuntime, Peer, Runtime, Sandbox,
    Started, SystemCallFilter, Tuning, Visit, enter_if_asked,
};
pub use crate::services::{Located, Reach, Services};

/// The largest answer that is not streamed, as Lambda has it: 6 MiB and 100 bytes.
pub(crate) const MAX_ANSWER: usize = 6 * 1024 * 1024 + 100;

/// What an instance can reach besides its Runtime API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// Invoke, through an endpoint of its own (`AWS_ENDPOINT_URL_LAMBDA`), and nothing else.
    Platform,
    /// The network of the host.
    Host,
}

/// How an instance gets its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Architecture {
    /// Its runtime asks for them at the Runtime API, one after the other.
    #[default]
    Polling,
    /// It serves HTTP at the port that its environment names `PORT`, several at a time.
    Http,
    /// It is code that one process runs for all functions, anew for each request.
    Code,
}

impl Architecture {
    /// As the setting has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Http => "http",
            Self::Code => "code",
        }
    }
}

/// What an instance is started from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum StartFrom {
    /// Nothing.
    Fresh,
    /// A process in namespaces of its own, made ahead and of no function.
    #[default]
    Prepared,
    /// A runtime that was started before, and of no function.
    Pool,
    /// The same, and a runtime that has started, of which it is a copy.
    Zygote,
    /// A runtime that has run the function's imports, of which it is a copy.
    FunctionZygote,
    /// A checkpoint of a runtime that has loaded the function.
    Checkpoint,
}

impl StartFrom {
    /// Whether it begins with a runtime that polls.
    pub(crate) fn needs_polling(self) -> bool {
        matches!(self, Self::Pool | Self::Zygote | Self::FunctionZygote | Self::Checkpoint)
    }
}

/// What instances of a function share besides its code: made from one of them, for those that come after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ShareState {
    /// Nothing.
    #[default]
    None,
    /// The classes that one has loaded.
    Classes,
    /// The same, and which of its methods ran how often.
    Profile,
    /// What the compiler has made of the sources that one has loaded.
    Code,
    /// All that one has in memory after some invocations: they are restored from it.
    Warm,
}

impl ShareState {
    /// As the setting has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Classes => "classes",
            Self::Profile => "profile",
            Self::Code => "code",
            Self::Warm => "warm",
        }
    }
}

/// Who sees to it that an instance gets no more than its CPU share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Enforcement {
    /// The kernel's bandwidth control, which looks at ticks.
    #[default]
    Kernel,
    /// The worker, which looks when the share may be used up.
    EventDriven,
    /// Nobody: it has what the machine has, by its weight.
    None,
}

/// Serves the Invoke requests that instances with [`Network::Platform`] make; a request's extension
/// [`Caller`] says for whom.
pub type ChainService = Arc<
    dyn Fn(
            http::Request<Incoming>,
        ) -> Pin<Box<dyn Future<Output = http::Response<AnswerBody>> + Send>>
        + Send
        + Sync,
>;

/// Where and how a host runs its instances.
#[derive(Clone)]
pub struct HostConfig {
    /// The worker's state folder; root filesystems and instances' folders are made below it.
    pub state: PathBuf,
    /// Interpreters by the name of their runtime; the others are found on the PATH.
    pub interpreters: BTreeMap<String, PathBuf>,
    /// A folder in which platforms keep copies of runtimes for each other.
    pub runtimes_cache: Option<PathBuf>,
    /// Answers the Invoke requests of instances.
    pub chain: ChainService,
    /// Services beside functions.
    pub services: Services,
    /// Started runtimes that are kept, of each kind that functions ask for.
    pub pool: usize,
    /// Bytes that checkpoints may take on the disk, and as many what functions share.
    pub checkpoint_cache: u64,
    /// Whether instances may be kept to some CPUs.
    pub cpusets: bool,
    /// Whether the CPU is divided as [`Instance::set_cpu`] says, and not equally between functions.
    pub shares_cpus: bool,
    /// The memory that instances may be allocated together, in bytes, where that is counted.
    pub capacity_memory: Option<u64>,
}

/// A root file system that a function brings, instead of a runtime's, and what is started in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSpec {
    /// The unpacked layers on the host, the lowest first.
    pub layers: Vec<PathBuf>,
    /// The program and its arguments, at least the program; without a slash it is looked for on the PATH.
    pub command: Vec<String>,
    /// Where the program is started.
    pub working_directory: PathBuf,
    /// What the image says of the environment, which the function's own variables override.
    pub environment: Vec<(String, String)>,
}

/// A package that may have to be fetched before an instance starts.
pub trait Package: std::fmt::Debug + Send + Sync {
    /// Held by the start that obtains it, so that of many starts one does the work, and the others wait for it without
    /// a thread each.
    fn turn(&self) -> &tokio::sync::Mutex<()>;

    /// Has the package on the disk, and keeps it there as long as what this returns lives; adds what that consisted
    /// of, if there was anything to do. Only for threads that may wait; the error is a sentence.
    fn obtain(&self, phases: &mut Vec<Phase>) -> Result<Held, String>;
}

/// What keeps a package on the disk.
pub type Held = Arc<dyn std::any::Any + Send + Sync>;

/// Everything that an instance needs to know to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// Letters, digits and hyphens; unique on the host.
    pub id: String,
    /// The function's name; of a published version with its number behind a colon.
    pub function: String,
    /// The function's ARN, which the runtime passes to the handler.
    pub function_arn: String,
    /// The function's version, as Lambda names it: `$LATEST` or a number.
    pub version: String,
    /// The runtime that is started in the sandbox.
    pub runtime: Runtime,
    /// How it gets its requests.
    pub architecture: Architecture,
    /// What the runtime calls, written as this runtime takes it.
    pub handler: String,
    /// The unpacked deployment package; read-only at `/var/task`, unless there is an image.
    pub code: PathBuf,
    /// The package, if it may have to be fetched first.
    #[serde(skip)]
    pub package: Option<Arc<dyn Package>>,
    /// The root that the function brings.
    pub image: Option<Arc<ImageSpec>>,
    /// The folder of its layers; read-only at `/opt`.
    pub layers: Option<PathBuf>,
    /// The extensions in them that are started before the runtime, by name.
    pub extensions: Vec<String>,
    /// Folders of the host that the instance may read besides: on the host, in the sandbox.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// The function's own environment variables.
    pub environment: BTreeMap<String, String>,
    /// The memory limit in bytes.
    pub memory_bytes: u64,
    /// CPU quota in micro-vCPU.
    pub cpu_micro: u64,
    /// The CPU time that a request may use, where its code is run for it alone.
    pub cpu_time: Option<Duration>,
    /// The CPUs that it runs on, unless it may on all.
    pub cpus: Option<CpuList>,
    /// What all instances of its function together get of a CPU, in proportion to others; None: as much as any.
    pub cpu_shares: Option<u64>,
    /// Period of the CPU quota in microseconds.
    pub period_us: u64,
    /// Size of `/tmp` in bytes (the sandbox may cap it below the memory limit).
    pub ephemeral_bytes: u64,
    /// Processes and threads in the instance.
    pub pids_max: u64,
    /// What the instance can reach.
    pub network: Network,
    /// Which services it can reach besides.
    pub reach: Reach,
    /// Who enforces the CPU quota.
    pub enforcement: Enforcement,
    /// What its processes are in.
    pub sandbox: Sandbox,
    /// What it is started from.
    pub start_from: StartFrom,
    /// What it shares with the function's other instances.
    pub share_state: ShareState,
    /// After how many invocations of an instance that is made of it.
    pub share_after: u32,
    /// Whether it notes what that is made of.
    pub records: bool,
    /// Whether a checkpoint may be made of it.
    pub restorable: bool,
    /// Whether the kernel is to have the memory back, as far as it can, that a frozen instance has.
    pub reclaim_memory: bool,
    /// Whether the CPU quota holds during initialization too.
    pub init_throttled: bool,
    /// Whether none of its memory is reserved for it.
    pub preemptible: bool,
    /// Whether performance events and waiting for a CPU are counted of each invocation.
    pub counters: bool,
    /// Whether it is measured what each invocation uses.
    pub metering: bool,
    /// How long the initialization may take.
    pub init_timeout: Duration,
}

impl InstanceSpec {
    /// An instance of what has no settings of its own: a process with 256 MiB and a CPU that polls, is
    /// started from nothing and reaches nothing. Who makes it changes what is otherwise.
    pub fn new(id: String, function: &str, runtime: Runtime, handler: &str, code: PathBuf) -> Self {
        Self {
            id,
            function: function.into(),
            function_arn: String::new(),
            version: String::new(),
            runtime,
            architecture: Architecture::Polling,
            handler: handler.into(),
            code,
            package: None,
            image: None,
            layers: None,
            extensions: Vec::new(),
            mounts: Vec::new(),
            environment: BTreeMap::new(),
            memory_bytes: 256 << 20,
            cpu_micro: 1_000_000,
            cpu_time: None,
            cpus: None,
            cpu_shares: None,
            period_us: 100_000,
            ephemeral_bytes: 16 << 20,
            pids_max: 64,
            network: Network::None,
            reach: Reach::NONE,
            enforcement: Enforcement::Kernel,
            sandbox: Sandbox::Process,
            start_from: StartFrom::Fresh,
            share_state: ShareState::None,
            share_after: 0,
            records: false,
            restorable: false,
            reclaim_memory: false,
            init_throttled: false,
            preemptible: false,
            counters: false,
            metering: true,
            init_timeout: Duration::from_secs(10),
        }
    }
}

/// A named interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// What happened in it, such as `cgroup`, `spawn` or `runtime`.
    pub name: &'static str,
    /// When it began.
    pub start: Moment,
    /// When it ended.
    pub end: Moment,
}

/// Why an instance did not become ready.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum StartError {
    /// The host could not build the sandbox: not the function's fault.
    #[error("the sandbox could not be made: {0}")]
    Sandbox(String),
    /// The package is not there and cannot be fetched.
    #[error("the package could not be fetched: {0}")]
    Package(String),
    /// The runtime reported an initialization error, or there is no such handler.
    #[error("{error_type}: {message}")]
    Init { error_type: String, message: String, payload: Bytes },
    #[error("initialization took longer than {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("the runtime exited during initialization: {0}")]
    Exited(String),
    #[error("initialization ran out of memory")]
    OutOfMemory,
}

/// A client's HTTP request without its body, for an instance that serves HTTP.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HttpHead {
    /// The address that the request comes from.
    pub client: IpAddr,
    /// Whether it came over TLS.
    pub is_secure: bool,
    /// The method, whatever it is.
    #[serde(with = "http_serde::method")]
    pub method: Method,
    /// Path and query, as the client wrote them.
    #[serde(with = "http_serde::uri")]
    pub target: Uri,
    /// All headers that are not of the client's connection.
    #[serde(with = "http_serde::header_map")]
    pub headers: HeaderMap,
}

/// What an instance that serves HTTP has answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpAnswer {
    /// The status: 200 to 599, or 101 of a websocket that has ended.
    #[serde(with = "http_serde::status_code")]
    pub status: StatusCode,
    /// All headers that are not of the instance's connection.
    #[serde(with = "http_serde::header_map")]
    pub headers: HeaderMap,
    /// The whole body; None if it was passed to the client piece by piece.
    pub body: Option<Bytes>,
}

impl HttpAnswer {
    /// Whether the status says that the server failed.
    pub fn is_failure(&self) -> bool {
        self.status.is_server_error()
    }
}

/// One request to an instance.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The ID that the runtime gives the handler.
    pub request_id: String,
    /// The name under which it is logged: the `parent` of what the function invokes meanwhile.
    pub invocation: String,
    /// The event, as the handler gets it.
    pub payload: Bytes,
    /// With which head the payload is sent to a server; None for one that Invoke made.
    pub head: Option<Arc<HttpHead>>,
    /// What the platform wants of the runtime's client, if this is no event: nothing of the function's runs.
    pub order: Option<&'static str>,
    /// By which a body or an answer may pass piece by piece.
    pub passage: Option<Arc<Passage>>,
    /// Headers for the platform's own host of code, which no client can set.
    pub directions: HeaderMap,
    /// How long the invocation may take before the instance is killed, or, if that serves others, before
    /// it is given up.
    pub timeout: Duration,
    /// Base64 of the client context header, as Lambda passes it on.
    pub client_context: Option<String>,
    /// The ARN that it was invoked by, where that is not the version's own.
    pub invoked_arn: Option<String>,
}

/// How an invocation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The handler's answer.
    Ok(Bytes),
    /// The handler's answer, which was passed to the client piece by piece.
    Passed,
    /// The handler raised, or answered what is no JSON (a runtime of the package's own may answer
    /// what it likes); the payload is Lambda's error object.
    FunctionError(Bytes),
    /// The instance is gone: killed because its time was up.
    Timeout,
    /// The instance is gone: it ended by itself, with this description of how.
    Exited(String),
    /// The instance is gone: it was killed for lack of memory.
    OutOfMemory,
    /// The answer is larger than the platform takes; its size in bytes.
    ResponseTooLarge(u64),
    /// An HTTP server's answer, whatever its status.
    Answered(Box<HttpAnswer>),
    /// The time was up, and the instance goes on with its other requests.
    GivenUp,
    /// The client went away in the middle, as this sentence says, and the request with it.
    ClientGone(Cow<'static, str>),
    /// The instance is gone: killed because what it answered is no HTTP, in this sentence.
    NotHttp(String),
    /// The instance is gone: an extension has failed.
    Extension {
        /// Lambda's name for it, such as `Extension.Crash`.
        kind: String,
        /// Which, and how.
        message: String,
    },
    /// The instance is gone: killed because the time was up after the answer, with who was at work.
    Late(String),
    /// The instance is gone with the worker that it was on, as this sentence says; whether the function has
    /// done its work nobody knows.
    WorkerLost(String),
}

impl Outcome {
    /// Whether the instance can serve another request.
    pub fn instance_survives(&self) -> bool {
        matches!(
            self,
            Self::Ok(_)
                | Self::Passed
                | Self::FunctionError(_)
                | Self::ResponseTooLarge(_)
                | Self::Answered(_)
                | Self::GivenUp
                | Self::ClientGone(_)
        )
    }

    /// Whether the function did what it was asked.
    pub fn is_success(&self) -> bool {
        match self {
            Self::Ok(_) | Self::Passed => true,
            Self::Answered(answer) => !answer.is_failure(),
            _ => false,
        }
    }
}

/// What an invocation used; a value that could not be measured is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in user mode, in ns.
    pub cpu_user_ns: Option<i64>,
    /// CPU time in the kernel, in ns.
    pub cpu_system_ns: Option<i64>,
    /// Memory on average, in bytes.
    pub memory_avg: Option<i64>,
    /// Memory at most, in bytes.
    pub memory_peak: Option<i64>,
    /// How often the CPU quota stopped the instance.
    pub throttled_count: Option<i64>,
    /// How long the CPU quota stopped the instance, in ns.
    pub throttled_ns: Option<i64>,
    /// CPU time outside of what is reserved for the instance, in ns.
    pub borrowed_ns: Option<i64>,
    /// CPU time of others on what is reserved for it, in ns.
    pub lent_ns: Option<i64>,
    /// What others used on average of the memory that is reserved for the instance, in bytes.
    pub lent_memory: Option<i64>,
    /// How long its threads waited for a CPU, in ns, without what the CPU quota stopped.
    pub cpu_wait_ns: Option<i64>,
    /// What the kernel and the CPU counted.
    pub events: Events,
}

/// Performance events; what is not counted is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "they are the columns of the same names")]
pub struct Events {
    pub page_faults: Option<i64>,
    pub context_switches: Option<i64>,
    pub cycles: Option<i64>,
    pub instructions: Option<i64>,
    pub branch_misses: Option<i64>,
    pub llc_misses: Option<i64>,
}

/// An instance's answer to a [`Request`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    /// How the invocation ended.
    pub outcome: Outcome,
    /// Whether the runtime was given the request. If not (it ended just before), no code of the
    /// function has seen it, and another instance may try.
    pub delivered: bool,
    /// When the runtime was given the request.
    pub started: Moment,
    /// When its answer was there, or the instance was gone; its Unix time is by the same setting of
    /// the clock.
    pub ended: Moment,
    /// What the invocation used; if it was `shared`, its part of what was used meanwhile.
    pub usage: Usage,
    /// Whether the instance served another request at the same time.
    pub shared: bool,
    /// What passed between the instance and each service that its function reaches; None if that is none, or
    /// if it was `shared`.
    pub services: Option<Vec<Traffic>>,
    /// From the answer until all extensions had done what they do after it; None without extensions.
    pub extensions: Option<(Moment, Moment)>,
    /// The last 4 KiB of what the function printed during the invocation.
    pub log_tail: Bytes,
}
