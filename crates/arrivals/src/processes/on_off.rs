use std::fmt;

use serde::{Deserialize, Serialize};

use super::renewal::rate_as_gaps;
use super::{Arrivals, check};
use crate::{Arrival, ArrivalError, MAX_ARRIVALS, RandomStream, Rate, RateOrZero};

/// A Poisson process whose rate alternates between two values (a Markov-modulated Poisson process of
/// two states; with an off rate of zero, an interrupted Poisson process). It stays on and off for
/// exponentially distributed times:
///
/// ```text
/// s_0 = 0,   s_(i+1) = s_i + round(e x mean of the state)
/// t = s_i + round(e x 10^9 / rate) + round(e x 10^9 / rate) + ...,   for as long as t < s_(i+1)
/// ```
///
/// with the exponential numbers e of the stream ([`RandomStream`]) in the order of use: for each state
/// its length, then its gaps, of which the one that goes beyond the state is dropped (and none is
/// drawn when the rate is zero). It ends at the duration. `stationary` draws the first state before
/// that: on if u < mean_on / (mean_on + mean_off), so that every moment of the run is like any other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnOff {
    /// Requests per second while on.
    pub on_rate_per_s: Rate,
    /// Requests per second while off.
    #[serde(default)]
    pub off_rate_per_s: RateOrZero,
    /// The mean length of an on state in nanoseconds; above zero.
    pub mean_on_ns: i64,
    /// The mean length of an off state in nanoseconds; above zero.
    pub mean_off_ns: i64,
    /// Nanoseconds after which no request is sent; above zero.
    pub duration_ns: i64,
    /// The state in which the process starts.
    #[serde(default)]
    pub start: OnOffStart,
}

/// The state in which the process starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOffStart {
    /// Sends at the on rate first.
    On,
    /// Sends at the off rate first.
    Off,
    /// Each as likely as the process is in it.
    #[default]
    Stationary,
}

/// What a state is like, in ns.
#[derive(Debug, Clone, Copy)]
struct State {
    mean_length: f64,
    /// None: no request.
    mean_gap: Option<f64>,
}

impl OnOff {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::duration(self.duration_ns)?;
        for (key, ns) in [("mean_on_ns", self.mean_on_ns), ("mean_off_ns", self.mean_off_ns)] {
            check::positive(key, ns)?;
            check::span(ns.into())?;
        }
        rate_as_gaps(self.on_rate_per_s)?;
        self.off_rate_per_s.rate().map_or(Ok(()), rate_as_gaps)?;
        // Both rates may last, when the states are long.
        let most = self.on_rate_per_s.per_second().max(self.off_rate_per_s.per_second());
        check::count(check::arrivals_at(most, self.duration_ns))?;
        let cycle = self.mean_on_ns as f64 + self.mean_off_ns as f64;
        let changes = (2.0 * self.duration_ns as f64 / cycle) as u128;
        if changes > u128::from(MAX_ARRIVALS) {
            return Err(ArrivalError::TooManyChanges { changes });
        }
        Ok(())
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        let (on, off) = (self.mean_on_ns as f64, self.mean_off_ns as f64);
        let weighted =
            self.on_rate_per_s.per_second() * on + self.off_rate_per_s.per_second() * off;
        check::arrivals_at(weighted / (on + off), self.duration_ns)
    }

    /// Off and on.
    fn states(&self) -> [State; 2] {
        [
            State {
                mean_length: self.mean_off_ns as f64,
                mean_gap: self.off_rate_per_s.rate().map(Rate::mean_gap_ns),
            },
            State {
                mean_length: self.mean_on_ns as f64,
                mean_gap: Some(self.on_rate_per_s.mean_gap_ns()),
            },
        ]
    }

    fn starts_on(&self, stream: &mut RandomStream) -> bool {
        let (on, off) = (self.mean_on_ns as f64, self.mean_off_ns as f64);
        match self.start {
            OnOffStart::On => true,
            OnOffStart::Off => false,
            OnOffStart::Stationary => stream.uniform() < on / (on + off),
        }
    }

    pub(super) fn arrivals(&self, mut stream: RandomStream) -> Arrivals {
        let (states, duration_ns) = (self.states(), self.duration_ns);
        // The state, its end, and the last request in it (at first, its start).
        let mut on = self.starts_on(&mut stream);
        let mut end = draw(&mut stream, states[usize::from(on)].mean_length);
        let mut time: i64 = 0;
        let times = std::iter::from_fn(move || {
            loop {
                if let Some(mean) = states[usize::from(on)].mean_gap {
                    time = time.saturating_add(draw(&mut stream, mean));
                    if time < end {
                        return (time < duration_ns).then(|| Arrival::single(time));
                    }
                }
                if end >= duration_ns {
                    return None;
                }
                (on, time) = (!on, end);
                end = end.saturating_add(draw(&mut stream, states[usize::from(on)].mean_length));
            }
        });
        Box::new(times.fuse().take(MAX_ARRIVALS as usize))
    }
}

