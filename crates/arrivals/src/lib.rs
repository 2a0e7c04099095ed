//! Arrival processes: when requests are sent, fixed before the first one is.
//!
//! A process is a pure function of a seeded [`RandomStream`]: the same seed and label give the same
//! times, to the nanosecond, on every machine, and streams with different labels are independent.
//! Times are `int64` nanoseconds from the start of the process, in order, computed one at a time, so
//! that a schedule of any length needs no memory.
//!
//! ```
//! use uncia_arrivals::{Process, RandomStream};
//!
//! let process = Process::from(uncia_arrivals::Poisson {
//!     rate_per_s: "2000".parse().unwrap(),
//!     duration_ns: 30_000_000_000,
//! });
//! process.validate().unwrap();
//! let times: Vec<i64> = process.arrivals(RandomStream::new(7, "hello")).map(|a| a.offset).collect();
//! assert!(times.is_sorted());
//! ```

mod error;
mod gap;
mod hints;
mod processes;
mod rate;
mod stream;
#[cfg(test)]
mod test_support;
mod wide;

pub use error::ArrivalError;
pub use gap::Gap;
pub use hints::{Hints, Said};
pub use processes::{
    Arrivals, Burst, Constant, CountPlacement, Counts, Gamma, Gaps, Lognormal, OnOff, OnOffStart,
    Placement, Poisson, Process, Ramp, RandomPhase, Sine, Step, Steps, Superposition, Times,
    Uniform, Weibull, Windows,
};
pub use rate::{Rate, RateOrZero};
pub use stream::RandomStream;

/// Nanoseconds in a second.
pub const NS_PER_S: i64 = 1_000_000_000;

/// The longest process: 100 years. Far beyond any run, and far enough from the end of `int64`
/// (292 years) that adding a start time can't overflow.
pub const MAX_SPAN_NS: i64 = 100 * 366 * 24 * 3_600 * NS_PER_S;

/// The most arrivals of one process. A day at 10,000/s fits; beyond it a rate or a size is a slip.
pub(crate) const MAX_ARRIVALS: u64 = 1_000_000_000;

/// How deep processes may be nested in each other. A person's file has two or three levels.
pub(crate) const MAX_DEPTH: usize = 16;

/// One time at which something arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Nanoseconds since the start of the process.
    pub offset: i64,
    /// The number of the burst that it is part of, from 0; none when the process has no bursts.
    pub burst: Option<i64>,
}

impl Arrival {
    fn single(offset: i64) -> Self {
        Self { offset, burst: None }
    }
}
