use std::fmt;

use serde::{Deserialize, Serialize};

use super::profile::{
    LEVEL_BITS, Level, MAX_LEVEL, Placement, Profile, over_common_denominator, place,
};
use super::{Arrivals, check};
use crate::wide::Wide;
use crate::{ArrivalError, NS_PER_S, RandomStream, RateOrZero};

/// A rate that rises or falls linearly. Requests are placed ([`Placement`]) by its integral
///
/// ```text
/// L(t) = (from x t + (to - from) x t^2 / (2 x duration)) / 10^9,   t in ns
/// ```
///
/// in integers, from the decimal text of the rates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// Requests per second at the start; one of the two may be zero.
    pub from_per_s: RateOrZero,
    /// Requests per second at the end.
    pub to_per_s: RateOrZero,
    /// The length of the ramp in nanoseconds, at whose end the process ends; above zero.
    pub duration_ns: i64,
    /// How requests follow the rate; evenly by default.
    #[serde(default)]
    pub placement: Placement,
}

/// The ramp in whole numbers: its rates are `from / unit` and `to / unit` per second.
struct Line {
    from: u128,
    to: u128,
    unit: u128,
    duration: u128,
}

impl Ramp {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::duration(self.duration_ns)?;
        if self.from_per_s.rate().is_none() && self.to_per_s.rate().is_none() {
            return Err(ArrivalError::ZeroRate);
        }
        check::count(self.expected_arrivals())?;
        self.line().map(|_| ()).ok_or(ArrivalError::RatesTooPrecise)
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        let mean = (self.from_per_s.per_second() + self.to_per_s.per_second()) / 2.0;
        check::arrivals_at(mean, self.duration_ns)
    }

    fn line(&self) -> Option<Line> {
        let (rates, unit) = over_common_denominator(&[self.from_per_s, self.to_per_s])?;
        // What the comparison multiplies must fit 128 bits.
        rates[0].max(rates[1]).checked_mul(1 << LEVEL_BITS)?;
        unit.checked_mul(MAX_LEVEL)?;
        Some(Line { from: rates[0], to: rates[1], unit, duration: self.duration_ns as u128 })
    }

    pub(super) fn arrivals(&self, stream: RandomStream) -> Arrivals {
        match self.line() {
            Some(line) => place(line, self.placement, stream),
            None => Box::new(std::iter::empty()),
        }
    }
}

impl Profile for Line {
    /// `2 duration from t + (to - from) t^2 > 2 duration 10^9 unit level`, all terms above zero.
    fn exceeds(&self, time: i64, level: Level) -> bool {
        let time = time as u128;
        let linear = Wide::product(2 * self.duration * time, self.from << LEVEL_BITS);
        let square = Wide::product(time * time, self.from.abs_diff(self.to) << LEVEL_BITS);
        let bound = Wide::product(2 * self.duration * NS_PER_S as u128, self.unit * level);
        if self.to >= self.from { linear.plus(square) > bound } else { linear > bound.plus(square) }
    }

    fn duration_ns(&self) -> i64 {
        self.duration as i64
    }
}

