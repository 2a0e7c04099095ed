//! What requests say of those that come after them, as well as who sends them knows: the schedule is fixed.

use std::fmt;

use serde::Deserialize;

use crate::RandomStream;

/// Of a lie: the part of the gap before which it says that requests come.
const LIE: f64 = 0.9;

/// How true what requests say is. The first request of each moment says when the next come, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Hints {
    /// All of it.
    Perfect {
        /// How exact it says to be, in ns; none: it does not say.
        #[serde(default)]
        within_ns: Option<i64>,
    },
    /// The time is wrong by a part of the gap, drawn uniformly up to `error` either way; a part `missing` of all
    /// say nothing.
    Noisy {
        /// Up to which part of the gap.
        error: f64,
        /// Which part of them.
        #[serde(default)]
        missing: f64,
        /// As above.
        #[serde(default)]
        within_ns: Option<i64>,
    },
    /// Nothing: so many requests are said to come at a time, drawn uniformly, in the first nine tenths of the gap,
    /// in which none comes.
    Lying {
        /// How many.
        count: u32,
        /// As above.
        #[serde(default)]
        within_ns: Option<i64>,
    },
}

/// What a request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// In so many nanoseconds,
    pub in_ns: i64,
    /// so many requests come,
    pub count: u32,
    /// so much earlier or later.
    pub within_ns: Option<i64>,
}

impl fmt::Display for Said {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "in={}ns, count={}", self.in_ns, self.count)?;
        self.within_ns.map_or(Ok(()), |within| write!(to, ", within={within}ns"))
    }
}

impl Hints {
    /// Says what is wrong with the numbers, if anything is.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn validate(&self) -> Result<(), String> {
        let part = |name: &str, value: f64| {
            let fine = (0.0..=1.0).contains(&value);
            if fine { Ok(()) } else { Err(format!("{name} is {value}: it must be 0 to 1")) }
        };
        let (Self::Perfect { within_ns }
        | Self::Noisy { within_ns, .. }
        | Self::Lying { within_ns, .. }) = self;
        if let Some(within) = within_ns.filter(|within| *within < 0) {
            return Err(format!("within_ns is {within}: it must be 0 or more"));
        }
        match *self {
            Self::Noisy { error, missing, .. } => {
                part("error", error).and(part("missing", missing))
            }
            Self::Lying { count: 0, .. } => Err("count is 0: a lie is that some come".to_owned()),
            _ => Ok(()),
        }
    }

    /// What each of the requests at these times, in order, says; none says anything if no other follows.
    pub fn say(&self, times: &[i64], mut stream: RandomStream) -> Vec<Option<Said>> {
        let mut given = vec![None; times.len()];
        let mut first = 0;
        for moment in times.chunk_by(|a, b| a == b) {
            let next = first + moment.len();
            if let Some(&at) = times.get(next) {
                let together = times[next..].iter().take_while(|time| **time == at).count();
                given[first] = self.one(at - times[first], together as u32, &mut stream);
            }
            first = next;
        }
        given
    }

    fn one(&self, gap: i64, count: u32, stream: &mut RandomStream) -> Option<Said> {
        match *self {
            Self::Perfect { within_ns } => Some(Said { in_ns: gap, count, within_ns }),
            Self::Noisy { error, missing, within_ns } => {
                // Both are drawn in any case, so that one does not change the other.
                let (wrong, is_missing) =
                    (2.0 * stream.uniform() - 1.0, stream.uniform() < missing);
                let in_ns = (gap as f64 * (1.0 + error * wrong)) as i64;
                (!is_missing).then_some(Said { in_ns: in_ns.max(0), count, within_ns })
            }
            Self::Lying { count, within_ns } => {
                let in_ns = (gap as f64 * LIE * stream.uniform()) as i64;
                Some(Said { in_ns, count, within_ns })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream() -> RandomStream {
        RandomStream::new(7, "hello")
    }

    #[test]
    fn the_first_of_each_moment_says_what_comes_next() {
        let given = Hints::Perfect { within_ns: Some(5) }.say(&[0, 10, 10, 10, 25], stream());
        let next = |in_ns, count| Some(Said { in_ns, count, within_ns: Some(5) });
        assert_eq!(given, [next(10, 3), next(15, 1), None, None, None]);
        assert_eq!(given[0].unwrap().to_string(), "in=10ns, count=3, within=5ns");
        assert!(Hints::Perfect { within_ns: None }.say(&[], stream()).is_empty());
    }

    #[test]
    fn numbers_that_cannot_be_meant_are_named() {
        for (json, key) in [
            (r#"{"kind": "noisy", "error": 2}"#, "error"),
            (r#"{"kind": "noisy", "error": 0, "missing": -1}"#, "missing"),
            (r#"{"kind": "lying", "count": 0}"#, "count"),
            (r#"{"kind": "perfect", "within_ns": -1}"#, "within_ns"),
        ] {
            let hints: Hints = serde_json::from_str(json).unwrap();
            assert!(hints.validate().unwrap_err().starts_with(key), "{json}");
        }
        assert!(serde_json::from_str::<Hints>(r#"{"kind": "perfect", "error": 1}"#).is_err());
    }

    proptest! {
        /// Noise is within its bound, lies are before the truth, and the same seed says the same.
        #[test]
        fn what_is_said_is_as_true_as_it_should_be(
            gaps in prop::collection::vec(0..10_000_000_i64, 1..60),
            error in 0.0..1.0,
        ) {
            let times: Vec<i64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
            let perfect = Hints::Perfect { within_ns: None }.say(&times, stream());
            let noisy = Hints::Noisy { error, missing: 0.5, within_ns: None };
            let lying = Hints::Lying { count: 9, within_ns: None }.say(&times, stream());
            prop_assert_eq!(noisy.say(&times, stream()), noisy.say(&times, stream()));
            for ((truth, noise), lie) in perfect.iter().zip(noisy.say(&times, stream())).zip(lying) {
                prop_assert_eq!(truth.is_some(), lie.is_some());
                let Some(truth) = truth else { continue };
                prop_assert!(lie.unwrap().in_ns <= truth.in_ns);
                if let Some(noise) = noise {
                    let off = (noise.in_ns - truth.in_ns).abs() as f64;
                    prop_assert!(off <= truth.in_ns as f64 * error + 1.0);
                    prop_assert_eq!(noise.count, truth.count);
                }
            }
        }
    }
}
