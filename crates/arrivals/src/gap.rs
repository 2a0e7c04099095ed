//! Distributions of the time between two arrivals, or two bursts.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ArrivalError, MAX_SPAN_NS, RandomStream};

/// A gap of whole nanoseconds, drawn anew each time. With the numbers of the stream
/// ([`RandomStream`]), CV being the standard deviation over the mean:
///
/// ```text
/// fixed        ns
/// uniform      min_ns + floor(u x (max_ns - min_ns + 1)): each whole number from min to max alike
/// exponential  shift_ns + round(e x mean_ns)
/// gamma        round(g x scale): g of shape 1 / cv^2; scale = mean x cv^2
/// weibull      round(e^x x scale): x = 1 / shape, so that 1 + cv^2 = Gamma(1 + 2 x) / Gamma(1 + x)^2;
///              scale = mean / Gamma(1 + x)
/// lognormal    round(exp(mu + sigma z)): z normal; sigma^2 = ln(1 + cv^2); mu = ln(mean) - sigma^2 / 2
/// ```
///
/// `round` goes to the nearest whole number, halves away from zero. x of the Weibull distribution is
/// found by bisection of [0, 16] with `libm`'s lgamma, until no double lies between the bounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "distribution", rename_all = "snake_case", deny_unknown_fields)]
pub enum Gap {
    /// Always the same gap.
    Fixed {
        /// Nanoseconds, 0 or more.
        ns: i64,
    },
    /// Each whole number of nanoseconds between two bounds is equally likely.
    Uniform {
        /// The shortest gap in nanoseconds, 0 or more; itself possible.
        min_ns: i64,
        /// The longest gap in nanoseconds, at least `min_ns`; itself possible.
        max_ns: i64,
    },
    /// The mean is that of the random part, to which the shift is added.
    Exponential {
        /// The mean before the shift, in nanoseconds; above zero.
        mean_ns: i64,
        /// The shortest gap in nanoseconds, 0 or more.
        #[serde(default)]
        shift_ns: i64,
    },
    /// Gamma-distributed gaps; a CV of 1 makes them exponential.
    Gamma {
        /// The mean in nanoseconds; above zero.
        mean_ns: i64,
        /// Coefficient of variation, from 0.01 to 100.
        cv: f64,
    },
    /// Weibull-distributed gaps; a CV of 1 makes them exponential.
    Weibull {
        /// The mean in nanoseconds; above zero.
        mean_ns: i64,
        /// Coefficient of variation, from 0.01 to 100.
        cv: f64,
    },
    /// Gaps whose logarithm is normally distributed.
    Lognormal {
        /// The mean in nanoseconds; above zero.
        mean_ns: i64,
        /// Coefficient of variation, from 0.01 to 100.
        cv: f64,
    },
}

impl Gap {
    /// Checks the numbers.
    ///
    /// # Errors
    /// One is out of its bounds.
    pub fn validate(&self) -> Result<(), ArrivalError> {
        match *self {
            Self::Fixed { ns } => not_negative("ns", ns),
            Self::Uniform { min_ns, max_ns } => uniform(("min_ns", min_ns), ("max_ns", max_ns)),
            Self::Exponential { mean_ns, shift_ns } => {
                not_negative("shift_ns", shift_ns)?;
                mean(mean_ns)
            }
            Self::Gamma { mean_ns, cv }
            | Self::Weibull { mean_ns, cv }
            | Self::Lognormal { mean_ns, cv } => {
                mean(mean_ns)?;
                coefficient_of_variation(cv)
            }
        }
    }

    pub(crate) fn mean_ns(&self) -> f64 {
        match *self {
            Self::Fixed { ns } => ns as f64,
            Self::Uniform { min_ns, max_ns } => (min_ns as f64 + max_ns as f64) / 2.0,
            Self::Exponential { mean_ns, shift_ns } => mean_ns as f64 + shift_ns as f64,
            Self::Gamma { mean_ns, .. }
            | Self::Weibull { mean_ns, .. }
            | Self::Lognormal { mean_ns, .. } => mean_ns as f64,
        }
    }

    /// The next gap in nanoseconds, 0 or more, with the numbers of the stream.
    pub fn draw_ns(&self, stream: &mut RandomStream) -> i64 {
        self.distribution().draw_ns(stream)
    }