/// The next exponentially distributed number of this mean. Casts from double to integer saturate.
fn draw(stream: &mut RandomStream, mean: f64) -> i64 {
    libm::round(stream.exponential() * mean) as i64
}

impl fmt::Display for OnOff {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { on_rate_per_s, off_rate_per_s, mean_on_ns, mean_off_ns, .. } = self;
        write!(
            formatter,
            "on_off({on_rate_per_s}/s for {mean_on_ns} ns, {off_rate_per_s}/s for {mean_off_ns} ns, in all {} ns)",
            self.duration_ns
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{
        KS_CRITICAL, assert_keeps_promises, assert_labels_are_independent, gaps,
        kolmogorov_smirnov, moments, times,
    };
    use crate::{MAX_SPAN_NS, NS_PER_S, Process};
    use proptest::prelude::*;

    fn on_off(on: &str, off: &str, seconds: i64, start: OnOffStart) -> OnOff {
        OnOff {
            on_rate_per_s: on.parse().unwrap(),
            off_rate_per_s: off.parse().unwrap(),
            mean_on_ns: NS_PER_S,
            mean_off_ns: 3 * NS_PER_S,
            duration_ns: seconds * NS_PER_S,
            start,
        }
    }

    /// Computed by an independent implementation of the derivation and the formulas.
    #[test]
    fn known_answers() {
        let with = |off: &str, start| OnOff {
            mean_on_ns: 10_000_000,
            mean_off_ns: 30_000_000,
            ..on_off("1000", off, 1, start)
        };
        let found = times(&with("0", OnOffStart::Stationary).into(), 7, "hello");
        assert_eq!(found[..4], [19_257_386, 19_972_624, 87_346_349, 88_356_335]);
        assert_eq!((found.len(), found[178]), (179, 948_330_525));
        let found = times(&with("100", OnOffStart::Off).into(), 7, "hello");
        assert_eq!(found[..4], [6_308_435, 7_904_545, 11_225_356, 18_377_738]);
        assert_eq!((found.len(), found[375]), (376, 998_235_283));
    }

    /// Interrupted, its gaps are hyperexponential (Kuczura 1973): with w_on and w_off the rates at which
    /// the states end, exponential with the rates m1, m2 = (a +- sqrt(a^2 - 4 rate w_off)) / 2 where
    /// a = rate + w_on + w_off, the first with probability (rate - m2) / (m1 - m2).
    #[test]
    fn interrupted_gaps_are_hyperexponential() {
        let (rate, w_on, w_off) = (10.0, 1.0, 1.0 / 3.0);
        let a: f64 = rate + w_on + w_off;
        let root = (a * a - 4.0 * rate * w_off).sqrt();
        let (m1, m2) = ((a + root) / 2.0, (a - root) / 2.0);
        let share = (rate - m2) / (m1 - m2);
        let expected =
            |s: f64| share * (1.0 - (-m1 * s).exp()) + (1.0 - share) * (1.0 - (-m2 * s).exp());
        let times = times(&on_off("10", "0", 10_000, OnOffStart::Stationary).into(), 1, "ks");
        let gaps: Vec<f64> = gaps(&times).iter().map(|gap| gap / 1e9).collect();
        let statistic = kolmogorov_smirnov(gaps.clone(), expected);
        assert!(statistic < KS_CRITICAL, "{statistic}");
        // Neither Poisson of the rate while on nor of the mean rate.
        for rate in [10.0, 2.5] {
            let statistic = kolmogorov_smirnov(gaps.clone(), |s| 1.0 - (-rate * s).exp());
            assert!(statistic > KS_CRITICAL, "{rate}: {statistic}");
        }
    }

    /// The mean and the variance of counts in independent runs (Heffes and Lucantoni 1986): the rates
    /// differ by d, the mean is m t with m = (on w_off + off w_on) / w, w = w_on + w_off, and
    /// variance / mean = 1 + 2 d^2 w_on w_off / (w^3 m) x (1 - (1 - e^(-w t)) / (w t)).
    #[test]
    fn stationary_counts_have_their_mean_and_dispersion() {
        let (seconds, runs) = (5.0, 2_000);
        let (w_on, w_off) = (1.0f64, 1.0 / 3.0);
        let w = w_on + w_off;
        for (on, off) in [("40", "0"), ("50", "10")] {
            let process = Process::from(on_off(on, off, 5, OnOffStart::Stationary));
            let count = |seed| process.arrivals(RandomStream::new(seed, "mmpp")).count() as f64;
            let (mean, variance) = moments(&(0..runs).map(count).collect::<Vec<_>>());
            let [on, off]: [f64; 2] = [on, off].map(|rate| rate.parse().unwrap());
            let m = (on * w_off + off * w_on) / w;
            let cut = 1.0 - (1.0 - (-w * seconds).exp()) / (w * seconds);
            let dispersion = 1.0 + 2.0 * (on - off).powi(2) * w_on * w_off / (w.powi(3) * m) * cut;
            let error = (dispersion * m * seconds / runs as f64).sqrt();
            assert!((mean - m * seconds).abs() < 5.0 * error, "mean {mean}, not {}", m * seconds);
            // A ratio with a standard error of about sqrt(3 / runs) = 4 %.
            let found = variance / mean;
            assert!((found / dispersion - 1.0).abs() < 0.2, "{found}, not {dispersion}");
            assert!(found > 5.0, "far from Poisson's 1");
        }
    }

    #[test]
    fn it_starts_as_asked() {
        let starts = |start| {
            let early = |seed| {
                let process = Process::from(on_off("1000", "0", 1, start));
                times(&process, seed, "start").first().is_some_and(|time| *time < 50_000_000)
            };
            (0..1_000).filter(|seed| early(*seed)).count()
        };
        // An on state ends within the first gap with a probability of 0.1 %.
        assert!(starts(OnOffStart::On) > 985);
        // An off state of mean 3 s ends within 50 ms with a probability of 1.7 %.
        assert!(starts(OnOffStart::Off) < 45);
        // On with a probability of 1/4; 5 standard deviations of 14 and those 1.7 %.
        assert!((190..340).contains(&starts(OnOffStart::Stationary)));
    }

    #[test]
    fn equal_rates_are_poisson_and_streams_uncorrelated() {
        let process = Process::from(on_off("1000", "1000", 10, OnOffStart::Stationary));
        let gaps = gaps(&times(&process, 1, "ks"));
        let statistic = kolmogorov_smirnov(gaps, |x| 1.0 - (-x / 1e6).exp());
        assert!(statistic < KS_CRITICAL, "{statistic}");
        assert_labels_are_independent(&process);
    }

    #[test]
    fn bad_values_are_sentences() {
        let good = || on_off("10", "1", 5, OnOffStart::On);
        assert_eq!(good().validate(), Ok(()));
        let duration = OnOff { duration_ns: -1, ..good() }.validate();
        assert_eq!(duration, Err(ArrivalError::Duration { ns: -1 }));
        let mean = OnOff { mean_on_ns: 0, ..good() }.validate();
        assert_eq!(mean, Err(ArrivalError::NotPositive { key: "mean_on_ns", ns: 0 }));
        let mean = OnOff { mean_off_ns: -1, ..good() }.validate();
        assert_eq!(mean, Err(ArrivalError::NotPositive { key: "mean_off_ns", ns: -1 }));
        let changes = OnOff {
            mean_on_ns: 1,
            mean_off_ns: 1,
            duration_ns: MAX_SPAN_NS,
            ..on_off("1/3600", "0", 1, OnOffStart::On)
        };
        assert!(matches!(changes.validate(), Err(ArrivalError::TooManyChanges { .. })));
        let many = on_off("10", "1000000000", 5, OnOffStart::On).validate();
        assert!(matches!(many, Err(ArrivalError::TooMany { .. })));
        let fast = OnOff { duration_ns: 1, ..on_off("10", "2000000000", 1, OnOffStart::On) };
        assert!(matches!(fast.validate(), Err(ArrivalError::RateTooFast { .. })));
    }

    proptest! {
        #[test]
        fn keeps_the_promises(
            on in 1u32..2_000, off in 0u32..200, mean_on_ns in 1_000i64..1_000_000_000,
            mean_off_ns in 1_000i64..1_000_000_000, duration_ns in 1i64..1_000_000_000,
            start in prop::sample::select(&[OnOffStart::On, OnOffStart::Off, OnOffStart::Stationary][..]),
            seed: u64, label in ".{0,20}",
        ) {
            let rates = on_off(&on.to_string(), &off.to_string(), 1, start);
            let process = Process::from(OnOff { mean_on_ns, mean_off_ns, duration_ns, ..rates });
            assert_keeps_promises(&process, seed, &label, duration_ns);
        }
    }
}
