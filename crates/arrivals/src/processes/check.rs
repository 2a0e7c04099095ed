//! Checks that several processes share.

use super::Process;
use crate::{ArrivalError, MAX_ARRIVALS, MAX_DEPTH, MAX_SPAN_NS, NS_PER_S, Rate};

pub(super) fn duration(ns: i64) -> Result<(), ArrivalError> {
    match ns {
        ..=0 => Err(ArrivalError::Duration { ns }),
        _ => span(ns.into()),
    }
}

/// That a time of the process, or its end, is not too far off.
pub(super) fn span(ns: i128) -> Result<(), ArrivalError> {
    if ns > MAX_SPAN_NS.into() { Err(ArrivalError::TooLong) } else { Ok(()) }
}

pub(super) fn positive(key: &'static str, ns: i64) -> Result<(), ArrivalError> {
    if ns < 1 { Err(ArrivalError::NotPositive { key, ns }) } else { Ok(()) }
}

/// That a list has entries, all of them from zero up.
pub(super) fn list(key: &'static str, values: &[i64]) -> Result<(), ArrivalError> {
    if values.is_empty() {
        return Err(ArrivalError::Empty { key });
    }
    match values.iter().enumerate().find(|(_, value)| **value < 0) {
        Some((index, &value)) => Err(ArrivalError::NegativeEntry { key, index, value }),
        None => Ok(()),
    }
}

pub(super) fn count(count: u128) -> Result<(), ArrivalError> {
    if count > u128::from(MAX_ARRIVALS) {
        return Err(ArrivalError::TooMany { count });
    }
    Ok(())
}

/// How many arrivals a rate gives. For limits and messages: a double is exact enough.
pub(super) fn arrivals_at(per_second: f64, duration_ns: i64) -> u128 {
    (per_second * duration_ns as f64 / NS_PER_S as f64) as u128
}

/// That `rate` over `duration_ns` gives no more arrivals than allowed, on average.
pub(super) fn rate_over(rate: Rate, duration_ns: i64) -> Result<(), ArrivalError> {
    duration(duration_ns)?;
    count(arrivals_at(rate.per_second(), duration_ns))
}

/// That processes in processes have an end.
pub(super) fn depth(parts: &[Process]) -> Result<(), ArrivalError> {
    fn within(parts: &[Process], levels: usize) -> bool {
        parts.is_empty() || levels > 0 && parts.iter().all(|part| within(part.parts(), levels - 1))
    }
    // The process itself is a level.
    if within(parts, MAX_DEPTH - 1) { Ok(()) } else { Err(ArrivalError::TooDeep) }
}