    pub(crate) fn distribution(&self) -> Distribution {
        match *self {
            Self::Fixed { ns } => Distribution::Uniform { min_ns: ns, max_ns: ns },
            Self::Uniform { min_ns, max_ns } => Distribution::Uniform { min_ns, max_ns },
            Self::Exponential { mean_ns, shift_ns } => {
                Distribution::Exponential { mean: mean_ns as f64, shift_ns }
            }
            Self::Gamma { mean_ns, cv } => Distribution::gamma(mean_ns as f64, cv),
            Self::Weibull { mean_ns, cv } => Distribution::weibull(mean_ns as f64, cv),
            Self::Lognormal { mean_ns, cv } => Distribution::lognormal(mean_ns as f64, cv),
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed { ns } => write!(formatter, "{ns} ns"),
            Self::Uniform { min_ns, max_ns } => write!(formatter, "{min_ns} to {max_ns} ns"),
            Self::Exponential { mean_ns, shift_ns } => {
                write!(formatter, "{shift_ns} ns + exponential of mean {mean_ns} ns")
            }
            Self::Gamma { mean_ns, cv } => write!(formatter, "gamma({mean_ns} ns, CV {cv})"),
            Self::Weibull { mean_ns, cv } => write!(formatter, "weibull({mean_ns} ns, CV {cv})"),
            Self::Lognormal { mean_ns, cv } => {
                write!(formatter, "lognormal({mean_ns} ns, CV {cv})")
            }
        }
    }
}

/// A distribution in the parameters that a number is drawn with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Distribution {
    Uniform {
        min_ns: i64,
        max_ns: i64,
    },
    Exponential {
        mean: f64,
        shift_ns: i64,
    },
    Gamma {
        shape: f64,
        scale: f64,
    },
    /// `power` is 1 / shape.
    Weibull {
        power: f64,
        scale: f64,
    },
    Lognormal {
        mu: f64,
        sigma: f64,
    },
}

impl Distribution {
    pub(crate) fn gamma(mean: f64, cv: f64) -> Self {
        Self::Gamma { shape: 1.0 / (cv * cv), scale: mean * (cv * cv) }
    }

    pub(crate) fn weibull(mean: f64, cv: f64) -> Self {
        let power = weibull_power(cv);
        Self::Weibull { power, scale: mean / libm::tgamma(1.0 + power) }
    }

    pub(crate) fn lognormal(mean: f64, cv: f64) -> Self {
        let variance = libm::log1p(cv * cv);
        Self::Lognormal { mu: libm::log(mean) - variance / 2.0, sigma: libm::sqrt(variance) }
    }

    /// The next gap.
    pub(crate) fn draw_ns(&self, stream: &mut RandomStream) -> i64 {
        match *self {
            // Nothing is drawn for what is not random.
            Self::Uniform { min_ns, max_ns } if min_ns == max_ns => min_ns,
            Self::Uniform { min_ns, max_ns } => {
                min_ns + stream.whole_below((max_ns - min_ns + 1) as u64, 1) as i64
            }
            Self::Exponential { mean, shift_ns } => {
                shift_ns.saturating_add(libm::round(stream.exponential() * mean) as i64)
            }
            // A cast from double to integer saturates.
            _ => libm::round(self.draw(stream)) as i64,
        }
    }

    /// The next gap of the continuous distributions, before it is rounded.
    fn draw(&self, stream: &mut RandomStream) -> f64 {
        match *self {
            Self::Uniform { min_ns, .. } => min_ns as f64,
            Self::Exponential { mean, shift_ns } => shift_ns as f64 + stream.exponential() * mean,
            Self::Gamma { shape, scale } => stream.gamma(shape) * scale,
            Self::Weibull { power, scale } => libm::pow(stream.exponential(), power) * scale,
            Self::Lognormal { mu, sigma } => libm::exp(mu + sigma * stream.normal()),
        }
    }
}

/// 1 / shape of the Weibull distribution with this coefficient of variation.
fn weibull_power(cv: f64) -> f64 {
    let target = libm::log1p(cv * cv);
    // Rises with x, from 0; at 16 it is 21, a CV of 30,000.
    let spread = |x: f64| libm::lgamma(1.0 + 2.0 * x) - 2.0 * libm::lgamma(1.0 + x);
    let (mut low, mut high) = (0.0, 16.0);
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return high;
        }
        if spread(middle) < target {
            low = middle;
        } else {
            high = middle;
        }
    }
}

/// What a coefficient of variation may be. Below, gaps are all but constant; above, a sample's mean
/// says nothing of the rate.
const CV: std::ops::RangeInclusive<f64> = 0.01..=100.0;

pub(crate) fn coefficient_of_variation(cv: f64) -> Result<(), ArrivalError> {
    if CV.contains(&cv) {
        return Ok(());
    }
    Err(ArrivalError::CoefficientOfVariation {
        value: cv.to_string(),
        least: CV.start().to_string(),
        most: CV.end().to_string(),
    })
}

