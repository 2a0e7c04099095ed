use std::f64::consts::PI;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::profile::{LEVEL_BITS, Level, Placement, Profile, place};
use super::{Arrivals, check};
use crate::{ArrivalError, NS_PER_S, RandomStream, Rate, RateOrZero};

/// A rate that swings about its mean, as over the hours of a day:
///
/// ```text
/// rate(t) = mean + amplitude x sin(2 pi (t / period + phase))
/// ```
///
/// Requests are placed ([`Placement`]) by its integral. With t = n x period + s, 0 <= s < period, in
/// ns,
///
/// ```text
/// L(t) = n x mean x period / 10^9 + M(s)
/// M(s) = (mean x s + amplitude x period / pi x sin(pi (2 phase + s / period)) x sin(pi s / period)) / 10^9
/// ```
///
/// Whole periods are counted in integers, so that nothing drifts; M is computed in doubles with the
/// sine of `libm`, and compared with x_k - L(n x period), the nearest double. Where the rate is not
/// below a tenth of its mean and the period not above a day, that is within a nanosecond.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sine {
    /// Requests per second on average over a period.
    pub mean_per_s: Rate,
    /// How far the rate goes above and below the mean; at most the mean.
    pub amplitude_per_s: RateOrZero,
    /// The length of a period in nanoseconds; above zero.
    pub period_ns: i64,
    /// Where in the period it starts, in turns: 0 at the mean and rising, 0.75 at the lowest.
    #[serde(default)]
    pub phase: f64,
    /// Nanoseconds after which no request is sent; above zero.
    pub duration_ns: i64,
    /// How requests follow the rate; evenly by default.
    #[serde(default)]
    pub placement: Placement,
}

/// The most that a numerator or denominator of the mean may be, for whole periods to be counted in
/// 128 bits.
const LIMIT: u128 = 1 << 60;

impl Sine {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::rate_over(self.mean_per_s, self.duration_ns)?;
        check::positive("period_ns", self.period_ns)?;
        check::span(self.period_ns.into())?;
        if !(0.0..1.0).contains(&self.phase) {
            return Err(ArrivalError::Phase { value: self.phase.to_string() });
        }
        // Its greatest rate may be twice the mean throughout, if the period is long.
        check::count(self.expected_arrivals().saturating_mul(2))?;
        if self.mean_per_s.numerator().max(self.mean_per_s.denominator()) > LIMIT {
            return Err(ArrivalError::RateTooPrecise { text: self.mean_per_s.to_string() });
        }
        if !self.amplitude_within_mean()? {
            return Err(ArrivalError::Amplitude {
                amplitude: self.amplitude_per_s.to_string(),
                mean: self.mean_per_s.to_string(),
            });
        }
        Ok(())
    }

    fn amplitude_within_mean(&self) -> Result<bool, ArrivalError> {
        let (mean, amplitude) = (self.mean_per_s, self.amplitude_per_s);
        let low = amplitude.numerator().checked_mul(mean.denominator());
        let high = mean.numerator().checked_mul(amplitude.denominator());
        let (low, high) = low.zip(high).ok_or(ArrivalError::RatesTooPrecise)?;
        Ok(low <= high)
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        check::arrivals_at(self.mean_per_s.per_second(), self.duration_ns)
    }

    pub(super) fn arrivals(&self, stream: RandomStream) -> Arrivals {
        place(Wave::new(self), self.placement, stream)
    }
}

/// The sine's integral.
struct Wave {
    /// The mean, over `unit` per second.
    mean: i128,
    unit: i128,
    mean_per_s: f64,
    /// amplitude x period / pi
    swing: f64,
    phase: f64,
    period_ns: i64,
    duration_ns: i64,
}

impl Wave {
    fn new(sine: &Sine) -> Self {
        Self {
            mean: sine.mean_per_s.numerator() as i128,
            unit: sine.mean_per_s.denominator() as i128,
            mean_per_s: sine.mean_per_s.per_second(),
            swing: sine.amplitude_per_s.per_second() * sine.period_ns as f64 / PI,
            phase: sine.phase,
            period_ns: sine.period_ns,
            duration_ns: sine.duration_ns,
        }
    }

