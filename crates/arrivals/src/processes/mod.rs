//! The processes, one file each. A new one is a file here and its line in the list below.

mod burst;
mod check;
mod constant;
mod counts;
mod gamma;
mod gaps;
mod lognormal;
mod on_off;
mod poisson;
mod profile;
mod ramp;
mod random_phase;
mod renewal;
mod sine;
mod steps;
mod superposition;
mod times;
mod uniform;
mod weibull;
mod windows;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use counts::CountPlacement;
pub use on_off::OnOffStart;
pub use profile::Placement;
pub use steps::Step;

use crate::{Arrival, ArrivalError, RandomStream};

/// The arrivals of a process, in order.
pub type Arrivals = Box<dyn Iterator<Item = Arrival> + Send>;

macro_rules! processes {
    ($($module:ident :: $process:ident),+ $(,)?) => {
        $(pub use $module::$process;)+

        /// Any arrival process; in JSON the key `kind` says which.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum Process {
            $(#[doc = concat!("See [`", stringify!($process), "`].")] $process($process),)+
        }

        $(impl From<$process> for Process {
            fn from(process: $process) -> Self {
                Self::$process(process)
            }
        })+

        impl Process {
            /// Whether the process can give times: a sentence that says why not.
            pub fn validate(&self) -> Result<(), ArrivalError> {
                match self { $(Self::$process(process) => process.validate(),)+ }
            }

            /// About how many arrivals the process has: exactly, or on average where it is random.
            /// Windows count as if nothing fell outside of them. Only a valid process may be asked.
            pub fn expected_arrivals(&self) -> u128 {
                match self { $(Self::$process(process) => process.expected_arrivals(),)+ }
            }

            /// The times, drawn from `stream`. Only a valid process may be asked.
            pub fn arrivals(&self, stream: RandomStream) -> Arrivals {
                match self { $(Self::$process(process) => process.arrivals(stream),)+ }
            }
        }

        /// The process in a few words.
        impl fmt::Display for Process {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Self::$process(process) => process.fmt(formatter),)+ }
            }
        }
    };
}

processes!(
    burst::Burst,
    constant::Constant,
    counts::Counts,
    gamma::Gamma,
    gaps::Gaps,
    lognormal::Lognormal,
    on_off::OnOff,
    poisson::Poisson,
    ramp::Ramp,
    random_phase::RandomPhase,
    sine::Sine,
    steps::Steps,
    superposition::Superposition,
    times::Times,
    uniform::Uniform,
    weibull::Weibull,
    windows::Windows,
);

impl Process {
    /// The processes that this one is made of.
    fn parts(&self) -> &[Self] {
        match self {
            Self::Superposition(superposition) => &superposition.processes,
            Self::Windows(windows) => std::slice::from_ref(&*windows.process),
            _ => &[],
        }
    }

