//! Functions as Azure's of 2019 are, where no trace of them is at hand.

use std::f64::consts::TAU;

use serde::Deserialize;
use uncia_arrivals::RandomStream;

use crate::error::TraceError;
use crate::quantiles::Quantiles;
use crate::{Given, error};

const MINUTES_A_DAY: f64 = 1_440.0;

/// What functions are drawn from: invocations a day and average durations are lognormal, the memory
/// of an application is Burr-distributed; invocations in a minute are Poisson-distributed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Population {
    /// Invocations of a function in a day.
    pub daily: Daily,
    /// How much fewer invocations midnight has than the mean, in parts of it; noon has as many more.
    pub swing: f64,
    /// How long invocations take.
    pub durations: Durations,
    /// What they hold.
    pub memory: Memory,
    /// Functions of an application, which all have the same memory.
    pub functions_per_app: u32,
}

/// exp(`log_mean` + `log_deviation` z): z is normal, and -z where it is above `max_deviations`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Daily {
    /// Of the logarithm.
    pub log_mean: f64,
    /// Of the logarithm.
    pub log_deviation: f64,
    /// What bounds the mean: without it, it would be that of the few largest.
    pub max_deviations: f64,
}

/// An average of exp(`log_mean` + `log_deviation` z) seconds, z within `deviations`; quantiles of
/// exp(s `points`) times that, s being `spread[0]` + `spread[1]` |z'|.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Durations {
    /// Of the logarithm of seconds.
    pub log_mean: f64,
    /// Of the logarithm.
    pub log_deviation: f64,
    /// Where z is cut off.
    pub deviations: (f64, f64),
    /// About the average.
    pub spread: (f64, f64),
    /// A quantile and its z, each.
    pub points: Vec<(f64, f64)>,
}

/// Burr: scale x ((1 - u)^(-1/k) - 1)^(1/c) bytes, u within `uniform`, times each point's factor.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The first shape.
    pub c: f64,
    /// The second shape.
    pub k: f64,
    /// In bytes.
    pub scale: f64,
    /// Where u is cut off.
    pub uniform: (f64, f64),
    /// A quantile and its factor, each.
    pub points: Vec<(f64, f64)>,
}

impl Population {
    pub(crate) fn validate(&self, load: f64) -> Result<(), TraceError> {
        error::in_range("population.swing", self.swing, 0.0..=1.0, "from 0 to 1")?;
        let Daily { log_mean, log_deviation, max_deviations } = self.daily;
        // Where one is below 0, the largest is not bounded by them.
        let not_negative = |key, value| error::in_range(key, value, 0.0..=1e3, "from 0 to 1,000");
        not_negative("population.daily.log_deviation", log_deviation)?;
        not_negative("population.daily.max_deviations", max_deviations)?;
        let most = log_mean + log_deviation * max_deviations;
        error::in_range(
            "population.daily",
            most,
            -50.0..=16.5,
            "at most 16.5 (its largest logarithm)",
        )?;
        // As many fit 32 bits, whatever chance adds.
        error::in_range(
            "the number of a function's invocations in a minute",
            libm::exp(most) * (1.0 + self.swing) / MINUTES_A_DAY * load,
            0.0..=2_147_483_648.0,
            "at most 2^31: choose a smaller load or population.daily",
        )?;
        let per_app = f64::from(self.functions_per_app);
        error::in_range("population.functions_per_app", per_app, 1.0..=1e6, "at least 1")
    }

