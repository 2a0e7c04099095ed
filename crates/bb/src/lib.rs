//! The BB Trace of *Making Serverless Pay-For-Use a Reality with Leopard* (Cao and others, NSDI 2025,
//! section 5.1.2): what a large provider tells of its functions (counts a minute, durations, memory),
//! completed with how many threads functions of a benchmark suite run.
//!
//! Each function of the provider's becomes one of the suite's. Each of its invocations is a list of
//! phases: all equally long, each with a number of threads and an amount of memory. What the paper
//! leaves open is a parameter ([`Settings`]) or stands in the prior ([`Prior`]).
//!
//! A trace is a pure function of its settings: every number is drawn from a stream of
//! [`uncia_arrivals`], by the seed and the name of what it is for, so that it is the same on every
//! machine. Invocations are made minute by minute, in the order of their times, so that memory is
//! bounded by the functions and by what the fullest minute has.

mod error;
mod functions;
mod invocations;
mod phases;
mod population;
mod profiles;
mod quantiles;

pub use error::TraceError;
pub use functions::{Function, Knobs, Qos};
pub use invocations::{Invocation, Invocations};
pub use phases::Phase;
pub use population::Population;
pub use profiles::{Parallelism, Possible, Prior, PriorFunction, Profile, Sizes};
pub use quantiles::Quantiles;

use serde::Deserialize;
use uncia_arrivals::CountPlacement;

/// Nanoseconds in a minute.
pub const NS_PER_MIN: i64 = 60 * uncia_arrivals::NS_PER_S;

/// What a trace is made of.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Which trace of all that are possible.
    pub seed: u64,
    /// The first minute, counted from midnight of the first day.
    pub start_minute: u32,
    /// How many minutes.
    pub minutes: u32,
    /// The provider's functions.
    pub source: Source,
    /// The suite's functions.
    pub profiles: Profiles,
    /// The input that the suite's functions are given.
    pub size: InputSize,
    /// When within its minute an invocation comes.
    pub placement: CountPlacement,
    /// Part of its CPU limit that a function uses on average; none: as its profile says.
    pub utilization: Option<Utilization>,
    /// Part of the invocations that are batch; none: as the suite's functions are.
    pub batch_share: Option<f64>,
    /// What the provider's counts are multiplied by.
    pub load: f64,
}

/// Where the provider's functions come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// Drawn from a population.
    Synthetic {
        /// How many.
        functions: u32,
        /// What they are drawn from.
        population: Population,
    },
    /// As a trace tells of them.
    Given(Vec<Given>),
}

/// A function as a provider's trace tells of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// Its name, which no other has.
    pub name: String,
    /// Invocations in each minute of the trace.
    pub counts: Vec<u32>,
    /// How long an invocation takes, in ns.
    pub durations: Quantiles,
    /// What an invocation holds, in bytes.
    pub memory: Quantiles,
}

/// Where the profiles of the suite's functions come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profiles {
    /// Drawn.
    Prior(Prior),
    /// Measured, or drawn before.
    Given(Vec<Profile>),
}

/// The input of the suite's functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputSize {
    /// The small one for all.
    Small,
    /// The medium one for all.
    Medium,
    /// The large one for all.
    Large,
    /// Each function has one of the three, equally likely.
    Mixed,
}

/// Part of their CPU limits that functions use: normally distributed over the functions, redrawn
/// until it is as near to the mean as the nearer of 0 and 1, so that the mean stays what it is.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Utilization {
    /// The mean, above 0 and up to 1.
    pub mean: f64,
    /// The standard deviation before redrawing, 0 or more.
    pub deviation: f64,
}

/// A trace: functions, and their invocations on demand.
#[derive(Debug)]
pub struct Trace {
    seed: u64,
    placement: CountPlacement,
    profiles: Vec<Profile>,
    functions: Vec<Function>,
}

impl Trace {
    /// Draws functions and profiles.
    ///
    /// # Errors
    /// A setting is out of its range, or no function is ever invoked.
    pub fn new(settings: Settings) -> Result<Self, TraceError> {
        settings.validate()?;
        let profiles = match &settings.profiles {
            Profiles::Prior(prior) => prior.draw(settings.seed),
            Profiles::Given(profiles) => profiles.clone(),
        };
        profiles::validate(&profiles)?;
        let (seed, placement) = (settings.seed, settings.placement);
        let functions = functions::assign(settings, &profiles)?;
        if functions.iter().all(|function| function.invocations() == 0) {
            return Err(TraceError::NothingInvoked);
        }
        Ok(Self { seed, placement, profiles, functions })
    }

    /// The functions.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The profiles of the suite's functions.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// All invocations, in the order of their times, from the first one.
    pub fn invocations(&self) -> Invocations<'_> {
        Invocations::new(self)
    }
}

impl Settings {
    fn validate(&self) -> Result<(), TraceError> {
        if self.minutes == 0 {
            return Err(TraceError::Range { key: "minutes", value: 0.0, range: "at least 1" });
        }
        if let Some(share) = self.batch_share {
            error::in_range("batch_share", share, 0.0..=1.0, "from 0 to 1")?;
        }
        if let Some(utilization) = self.utilization {
            error::in_range("utilization.mean", utilization.mean, 1e-6..=1.0, "above 0, up to 1")?;
            let deviation = utilization.deviation;
            error::in_range("utilization.deviation", deviation, 0.0..=10.0, "from 0 to 10")?;
        }
        error::in_range("load", self.load, 1e-9..=1e6, "above 0, up to 1,000,000")?;
        match &self.source {
            Source::Synthetic { functions: 0, .. } => {
                Err(TraceError::Range { key: "functions", value: 0.0, range: "at least 1" })
            }
            Source::Synthetic { population, .. } => population.validate(self.load),
            Source::Given(functions) => self.validate_given(functions),
        }
    }

    fn validate_given(&self, functions: &[Given]) -> Result<(), TraceError> {
        let mut names = std::collections::HashSet::new();
        for function in functions {
            let name = || function.name.clone();
            if !names.insert(&function.name) {
                return Err(TraceError::Twice { name: name() });
            }
            if function.counts.len() != self.minutes as usize {
                let counts = function.counts.len();
                return Err(TraceError::Counts { name: name(), counts, minutes: self.minutes });
            }
            for (of, quantiles) in
                [("durations", &function.durations), ("memory", &function.memory)]
            {
                quantiles.validate().map_err(|problem| TraceError::Quantiles {
                    name: name(),
                    of,
                    problem,
                })?;
            }
        }
        Ok(())
    }
}
