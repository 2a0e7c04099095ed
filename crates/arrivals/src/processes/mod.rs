//! The processes, one file each. A new one is a file here and its line in the list below.

mod burst;
mod constant;
mod poisson;

use std::fmt;

use serde::{Deserialize, Serialize};

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
            $($process($process),)+
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

processes!(burst::Burst, constant::Constant, poisson::Poisson);

/// Shared checks.
mod check {
    use crate::{ArrivalError, MAX_ARRIVALS, MAX_SPAN_NS, NS_PER_S, Rate};

    pub fn duration(ns: i64) -> Result<(), ArrivalError> {
        match ns {
            ..=0 => Err(ArrivalError::Duration { ns }),
            _ if ns > MAX_SPAN_NS => Err(ArrivalError::TooLong),
            _ => Ok(()),
        }
    }

    pub fn count(count: u128) -> Result<(), ArrivalError> {
        if count > u128::from(MAX_ARRIVALS) {
            return Err(ArrivalError::TooMany { count });
        }
        Ok(())
    }

    /// That `rate` over `duration_ns` gives no more arrivals than allowed, on average.
    pub fn rate_over(rate: Rate, duration_ns: i64) -> Result<(), ArrivalError> {
        duration(duration_ns)?;
        // The number is for a limit and a message; a double is exact enough.
        count((rate.per_second() * duration_ns as f64 / NS_PER_S as f64) as u128)
    }
}
