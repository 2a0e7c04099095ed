//! What `uncia-engine sim` is asked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use uncia_arrivals::{Gap, Hints, Process, RandomStream};
use uncia_policy::{
    FunctionSettings, Hint, Nanos, Parameters, PolicyNames, Qos, Resources, UnknownPolicy,
};
use uncia_sim::{Failure, Function, Phase, Setting, Trace};

use super::requests;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Configuration {
    #[serde(default)]
    pub(super) seed: u64,
    /// The run and the experiment that the rows belong to.
    pub(super) run: String,
    pub(super) experiment: String,
    /// Where `invocations.arrows`, `instances.arrows` and `machine.arrows` are made.
    pub(super) output: PathBuf,
    workers: Vec<WorkersOf>,
    functions: Vec<FunctionOf>,
    #[serde(default)]
    policies: BTreeMap<String, String>,
    #[serde(default)]
    parameters: ParametersOf,
    sharing: String,
    starts_ns: Vec<Nanos>,
    until_ns: Option<Nanos>,
    interval_ns: Option<Nanos>,
    /// From the arrival of a request until the policies know of it.
    #[serde(default)]
    latency_ns: Nanos,
    #[serde(default)]
    failures: Vec<FailureOf>,
    random_failures: Option<RandomFailures>,
    /// An Arrow IPC stream of requests, instead of those that functions draw.
    requests: Option<PathBuf>,
}

/// A worker is gone for a while.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureOf {
    worker: usize,
    at_ns: Nanos,
    lasts_ns: Nanos,
}

/// Means of exponential times.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RandomFailures {
    works_ns: Nanos,
    lasts_ns: Nanos,
}

