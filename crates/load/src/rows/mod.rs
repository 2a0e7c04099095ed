//! From what happened to rows: the hand-over between threads, the interpretation of answers, the
//! tables, and the figures that are shown meanwhile.

mod batch;
mod failure;
mod interpret;
mod recorder;
mod statistics;

pub use batch::{Completion, Outbox, channel};
pub use failure::Failure;
pub use recorder::{Counters, Recorder};
pub use statistics::{Quantiles, rate};
