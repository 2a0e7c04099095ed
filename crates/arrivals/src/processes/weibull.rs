use super::renewal::renewal_process;

renewal_process! {
    /// Independent gaps of a Weibull distribution, of mean 10^9 / rate (the nearest double) and coefficient
    /// of variation CV (standard deviation over mean):
    ///
    /// ```text
    /// gap_k = round(e_k^x x mean / Gamma(1 + x)),   1 + CV^2 = Gamma(1 + 2 x) / Gamma(1 + x)^2
    /// t_k = t_(k-1) + gap_k,   t_(-1) = 0,   for as long as t_k < duration
    /// ```
    ///
    /// where e_k are the exponential numbers of the stream ([`RandomStream`]) and x is 1 / shape, found as
    /// [`Gap`](crate::Gap) says. A CV of 1 is a Poisson process in distribution.
    Weibull, weibull
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{assert_gaps_follow, times};
    use crate::{NS_PER_S, Process};

    fn with(rate: &str, cv: f64, duration_ns: i64) -> Process {
        Weibull { rate_per_s: rate.parse().unwrap(), cv, duration_ns }.into()
    }

    /// Computed by an independent implementation of the derivation and the formula.
    #[test]
    fn known_answers() {
        let known = times(&with("1000", 0.5, NS_PER_S), 7, "hello");
        assert_eq!(known[..4], [1_713_358, 2_620_142, 3_091_627, 3_759_795]);
        assert_eq!(known.len(), 1016);
        let known = times(&with("1000", 2.0, NS_PER_S), 7, "hello");
        assert_eq!(known[..4], [2_892_044, 3_138_182, 3_157_742, 3_233_194]);
        assert_eq!(known.len(), 1048);
    }

    /// Shapes of these CVs, computed with another implementation of Gamma.
    fn shape_of(cv: f64) -> f64 {
        match cv {
            0.3 => 3.713_772_366_429_62,
            1.0 => 1.0,
            1.5 => 0.684_772_553_233_416,
            _ => unreachable!(),
        }
    }

    #[test]
    fn gaps_have_their_distribution() {
        for cv in [0.3, 1.0, 1.5] {
            let shape = shape_of(cv);
            let scale = 1e9 / libm::tgamma(1.0 + 1.0 / shape);
            let distribution = |x: f64| 1.0 - (-(x / scale).powf(shape)).exp();
            let process = with("1", cv, 40_000 * NS_PER_S);
            assert_gaps_follow(&process, distribution, cv == 1.0);
        }
    }
}
