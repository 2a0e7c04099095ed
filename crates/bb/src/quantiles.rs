//! Distributions of which some quantiles are known.

use serde::Deserialize;

/// A distribution by some of its quantiles: between two of them it is linear, and outside of them it
/// has the value of the nearest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Quantiles(Vec<(f64, i64)>);

impl Quantiles {
    /// Of pairs of a quantile and its value, in order.
    pub fn new(points: Vec<(f64, i64)>) -> Self {
        Self(points)
    }

    /// Checks that it is a distribution of values of 0 or more.
    pub(crate) fn validate(&self) -> Result<(), &'static str> {
        let points = &self.0;
        if points.is_empty() {
            return Err("no quantile is known");
        }
        if points.iter().any(|(quantile, _)| !(0.0..=1.0).contains(quantile)) {
            return Err("a quantile is not from 0 to 1");
        }
        if points.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err("its quantiles are not in order");
        }
        if points.iter().any(|(_, value)| *value < 0) {
            return Err("a value is below 0");
        }
        if points.windows(2).any(|pair| pair[0].1 > pair[1].1) {
            return Err("a higher quantile has a lower value");
        }
        Ok(())
    }

    /// The largest value.
    pub fn maximum(&self) -> i64 {
        self.0.last().map_or(0, |(_, value)| *value)
    }

    /// The value of a quantile, rounded down.
    pub fn at(&self, quantile: f64) -> i64 {
        let after = self.0.partition_point(|(known, _)| *known <= quantile);
        let Some(&(low, least)) = after.checked_sub(1).and_then(|before| self.0.get(before)) else {
            return self.0.first().map_or(0, |(_, value)| *value);
        };
        let Some(&(high, most)) = self.0.get(after) else { return least };
        let part = (quantile - low) / (high - low);
        least + (part * (most - least) as f64) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn linear_between_what_is_known_and_flat_outside() {
        let quantiles = Quantiles::new(vec![(0.25, 100), (0.5, 200), (1.0, 1_000)]);
        let values = [0.0, 0.25, 0.375, 0.5, 0.75, 0.875, 1.0].map(|q| quantiles.at(q));
        assert_eq!(values, [100, 100, 150, 200, 600, 800, 1_000]);
        assert_eq!(quantiles.maximum(), 1_000);
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for (points, problem) in [
            (vec![], "no quantile is known"),
            (vec![(-0.1, 1)], "a quantile is not from 0 to 1"),
            (vec![(f64::NAN, 1)], "a quantile is not from 0 to 1"),
            (vec![(0.5, 1), (0.5, 2)], "its quantiles are not in order"),
            (vec![(0.5, -1)], "a value is below 0"),
            (vec![(0.5, 2), (0.6, 1)], "a higher quantile has a lower value"),
        ] {
            assert_eq!(Quantiles::new(points).validate(), Err(problem));
        }
    }

    proptest! {
        #[test]
        fn values_stay_within_their_neighbours(
            values in prop::collection::vec(0i64..=i64::MAX / 2, 2..9), quantile in 0.0..=1.0f64
        ) {
            let mut values = values;
            values.sort_unstable();
            let last = (values.len() - 1) as f64;
            let points = values.iter().enumerate().map(|(i, &v)| (i as f64 / last, v)).collect();
            let quantiles = Quantiles::new(points);
            prop_assert!(quantiles.validate().is_ok());
            let value = quantiles.at(quantile);
            let at = quantile * last;
            // A double has 53 bits: what is above may be off by as much.
            let slack = values[values.len() - 1] >> 50;
            prop_assert!(value >= values[at.floor() as usize] - slack);
            prop_assert!(value <= values[at.ceil() as usize] + slack);
        }
    }
}
