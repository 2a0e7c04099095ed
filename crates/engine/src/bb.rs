//! `uncia-engine bb`: a BB Trace; JSON in, its functions into a file, its invocations to standard output
//! as an Arrow IPC stream, so that what reads them need not wait for the end, nor the disk hold them twice.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use uncia_bb::{Function, InputSize, Invocation, NS_PER_MIN, Qos, Settings, Trace};
use uncia_record::{
    Epoch, Invocation as Row, InvocationBuilder, Phase, RecordError, StreamWriter, Text,
    TraceFunction,
};

use crate::config as configuration;
use crate::output::{self, BAD_INPUT, FAILED};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    /// Where the table of functions is made.
    functions: PathBuf,
    trace: Settings,
}

/// Makes the trace that a configuration asks for, and reports what is in it.
pub(crate) fn run(config: &Path) -> ExitCode {
    let parsed = configuration::parse::<Configuration>(config).and_then(|configuration| {
        let trace = Trace::new(configuration.trace).map_err(|error| error.to_string())?;
        Ok((trace, configuration.functions))
    });
    let (trace, functions) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => return output::fail(&message, BAD_INPUT),
    };
    match write_functions(&trace, &functions).and_then(|()| write_invocations(&trace)) {
        Ok(rows) => {
            output::event(&json!({
                "event": "done",
                "invocations": rows,
                "functions": trace.functions().len(),
                "batch": invocations_of(&trace, Qos::Batch),
                "profiles": trace.profiles(),
            }));
            ExitCode::SUCCESS
        }
        Err(error) => output::fail(&error.to_string(), FAILED),
    }
}

fn invocations_of(trace: &Trace, qos: Qos) -> u64 {
    let functions = trace.functions().iter().filter(|function| function.qos == qos);
    functions.map(Function::invocations).sum()
}

fn text(words: &str) -> Text {
    Arc::from(words)
}

fn qos(function: &Function) -> &'static str {
    match function.qos {
        Qos::Interactive => "interactive",
        Qos::Batch => "batch",
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn write_functions(trace: &Trace, path: &Path) -> Result<(), RecordError> {
    let mut writer = StreamWriter::<TraceFunction>::create(path, Epoch::UNIX)?;
    for function in trace.functions() {
        let knobs = &function.knobs;
        writer.push(&TraceFunction {
            run: None,
            function: text(&function.name),
            bb_function: Some(text(&trace.profiles()[function.profile].name)),
            size: Some(text(match function.size {
                InputSize::Small => "small",
                InputSize::Medium | InputSize::Mixed => "medium",
                InputSize::Large => "large",
            })),
            qos: text(qos(function)),
            allocated_cpu: whole(knobs.cpu),
            reserved_cpu: whole(knobs.cpu - knobs.spot_cpu),
            spot_cpu: whole(knobs.spot_cpu),
            allocated_memory: whole(knobs.memory),
            preemptible: knobs.preemptible,
            phases: i64::from(function.phases),
            parallelism_avg: function.parallelism.mean,
            parallelism_max: i64::from(function.parallelism.max),
            invocations: whole(function.invocations()),
        })?;
    }
    writer.close().map(|_| ())
}

/// What all rows of a function have in common.
struct Common {
    function: Text,
    qos: Text,
    reserved_cpu: u64,
}

fn write_invocations(trace: &Trace) -> Result<u64, RecordError> {
    let path = Path::new("standard output");
    let stdout = std::io::stdout();
    let file = stdout.as_fd().try_clone_to_owned().map(File::from);
    let file = file.map_err(|source| RecordError::Io {
        action: "cannot open",
        path: path.to_owned(),
        source,
    })?;
    let mut writer = StreamWriter::<Row>::new(file, path, Epoch::UNIX)?;
    let texts = ["interactive", "batch", "ok"].map(text);
    let commons = trace.functions().iter().map(|function| Common {
        function: text(&function.name),
        qos: texts[usize::from(function.qos == Qos::Batch)].clone(),
        reserved_cpu: function.knobs.cpu - function.knobs.spot_cpu,
    });
    let commons: Vec<Common> = commons.collect();
    let mut phases = Vec::new();
    let mut invocations = trace.invocations();
    let mut minute = 0;
    while let Some(invocation) = invocations.advance() {
        phases.clear();
        phases.extend(invocation.phases.iter().map(|phase| Phase {
            duration: phase.duration,
            threads: phase.threads,
            memory: phase.memory,
        }));
        let function = &trace.functions()[invocation.function];
        let common = &commons[invocation.function];
        writer.push_with(|columns, row| {
            set_constant(columns, row, function, common, &texts[2]);
            set_needs(columns, row, &invocation, common.reserved_cpu);
            columns.phases.set(row, &phases);
        })?;
        if invocation.scheduled / NS_PER_MIN > minute {
            minute = invocation.scheduled / NS_PER_MIN;
            output::event(&json!({
                "event": "progress",
                "minute": minute,
                "invocations": invocation.number,
            }));
        }
    }
    writer.close()
}

/// Sets what does not depend on the invocation.
fn set_constant(
    columns: &mut InvocationBuilder,
    row: usize,
    function: &Function,
    common: &Common,
    outcome: &Text,
) {
    let knobs = &function.knobs;
    columns.function.set(row, &common.function);
    columns.attempt.set(row, 1);
    columns.open_loop.set(row, true);
    columns.outcome.set(row, outcome);
    columns.shared.set(row, false);
    columns.allocated_cpu.set(row, whole(knobs.cpu));
    columns.allocated_memory.set(row, whole(knobs.memory));
    columns.reserved_cpu.set(row, whole(common.reserved_cpu));
    columns.spot_cpu.set(row, whole(knobs.spot_cpu));
    columns.preemptible.set(row, knobs.preemptible);
    columns.qos.set(row, &common.qos);
}

/// Sets what the invocation needs on an idle machine with enough CPUs: there it borrows what it uses
/// above its reservation, and nobody is there to whom it could lend.
fn set_needs(
    columns: &mut InvocationBuilder,
    row: usize,
    invocation: &Invocation,
    reserved_cpu: u64,
) {
    let execution = invocation.execution();
    let reserved = i128::from(execution) * i128::from(reserved_cpu) / 1_000_000;
    columns.invocation.set_numbered(row, "bb-", invocation.number);
    columns.scheduled.set(row, invocation.scheduled);
    columns.execution.set(row, execution);
    columns.cpu_user.set(row, invocation.cpu_time());
    columns.cpu_system.set(row, 0);
    columns.memory_avg.set(row, invocation.memory_avg());
    columns.memory_peak.set(row, invocation.memory_peak());
    columns.reserved_cpu_time.set(row, i64::try_from(reserved).unwrap_or(i64::MAX));
    columns.borrowed_cpu_time.set(row, invocation.cpu_time_above(reserved_cpu));
    columns.lent_cpu_time.set(row, 0);
    columns.lent_memory_avg.set(row, 0);
}
