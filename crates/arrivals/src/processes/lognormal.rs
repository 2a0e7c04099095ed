use super::renewal::renewal_process;

renewal_process! {
    /// Independent gaps of a lognormal distribution, of mean 10^9 / rate (the nearest double) and coefficient
    /// of variation CV (standard deviation over mean):
    ///
    /// ```text
    /// gap_k = round(exp(ln(mean) - s^2 / 2 + s z_k)),   s^2 = ln(1 + CV^2)
    /// t_k = t_(k-1) + gap_k,   t_(-1) = 0,   for as long as t_k < duration
    /// ```
    ///
    /// where z_k are the normal numbers of the stream ([`RandomStream`]).
    Lognormal, lognormal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{assert_gaps_follow, normal_distribution, times};
    use crate::{NS_PER_S, Process};

    fn with(rate: &str, cv: f64, duration_ns: i64) -> Process {
        Lognormal { rate_per_s: rate.parse().unwrap(), cv, duration_ns }.into()
    }

    /// Computed by an independent implementation of the derivation and the formula.
    #[test]
    fn known_answers() {
        let known = times(&with("1000", 0.5, NS_PER_S), 7, "hello");
        assert_eq!(known[..4], [324_346, 1_171_552, 2_030_827, 3_819_767]);
        assert_eq!(known.len(), 987);
        let known = times(&with("1000", 2.0, NS_PER_S), 7, "hello");
        assert_eq!(known[..4], [29_336, 415_928, 817_488, 3_695_043]);
        assert_eq!(known.len(), 965);
    }

    #[test]
    fn gaps_have_their_distribution() {
        for cv in [0.3, 1.0, 1.5] {
            let sigma = libm::log1p(cv * cv).sqrt();
            let mu = 1e9f64.ln() - sigma * sigma / 2.0;
            let distribution = |x: f64| normal_distribution((x.ln() - mu) / sigma);
            assert_gaps_follow(&with("1", cv, 40_000 * NS_PER_S), distribution, false);
        }
    }
}
