//! From what happened to rows: the hand-over between threads, the interpretation of answers, the
//! tables, and the figures that are shown meanwhile.

mod batch;
#[cfg(test)]
mod cost;
mod failure;
mod hops;
mod interpret;
mod make;
mod recorder;
mod rules;
mod statistics;
#[cfg(test)]
mod support;

pub(crate) use batch::{Completion, Outbox, channel};
pub(crate) use failure::Failure;
pub(crate) use interpret::is_ok;
pub(crate) use recorder::{Closed, Counters, Recorder};
pub(crate) use rules::Rules;
pub use rules::Stopped;
pub use statistics::Quantiles;
pub(crate) use statistics::rate;
