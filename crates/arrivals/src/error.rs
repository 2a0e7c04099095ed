use crate::{MAX_ARRIVALS, MAX_SPAN_NS, NS_PER_S};

/// Why a process can't give times.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
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
    #[error("bursts take either interval_ns, if it is always the same, or gap, if it is random")]
    IntervalOrGap,
    #[error("gap: {source}")]
    Gap { source: Box<Self> },
    #[error(
        "the gap between bursts is always zero, which makes them one: write one burst of their size"
    )]
    ZeroGap,
    #[error("a burst needs at least one size, for example \"sizes\": [10]")]
    NoSizes,
    #[error("burst size {size} (number {index} of \"sizes\"): it must be at least 1")]
    Size { index: usize, size: i64 },
    #[error("bursts is {bursts}: it must be at least 1")]
    Bursts { bursts: i64 },
    #[error("{key} is {ns}: it must be above zero")]
    NotPositive { key: &'static str, ns: i64 },
    #[error("{key} is {ns}: it must not be negative")]
    Negative { key: &'static str, ns: i64 },
    #[error("{min_key} is {min_ns}, which is above {max_key}, {max_ns}: swap them")]
    Bounds { min_key: &'static str, min_ns: i64, max_key: &'static str, max_ns: i64 },
    #[error(
        "cv is {value}: the coefficient of variation (standard deviation over mean) must be from {least} to {most}"
    )]
    CoefficientOfVariation { value: String, least: String, most: String },
    #[error(
        "the rate {text} per second is above 10^9: random gaps are whole nanoseconds, which cannot be as short"
    )]
    RateTooFast { text: String },
    #[error("the rates have more digits together than can be computed with exactly: round them")]
    RatesTooPrecise,
    #[error("steps[{index}]: {source}")]
    Step { index: usize, source: Box<Self> },
    #[error("phase is {value}: it is a part of a period, from 0 up to but not including 1")]
    Phase { value: String },
    #[error("amplitude_per_s is {amplitude}, above mean_per_s, {mean}: the rate would be negative")]
    Amplitude { amplitude: String, mean: String },
    #[error(
        "about {changes} changes between on and off are more than the {MAX_ARRIVALS} that can be computed: give longer means"
    )]
    TooManyChanges { changes: u128 },
    #[error("{key} is empty: give at least one entry")]
    Empty { key: &'static str },
    #[error("{key}[{index}] is {value}: it must not be negative")]
    NegativeEntry { key: &'static str, index: usize, value: i64 },
    #[error(
        "times_ns[{index}] is {ns}, which is before times_ns[{}], {before}: sort the times", index - 1
    )]
    UnsortedTimes { index: usize, ns: i64, before: i64 },
    #[error("{key} gives no request at all: leave the stream out instead")]
    NothingToSend { key: &'static str },
    #[error("windows_ns[{index}] is [{from}, {to}]: a window must end after it begins")]
    EmptyWindow { index: usize, from: i64, to: i64 },
    #[error(
        "windows_ns[{index}] begins at {from}, before the end of the window before it, {end}: sort the windows and join those that overlap"
    )]
    WindowOrder { index: usize, from: i64, end: i64 },
    #[error("processes are nested deeper than {} levels", crate::MAX_DEPTH)]
    TooDeep,
    #[error("the numbers of the bursts would not fit 64 bits: nest fewer superpositions")]
    BurstNumbers,
    #[error("processes[{index}]: {source}")]
    Part { index: usize, source: Box<Self> },
    #[error("the process lasts longer than {} years", MAX_SPAN_NS / (366 * 24 * 3_600 * NS_PER_S))]
    TooLong,
    #[error("about {count} arrivals are more than the {MAX_ARRIVALS} that one stream may have")]
    TooMany { count: u128 },
}
