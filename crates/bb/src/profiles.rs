//! The functions of the benchmark suite: how parallel they are, and the prior they are drawn from.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use uncia_arrivals::RandomStream;

use crate::error::TraceError;

/// Means are drawn to this part of a thread, so that whoever writes and reads them has the same again.
const DIGITS: f64 = 1e6;

/// What a function of the suite is when it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The function.
    pub name: String,
    /// Qualities of service that it may have.
    pub qos: Possible,
    /// Whether it answers so urgently that none of its cores is spot while it is interactive.
    pub urgent: bool,
    /// Phases of an invocation.
    pub phases: u32,
    /// Its parallelism by the size of its input.
    pub sizes: Sizes,
}

/// Qualities of service that a function may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Possible {
    /// Callers wait for it.
    Interactive,
    /// Nobody waits for it.
    Batch,
    /// Either.
    Both,
}

/// Parallelism by the size of the input.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// With the small input.
    pub small: Parallelism,
    /// With the medium input.
    pub medium: Parallelism,
    /// With the large input.
    pub large: Parallelism,
}

/// Threads that run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parallelism {
    /// On average over the time of an invocation.
    pub mean: f64,
    /// At most.
    pub max: u32,
}

/// What profiles are drawn from where none were measured.
///
/// The mean parallelism with medium input is log-uniform over the range that leaves room for the
/// other sizes; the least and the most parallel function of a draw get the ends of the range, which
/// are published. The maximum is the mean times a uniform number, rounded up, and at least 1. The
/// number of phases is uniform.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prior {
    /// The suite's functions.
    pub functions: Vec<PriorFunction>,
    /// Least and greatest mean parallelism, over all functions and sizes.
    pub mean: (f64, f64),
    /// What the mean with small, medium and large input is, in parts of that with medium input.
    pub by_size: (f64, f64, f64),
    /// Least and greatest maximum, in parts of the mean.
    pub peak: (f64, f64),
    /// Least and greatest number of phases.
    pub phases: (u32, u32),
}

/// What is known of a function of the suite.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorFunction {
    name: String,
    qos: Possible,
    urgent: bool,
}

impl Prior {
    /// Draws a profile for each function.
    pub(crate) fn draw(&self, seed: u64) -> Vec<Profile> {
        let (small, medium, large) = self.by_size;
        let (low, high) = (self.mean.0 / small.min(medium), self.mean.1 / large.max(medium));
        let mut streams: Vec<RandomStream> = self
            .functions
            .iter()
            .map(|function| RandomStream::new(seed, &format!("bb/profile/{}", function.name)))
            .collect();
        let mut means: Vec<f64> = streams
            .iter_mut()
            .map(|stream| low * libm::exp(stream.uniform() * libm::log(high / low)))
            .collect();
        // Equal means do not occur; if they did, any of them would do.
        if let Some(least) = means.iter_mut().min_by(|a, b| a.total_cmp(b)) {
            *least = low;
        }
        if let Some(most) = means.iter_mut().max_by(|a, b| a.total_cmp(b)) {
            *most = high;
        }
        let all = self.functions.iter().zip(means).zip(&mut streams);
        all.map(|((function, mean), stream)| {
            let peak = self.peak.0 + stream.uniform() * (self.peak.1 - self.peak.0);
            let choices = u64::from(self.phases.1 - self.phases.0) + 1;
            let at = |part: f64| {
                let mean = libm::rint(mean * part * DIGITS) / DIGITS;
                Parallelism { mean, max: libm::ceil(mean * peak).max(1.0) as u32 }
            };
            Profile {
                name: function.name.clone(),
                qos: function.qos,
                urgent: function.urgent,
                phases: self.phases.0 + stream.whole_below(choices, 1) as u32,
                sizes: Sizes { small: at(small), medium: at(medium), large: at(large) },
            }
        })
        .collect()
    }
}

