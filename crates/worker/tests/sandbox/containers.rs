//! The promises of the other files, in containers of OCI runtimes as far as they are the same there; and what only
//! containers have to keep.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::Trial;
use uncia_worker::instance::{Host, OciRuntime, Sandbox, StartError, StartFrom};

use crate::fixture::{
    Function, Needs, all_control_groups, config, control_groups, in_container, processes, request,
    sandbox, state,
};
use crate::lifecycle::kill_worker;
use crate::{hostile, images, isolation, lifecycle, metering, running};

macro_rules! trials {
    ($runtime:expr, $($needs:ident $file:ident::$body:ident),* $(,)?) => {
        vec![$(in_container(
            $runtime,
            concat!(stringify!($file), "_", stringify!($body)),
            Needs::$needs,
            $file::$body,
        )),*]
    };
}

pub(crate) fn tests() -> Vec<Trial> {
    OciRuntime::all().iter().flat_map(|runtime| of(*runtime)).collect()
}

fn of(runtime: OciRuntime) -> Vec<Trial> {
    let mut tests = trials![
        runtime,
        Sandbox running::large_payloads_go_both_ways,
        Node running::node_context,
        Sandbox running::a_platform_endpoint_for_chains,
        Sandbox running::output_belongs_to_its_invocation,
        Sandbox hostile::exits,
        Memory hostile::fills_memory,
        Sandbox isolation::read_only,
        Sandbox isolation::no_rights,
        Sandbox isolation::no_network,
        Sandbox isolation::private_tmp,
        Sandbox isolation::descriptors,
        Sandbox isolation::no_new_namespaces,
        Sandbox isolation::python_threads,
        Sandbox isolation::standard_streams,
        CpuAccounting metering::children,
        Memory metering::memory,
        Cpu metering::throttling,
        Freezer lifecycle::frozen,
        Freezer lifecycle::stop_frozen,
        Sandbox lifecycle::nothing_left,
        Sandbox lifecycle::asks_first,
        Sandbox lifecycle::abandoned,
        Sandbox images::root,
        Sandbox images::no_program,
    ];
    tests.push(in_container(runtime, "refusals", Needs::Sandbox, refusals));
    let left = nothing_of_the_runtime_is_left;
    tests.push(in_container(runtime, "nothing_of_the_runtime_is_left", Needs::Sandbox, left));
    let swept = a_killed_worker_is_swept;
    tests.push(in_container(runtime, "a_killed_worker_is_swept", Needs::Freezer, swept));
    tests
}

/// What the runtime that the test is of has in a state folder.
fn folders(state: &Path) -> Vec<PathBuf> {
    let runtimes = fs::read_dir(state.join("containers")).into_iter().flatten().flatten();
    let folders = runtimes.flat_map(|runtime| fs::read_dir(runtime.path()).into_iter().flatten());
    folders.map(|folder| folder.expect("a folder").path()).collect()
}

const ECHO: &str = "def handler(event, context):\n    return event\n";

async fn refusals() {
    let message = |started: Result<_, StartError>| match started {
        Err(StartError::Sandbox(message)) => message,
        other => panic!("{:?}", other.err()),
    };
    let before = folders(state());
    let zygote = Function::python(ECHO).with(|spec| spec.start_from = StartFrom::Zygote);
    let refusal = message(zygote.try_start().await.result);
    assert!(refusal.contains("start_from must be fresh or prepared"), "{refusal}");
    let extended = Function::python(ECHO).with(|spec| spec.extensions.push("x".into()));
    let refusal = message(extended.try_start().await.result);
    assert!(refusal.contains("set sandbox to process"), "{refusal}");
    assert!(folders(state()).iter().all(|folder| before.contains(folder)
        || !folder.ends_with(&zygote.spec.id) && !folder.ends_with(&extended.spec.id)));
}

async fn nothing_of_the_runtime_is_left() {
    for start_from in [StartFrom::Fresh, StartFrom::Prepared] {
        let function = Function::python(ECHO).with(|spec| spec.start_from = start_from);
        let instance = function.start().await;
        let id = &function.spec.id;
        assert!(folders(state()).iter().any(|folder| folder.ends_with(id)));
        instance.invoke(request("1")).await;
        // Its first process is killed from outside, and can delete nothing any more.
        if start_from == StartFrom::Prepared {
            let first = processes(id)[0];
            nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(first),
                nix::sys::signal::Signal::SIGKILL,
            )
            .expect("a signal");
            instance.exited().await;
        } else {
            instance.stop(Duration::from_millis(100)).await;
        }
        assert!(processes(id).is_empty());
        assert!(!folders(state()).iter().any(|folder| folder.ends_with(id)));
        assert!(control_groups(id).is_empty());
        assert!(control_groups(&format!("oci-{id}")).is_empty());
    }
}

async fn a_killed_worker_is_swept() {
    let folder = tempfile::tempdir().expect("a folder");
    let killed = kill_worker(folder.path());
    let ids = &killed.ids;
    while ids.iter().any(|id| !processes(id).is_empty()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // At least the one that was frozen and whose first process was killed is remembered.
    assert!(!folders(folder.path()).is_empty());
    let host = Host::open(config(folder.path())).await.expect("a host");
    assert!(folders(folder.path()).is_empty());
    host.close().await;
    let of_the_worker =
        |group: &&PathBuf| ids.iter().any(|id| group.to_string_lossy().contains(id));
    assert_eq!(all_control_groups().iter().find(of_the_worker), None);
    let name = |sandbox: Sandbox| sandbox.runtime().map(OciRuntime::name);
    assert!(name(sandbox()).is_some());
}