impl fmt::Display for Ramp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from_per_s, to_per_s, duration_ns, .. } = self;
        write!(formatter, "ramp({from_per_s}/s to {to_per_s}/s in {duration_ns} ns)")
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

    fn ramp(from: &str, to: &str, duration_ns: i64, placement: Placement) -> Ramp {
        let (from_per_s, to_per_s) = (from.parse().unwrap(), to.parse().unwrap());
        Ramp { from_per_s, to_per_s, duration_ns, placement }
    }

    fn even(from: &str, to: &str, duration_ns: i64) -> Vec<i64> {
        times(&ramp(from, to, duration_ns, Placement::Even).into(), 0, "")
    }

    /// Computed with fractions of unlimited integers and an integer square root, from the formula.
    #[test]
    fn known_answers() {
        // L(t) = t^2 / 2: t_k = floor(sqrt(2 k) x 10^9).
        assert_eq!(
            even("0", "3", 3 * NS_PER_S),
            [0, 1_414_213_562, 2_000_000_000, 2_449_489_742, 2_828_427_124]
        );
        let found = even("12.5", "2.5", 10 * NS_PER_S);
        assert_eq!(found[..4], [0, 80_257_651, 161_037_320, 242_349_327]);
        assert_eq!((found.len(), found[74]), (75, 9_627_718_676));
        let found = even("0.166666666666666667", "3", 10 * NS_PER_S);
        assert_eq!(found[..4], [0, 2_132_949_060, 3_214_877_617, 4_050_998_624]);
        assert_eq!((found.len(), found[15]), (16, 9_718_479_687));
        // A rise over a hundred years.
        let found = even("0", "1/100000000", MAX_SPAN_NS);
        assert_eq!(found[..3], [0, 795_265_993_237_482_775, 1_124_675_953_330_558_232]);
        assert_eq!((found.len(), found[15]), (16, 3_080_051_947_613_871_008));
        let random =
            |from, to| times(&ramp(from, to, 10 * NS_PER_S, Placement::Poisson).into(), 7, "hello");
        let found = random("12.5", "2.5");
        assert_eq!(found[..4], [193_679_808, 245_048_770, 258_079_901, 285_236_577]);
        assert_eq!((found.len(), found[67]), (68, 9_578_816_895));
        let found = random("0.166666666666666667", "3");
        assert_eq!(found[..3], [3_571_454_698, 4_076_101_076, 4_195_351_174]);
        assert_eq!((found.len(), found[12]), (13, 8_550_550_248));
    }

    #[test]
    fn equal_ends_are_a_constant_rate() {
        let constant = Constant { rate_per_s: "7".parse().unwrap(), duration_ns: 10 * NS_PER_S };
        assert_eq!(even("7", "7", 10 * NS_PER_S), times(&constant.into(), 0, ""));
    }

    #[test]
    fn poisson_requests_follow_the_integral() {
        for (from, to) in [("0", "1000"), ("1000", "0"), ("300", "900")] {
            let [f, t]: [f64; 2] = [from, to].map(|rate| rate.parse().unwrap());
            let process = ramp(from, to, 10 * NS_PER_S, Placement::Poisson).into();
            let times = times(&process, 3, "ks");
            let expected = 5.0 * (f + t);
            assert!((times.len() as f64 - expected).abs() < 5.0 * expected.sqrt());
            let places: Vec<f64> = times.iter().map(|&time| time as f64 / 1e10).collect();
            let share = |x: f64| (f * x + (t - f) * x * x / 2.0) / ((f + t) / 2.0);
            let statistic = kolmogorov_smirnov(places.clone(), share);
            assert!(statistic < KS_CRITICAL, "{from} to {to}: {statistic}");
            assert!(kolmogorov_smirnov(places, |x| x) > KS_CRITICAL, "{from} to {to}");
            // Rescaled by the integral the gaps are exponential of mean 1.
            let levels: Vec<f64> =
                times.iter().map(|&time| share(time as f64 / 1e10) * expected).collect();
            let steps = levels.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let statistic = kolmogorov_smirnov(steps, |x| 1.0 - (-x).exp());
            assert!(statistic < KS_CRITICAL, "{from} to {to}: {statistic}");
            assert_labels_are_independent_on(&process, |time| share(time as f64 / 1e10));
        }
    }

    #[test]
    fn bad_values_are_sentences() {
        let with = |from, to, ns| ramp(from, to, ns, Placement::Even).validate();
        assert_eq!(with("0", "0", 1), Err(ArrivalError::ZeroRate));
        assert_eq!(with("0", "1", 0), Err(ArrivalError::Duration { ns: 0 }));
        assert!(matches!(with("1", "1000000000", MAX_SPAN_NS), Err(ArrivalError::TooMany { .. })));
        let precise = with("1/1000000000000000000", "1/100000000000000000000", 1);
        assert_eq!(precise, Err(ArrivalError::RatesTooPrecise));
        assert_eq!(with("0.166666666666666667", "10", MAX_SPAN_NS / 100), Ok(()));
    }

    proptest! {
        #[test]
        fn even_times_are_exact(
            from in 0u32..2_000, to in 0u32..2_000, tenths: bool, duration_ns in 1i64..3_000_000_000
        ) {
            prop_assume!(from + to > 0);
            let text = |rate: u32| if tenths { format!("{rate}/10") } else { rate.to_string() };
            let process = Process::from(ramp(&text(from), &text(to), duration_ns, Placement::Even));
            assert_keeps_promises(&process, 0, "", duration_ns);
            let times = times(&process, 0, "");
            // L(t) <= k, with everything in i128, which these sizes fit.
            let (f, g, d) = (i128::from(from), i128::from(to), i128::from(duration_ns));
            let unit = 2 * d * 1_000_000_000 * if tenths { 10 } else { 1 };
            let level = |t: i128| 2 * d * f * t + (g - f) * t * t;
            for (k, &time) in times.iter().enumerate() {
                prop_assert!(level(time.into()) <= k as i128 * unit);
                prop_assert!(level(i128::from(time) + 1) > k as i128 * unit);
            }
            prop_assert!(level(d) <= times.len() as i128 * unit);
        }

        #[test]
        fn keeps_the_promises(
            from in 0u32..3_000, to in 1u32..3_000, seed: u64, label in ".{0,20}",
            duration_ns in 1i64..1_000_000_000,
        ) {
            let process = ramp(&from.to_string(), &to.to_string(), duration_ns, Placement::Poisson);
            assert_keeps_promises(&process.into(), seed, &label, duration_ns);
        }
    }
}