    /// One more than the numbers of its bursts go up to; none if it has no bursts.
    fn burst_numbers(&self) -> Option<u128> {
        match self {
            Self::Burst(burst) => Some(burst.bursts.unsigned_abs().into()),
            Self::Superposition(superposition) => superposition.burst_numbers(),
            Self::Windows(windows) => windows.process.burst_numbers(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::test_support::{process, times};

    /// One of each kind, with all of its keys.
    fn one_of_each() -> Vec<Value> {
        let poisson = json!({"kind": "poisson", "rate_per_s": "100", "duration_ns": 1_000_000_000});
        vec![
            json!({"kind": "burst", "sizes": [10, 20], "interval_ns": 5_000, "bursts": 3}),
            json!({"kind": "burst", "sizes": [2], "bursts": 3, "jitter_ns": 100,
                "gap": {"distribution": "exponential", "mean_ns": 5_000, "shift_ns": 1}}),
            json!({"kind": "constant", "rate_per_s": "1/3", "duration_ns": 10_000_000_000_i64}),
            json!({"kind": "counts", "counts": [3, 0, 5], "bucket_ns": 60, "placement": "uniform",
                "phase": false}),
            json!({"kind": "gamma", "rate_per_s": "100", "cv": 2.0, "duration_ns": 1_000_000_000}),
            json!({"kind": "gaps", "gaps_ns": [0, 5, 5]}),
            json!({"kind": "lognormal", "rate_per_s": "100", "cv": 0.5, "duration_ns": 1_000_000_000}),
            json!({"kind": "on_off", "on_rate_per_s": "1000", "off_rate_per_s": "0",
                "mean_on_ns": 10_000_000, "mean_off_ns": 10_000_000, "duration_ns": 1_000_000_000,
                "start": "stationary"}),
            poisson.clone(),
            json!({"kind": "ramp", "from_per_s": "0", "to_per_s": "100",
                "duration_ns": 1_000_000_000, "placement": "poisson"}),
            json!({"kind": "random_phase", "rate_per_s": "100", "duration_ns": 1_000_000_000}),
            json!({"kind": "sine", "mean_per_s": "100", "amplitude_per_s": "12.5", "phase": 0.25,
                "period_ns": 500, "duration_ns": 1_000_000_000, "placement": "even"}),
            json!({"kind": "steps", "placement": "even", "steps": [
                {"rate_per_s": "0", "duration_ns": 5}, {"rate_per_s": "1/3", "duration_ns": 5}]}),
            json!({"kind": "superposition", "processes": [
                poisson, {"kind": "windows", "process": poisson, "windows_ns": [[0, 5]]}]}),
            json!({"kind": "times", "times_ns": [0, 5, 5]}),
            json!({"kind": "uniform", "min_gap_ns": 0, "max_gap_ns": 1_000, "duration_ns": 100_000}),
            json!({"kind": "weibull", "rate_per_s": "100", "cv": 1.5, "duration_ns": 1_000_000_000}),
            json!({"kind": "windows", "process": poisson, "windows_ns": [[0, 5], [7, 500_000_000]]}),
        ]
    }

    #[test]
    fn json_reads_and_writes() {
        for json in one_of_each() {
            let process = process(json.clone());
            assert_eq!(serde_json::to_value(&process).unwrap(), json);
            assert!(!times(&process, 7, "hello").is_empty(), "{json}");
            assert!(!process.to_string().is_empty());
        }
    }

    #[test]
    fn unknown_and_missing_keys_are_errors() {
        // Of the interval and the gap of a burst, its validation takes exactly one.
        const OPTIONAL: [&str; 7] =
            ["phase", "interval_ns", "gap", "jitter_ns", "placement", "start", "off_rate_per_s"];
        for json in one_of_each() {
            let mut more = json.clone();
            more["rate"] = json!(1);
            let error = serde_json::from_value::<Process>(more).unwrap_err().to_string();
            assert!(error.contains("unknown field `rate`"), "{json}: {error}");
            for key in json.as_object().unwrap().keys() {
                let mut less = json.clone();
                less.as_object_mut().unwrap().remove(key);
                let read = serde_json::from_value::<Process>(less);
                // Counts are placed as their key says.
                let optional =
                    OPTIONAL.contains(&&**key) && !(json["kind"] == "counts" && key == "placement");
                assert_eq!(read.is_ok(), optional, "{json} without {key}");
            }
        }
        assert!(serde_json::from_value::<Process>(json!({"kind": "bursty"})).is_err());
    }

    #[test]
    fn json_of_any_depth_is_answered() {
        let nested = |levels| {
            let open = r#"{"kind":"superposition","processes":["#.repeat(levels);
            format!(r#"{open}{{"kind":"times","times_ns":[1]}}{}"#, "]}".repeat(levels))
        };
        let read = |levels| serde_json::from_str::<Process>(&nested(levels));
        assert_eq!(read(15).unwrap().validate(), Ok(()));
        assert_eq!(read(16).unwrap().validate(), Err(ArrivalError::TooDeep));
        assert!(read(100_000).is_err());
    }
}
