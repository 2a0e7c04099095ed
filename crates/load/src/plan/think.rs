//! The time from an answer to the next request: fixed, or drawn at random.
//!
//! Derivation of a random one, for whoever wants to recompute it: as of an `integer` field (see
//! `request::fields`) from `think_ns` to `think_max_ns`, with `LABEL/think` in place of
//! `LABEL/fields/NAME`. The number is that of the request in a chain; in a closed loop it counts the
//! stream's thoughts from 0.

use rand_chacha::ChaCha8Rng;

use crate::request::{draw_integer, random};

/// How long is thought.
#[derive(Debug, Clone)]
pub(crate) struct Think {
    least_ns: i64,
    most_ns: i64,
    random: ChaCha8Rng,
}

impl Think {
    /// Of the stream with this label. The bounds are in order, and not negative.
    pub(crate) fn new(seed: u64, label: &str, least_ns: i64, most_ns: Option<i64>) -> Self {
        let random = random(seed, &format!("{label}/think"));
        Self { least_ns, most_ns: most_ns.unwrap_or(least_ns), random }
    }

    /// The thought with this number, in nanoseconds.
    pub(crate) fn draw(&self, number: u64) -> i64 {
        if self.least_ns == self.most_ns {
            return self.least_ns;
        }
        draw_integer(&self.random, number, self.least_ns, self.most_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn thoughts_are_within_their_bounds_and_the_same_each_time(
            seed: u64, least in 0i64..1_000, span in 0i64..1_000, number: u64,
        ) {
            let think = || Think::new(seed, "f", least, Some(least + span)).draw(number);
            prop_assert!((least..=least + span).contains(&think()));
            prop_assert_eq!(think(), think());
            prop_assert_eq!(Think::new(seed, "f", least, None).draw(number), least);
        }
    }

    #[test]
    fn thoughts_are_even_over_their_range() {
        let think = Think::new(7, "f", 100, Some(109));
        let mut counts = [0u32; 10];
        for number in 0..10_000 {
            counts[(think.draw(number) - 100) as usize] += 1;
        }
        // 1,000 each; more than 5 standard deviations from it is no accident.
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }
}
