//! Control groups of versions 1 and 2: discovery, limits, freezing and counters.
//!
//! Version 1 of the kernel's interface has a tree for each controller (or for several), version 2
//! one tree for all. Here both are a list of folders; what differs is behind one trait, `Interface`,
//! which `v1` and `v2` implement.
//!
//! | module | concern |
//! |---|---|
//! | `interface`, `v1`, `v2` | the kernel's interface: one trait, two implementations |
//! | [`bandwidth`] | CPU quotas in a period, and the bounds that the kernel sets them |
//! | [`mounts`] | which trees are mounted, and in which groups this process is |
//! | [`discover`](mod@discover) | where this process may make groups |
//! | [`delegation`] | version 2: switching controllers on, and undoing it |
//! | [`group`] | one group: made, limited, frozen, removed |
//! | [`share`] | several groups that have one group's share of the CPU |
//! | [`per_cpu`], [`events`], [`tracepoints`] | CPU time by CPU, the kernel's performance events, and hits of its tracepoints |
//! | [`counters`], [`threads`], [`waits`] | what the kernel counts of a group, which threads run, and how long they waited |
//! | [`tree`] | clearing whole trees of groups |
//! | [`notices`] | being told when memory runs short |
//! | [`owner`] | groups of which it can be told whether their maker lives |

pub mod bandwidth;
pub mod counters;
pub mod delegation;
pub mod discover;
mod error;
pub mod events;
mod files;
pub mod group;
mod interface;
mod limits;
pub mod mounts;
pub mod notices;
pub mod owner;
pub mod per_cpu;
pub mod share;
pub mod threads;
pub mod tracepoints;
pub mod tree;
mod v1;
mod v2;
pub mod waits;

pub use bandwidth::{Bandwidth, Nanos};
pub use counters::{Bursts, Counters, Cpu, Readings, Throttling};
pub use discover::{Layout, Obstacle, discover, discover_to_pin};
pub use error::Error;
pub use events::{PerfEvent, PerfEvents, PerfReading};
pub use group::Group;
pub use interface::{Controller, Version};
pub use limits::{Limits, PERIODS_US};
pub use mounts::{Mounts, everywhere};
pub use notices::{MemoryNotices, Notice};
pub use owner::{Leftover, hold, is_left_with, leftovers, own_name, own_name_with, worker_name};
pub use per_cpu::PerCpu;
pub use share::CpuShare;
pub use threads::{Running, Thread, Threads};
pub use tracepoints::{Hit, TraceFiles, TraceRing, Tracepoint};
pub use tree::{clear_tree, thaw_tree};
pub use waits::{Wait, Waits};
