use super::renewal::renewal_process;

renewal_process! {
    /// Independent gaps of a gamma distribution, of mean 10^9 / rate (the nearest double) and coefficient
    /// of variation CV (standard deviation over mean):
    ///
    /// ```text
    /// gap_k = round(g_k x mean x CV^2)
    /// t_k = t_(k-1) + gap_k,   t_(-1) = 0,   for as long as t_k < duration
    /// ```
    ///
    /// where g_k are the stream's gamma numbers of shape 1 / CV^2 ([`RandomStream`]). A CV of 1 is a Poisson
    /// process in distribution; below, gaps are more even (1 / sqrt(n): Erlang with n stages), above, they
    /// come in clusters.
    Gamma, gamma
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{assert_gaps_follow, gamma_distribution, times};
    use crate::{NS_PER_S, Process};

    fn with(rate: &str, cv: f64, duration_ns: i64) -> Process {
        Gamma { rate_per_s: rate.parse().unwrap(), cv, duration_ns }.into()
    }

    /// Computed by an independent implementation of the derivation and the formula.
    #[test]
    fn known_answers() {
        let known = times(&with("1000", 0.5, NS_PER_S), 7, "hello");
        assert_eq!(known[..4], [225_078, 805_018, 1_456_692, 2_737_216]);
        assert_eq!(known.len(), 1006);
        let known = times(&with("1000", 2.0, NS_PER_S), 7, "hello");
        assert_eq!(known[..4], [183, 64_864, 64_885, 673_985]);
        assert_eq!(known.len(), 1056);
    }

    #[test]
    fn gaps_have_their_distribution() {
        for cv in [0.3, 1.0, 1.5] {
            let shape = 1.0 / (cv * cv);
            let distribution = |x| gamma_distribution(shape, x * shape / 1e9);
            let process = with("1", cv, 40_000 * NS_PER_S);
            assert_gaps_follow(&process, distribution, cv == 1.0);
        }
    }
}