    /// M(s).
    fn within_period(&self, s: i64) -> f64 {
        let s = s as f64;
        let turn = s / self.period_ns as f64;
        let swing = self.swing * libm::sin(PI * (2.0 * self.phase + turn)) * libm::sin(PI * turn);
        (self.mean_per_s * s + swing) / NS_PER_S as f64
    }
}

impl Profile for Wave {
    fn exceeds(&self, time: i64, level: Level) -> bool {
        let s = time % self.period_ns;
        let scale = self.unit * i128::from(NS_PER_S);
        // In parts of 1 / scale; at most MAX_ARRIVALS whole requests, so that it fits.
        let whole = (level >> LEVEL_BITS) as i128 * scale - i128::from(time - s) * self.mean;
        let part = (level & ((1 << LEVEL_BITS) - 1)) as f64 / (1u64 << LEVEL_BITS) as f64;
        self.within_period(s) > whole as f64 / scale as f64 + part
    }

    fn duration_ns(&self) -> i64 {
        self.duration_ns
    }
}

impl fmt::Display for Sine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean_per_s, amplitude_per_s, period_ns, duration_ns, .. } = self;
        write!(
            formatter,
            "sine({mean_per_s} +- {amplitude_per_s}/s every {period_ns} ns for {duration_ns} ns)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{
        KS_CRITICAL, assert_keeps_promises, assert_labels_are_independent_on, kolmogorov_smirnov,
        times,
    };
    use crate::{Constant, MAX_SPAN_NS, Process};
    use proptest::prelude::*;

    fn sine(mean: &str, amplitude: &str, period_ns: i64, phase: f64, duration_ns: i64) -> Sine {
        Sine {
            mean_per_s: mean.parse().unwrap(),
            amplitude_per_s: amplitude.parse().unwrap(),
            period_ns,
            phase,
            duration_ns,
            placement: Placement::Even,
        }
    }

    /// Computed with 60 digits by another implementation, from the formula.
    #[test]
    fn known_answers() {
        let hour = 3_600 * NS_PER_S;
        let found = times(&sine("20", "15", hour, 0.25, 2 * hour).into(), 0, "");
        assert_eq!(found.len(), 144_000);
        for (k, time) in [
            (0, 0),
            (1, 28_571_428),
            (2, 57_142_857),
            (777, 22_202_381_182),
            (71_999, 3_599_971_428_571),
            (72_000, 3_600_000_000_000),
            (100_001, 4_573_901_167_418),
            (143_999, 7_199_971_428_571),
        ] {
            assert_eq!(found[k], time, "request {k}");
        }
        let mut process = sine("3", "2.5", NS_PER_S, 0.0, 3 * NS_PER_S);
        let found = times(&process.clone().into(), 0, "");
        assert_eq!(found[..5], [0, 223_052_951, 418_443_987, 1_000_000_000, 1_223_052_951]);
        process.placement = Placement::Poisson;
        let found = times(&process.into(), 7, "hello");
        assert_eq!(found[..4], [539_566_389, 1_010_727_244, 1_056_082_629, 1_131_916_646]);
        assert_eq!((found.len(), found[9]), (10, 2_987_415_533));
    }

    #[test]
    fn without_amplitude_it_is_a_constant_rate() {
        // Rates of which no request is due on a whole nanosecond that doubles could miss.
        let (rate_per_s, duration_ns) = ("8".parse().unwrap(), 10 * NS_PER_S);
        let constant = Constant { rate_per_s, duration_ns }.into();
        let found = times(&sine("8", "0", NS_PER_S, 0.3, duration_ns).into(), 0, "");
        assert_eq!(found, times(&constant, 0, ""));
    }

    #[test]
    fn every_period_repeats_the_first() {
        let period = 7 * NS_PER_S;
        let found = times(&sine("10", "10", period, 0.2, 1_000 * period).into(), 0, "");
        assert_eq!(found.len(), 70_000);
        for (k, time) in found.iter().enumerate() {
            assert_eq!(time - k as i64 / 70 * period, found[k % 70], "request {k}");
        }
    }

    #[test]
    fn poisson_requests_follow_the_integral() {
        for (amplitude, phase) in [("300", 0.0), ("200", 0.75)] {
            let mut process = sine("300", amplitude, 8 * NS_PER_S, phase, 20 * NS_PER_S);
            process.placement = Placement::Poisson;
            // The other form of the integral: a difference of cosines.
            let a: f64 = amplitude.parse().unwrap();
            let angle = |s: f64| 2.0 * PI * (s / 8.0 + phase);
            let level =
                |s: f64| 300.0 * s + a * 8.0 / (2.0 * PI) * (angle(0.0).cos() - angle(s).cos());
            let times = times(&process.clone().into(), 3, "ks");
            let expected = level(20.0);
            assert!((times.len() as f64 - expected).abs() < 5.0 * expected.sqrt());
            let seconds: Vec<f64> = times.iter().map(|&time| time as f64 / 1e9).collect();
            let statistic = kolmogorov_smirnov(seconds.clone(), |s| level(s) / expected);
            assert!(statistic < KS_CRITICAL, "{amplitude}: {statistic}");
            assert!(kolmogorov_smirnov(seconds.clone(), |s| s / 20.0) > KS_CRITICAL);
            let pairs = seconds.windows(2);
            let steps = pairs.map(|pair| level(pair[1]) - level(pair[0])).collect();
            let statistic = kolmogorov_smirnov(steps, |x| 1.0 - (-x).exp());
            assert!(statistic < KS_CRITICAL, "{amplitude}: {statistic}");
            assert_labels_are_independent_on(&process.into(), |time| level(time as f64 / 1e9));
        }
    }

    #[test]
    fn bad_values_are_sentences() {
        let good = || sine("1", "1", 1, 0.0, 1);
        assert_eq!(good().validate(), Ok(()));
        let duration = Sine { duration_ns: 0, ..good() }.validate();
        assert_eq!(duration, Err(ArrivalError::Duration { ns: 0 }));
        let period = Sine { period_ns: 0, ..good() }.validate();
        assert_eq!(period, Err(ArrivalError::NotPositive { key: "period_ns", ns: 0 }));
        for phase in [f64::NAN, f64::INFINITY, -0.1, 1.0] {
            let wrong = Sine { phase, ..good() }.validate().unwrap_err().to_string();
            assert!(wrong.starts_with(&format!("phase is {phase}: ")), "{wrong}");
        }
        let wrong = sine("1/3", "0.33333334", 1, 0.0, 1).validate().unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "amplitude_per_s is 0.33333334, above mean_per_s, 1/3: the rate would be negative"
        );
        assert_eq!(sine("1/3", "0.33333333", 1, 0.0, 1).validate(), Ok(()));
        let many = sine("600000000", "1", NS_PER_S, 0.0, NS_PER_S).validate();
        assert!(matches!(many, Err(ArrivalError::TooMany { .. })));
        let precise = sine("0.1666666666666666666667", "0", 1, 0.0, MAX_SPAN_NS / 1_000).validate();
        assert!(matches!(precise, Err(ArrivalError::RateTooPrecise { .. })));
    }

    proptest! {
        #[test]
        fn keeps_the_promises(
            mean in 1u32..3_000, percent in 0u32..=100, phase in 0.0f64..1.0, poisson: bool,
            period_ns in prop_oneof![1i64..1_000, 1i64..2_000_000_000, Just(MAX_SPAN_NS)],
            duration_ns in 1i64..1_000_000_000, seed: u64, label in ".{0,20}",
        ) {
            let amplitude = format!("{}/100", mean * percent);
            let placement = if poisson { Placement::Poisson } else { Placement::Even };
            let sine = sine(&mean.to_string(), &amplitude, period_ns, phase, duration_ns);
            let process = Process::from(Sine { placement, ..sine });
            assert_keeps_promises(&process, seed, &label, duration_ns);
        }
    }
}
