//! What the tests of several processes need: statistics, and the promises that every process keeps.

use crate::{Arrival, Process, RandomStream};

/// The valid process's arrivals.
pub(crate) fn arrivals(process: &Process, seed: u64, label: &str) -> Vec<Arrival> {
    process.validate().unwrap();
    process.arrivals(RandomStream::new(seed, label)).collect()
}

/// The valid process's times.
pub(crate) fn times(process: &Process, seed: u64, label: &str) -> Vec<i64> {
    arrivals(process, seed, label).into_iter().map(|arrival| arrival.offset).collect()
}

/// The process that this JSON is.
pub(crate) fn process(json: serde_json::Value) -> Process {
    serde_json::from_value(json).unwrap()
}

/// The differences of successive times.
pub(crate) fn gaps(times: &[i64]) -> Vec<f64> {
    times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
}

/// That the times are sorted, in [0, end), the same when drawn again, and that the iterator stays
/// at its end.
pub(crate) fn assert_keeps_promises(process: &Process, seed: u64, label: &str, end: i64) {
    let times = times(process, seed, label);
    assert!(times.is_sorted(), "{process}: not sorted");
    if let (Some(first), Some(last)) = (times.first(), times.last()) {
        assert!(*first >= 0 && *last < end, "{process}: {first} ... {last} not in [0, {end})");
    }
    let mut again = process.arrivals(RandomStream::new(seed, label));
    assert!(again.by_ref().map(|arrival| arrival.offset).eq(times.iter().copied()), "{process}");
    assert!((0..3).all(|_| again.next().is_none()), "{process}: times after the end");
}

/// Kolmogorov-Smirnov distance of a sample from a distribution function, times sqrt(n).
pub(crate) fn kolmogorov_smirnov(mut sample: Vec<f64>, distribution: impl Fn(f64) -> f64) -> f64 {
    assert!(sample.len() >= 100, "a sample of {} says little", sample.len());
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let distance = sample.iter().enumerate().map(|(i, &x)| {
        let expected = distribution(x);
        (expected - i as f64 / n).abs().max((expected - (i + 1) as f64 / n).abs())
    });
    distance.fold(0.0, f64::max) * n.sqrt()
}

/// The statistic exceeds this with a probability of 0.1 %.
pub(crate) const KS_CRITICAL: f64 = 1.95;

/// That the process's gaps, of a second on average, have this distribution function, and that the
/// test tells them from exponential ones unless they are `exponential`.
pub(crate) fn assert_gaps_follow(
    process: &Process,
    distribution: impl Fn(f64) -> f64,
    exponential: bool,
) {
    // Only the first of many more, so that long gaps are not cut off by the end.
    let gaps = gaps(&times(process, 1, "ks")[..20_000]);
    let statistic = kolmogorov_smirnov(gaps.clone(), distribution);
    assert!(statistic < KS_CRITICAL, "{process}: {statistic}");
    let statistic = kolmogorov_smirnov(gaps, |x| 1.0 - (-x / 1e9).exp());
    assert_eq!(statistic > KS_CRITICAL, !exponential, "{process}: {statistic}");
}

/// The mean and the variance of a sample.
pub(crate) fn moments(sample: &[f64]) -> (f64, f64) {
    let n = sample.len() as f64;
    let mean = sample.iter().sum::<f64>() / n;
    (mean, sample.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0))
}

/// Pearson's correlation of the first pairs of two samples.
pub(crate) fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len().min(b.len());
    let ((mean_a, var_a), (mean_b, var_b)) = (moments(&a[..n]), moments(&b[..n]));
    let covariance = a.iter().zip(b).map(|(x, y)| (x - mean_a) * (y - mean_b)).sum::<f64>();
    covariance / (n as f64 - 1.0) / (var_a * var_b).sqrt()
}

/// That two labels give different gaps that are no more correlated than chance has it: five standard
/// errors, 5 / sqrt(n).
pub(crate) fn assert_labels_are_independent(process: &Process) {
    assert_labels_are_independent_on(process, |time| time as f64);
}

/// The same of a process whose rate changes, where gaps are alike for that: they are taken on a scale
/// of time on which the rate is constant.
pub(crate) fn assert_labels_are_independent_on(process: &Process, scale: impl Fn(i64) -> f64) {
    let [a, b] = ["hello-0", "hello-1"].map(|label| {
        let times: Vec<f64> = times(process, 7, label).into_iter().map(&scale).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
    });
    assert_ne!(a, b, "{process}");
    let n = a.len().min(b.len());
    assert!(n >= 1_000, "{process}: a sample of {n} says little");
    let found = correlation(&a, &b).abs();
    assert!(found < 5.0 / (n as f64).sqrt(), "{process}: correlated by {found}");
}

/// The distribution function of the normal distribution with mean 0 and variance 1.
pub(crate) fn normal_distribution(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// The distribution function of the gamma distribution with this shape and scale 1: the regularized
/// lower incomplete gamma function, x^a e^-x / Gamma(a + 1) x (1 + x/(a+1) + x^2/((a+1)(a+2)) + ...).
pub(crate) fn gamma_distribution(shape: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let front = (shape * x.ln() - x - libm::lgamma(shape + 1.0)).exp();
    let (mut term, mut sum, mut n) = (1.0, 1.0, shape);
    while term > sum * 1e-16 {
        n += 1.0;
        term *= x / n;
        sum += term;
    }
    (front * sum).min(1.0)
}

mod tests {
    use super::*;

    fn uniforms(label: &str, n: usize) -> Vec<f64> {
        let mut stream = RandomStream::new(1, label);
        (0..n).map(|_| stream.uniform()).collect()
    }

    #[test]
    fn the_statistic_accepts_its_own_and_refuses_others() {
        let sample = uniforms("own", 10_000);
        assert!(kolmogorov_smirnov(sample.clone(), |x| x) < KS_CRITICAL);
        // A distribution that is nowhere more than 4 % off is refused already.
        assert!(kolmogorov_smirnov(sample, |x| x + 0.15 * x * (1.0 - x)) > KS_CRITICAL);
        let constant = vec![1.0; 1_000];
        assert!(kolmogorov_smirnov(constant, |x| 1.0 - (-x).exp()) > KS_CRITICAL);
    }

    #[test]
    fn correlation_is_seen() {
        let (a, b) = (uniforms("a", 10_000), uniforms("b", 10_000));
        assert!(correlation(&a, &b).abs() < 0.05);
        let mixed: Vec<f64> = a.iter().zip(&b).map(|(x, y)| x + y).collect();
        assert!((correlation(&a, &mixed) - 0.5f64.sqrt()).abs() < 0.05);
    }

    /// Values from tables.
    #[test]
    fn distribution_functions_have_their_known_values() {
        let near =
            |found: f64, known: f64| assert!((found - known).abs() < 1e-6, "{found} {known}");
        near(normal_distribution(0.0), 0.5);
        near(normal_distribution(1.959_964), 0.975);
        near(gamma_distribution(1.0, 2.0), 1.0 - (-2.0f64).exp());
        // Chi-squared with 10 degrees of freedom: the 95 % point is 18.307.
        near(gamma_distribution(5.0, 18.307_038 / 2.0), 0.95);
        // Chi-squared with 1 degree of freedom is the square of a normal number.
        near(gamma_distribution(0.5, 1.959_964f64.powi(2) / 2.0), 0.95);
        near(gamma_distribution(5.0, 200.0), 1.0);
    }
}
