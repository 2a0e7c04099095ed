//! What becomes of runtimes that wait for a function: each test has a size of its own, so that what
//! waits is nobody else's.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use uncia_worker::instance::StartFrom;

use crate::fixture::{
    Function, MIB, Needs, OF_A_TEST, all_control_groups, answer, host, own_processes, request, test,
};
use crate::prepared::is_running;

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("a_stopped_runtime_is_passed_over", Needs::Node, are_passed_over),
        test("a_waiting_runtime_holds_no_mount", Needs::Users, hold_no_mount),
        test("what_a_waiting_runtime_printed", Needs::Node, print_for_nobody),
        test("what_waits_for_a_deleted_function", Needs::Node, end_with_their_function),
    ]
}

fn function(name: &str, memory_bytes: u64) -> Function {
    let code = "exports.handler = async () => 1;";
    Function::new("node", &[("main.js", code)], "main.handler").with(|spec| {
        spec.start_from = StartFrom::Pool;
        spec.function = name.into();
        spec.memory_bytes = memory_bytes;
    })
}

/// The runtimes that wait with this limit of memory, in this process's numbering.
pub(crate) fn waiting_with(memory_bytes: u64) -> Vec<i32> {
    let is_node = |pid: &i32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.starts_with(b"/var/lang/bin/node")
    };
    let limit = memory_bytes.to_string();
    let limited: BTreeSet<_> = all_control_groups()
        .into_iter()
        .filter(|folder| {
            ["memory.limit_in_bytes", "memory.max"].iter().any(|file| {
                fs::read_to_string(folder.join(file)).is_ok_and(|text| text.trim() == limit)
            })
        })
        .filter_map(|folder| Some(folder.file_name()?.to_str()?.to_owned()))
        .collect();
    let has_limit = |pid: &i32| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        groups.lines().filter_map(|line| line.rsplit_once('/')).any(|(_, it)| limited.contains(it))
    };
    own_processes("pool").into_iter().filter(is_node).filter(has_limit).collect()
}

/// Starts the function until as many wait as are kept.
pub(crate) async fn until_some_wait(function: &Function) -> Vec<i32> {
    loop {
        let started = function.try_start().await;
        started.result.unwrap().stop(Duration::ZERO).await;
        // Then it is started again: on a slow machine other tests' functions may have taken the room.
        for _ in 0..400 {
            let waiting = waiting_with(function.spec.memory_bytes);
            // They have printed nothing, and say nowhere that they wait: a while later they do.
            if waiting.len() >= 4 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                return waiting;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn are_passed_over() {
    if !Needs::Memory.is_met() {
        return;
    }
    let function = function("stopped", 161 * MIB);
    let stopped = until_some_wait(&function).await;
    for pid in &stopped {
        kill(Pid::from_raw(*pid), Signal::SIGSTOP).unwrap();
    }
    let started = function.try_start().await;
    assert!(!started.restored);
    let instance = started.result.unwrap();
    assert_eq!(answer(&instance.invoke(request("{}")).await), json!(1));
    instance.stop(Duration::ZERO).await;
    for pid in stopped {
        // The one that was taken has ended.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// A small file system of the test's, of which other namespaces are told.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let nothing = None::<&str>;
        let (kind, flags) = (Some("tmpfs"), MsFlags::empty());
        mount(kind, folder.path(), kind, flags, Some(OF_A_TEST)).unwrap();
        mount(nothing, folder.path(), nothing, MsFlags::MS_SHARED, nothing).unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        mount(kind, &folder.path().join("inner"), kind, flags, Some(OF_A_TEST)).unwrap();
        Self(folder)
    }

    /// A mount below one that other namespaces are told of: it is what changes there.
    fn inner(&self) -> std::path::PathBuf {
        self.0.path().join("inner")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.inner(), MntFlags::MNT_DETACH);
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

fn sees(pid: i32, path: &Path) -> bool {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    mounts.contains(path.to_str().unwrap())
}

async fn hold_no_mount() {
    if !Needs::Node.is_met() || !Needs::Memory.is_met() {
        return;
    }
    let mounted = Mounted::new();
    let waiting = until_some_wait(&function("mounted", 162 * MIB)).await;
    assert!(waiting.iter().all(|pid| sees(*pid, &mounted.inner())));
    umount2(&mounted.inner(), MntFlags::empty()).unwrap();
    assert!(!waiting.iter().any(|pid| sees(*pid, &mounted.inner())));
}

async fn print_for_nobody() {
    if !Needs::Memory.is_met() || !Needs::Users.is_met() {
        return;
    }
    let function = function("printed", 163 * MIB);
    let waiting = until_some_wait(&function).await;
    // One may have made room for others.
    let prints = |pid: &&i32| fs::write(format!("/proc/{pid}/fd/1"), "before").is_ok();
    assert!(waiting.iter().filter(prints).count() > 0);
    // On a busy machine none may be ready yet.
    loop {
        let started = function.try_start().await;
        assert_eq!(&*started.log_tail, b"");
        started.result.unwrap().stop(Duration::ZERO).await;
        if started.restored {
            break;
        }
    }
}

async fn end_with_their_function() {
    if !Needs::Memory.is_met() {
        return;
    }
    let [kept, deleted] = ["kept", "deleted"].map(|name| function(name, 164 * MIB));
    let all = until_some_wait(&deleted).await;
    kept.try_start().await.result.unwrap().stop(Duration::ZERO).await;
    host().forget("deleted");
    assert!(all.iter().filter(|pid| is_running(**pid)).count() >= 3);
    host().forget("kept");
    while !waiting_with(164 * MIB).is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