/// Checks that profiles can be.
pub(crate) fn validate(profiles: &[Profile]) -> Result<(), TraceError> {
    let mut names = HashSet::new();
    if profiles.is_empty() {
        return Err(TraceError::Range { key: "profiles", value: 0.0, range: "at least 1" });
    }
    for profile in profiles {
        if !names.insert(&profile.name) {
            return Err(TraceError::Twice { name: profile.name.clone() });
        }
        let Sizes { small, medium, large } = profile.sizes;
        let problem = if !(1..=10_000).contains(&profile.phases) {
            Some("it has from 1 to 10,000 phases")
        } else if [small, medium, large]
            .iter()
            .any(|it| !(0.0..=f64::from(it.max)).contains(&it.mean))
        {
            Some("a mean parallelism is from 0 to the maximum")
        } else if [small, medium, large].iter().any(|it| !(1..=100_000).contains(&it.max)) {
            Some("a maximum parallelism is from 1 to 100,000")
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(TraceError::Profile { name: profile.name.clone(), problem });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prior() -> Prior {
        let qos = [Possible::Interactive, Possible::Batch, Possible::Both];
        let functions = (0..22).map(|index| PriorFunction {
            name: format!("f{index}"),
            qos: qos[index % 3],
            urgent: index % 4 == 0,
        });
        Prior {
            functions: functions.collect(),
            mean: (0.04, 35.0),
            by_size: (0.5, 1.0, 1.5),
            peak: (1.0, 3.0),
            phases: (2, 8),
        }
    }

    #[test]
    fn every_draw_meets_the_range_and_the_ratios() {
        for seed in 0..50 {
            let profiles = prior().draw(seed);
            assert_eq!(validate(&profiles), Ok(()));
            let sizes = || profiles.iter().map(|profile| profile.sizes);
            let least = sizes().map(|it| it.small.mean).fold(f64::MAX, f64::min);
            let most = sizes().map(|it| it.large.mean).fold(0.0, f64::max);
            assert!((least - 0.04).abs() < 1e-12 && (most - 35.0).abs() < 1e-12);
            for Sizes { small, medium, large } in sizes() {
                assert!((large.mean / medium.mean - 1.5).abs() < 1e-4);
                assert!((large.mean / small.mean - 3.0).abs() < 1e-4);
                assert!(small.max <= medium.max && medium.max <= large.max);
                assert!(f64::from(large.max) <= (large.mean * 3.0).ceil().max(1.0));
            }
            assert!(profiles.iter().all(|profile| (2..=8).contains(&profile.phases)));
        }
        assert_ne!(prior().draw(1), prior().draw(2));
    }

    /// The logarithms of the means are uniform, but for the two ends of each draw.
    #[test]
    fn means_are_log_uniform() {
        let (low, high) = (0.08f64, 35.0 / 1.5);
        let mut parts: Vec<f64> = (0..500)
            .flat_map(|seed| prior().draw(seed))
            .map(|profile| (profile.sizes.medium.mean / low).ln() / (high / low).ln())
            .filter(|part| (1e-6..1.0 - 1e-6).contains(part))
            .collect();
        // What is left of 22 uniform numbers without the least and the greatest is the 2nd to 21st,
        // whose mixture is nearly uniform again: its mean is 1/2, and its variance by the orders'.
        let n = parts.len() as f64;
        assert_eq!(parts.len(), 500 * 20);
        let mean = parts.iter().sum::<f64>() / n;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        parts.sort_by(f64::total_cmp);
        let orders = |x: f64| {
            // The k-th of 22 is below x if at least k are.
            (2..=21).map(|k| (k..=22).map(|j| binomial(22, j, x)).sum::<f64>()).sum::<f64>() / 20.0
        };
        let statistic = parts
            .iter()
            .enumerate()
            .map(|(i, &x)| (orders(x) - (i as f64 + 0.5) / n).abs())
            .fold(0.0, f64::max);
        assert!(statistic < 1.95 / n.sqrt(), "{statistic}");
    }

    fn binomial(n: i32, k: i32, p: f64) -> f64 {
        let ways = (0..k).fold(1.0, |ways, i| ways * f64::from(n - i) / f64::from(i + 1));
        ways * p.powi(k) * (1.0 - p).powi(n - k)
    }

    #[test]
    fn profiles_that_cannot_be_are_refused() {
        let good = prior().draw(1);
        for (problem, spoil) in [
            ("it has from 1 to 10,000 phases", (|it| it.phases = 0) as fn(&mut Profile)),
            ("a mean parallelism is from 0 to the maximum", |it| it.sizes.small.mean = 1e9),
            ("a mean parallelism is from 0 to the maximum", |it| it.sizes.large.mean = f64::NAN),
            ("a maximum parallelism is from 1 to 100,000", |it| {
                it.sizes.medium = Parallelism { mean: 0.0, max: 0 };
            }),
        ] {
            let mut profiles = good.clone();
            spoil(&mut profiles[3]);
            let name = "f3".to_owned();
            assert_eq!(validate(&profiles), Err(TraceError::Profile { name, problem }));
        }
        let twice = [good[0].clone(), good[0].clone()];
        assert_eq!(validate(&twice), Err(TraceError::Twice { name: "f0".to_owned() }));
        assert!(validate(&[]).is_err());
    }
}
