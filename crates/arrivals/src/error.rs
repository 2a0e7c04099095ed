use crate::{MAX_ARRIVALS, MAX_SPAN_NS, NS_PER_S};

/// Why a process can't give times.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArrivalError {
    #[error(
        "{text:?} is not a rate: write a decimal number of requests per second above zero, such as \"100\" or \"0.5\", or a fraction such as \"1/3\""
    )]
    NotARate { text: String },
    #[error("a rate of zero sends nothing: leave the stream out instead")]
    ZeroRate,
    #[error("the rate {text} has more digits than can be computed with exactly (38)")]
    RateTooPrecise { text: String },
    #[error("duration_ns is {ns}: it must be above zero")]
    Duration { ns: i64 },
    #[error("interval_ns is {ns}: it must be above zero when there is more than one burst")]
    Interval { ns: i64 },
    #[error("a burst needs at least one size, for example \"sizes\": [10]")]
    NoSizes,
    #[error("burst size {size} (number {index} of \"sizes\"): it must be at least 1")]
    Size { index: usize, size: i64 },
    #[error("bursts is {bursts}: it must be at least 1")]
    Bursts { bursts: i64 },
    #[error("the process lasts longer than {} years", MAX_SPAN_NS / (366 * 24 * 3_600 * NS_PER_S))]
    TooLong,
    #[error("about {count} arrivals are more than the {MAX_ARRIVALS} that one stream may have")]
    TooMany { count: u128 },
}
