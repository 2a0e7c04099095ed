//! What a sandbox promises, tested with real instances. A test that cannot hold on this machine says
//! why it was not run.

mod checkpoints;
mod clock;
mod containers;
mod enforcement;
mod errors;
mod fixture;
mod function_zygotes;
mod hostile;
mod images;
mod isolation;
mod java;
mod keep_alive;
mod lifecycle;
mod metering;
mod odd_errors;
mod pool;
mod pool_python;
mod prepared;
mod provided;
mod rogue;
mod ruby;
mod running;
mod services;
mod shared_state;
mod system_calls;
mod waiting;
mod zygotes;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Some(code) = uncia_worker::instance::enter_if_asked() {
        return code;
    }
    // This program also plays other parts: a function that brings its own runtime, and a worker that
    // is killed, or whose clock is set.
    if let Some(code) = rogue::run_if_asked()
        .or_else(provided::run_if_asked)
        .or_else(lifecycle::run_if_asked)
        .or_else(clock::run_if_asked)
        .or_else(system_calls::run_if_asked)
    {
        return code;
    }
    let arguments = Arguments::from_args();
    let mut tests: Vec<Trial> = Vec::new();
    tests.extend(running::tests());
    tests.extend(errors::tests());
    tests.extend(odd_errors::tests());
    tests.extend(hostile::tests());
    tests.extend(images::tests());
    tests.extend(isolation::tests());
    tests.extend(metering::tests());
    tests.extend(services::tests());
    tests.extend(shared_state::tests());
    tests.extend(lifecycle::tests());
    tests.extend(keep_alive::tests());
    tests.extend(enforcement::tests());
    tests.extend(prepared::tests());
    tests.extend(pool::tests());
    tests.extend(pool_python::tests());
    tests.extend(provided::tests());
    tests.extend(ruby::tests());
    tests.extend(java::tests());
    tests.extend(checkpoints::tests());
    tests.extend(clock::tests());
    tests.extend(rogue::tests());
    tests.extend(system_calls::tests());
    tests.extend(zygotes::tests());
    tests.extend(function_zygotes::tests());
    tests.extend(waiting::tests());
    tests.extend(containers::tests());
    let conclusion = libtest_mimic::run(&arguments, tests);
    fixture::finish();
    conclusion.exit_code()
}