    /// Draws `functions` functions, with counts for each minute.
    pub(crate) fn draw(
        &self,
        seed: u64,
        functions: u32,
        (start, minutes): (u32, u32),
        load: f64,
    ) -> Vec<Given> {
        let curve: Vec<f64> = (0..minutes)
            .map(|minute| f64::from(start + minute) / MINUTES_A_DAY)
            .map(|part| (1.0 - self.swing * libm::cos(TAU * part)) / MINUTES_A_DAY)
            .collect();
        (0..functions)
            .map(|index| {
                let mut stream = RandomStream::new(seed, &format!("bb/azure/function/{index}"));
                let daily = self.daily.draw(&mut stream);
                Given {
                    name: format!("azure-{index:06}"),
                    durations: self.durations.draw(&mut stream),
                    memory: self.memory.draw(seed, index / self.functions_per_app),
                    counts: curve
                        .iter()
                        .map(|part| poisson(daily * part * load, &mut stream))
                        .collect(),
                }
            })
            .collect()
    }
}

impl Daily {
    fn draw(&self, stream: &mut RandomStream) -> f64 {
        let z = stream.normal();
        let z = if z > self.max_deviations { -z } else { z };
        libm::exp(self.log_mean + self.log_deviation * z)
    }
}

impl Durations {
    fn draw(&self, stream: &mut RandomStream) -> Quantiles {
        let z = stream.normal().clamp(self.deviations.0, self.deviations.1);
        let average = libm::exp(self.log_mean + self.log_deviation * z);
        let spread = self.spread.0 + self.spread.1 * libm::fabs(stream.normal());
        let at = |&(quantile, z): &(f64, f64)| {
            (quantile, libm::rint(1e9 * average * libm::exp(spread * z)) as i64)
        };
        Quantiles::new(self.points.iter().map(at).collect())
    }
}

impl Memory {
    fn draw(&self, seed: u64, app: u32) -> Quantiles {
        let mut stream = RandomStream::new(seed, &format!("bb/azure/app/{app}"));
        let u = stream.uniform().clamp(self.uniform.0, self.uniform.1);
        let burr = libm::pow(libm::pow(1.0 - u, -1.0 / self.k) - 1.0, 1.0 / self.c) * self.scale;
        let at = |&(quantile, factor): &(f64, f64)| (quantile, libm::rint(burr * factor) as i64);
        Quantiles::new(self.points.iter().map(at).collect())
    }
}