/// Workers that are alike.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkersOf {
    count: usize,
    /// Micro-vCPU.
    cpu: u64,
    /// Bytes.
    memory: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionOf {
    name: String,
    cpu: u64,
    memory: u64,
    spot_cpu: u64,
    preemptible: bool,
    qos: QosOf,
    keep_alive_ns: Nanos,
    #[serde(default)]
    min_instances: u32,
    /// What its requests say of those to come, and how many instances are there for that at most.
    hints: Option<Hints>,
    #[serde(default)]
    hint_instances: u32,
    /// None where requests come from a file.
    arrivals: Option<Process>,
    #[serde(default)]
    phases: Vec<PhaseOf>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum QosOf {
    Interactive,
    Batch,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseOf {
    duration: Gap,
    cpu: u64,
    memory: u64,
}

/// Those of [`Parameters`] that choices between workers read.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ParametersOf {
    locality_weight: Option<u32>,
    high_load: Option<u32>,
    cpu_overcommit: Option<u32>,
    overtaking_times: Option<u32>,
    overtaking_max_ns: Option<u64>,
    hint_within_ns: Option<u64>,
    hint_ahead_ns: Option<u64>,
}

impl Configuration {
    /// What is simulated.
    ///
    /// # Errors
    /// A sentence: which key is wrong, and what about it.
    pub(super) fn cluster(&self) -> Result<(Setting, Trace), String> {
        let workers = self.workers.iter().flat_map(|workers| {
            let resources = Resources { cpu: workers.cpu, memory: workers.memory };
            std::iter::repeat_n(resources, workers.count)
        });
        let defaults = Parameters::default();
        let parameters = Parameters {
            locality_weight: self.parameters.locality_weight.unwrap_or(defaults.locality_weight),
            high_load: self.parameters.high_load.unwrap_or(defaults.high_load),
            cpu_overcommit: self.parameters.cpu_overcommit.unwrap_or(defaults.cpu_overcommit),
            overtaking_times: self.parameters.overtaking_times.unwrap_or(defaults.overtaking_times),
            overtaking_max: self.parameters.overtaking_max_ns.unwrap_or(defaults.overtaking_max),
            hint_within: self.parameters.hint_within_ns.unwrap_or(defaults.hint_within),
            hint_ahead: self.parameters.hint_ahead_ns.unwrap_or(defaults.hint_ahead),
            ..defaults
        };
        let setting = Setting {
            seed: self.seed,
            functions: self.functions.iter().map(FunctionOf::function).collect(),
            workers: workers.collect(),
            policies: self.policies()?,
            parameters,
            sharing: self.sharing.clone(),
            starts: self.starts_ns.clone(),
            until: self.until_ns,
            interval: self.interval_ns,
            latency: self.latency_ns,
            failures: self.failures.iter().map(FailureOf::failure).collect(),
            random_failures: self.random_failures.as_ref().map(|it| (it.works_ns, it.lasts_ns)),
        };
        let mut trace = match &self.requests {
            Some(path) => requests::read(path, self.functions.len())?,
            None => self.trace()?,
        };
        self.add_hints(&mut trace)?;
        Ok((setting, trace))
    }

    /// Has the requests of functions say what comes.
    fn add_hints(&self, trace: &mut Trace) -> Result<(), String> {
        let mut requests: Vec<(Vec<usize>, Vec<i64>)> = Vec::new();
        if self.functions.iter().any(|function| function.hints.is_some()) {
            requests.resize_with(self.functions.len(), Default::default);
            for (position, invocation) in trace.invocations.iter().enumerate() {
                let (positions, times) = &mut requests[invocation.function as usize];
                positions.push(position);
                times.push(invocation.arrival.cast_signed());
            }
        }
        for (index, (positions, times)) in requests.into_iter().enumerate() {
            let function = &self.functions[index];
            let Some(hints) = &function.hints else { continue };
            hints.validate().map_err(|error| format!("functions[{index}]: hints: {error}"))?;
            let stream = RandomStream::new(self.seed, &format!("{}/hints", function.name));
            let given = positions.into_iter().zip(hints.say(&times, stream));
            trace.hints.extend(given.filter_map(|(position, hint)| {
                let hint = hint?;
                let within = hint.within_ns.map(i64::unsigned_abs);
                let after = hint.in_ns.unsigned_abs();
                Some((position, Hint { after, within, count: hint.count }))
            }));
        }
        Ok(())
    }

    fn policies(&self) -> Result<PolicyNames, String> {
        let mut names = PolicyNames::default();
        for (choice, policy) in &self.policies {
            let Some(name) = names.get_mut(choice) else {
                let known: Vec<_> = names.iter().map(|(choice, _)| choice).collect();
                let known = known.join(", ");
                return Err(format!("policies: there is no choice {choice:?}; there are: {known}"));
            };
            policy.clone_into(name);
        }
        // Found out here as well, so that it is an error in the configuration.
        let check: Result<_, UnknownPolicy> = uncia_policy::Policies::from_names(&names);
        check.map_err(|error| format!("policies: {error}"))?;
        Ok(names)
    }

    /// The requests of all functions, in the order of their arrivals, and at the same time in that of
    /// the functions.
    fn trace(&self) -> Result<Trace, String> {
        let mut requests = Vec::new();
        for (index, function) in self.functions.iter().enumerate() {
            function.validate().map_err(|error| format!("functions[{index}]: {error}"))?;
            let stream = RandomStream::new(self.seed, &function.name);
            let Some(arrivals) = &function.arrivals else {
                return Err(format!("functions[{index}]: has no arrivals"));
            };
            let arrivals = arrivals.arrivals(stream.part(0));
            requests.extend(arrivals.map(|arrival| (arrival.offset as Nanos, index)));
        }
        requests.sort_unstable();
        let mut streams: Vec<RandomStream> = self
            .functions
            .iter()
            .map(|function| RandomStream::new(self.seed, &function.name).part(1))
            .collect();
        let mut trace = Trace::default();
        let mut phases = Vec::new();
        for (arrival, index) in requests {
            phases.clear();
            phases.extend(self.functions[index].phases.iter().map(|phase| Phase {
                duration: phase.duration.draw_ns(&mut streams[index]) as Nanos,
                cpu: phase.cpu,
                memory: phase.memory,
            }));
            trace.push(index, arrival, &phases);
        }
        Ok(trace)
    }
}

impl FailureOf {
    fn failure(&self) -> Failure {
        Failure { worker: self.worker, at: self.at_ns, lasts: self.lasts_ns }
    }
}

impl FunctionOf {
    fn function(&self) -> Function {
        let qos = match self.qos {
            QosOf::Interactive => Qos::Interactive,
            QosOf::Batch => Qos::Batch,
        };
        let settings = FunctionSettings {
            keep_alive: self.keep_alive_ns,
            min_instances: self.min_instances,
            hint_instances: self.hint_instances,
            allocation: Resources { cpu: self.cpu, memory: self.memory },
            spot_cpu: self.spot_cpu,
            preemptible: self.preemptible,
            qos,
            ..FunctionSettings::default()
        };
        Function { name: self.name.clone(), settings }
    }

    fn validate(&self) -> Result<(), String> {
        if let Some(arrivals) = &self.arrivals {
            arrivals.validate().map_err(|error| format!("arrivals: {error}"))?;
        }
        for (index, phase) in self.phases.iter().enumerate() {
            phase
                .duration
                .validate()
                .map_err(|error| format!("phases[{index}].duration: {error}"))?;
        }
        Ok(())
    }
}
