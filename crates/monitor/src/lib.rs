//! Monitors: they watch the machine and its control groups beside a run, and write rows of the table
//! `machine`.
//!
//! | module | concern |
//! |---|---|
//! | [`config`] | what is asked for |
//! | `watch` | the loop: who is due, what it costs, what was missed |
//! | [`remote`] | monitors that another machine starts: the clock, rows over a connection, its end |
//! | `samples` | what a monitor has read at a moment, and differences between moments |
//! | `printed` | what programs print, as samples |
//! | `bpftrace` | programs of bpftrace: what their maps mean, and what it prints of them |
//! | [`resctrl`] | the kernel's file system that counts and limits the cache and the memory's bandwidth |
//! | `groups` | the control groups that patterns name, as they come and go |
//! | `monitors` | a file for each monitor, behind one trait |

mod bpftrace;
pub mod config;
mod error;
mod groups;
mod monitors;
mod printed;
pub mod remote;
pub mod resctrl;
mod samples;
mod watch;

pub use config::{Config, Format, Kind};
pub use error::MonitorError;
pub use watch::{Event, Request, run};
