//! Durations while the real-time clock is set.

use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::Trial;
use tempfile::TempDir;
use uncia_clock::{NS_PER_S, step_real_time};
use uncia_worker::instance::Host;

use crate::fixture::{Function, Needs, config, request, test};

/// Set where this program plays a worker whose clock is set.
const WORKER: &str = "UNCIA_TEST_CLOCK";

const DAY: i64 = 86_400 * NS_PER_S;

pub(crate) fn tests() -> Vec<Trial> {
    vec![test("a_step_of_the_clock_moves_no_duration", Needs::Sandbox, step)]
}

/// In a process of its own: what others do at the time would see the step, too.
async fn step() {
    let output = Command::new(std::env::current_exe().unwrap()).env(WORKER, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Plays a worker whose clock is set by a day, either way, during starts and invocations.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    std::env::var_os(WORKER)?;
    let folder = TempDir::new().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let host = Host::open(config(folder.path())).await.expect("a host");
        for step in [DAY, -DAY] {
            let code =
                "import time\ntime.sleep(0.2)\ndef handler(event, context):\n    time.sleep(0.2)\n";
            let function = Function::python(code);
            let (started, ()) = tokio::join!(host.start(function.spec.clone()), set_soon(step));
            let whole = started.initialization_ns;
            assert!((NS_PER_S / 5..DAY / 2).contains(&whole), "{whole} ns");
            for phase in &started.phases {
                let took = phase.end.since(phase.start);
                assert!((0..=whole).contains(&took), "{phase:?}");
                assert_eq!(phase.end.unix() - phase.start.unix(), took, "{phase:?}");
            }
            let names: Vec<_> = started.phases.iter().map(|phase| phase.name).collect();
            assert!(names.contains(&"handler"), "the runtime's own time is believed: {names:?}");
            let instance = started.result.expect("an instance");
            let (reply, ()) = tokio::join!(instance.invoke(request("1")), set_soon(step));
            let took = reply.ended.since(reply.started);
            assert!((NS_PER_S / 5..DAY / 2).contains(&took), "{took} ns");
            assert_eq!(reply.ended.unix() - reply.started.unix(), took);
            instance.stop(Duration::ZERO).await;
        }
        host.close().await;
    });
    Some(ExitCode::SUCCESS)
}

async fn set_soon(step: i64) {
    tokio::time::sleep(Duration::from_millis(100)).await;
    step_real_time(step);
}
