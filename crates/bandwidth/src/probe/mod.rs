//! The probe: sees throttles from the inside, in a control group of its own.
//!
//! A busy loop reads the monotonic clock and notes every jump (Algorithm 1 of *Demystifying
//! Serverless Costs on Public Platforms*, EuroSys'26, section 4.3). It runs in a process of its own,
//! which joins a control group before it begins; the process that started it sits outside, lets each
//! run begin at a random phase of the period, and writes the tables.
//!
//! | module | concern |
//! |---|---|
//! | [`watch`] | the loop |
//! | [`child`] | the process that runs it, and what it is told |
//! | [`config`] | what to measure |
//! | [`profile`] | the runs, one after the other |
//! | [`rows`] | the tables |

pub mod child;
mod config;
mod machine;
mod profile;
mod rows;
mod watch;

use std::io;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

pub use config::Config;
pub use profile::{Event, Stop, run};

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum ProbeError {
    #[error("the configuration is wrong: {0}")]
    Config(String),
    #[error(transparent)]
    Cgroup(#[from] crate::cgroup::Error),
    #[error(transparent)]
    Remove(io::Error),
    #[error("cannot start the probe: {0}")]
    Start(#[source] io::Error),
    #[error("the probe did not begin: {0}")]
    Child(String),
    #[error("the probe ended early: {0}")]
    Ended(#[source] io::Error),
    #[error(
        "the probe saw more than {0} jumps in one run: raise the threshold, or shorten the duration"
    )]
    Full(usize),
    #[error(transparent)]
    Record(#[from] uncia_record::RecordError),
}

/// Has this process told to end (SIGTERM) when the process that started it does: a profile that
/// nobody waits for would go on for minutes.
///
/// # Errors
/// The kernel refuses.
pub fn end_with_parent() -> io::Result<()> {
    Ok(set_pdeathsig(Signal::SIGTERM)?)
}

impl ProbeError {
    /// Whether other input would help, rather than another machine.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Cgroup(_) | Self::Full(_))
    }
}
