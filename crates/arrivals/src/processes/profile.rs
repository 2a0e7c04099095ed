//! Requests placed by the integral of a rate that changes with time.

use serde::{Deserialize, Serialize};

use super::Arrivals;
use crate::rate::greatest_common_divisor;
use crate::{Arrival, RandomStream, RateOrZero};

/// How requests follow a changing rate. With L(t) the integral of the rate from 0 to t,
///
/// ```text
/// t_k = the largest whole t with L(t) <= x_k,   for as long as t_k < duration
/// even:     x_k = k,   k = 0, 1, ...
/// poisson:  x_k = x_(k-1) + round(e_k x 2^32) / 2^32,   x_(-1) = 0
/// ```
///
/// where e_k are the exponential numbers of the stream ([`RandomStream`]). With a rate that does not
/// change, even is [`Constant`](crate::Constant). No request falls where the rate is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Each request when the rate adds up to one more.
    #[default]
    Even,
    /// A Poisson process of this rate.
    Poisson,
}

/// A number of requests in parts of 2^-32.
pub(super) type Level = u128;

pub(super) const LEVEL_BITS: u32 = 32;

/// The most that a level may be: [`MAX_ARRIVALS`](crate::MAX_ARRIVALS) and one exponential number.
pub(super) const MAX_LEVEL: Level = 1 << 64;

/// The integral of a rate.
pub(super) trait Profile: Send + 'static {
    /// Whether L(t) > level, for t in [0, duration]; never at 0, and at every later t once it is.
    fn exceeds(&self, time: i64, level: Level) -> bool;

    fn duration_ns(&self) -> i64;
}

/// The requests of a profile.
pub(super) fn place(
    profile: impl Profile,
    placement: Placement,
    mut stream: RandomStream,
) -> Arrivals {
    let mut level: Level = 0;
    // The first t at which the level of the request before was exceeded, and how far that was.
    let (mut after, mut step) = (1, 1);
    let mut count = 0;
    let times = std::iter::from_fn(move || {
        level = match placement {
            Placement::Even => count << LEVEL_BITS,
            Placement::Poisson => level + random_step(&mut stream),
        };
        count += 1;
        if level >= MAX_LEVEL || !profile.exceeds(profile.duration_ns(), level) {
            return None;
        }
        let found = first_exceeding(&profile, level, after, step);
        (after, step) = (found, (found - after).max(1));
        // The largest whole time that did not exceed it.
        Some(Arrival::single(found - 1))
    });
    Box::new(times.fuse())
}

fn random_step(stream: &mut RandomStream) -> Level {
    libm::round(stream.exponential() * (1u64 << LEVEL_BITS) as f64) as Level
}

/// The first time from `low` on at which the level is exceeded, which it is at the end: by steps that
/// double, then by bisection.
fn first_exceeding(profile: &impl Profile, level: Level, mut low: i64, mut step: i64) -> i64 {
    let end = profile.duration_ns();
    let mut high = low;
    while high < end && !profile.exceeds(high, level) {
        low = high + 1;
        high = low.saturating_add(step).min(end);
        step = step.saturating_mul(2);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if profile.exceeds(middle, level) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Rates as whole numbers over one denominator; none if they have too many digits for that.
pub(super) fn over_common_denominator(rates: &[RateOrZero]) -> Option<(Vec<u128>, u128)> {
    let common = rates.iter().try_fold(1u128, |common, rate| {
        let denominator = rate.denominator();
        (common / greatest_common_divisor(common, denominator)).checked_mul(denominator)
    })?;
    let scaled = |rate: &RateOrZero| rate.numerator().checked_mul(common / rate.denominator());
    Some((rates.iter().map(scaled).collect::<Option<_>>()?, common))
}
