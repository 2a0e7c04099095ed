//! From what happened to rows: the hand-over between threads, the interpretation of answers, the
//! tables, and the figures that are shown meanwhile.

mod batch;
#[cfg(test)]
mod cost;
mod failure;
mod interpret;
mod make;
mod recorder;
mod rules;
mod statistics;
#[cfg(test)]
mod support;

pub use batch::{Completion, Outbox, channel};
pub use failure::Failure;
pub use recorder::{Closed, Counters, Recorder};
pub use rules::{Rules, Stopped};
pub use statistics::{Quantiles, rate};
