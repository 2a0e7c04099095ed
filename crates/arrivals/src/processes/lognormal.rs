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
    use crate::test_support::{
        KS_CRITICAL, assert_keeps_promises, assert_labels_are_independent, gaps,
        kolmogorov_smirnov, normal_distribution, times,
    };
    use crate::{ArrivalError, NS_PER_S, Process};
    use proptest::prelude::*;

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
            // Only the first of many more, so that long gaps are not cut off by the end.
            let gaps = gaps(&times(&with("1", cv, 40_000 * NS_PER_S), 1, "ks")[..20_000]);
            let sigma = libm::log1p(cv * cv).sqrt();
            let mu = 1e9f64.ln() - sigma * sigma / 2.0;
            let distribution = |x: f64| normal_distribution((x.ln() - mu) / sigma);
            let statistic = kolmogorov_smirnov(gaps.clone(), distribution);
            assert!(statistic < KS_CRITICAL, "cv {cv}: {statistic}");
            // The test tells them from exponential ones.
            let statistic = kolmogorov_smirnov(gaps, |x| 1.0 - (-x / 1e9).exp());
            assert!(statistic > KS_CRITICAL, "cv {cv}: {statistic}");
        }
    }

    #[test]
    fn streams_are_uncorrelated() {
        assert_labels_are_independent(&with("1000", 1.5, 10 * NS_PER_S));
    }

    #[test]
    fn bad_values_are_sentences() {
        let validated = |rate, cv, duration_ns| {
            let rate_per_s = str::parse(rate).unwrap();
            Lognormal { rate_per_s, cv, duration_ns }.validate()
        };
        assert_eq!(validated("1", 1.0, 0), Err(ArrivalError::Duration { ns: 0 }));
        assert_eq!(validated("1", 1.0, i64::MAX), Err(ArrivalError::TooLong));
        let many = validated("1000000000", 1.0, 2 * NS_PER_S);
        assert!(matches!(many, Err(ArrivalError::TooMany { .. })));
        let fast = validated("1000000001", 1.0, 1);
        assert!(matches!(fast, Err(ArrivalError::RateTooFast { .. })));
        for cv in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let wrong = validated("1", cv, 1);
            assert!(matches!(wrong, Err(ArrivalError::CoefficientOfVariation { .. })), "{cv}");
        }
    }

    proptest! {
        #[test]
        fn keeps_the_promises(
            seed: u64, label in ".{0,20}", rate in 1u32..200, cv in 0.01f64..=100.0,
            duration_ns in 1i64..2_000_000_000,
        ) {
            let rate = rate.to_string();
            assert_keeps_promises(&with(&rate, cv, duration_ns), seed, &label, duration_ns);
            // A longer run begins with the shorter one.
            let first = times(&with(&rate, cv, duration_ns), seed, &label);
            let longer = times(&with(&rate, cv, duration_ns * 2), seed, &label);
            prop_assert_eq!(&first[..], &longer[..first.len()]);
        }
    }
}
