use std::fmt;

use serde::{Deserialize, Serialize};

use super::profile::{LEVEL_BITS, Level, Placement, Profile, over_common_denominator, place};
use super::{Arrivals, check};
use crate::wide::Wide;
use crate::{ArrivalError, NS_PER_S, RandomStream, RateOrZero};

/// Rates one after another. Requests are placed ([`Placement`]) by the integral of the rate: with s_i
/// the start of step i,
///
/// ```text
/// L(t) = L(s_i) + rate_i x (t - s_i) / 10^9,   t in ns, s_i <= t <= s_(i+1)
/// ```
///
/// in integers, from the decimal text of the rates. What a step leaves of a request the next one goes
/// on with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// The steps in order, at least one.
    pub steps: Vec<Step>,
    /// How requests follow the rate; evenly by default.
    #[serde(default)]
    pub placement: Placement,
}

/// One rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Requests per second; may be zero.
    pub rate_per_s: RateOrZero,
    /// The length of the step in nanoseconds; above zero.
    pub duration_ns: i64,
}

/// The steps in whole numbers: rates are over `unit` per second.
struct Stairs {
    stairs: Vec<Stair>,
    unit: u128,
    duration_ns: i64,
}

struct Stair {
    start: i64,
    rate: u128,
    /// `10^9 unit L(start)`.
    before: u128,
}

impl Steps {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        if self.steps.is_empty() {
            return Err(ArrivalError::Empty { key: "steps" });
        }
        for (index, step) in self.steps.iter().enumerate() {
            let in_step = |source| ArrivalError::Step { index, source: Box::new(source) };
            check::duration(step.duration_ns).map_err(in_step)?;
        }
        check::span(self.steps.iter().map(|step| i128::from(step.duration_ns)).sum())?;
        if self.steps.iter().all(|step| step.rate_per_s.rate().is_none()) {
            return Err(ArrivalError::NothingToSend { key: "steps" });
        }
        check::count(self.expected_arrivals())?;
        self.stairs().map(|_| ()).ok_or(ArrivalError::RatesTooPrecise)
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        let arrivals =
            |step: &Step| step.rate_per_s.per_second() * step.duration_ns as f64 / NS_PER_S as f64;
        self.steps.iter().map(arrivals).sum::<f64>() as u128
    }

    fn stairs(&self) -> Option<Stairs> {
        let rates: Vec<RateOrZero> = self.steps.iter().map(|step| step.rate_per_s).collect();
        let (rates, unit) = over_common_denominator(&rates)?;
        let (mut start, mut before) = (0i64, 0u128);
        let mut stairs = Vec::with_capacity(rates.len());
        for (step, rate) in self.steps.iter().zip(rates) {
            stairs.push(Stair { start, rate, before });
            start = start.checked_add(step.duration_ns)?;
            before = before.checked_add(rate.checked_mul(step.duration_ns as u128)?)?;
        }
        Some(Stairs { stairs, unit, duration_ns: start })
    }

    pub(super) fn arrivals(&self, stream: RandomStream) -> Arrivals {
        match self.stairs() {
            Some(stairs) => place(stairs, self.placement, stream),
            None => Box::new(std::iter::empty()),
        }
    }
}

impl Profile for Stairs {
    fn exceeds(&self, time: i64, level: Level) -> bool {
        // The first starts at 0, so there is one.
        let stair = &self.stairs[self.stairs.partition_point(|stair| stair.start <= time) - 1];
        let reached = stair.before + stair.rate * (time - stair.start) as u128;
        Wide::product(reached, 1 << LEVEL_BITS) > Wide::product(level * NS_PER_S as u128, self.unit)
    }

    fn duration_ns(&self) -> i64 {
        self.duration_ns
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("steps(")?;
        for (index, Step { rate_per_s, duration_ns }) in self.steps.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(formatter, "{comma}{rate_per_s}/s for {duration_ns} ns")?;
        }
        formatter.write_str(")")
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

    fn steps(steps: &[(&str, i64)], placement: Placement) -> Steps {
        let step = |&(rate, duration_ns): &(&str, i64)| Step {
            rate_per_s: rate.parse().unwrap(),
            duration_ns,
        };
        Steps { steps: steps.iter().map(step).collect(), placement }
    }

    fn even(of: &[(&str, i64)]) -> Vec<i64> {
        times(&steps(of, Placement::Even).into(), 0, "")
    }

    #[test]
    fn each_step_has_its_requests() {
        let found = even(&[("3", NS_PER_S), ("0", NS_PER_S), ("2", NS_PER_S), ("0", 5)]);
        assert_eq!(found, [0, 333_333_333, 666_666_666, 2_000_000_000, 2_500_000_000]);
        // None falls where the rate is zero, at the start either.
        assert_eq!(even(&[("0", NS_PER_S), ("1", NS_PER_S)]), [1_000_000_000]);
        // Half a request of the first step is part of one in the second: 0.5 + 4 x 0.125 s = 1.
        let found = even(&[("1", NS_PER_S / 2), ("4", NS_PER_S / 2)]);
        assert_eq!(found, [0, 625_000_000, 875_000_000]);
    }