pub(crate) fn uniform(
    (min_key, min_ns): (&'static str, i64),
    (max_key, max_ns): (&'static str, i64),
) -> Result<(), ArrivalError> {
    not_negative(min_key, min_ns)?;
    not_negative(max_key, max_ns)?;
    if min_ns > max_ns {
        return Err(ArrivalError::Bounds { min_key, min_ns, max_key, max_ns });
    }
    short(max_ns)
}

fn mean(mean_ns: i64) -> Result<(), ArrivalError> {
    if mean_ns < 1 {
        return Err(ArrivalError::NotPositive { key: "mean_ns", ns: mean_ns });
    }
    short(mean_ns)
}

fn not_negative(key: &'static str, ns: i64) -> Result<(), ArrivalError> {
    if ns < 0 {
        return Err(ArrivalError::Negative { key, ns });
    }
    short(ns)
}

fn short(ns: i64) -> Result<(), ArrivalError> {
    if ns > MAX_SPAN_NS { Err(ArrivalError::TooLong) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{
        KS_CRITICAL, gamma_distribution, kolmogorov_smirnov, moments, normal_distribution,
    };
    use proptest::prelude::*;

    const MEAN: f64 = 1e6;

    fn sample(distribution: Distribution, n: usize) -> Vec<f64> {
        let mut stream = RandomStream::new(3, "gap");
        (0..n).map(|_| distribution.draw(&mut stream)).collect()
    }

    fn statistic(distribution: Distribution, expected: impl Fn(f64) -> f64) -> f64 {
        kolmogorov_smirnov(sample(distribution, 20_000), expected)
    }

    #[test]
    fn gamma_gaps_have_their_distribution() {
        for cv in [0.01, 0.3, 1.0, 2.0, 10.0] {
            let shape = 1.0 / (cv * cv);
            let expected = |x| gamma_distribution(shape, x / (MEAN / shape));
            let found = statistic(Distribution::gamma(MEAN, cv), expected);
            assert!(found < KS_CRITICAL, "cv {cv}: {found}");
            let other = statistic(Distribution::gamma(MEAN, cv * 1.1), expected);
            assert!(other > KS_CRITICAL, "cv {cv}: a CV of 10 % more is not seen: {other}");
        }
    }

    #[test]
    fn weibull_gaps_have_their_distribution() {
        // Shapes whose moments are known: 1 (exponential), 1/2 (Gamma(5) / Gamma(3)^2 = 6) and 2
        // (Rayleigh: Gamma(2) / Gamma(3/2)^2 = 4 / pi, mean scale x sqrt(pi) / 2).
        let pi = std::f64::consts::PI;
        for (shape, cv, scale) in [
            (1.0, 1.0, MEAN),
            (0.5, 5f64.sqrt(), MEAN / 2.0),
            (2.0, (4.0 / pi - 1.0).sqrt(), MEAN * 2.0 / pi.sqrt()),
        ] {
            assert!((weibull_power(cv) * shape - 1.0).abs() < 1e-9, "cv {cv}");
            let expected = |x: f64| 1.0 - (-(x / scale).powf(shape)).exp();
            let found = statistic(Distribution::weibull(MEAN, cv), expected);
            assert!(found < KS_CRITICAL, "cv {cv}: {found}");
            let other = statistic(Distribution::weibull(MEAN, cv * 1.1), expected);
            assert!(other > KS_CRITICAL, "cv {cv}: a CV of 10 % more is not seen: {other}");
        }
    }

    #[test]
    fn lognormal_gaps_have_their_distribution() {
        for cv in [0.01f64, 0.3, 1.0, 5.0, 100.0] {
            let sigma = (1.0 + cv * cv).ln().sqrt();
            let mu = MEAN.ln() - sigma * sigma / 2.0;
            let expected = |x: f64| normal_distribution((x.ln() - mu) / sigma);
            let found = statistic(Distribution::lognormal(MEAN, cv), expected);
            assert!(found < KS_CRITICAL, "cv {cv}: {found}");
            let other = statistic(Distribution::lognormal(MEAN * 1.1, cv), expected);
            // At a CV of 100 the mean is not seen: the median is 1 % of it.
            assert!(cv == 100.0 || other > KS_CRITICAL, "cv {cv}: {other}");
        }
    }

    #[test]
    fn sample_moments_are_those_asked_for() {
        const N: usize = 100_000;
        for cv in [0.05, 0.5, 1.0, 1.5] {
            for distribution in [
                Distribution::gamma(MEAN, cv),
                Distribution::weibull(MEAN, cv),
                Distribution::lognormal(MEAN, cv),
            ] {
                let (mean, variance) = moments(&sample(distribution, N));
                // Five standard errors.
                let error = 5.0 * cv / (N as f64).sqrt();
                assert!((mean / MEAN - 1.0).abs() < error, "{distribution:?}: {mean}");
                let found = variance.sqrt() / mean;
                assert!((found / cv - 1.0).abs() < 0.06, "{distribution:?}: CV {found}");
            }
        }
    }

    #[test]
    fn every_weibull_shape_is_found() {
        for cv in [0.01f64, 0.1, 3.0, 30.0, 100.0] {
            let power = weibull_power(cv);
            let second = libm::lgamma(1.0 + 2.0 * power) - 2.0 * libm::lgamma(1.0 + power);
            assert!((second.exp_m1().sqrt() / cv - 1.0).abs() < 1e-9, "cv {cv}: {power}");
        }
    }

    #[test]
    fn uniform_gaps_are_whole_and_alike() {
        let gap = Gap::Uniform { min_ns: 3, max_ns: 7 }.distribution();
        let mut stream = RandomStream::new(1, "uniform");
        let mut found = [0; 5];
        for _ in 0..50_000 {
            found[(gap.draw_ns(&mut stream) - 3) as usize] += 1;
        }
        // Six standard deviations of sqrt(10,000 x 0.8).
        assert!(found.iter().all(|count| (9_460..10_540).contains(count)), "{found:?}");
    }

    #[test]
    fn json_reads_and_unknown_keys_are_errors() {
        let read = |json: &str| serde_json::from_str::<Gap>(json).map_err(|e| e.to_string());
        let exponential = Gap::Exponential { mean_ns: 5, shift_ns: 0 };
        assert_eq!(read(r#"{"distribution":"exponential","mean_ns":5}"#), Ok(exponential));
        let gamma = Gap::Gamma { mean_ns: 5, cv: 2.0 };
        assert_eq!(read(r#"{"distribution":"gamma","mean_ns":5,"cv":2}"#), Ok(gamma));
        assert!(read(r#"{"distribution":"fixed","ns":5,"cv":2}"#).unwrap_err().contains("`cv`"));
        assert!(read(r#"{"distribution":"normal","mean_ns":5}"#).is_err());
        assert!(read(r#"{"distribution":"weibull","mean_ns":5}"#).is_err());
    }

    #[test]
    fn bad_values_are_sentences() {
        for cv in [f64::NAN, f64::INFINITY, -1.0, 0.0, 0.009, 101.0] {
            let error = Gap::Gamma { mean_ns: 1, cv }.validate().unwrap_err().to_string();
            assert!(error.starts_with(&format!("cv is {cv}: ")), "{error}");
        }
        let mean = Gap::Exponential { mean_ns: 0, shift_ns: 1 }.validate();
        assert_eq!(mean, Err(ArrivalError::NotPositive { key: "mean_ns", ns: 0 }));
        let shift = Gap::Exponential { mean_ns: 1, shift_ns: -1 }.validate();
        assert_eq!(shift, Err(ArrivalError::Negative { key: "shift_ns", ns: -1 }));
        let bounds = Gap::Uniform { min_ns: 2, max_ns: 1 }.validate().unwrap_err();
        assert_eq!(bounds.to_string(), "min_ns is 2, which is above max_ns, 1: swap them");
        assert_eq!(Gap::Fixed { ns: i64::MAX }.validate(), Err(ArrivalError::TooLong));
        assert_eq!(Gap::Lognormal { mean_ns: 1, cv: 100.0 }.validate(), Ok(()));
    }

    proptest! {
        #[test]
        fn no_gap_is_negative(cv in 0.01f64..=100.0, mean_ns in 1i64..=MAX_SPAN_NS, seed: u64) {
            for gap in [
                Gap::Gamma { mean_ns, cv },
                Gap::Weibull { mean_ns, cv },
                Gap::Lognormal { mean_ns, cv },
                Gap::Exponential { mean_ns, shift_ns: mean_ns },
                Gap::Uniform { min_ns: 0, max_ns: mean_ns },
                Gap::Fixed { ns: mean_ns },
            ] {
                prop_assert_eq!(gap.validate(), Ok(()));
                let distribution = gap.distribution();
                let mut stream = RandomStream::new(seed, "gap");
                for _ in 0..20 {
                    prop_assert!(distribution.draw_ns(&mut stream) >= 0, "{}", gap);
                }
            }
        }
    }
}
