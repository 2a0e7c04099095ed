//! Sandboxes: the mechanism that runs instances.
//!
//! An instance is a process tree in namespaces of its own (mount, pid, ipc, uts and, unless its
//! function has the host's network, net; without root also user) and in control groups of its own,
//! on a read-only root file system that holds its runtime and nothing else.
//!
//! | module | concern |
//! |---|---|
//! | [`host`] | what all instances share |
//! | [`start`] | starting one |
//! | [`live`] | a running instance: invoke, freeze, stop |
//! | [`compiler`], [`archiver`] | byte code of packages, class archives |
//! | [`shared_state`], [`recording`], [`pieces`] | what instances of a function share, and how it is made of one |
//! | [`checkpoint`] | images of started instances, and CRIU, which makes and restores them |
//! | [`spawn`] | processes in fresh namespaces, as copies of long-lived ones |
//! | [`kinds`] | what an instance may be started from, a file each |
//! | [`init`] | the first process inside: builds the sandbox, starts the runtime, watches it |
//! | [`wire`] | what worker and first process say to each other |
//! | [`runtimes`] | the language runtimes, a file each |
//! | [`rootfs`], [`roots`] | their roots |
//! | [`runtime_api`], [`http1`] | the Lambda Runtime API |
//! | [`telemetry`] | the Lambda Telemetry API |
//! | [`connector`] | connections into an instance's network |
//! | [`code`] | functions that one process runs for all: WebAssembly |
//! | [`chain`] | Invoke for functions |
//! | [`pace`] | how much of the worker's time an instance may take |
//! | [`cgroup`], [`meter`] | limits, and what was used |
//! | [`memory_watch`] | what instances use, and the kernel's notices that memory runs short |
//! | [`shares`] | the CPU is divided between functions |
//! | [`ready_groups`] | control groups made before their instance |
//! | [`enforcer`], [`priority`] | CPU shares without the kernel's quota |
//! | [`precedence`] | who goes first while CPUs are short |
//! | [`log`] | what a function prints |
//! | [`users`], [`peer`] | whom instances run as, and who is at the other end of a connection |
//! | [`visitors`] | functions that connect to the platform's own API |
//! | [`terms`] | what makes two instances alike |
//! | [`threads`] | threads whose end is a failure of the host |
//! | [`containers`] | the OCI runtimes, a file each, and what they make of an instance |
//! | [`capabilities`] | what this machine offers |
//! | [`sweep`] | what an earlier worker left |

mod archiver;
mod capabilities;
mod cgroup;
mod chain;
mod checkpoint;
mod code;
mod compiler;
mod connector;
mod containers;
mod cores;
mod descriptor;
mod enforcer;
mod environment;
mod forwarder;
mod host;
mod http1;
mod http_server;
mod init;
mod invocation;
mod kept;
mod kinds;
mod live;
mod log;
mod memory_watch;
mod meter;
mod own_byte_code;
mod pace;
mod peer;
mod pieces;
mod precedence;
mod priority;
mod ready_groups;
mod recording;
mod rootfs;
mod roots;
mod runtime_api;
mod runtimes;
mod shared_state;
mod shares;
mod spawn;
mod start;
mod sweep;
mod telemetry;
mod terms;
mod threads;
mod traffic;
mod unusable_byte_code;
mod users;
mod visitors;
mod wire;

pub(crate) use compiler::{Compiled, SeenAt};
pub(crate) use priority::allowed_cpus;
pub(crate) use rootfs::GROUP_ID;

pub use capabilities::{
    Capabilities, CgroupCapabilities, ControllerCapability, Enforced, Metering, Namespaces,
};
pub use chain::Caller;
pub use code::LoadedCode;
pub use containers::{OciRuntime, Sandbox};
pub use enforcer::EnforcerUse;
pub use host::{Host, HostError, Tuning};
pub use init::seccomp::SystemCallFilter;
pub use live::Instance;
pub(crate) use memory_watch::InUse;
pub(crate) use runtimes::Client;
pub use runtimes::Runtime;
pub(crate) use runtimes::RuntimeDefinition;
pub(crate) use shared_state::shares;
pub use spawn::enter_if_asked;
pub use start::Started;
pub use visitors::{Peer, Visit};