    #[test]
    fn one_step_is_a_constant_rate() {
        for rate in ["7", "1/3", "0.166666666666666667", "1234.5"] {
            let (rate_per_s, duration_ns) = (rate.parse().unwrap(), 10 * NS_PER_S);
            let constant = Constant { rate_per_s, duration_ns }.into();
            assert_eq!(even(&[(rate, 10 * NS_PER_S)]), times(&constant, 0, ""), "{rate}");
        }
    }

    #[test]
    fn poisson_requests_follow_the_integral() {
        let of = [("100", 4 * NS_PER_S), ("0", 2 * NS_PER_S), ("800", 4 * NS_PER_S)];
        let process = steps(&of, Placement::Poisson).into();
        let times = times(&process, 3, "ks");
        assert!(times.iter().all(|time| !(4 * NS_PER_S..6 * NS_PER_S).contains(time)));
        assert!((times.len() as f64 - 3_600.0).abs() < 300.0, "{}", times.len());
        let level = |s: f64| 100.0 * s.min(4.0) + 800.0 * (s - 6.0).max(0.0);
        let seconds: Vec<f64> = times.iter().map(|&time| time as f64 / 1e9).collect();
        let statistic = kolmogorov_smirnov(seconds.clone(), |s| level(s) / 3_600.0);
        assert!(statistic < KS_CRITICAL, "{statistic}");
        assert!(kolmogorov_smirnov(seconds.clone(), |s| s / 10.0) > KS_CRITICAL);
        let pairs = seconds.windows(2);
        let gaps = pairs.map(|pair| level(pair[1]) - level(pair[0])).collect();
        let statistic = kolmogorov_smirnov(gaps, |x| 1.0 - (-x).exp());
        assert!(statistic < KS_CRITICAL, "{statistic}");
        assert_labels_are_independent_on(&process, |time| level(time as f64 / 1e9));
    }

    #[test]
    fn bad_values_are_sentences() {
        let validated = |of: &[(&str, i64)]| steps(of, Placement::Even).validate();
        assert_eq!(validated(&[]), Err(ArrivalError::Empty { key: "steps" }));
        let wrong = validated(&[("1", 1), ("1", 0)]).unwrap_err();
        assert_eq!(wrong.to_string(), "steps[1]: duration_ns is 0: it must be above zero");
        assert_eq!(validated(&[("1", MAX_SPAN_NS / 2 + 1); 2]), Err(ArrivalError::TooLong));
        let nothing = ArrivalError::NothingToSend { key: "steps" };
        assert_eq!(validated(&[("0", 1), ("0", 1)]), Err(nothing));
        let many = validated(&[("600000000", NS_PER_S); 2]);
        assert!(matches!(many, Err(ArrivalError::TooMany { .. })));
        let primes =
            ["1/1000000007", "1/998244353", "1/1000000009", "1/1000000021", "1/1000000033"];
        let precise: Vec<(&str, i64)> = primes.iter().map(|rate| (*rate, NS_PER_S)).collect();
        assert_eq!(validated(&precise), Err(ArrivalError::RatesTooPrecise));
    }

    proptest! {
        #[test]
        fn even_times_are_exact(
            of in prop::collection::vec((0u32..500, 1u32..9, 1i64..500_000_000), 1..6)
        ) {
            prop_assume!(of.iter().any(|(over, _, _)| *over > 0));
            let texts: Vec<_> =
                of.iter().map(|(over, under, ns)| (format!("{over}/{under}"), *ns)).collect();
            let listed: Vec<_> = texts.iter().map(|(text, ns)| (text.as_str(), *ns)).collect();
            let process = Process::from(steps(&listed, Placement::Even));
            let end = of.iter().map(|(_, _, ns)| ns).sum();
            assert_keeps_promises(&process, 0, "", end);
            let times = times(&process, 0, "");
            // 840 x 10^9 x L(t), 840 being a multiple of 1 ... 8.
            let level = |t: i64| {
                let (mut start, mut sum) = (0, 0i128);
                for &(over, under, ns) in &of {
                    let within = (t - start).clamp(0, ns);
                    sum += i128::from(over) * i128::from(840 / under) * i128::from(within);
                    start += ns;
                }
                sum
            };
            let unit = 840_000_000_000;
            for (k, &time) in times.iter().enumerate() {
                prop_assert!(level(time) <= k as i128 * unit);
                prop_assert!(level(time + 1) > k as i128 * unit);
            }
            prop_assert!(level(end) <= times.len() as i128 * unit);
        }

        #[test]
        fn keeps_the_promises(
            rates in prop::collection::vec(0u32..3_000, 1..6), seed: u64, label in ".{0,20}",
            duration_ns in 1i64..200_000_000,
        ) {
            prop_assume!(rates.iter().any(|rate| *rate > 0));
            let texts: Vec<String> = rates.iter().map(u32::to_string).collect();
            let listed: Vec<_> = texts.iter().map(|text| (text.as_str(), duration_ns)).collect();
            let end = duration_ns * rates.len() as i64;
            assert_keeps_promises(&steps(&listed, Placement::Poisson).into(), seed, &label, end);
        }
    }
}