/// A Poisson-distributed number: how many gaps of a Poisson process fit.
fn poisson(mean: f64, stream: &mut RandomStream) -> u32 {
    let mut count = 0;
    let mut sum = stream.exponential();
    while sum < mean {
        count += 1;
        sum += stream.exponential();
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_numbers_have_their_mean_and_variance() {
        let mut stream = RandomStream::new(1, "poisson");
        for mean in [0.0, 0.3, 4.0, 40.0] {
            const N: usize = 20_000;
            let numbers: Vec<f64> = (0..N).map(|_| f64::from(poisson(mean, &mut stream))).collect();
            let average = numbers.iter().sum::<f64>() / N as f64;
            let variance =
                numbers.iter().map(|x| (x - average).powi(2)).sum::<f64>() / (N - 1) as f64;
            // Five standard errors; that of a variance by the fourth moment, mean (1 + 3 mean).
            let n = N as f64;
            assert!((average - mean).abs() <= 5.0 * (mean / n).sqrt(), "{mean}: {average}");
            let error = ((mean + 2.0 * mean * mean) / n).sqrt();
            assert!((variance - mean).abs() <= 5.0 * error, "{mean}: {variance}");
        }
    }

    fn population() -> Population {
        let daily = Daily { log_mean: 3.69, log_deviation: 4.08, max_deviations: 2.628 };
        let durations = Durations {
            log_mean: -0.38,
            log_deviation: 2.36,
            deviations: (-3.0, 2.5),
            spread: (0.05, 0.5),
            points: vec![(0.0, -2.8), (0.5, 0.0), (1.0, 2.8)],
        };
        let points = vec![(0.01, 0.8), (0.5, 1.0), (1.0, 1.3)];
        let memory = Memory { c: 11.652, k: 0.221, scale: 1e8, uniform: (1e-3, 0.995), points };
        Population { daily, swing: 0.4, durations, memory, functions_per_app: 1 }
    }

    fn normal(z: f64) -> f64 {
        0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
    }

    /// Kolmogorov and Smirnov's test at the level 10^-6, between two quantiles.
    fn assert_distribution(mut values: Vec<f64>, expected: impl Fn(f64) -> f64) {
        values.sort_by(f64::total_cmp);
        let n = values.len() as f64;
        let off =
            |(index, value): (usize, &f64)| (expected(*value) - (index as f64 + 0.5) / n).abs();
        let inner = values.iter().enumerate().skip(20).take(values.len() - 60);
        let statistic = inner.map(off).fold(0.0, f64::max);
        assert!(statistic < 2.7 / n.sqrt(), "{statistic}");
    }

    #[test]
    fn functions_are_drawn_from_the_distributions() {
        const N: u32 = 4_000;
        let population = population();
        let given = population.draw(5, N, (0, 1), 1.0);
        let median = |it: &Given| (it.durations.at(0.5) as f64 / 1e9).ln();
        assert_distribution(given.iter().map(median).collect(), |x| normal((x + 0.38) / 2.36));
        let burr = |x: f64| 1.0 - (1.0 + (x / 1e8).powf(11.652)).powf(-0.221);
        assert_distribution(given.iter().map(|it| it.memory.at(0.5) as f64).collect(), burr);
        let mut stream = RandomStream::new(5, "daily");
        let daily = (0..N).map(|_| population.daily.draw(&mut stream).ln());
        // What is above the bound is below its opposite.
        let above = 1.0 - normal(2.628);
        let expected = |x: f64| {
            let z = (x - 3.69) / 4.08;
            normal(z) + above - (1.0 - normal(z.max(-z).max(2.628))) * f64::from(u8::from(z < 0.0))
        };
        assert_distribution(daily.collect(), expected);
    }

    /// Over a day, and over its hours by the curve.
    #[test]
    fn counts_follow_the_day() {
        let mut population = population();
        population.daily =
            Daily { log_mean: 14_400f64.ln(), log_deviation: 0.0, max_deviations: 3.0 };
        let of = |start, load| {
            let given = population.draw(1, 40, (start, 60), load);
            given.iter().flat_map(|it| &it.counts).map(|it| f64::from(*it)).sum::<f64>()
        };
        for (start, load, part) in [(0, 1.0, 0.6023), (330, 1.0, 1.0), (690, 2.0, 2.0 * 1.3977)] {
            let expected = 40.0 * 600.0 * part;
            let sum = of(start, load);
            assert!((sum - expected).abs() < 5.0 * expected.sqrt() + 0.002 * expected, "{start}");
        }
    }

    #[test]
    fn populations_that_cannot_be_are_refused() {
        let good = population();
        assert_eq!(good.validate(1.0), Ok(()));
        assert!(Population { swing: 1.1, ..good.clone() }.validate(1.0).is_err());
        assert!(Population { functions_per_app: 0, ..good.clone() }.validate(1.0).is_err());
        for daily in [
            Daily { max_deviations: 9.0, ..good.daily },
            // Its largest logarithm is not that of its bound: 60, for a z of -14.
            Daily { max_deviations: -9.0, ..good.daily },
            Daily { log_deviation: -4.08, ..good.daily },
            Daily { log_deviation: f64::NAN, ..good.daily },
        ] {
            assert!(Population { daily, ..good.clone() }.validate(1.0).is_err(), "{daily:?}");
        }
        // 1,770 a minute, of the largest.
        assert_eq!(good.validate(1e6), Ok(()));
        let daily = Daily { log_mean: 5.0, ..good.daily };
        assert_eq!(Population { daily, ..good.clone() }.validate(1e5), Ok(()));
        let error = Population { daily, ..good }.validate(1e6).unwrap_err().to_string();
        assert!(error.contains("at most 2^31"), "{error}");
    }
}
