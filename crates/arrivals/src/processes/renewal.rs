//! What all processes of independent gaps have in common.

use super::{Arrivals, check};
use crate::gap::coefficient_of_variation;
use crate::{Arrival, ArrivalError, MAX_ARRIVALS, NS_PER_S, Rate};

/// That gaps of this mean (10^9 / rate) and coefficient of variation can be drawn.
pub(super) fn validate(rate: Rate, cv: f64, duration_ns: i64) -> Result<(), ArrivalError> {
    rate_as_gaps(rate)?;
    coefficient_of_variation(cv)?;
    check::rate_over(rate, duration_ns)
}

/// That the mean gap is not below a nanosecond.
pub(super) fn rate_as_gaps(rate: Rate) -> Result<(), ArrivalError> {
    if rate.per_second() > NS_PER_S as f64 {
        return Err(ArrivalError::RateTooFast { text: rate.to_string() });
    }
    Ok(())
}

/// Sums of gaps of whole nanoseconds, from 0 (which is not itself an arrival), while before the end:
///
/// ```text
/// t_k = t_(k-1) + gap_k,   t_(-1) = 0,   for as long as t_k < duration
/// ```
///
/// Gaps that all round to zero would never get there: after [`MAX_ARRIVALS`] it ends as well.
pub(super) fn renewal(
    duration_ns: i64,
    mut next_gap: impl FnMut() -> i64 + Send + 'static,
) -> Arrivals {
    let mut time: i64 = 0;
    let times = std::iter::from_fn(move || {
        // A cast from double to integer saturates, as does the sum: both then are the end.
        time = time.saturating_add(next_gap());
        (time < duration_ns).then(|| Arrival::single(time))
    });
    Box::new(times.fuse().take(MAX_ARRIVALS as usize))
}

/// A renewal process of a rate and a coefficient of variation: they differ in the distribution of the
/// gaps, which `Distribution` has under the second name.
macro_rules! renewal_process {
    ($(#[$doc:meta])* $process:ident, $distribution:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $process {
            /// Requests per second: 1 / the mean gap.
            pub rate_per_s: crate::Rate,
            /// Coefficient of variation of the gaps, from 0.01 to 100.
            pub cv: f64,
            /// Nanoseconds after which no request is sent; above zero.
            pub duration_ns: i64,
        }

        impl $process {
            pub(super) fn validate(&self) -> Result<(), crate::ArrivalError> {
                super::renewal::validate(self.rate_per_s, self.cv, self.duration_ns)
            }

            pub(super) fn expected_arrivals(&self) -> u128 {
                super::check::arrivals_at(self.rate_per_s.per_second(), self.duration_ns)
            }

            pub(super) fn arrivals(&self, mut stream: crate::RandomStream) -> super::Arrivals {
                let mean_ns = self.rate_per_s.mean_gap_ns();
                let gap = crate::gap::Distribution::$distribution(mean_ns, self.cv);
                super::renewal::renewal(self.duration_ns, move || gap.draw_ns(&mut stream))
            }
        }

        impl std::fmt::Display for $process {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let Self { rate_per_s, cv, duration_ns } = self;
                let name = stringify!($distribution);
                write!(formatter, "{name}({rate_per_s}/s, CV {cv}, for {duration_ns} ns)")
            }
        }
    };
}
pub(super) use renewal_process;

/// What holds of every renewal process; its file has its known answers and its distribution.
#[cfg(test)]
mod tests {
    use crate::test_support::{assert_keeps_promises, assert_labels_are_independent, times};
    use crate::{ArrivalError, Gamma, Lognormal, NS_PER_S, Process, Rate, Weibull};
    use proptest::prelude::*;

    const MAKERS: [fn(Rate, f64, i64) -> Process; 3] = [
        |rate_per_s, cv, duration_ns| Gamma { rate_per_s, cv, duration_ns }.into(),
        |rate_per_s, cv, duration_ns| Lognormal { rate_per_s, cv, duration_ns }.into(),
        |rate_per_s, cv, duration_ns| Weibull { rate_per_s, cv, duration_ns }.into(),
    ];

    /// One process of each kind.
    fn each(rate: &str, cv: f64, duration_ns: i64) -> [Process; 3] {
        MAKERS.map(|make| make(rate.parse().unwrap(), cv, duration_ns))
    }

    #[test]
    fn streams_are_uncorrelated() {
        for process in each("1000", 1.5, 10 * NS_PER_S) {
            assert_labels_are_independent(&process);
        }
    }

    #[test]
    fn bad_values_are_sentences() {
        let validated =
            |rate, cv, duration_ns| each(rate, cv, duration_ns).map(|process| process.validate());
        for result in validated("1", 1.0, 0) {
            assert_eq!(result, Err(ArrivalError::Duration { ns: 0 }));
        }
        for result in validated("1", 1.0, i64::MAX) {
            assert_eq!(result, Err(ArrivalError::TooLong));
        }
        for result in validated("1000000000", 1.0, 2 * NS_PER_S) {
            assert!(matches!(result, Err(ArrivalError::TooMany { .. })));
        }
        for result in validated("1000000001", 1.0, 1) {
            assert!(matches!(result, Err(ArrivalError::RateTooFast { .. })));
        }
        for cv in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            for result in validated("1", cv, 1) {
                let refused = matches!(result, Err(ArrivalError::CoefficientOfVariation { .. }));
                assert!(refused, "{cv}: {result:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn keeps_the_promises(
            seed: u64, label in ".{0,20}", rate in 1u32..200, cv in 0.01f64..=100.0,
            duration_ns in 1i64..2_000_000_000,
        ) {
            let rate = rate.to_string();
            let shorter = each(&rate, cv, duration_ns);
            for (process, longer) in shorter.iter().zip(&each(&rate, cv, duration_ns * 2)) {
                assert_keeps_promises(process, seed, &label, duration_ns);
                // A longer run begins with the shorter one.
                let first = times(process, seed, &label);
                prop_assert_eq!(&first[..], &times(longer, seed, &label)[..first.len()]);
            }
        }
    }
}
