//! Groups in plain folders, and a real one.

use super::*;
use crate::Bandwidth;
use crate::own_name;

const FILES: [&str; 18] = [
    "cpu.shares",
    "cpu.weight",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.swappiness",
    "memory.kmem.tcp.limit_in_bytes",
    "memory.max",
    "memory.swap.max",
    "pids.max",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "cpu.cfs_burst_us",
    "cpu.max",
    "cpu.max.burst",
    "freezer.state",
    "cgroup.freeze",
    "cgroup.events",
    "cgroup.procs",
];

fn limits() -> Limits {
    Limits { memory_bytes: 134_217_728, pids_max: 64, cpu_micro: 72_357, period_us: 20_000 }
}

fn bandwidth() -> Bandwidth {
    Bandwidth { period: 20_000_000, quota: 1_450_000, burst: 0 }
}

fn layout(version: Version, top: &Path) -> Layout {
    let parents = Controller::ALL
        .into_iter()
        .map(|it| {
            let folder = match version {
                Version::V1 => top.join(it.name()),
                Version::V2 => top.to_owned(),
            };
            fs::create_dir_all(&folder).unwrap();
            (it, folder)
        })
        .collect();
    let available = Controller::ALL.to_vec();
    Layout { version, parents, unified: None, available, obstacle: None }
}

/// A group of plain folders, with the files that the kernel would have made, but empty.
fn group(version: Version, top: &Path) -> Group {
    let group = Group::unlimited(&layout(version, top), "a").unwrap();
    for folder in group.unique() {
        for file in FILES {
            fs::write(folder.join(file), "").unwrap();
        }
    }
    group
}

#[test]
fn version_2_is_one_folder_with_its_own_words() {
    let top = tempfile::tempdir().unwrap();
    let group = group(Version::V2, top.path());
    let folder = top.path().join("a");
    assert_eq!(group.folder_to_begin_in(), Some(folder.clone()));
    let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    group.limit(&limits()).unwrap();
    assert_eq!(text("memory.max"), "134217728");
    assert_eq!(text("memory.swap.max"), "0");
    assert_eq!(text("pids.max"), "64");
    assert_eq!(text("cpu.max"), "", "initialization is not throttled");
    group.set_quota(&limits()).unwrap();
    assert_eq!(text("cpu.max"), "1447 20000");
    assert_eq!(group.join_files(), [folder.join("cgroup.procs")]);
    assert_eq!(group.thaw_file().unwrap(), (folder.join("cgroup.freeze"), "0".into()));
    // The files of a control group go with it; those of a plain folder do not, and show what was
    // written before: what is frozen does not end.
    let error = group.remove().unwrap_err().to_string();
    assert!(error.contains("cannot remove the control group"), "{error}");
    assert_eq!(text("cgroup.freeze"), "0");
}

#[test]
fn version_1_has_a_folder_for_each_controller() {
    let top = tempfile::tempdir().unwrap();
    let group = group(Version::V1, top.path());
    group.limit(&limits()).unwrap();
    group.set_quota(&limits()).unwrap();
    let text = |file: &str| fs::read_to_string(top.path().join(file)).unwrap();
    assert_eq!(text("memory/a/memory.limit_in_bytes"), "134217728");
    assert_eq!(text("memory/a/memory.memsw.limit_in_bytes"), "134217728");
    assert_eq!(text("memory/a/memory.kmem.tcp.limit_in_bytes"), "33554432");
    assert_eq!(text("cpu/a/cpu.cfs_period_us"), "20000");
    assert_eq!(text("cpu/a/cpu.cfs_quota_us"), "1447");
    assert_eq!(group.join_files().len(), 5);
    assert!(group.join_files().iter().all(|path| path.ends_with("a/tasks")));
}

#[test]
fn a_group_may_have_no_quota() {
    let limits = Limits { cpu_micro: Limits::NO_QUOTA, ..limits() };
    for (version, file, text) in
        [(Version::V1, "cpu/a/cpu.cfs_quota_us", "-1"), (Version::V2, "a/cpu.max", "max")]
    {
        let top = tempfile::tempdir().unwrap();
        group(version, top.path()).set_quota(&limits).unwrap();
        assert_eq!(fs::read_to_string(top.path().join(file)).unwrap(), text);
    }
    assert!(limits.scaled_down().cpu_micro <= 10_000, "idle, it has one");
}

#[test]
fn version_1_may_have_a_folder_of_version_2_beside() {
    let top = tempfile::tempdir().unwrap();
    let unified = top.path().join("unified");
    fs::create_dir(&unified).unwrap();
    let layout = layout(Version::V1, top.path());
    let layout = Layout { unified: Some(unified.clone()), ..layout };
    let group = Group::unlimited(&layout, "a").unwrap();
    assert_eq!(group.folder_to_begin_in(), Some(unified.join("a")));
    let files = group.join_files();
    assert_eq!(files.last(), Some(&unified.join("a/cgroup.procs")));
    assert!(files[..files.len() - 1].iter().all(|file| file.ends_with("a/tasks")));
    group.remove().unwrap();
    assert!(!unified.join("a").exists());
    // What was made before it goes with it.
    fs::create_dir(unified.join("b")).unwrap();
    Group::unlimited(&layout, "b").unwrap_err();
    assert!(!top.path().join("cpu/b").exists());
}

#[test]
fn a_bandwidth_is_what_the_group_gets() {
    let top = tempfile::tempdir().unwrap();
    let group = group(Version::V1, top.path());
    group.set_bandwidth(&Bandwidth { burst: 1_000_000, ..bandwidth() }).unwrap();
    let folder = top.path().join("cpu/a");
    let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    assert_eq!(
        (text("cpu.cfs_period_us"), text("cpu.cfs_quota_us")),
        ("20000".into(), "1450".into())
    );
    assert_eq!(text("cpu.cfs_burst_us"), "1000");
    fs::remove_file(folder.join("cpu.cfs_burst_us")).unwrap();
    group.set_bandwidth(&bandwidth()).unwrap();
    let burst = group.set_bandwidth(&Bandwidth { burst: 1_000_000, ..bandwidth() });
    assert!(matches!(burst, Err(Error::NoBurst(_))));
    fs::remove_file(folder.join("cpu.cfs_quota_us")).unwrap();
    let none = group.set_bandwidth(&bandwidth());
    assert!(matches!(none, Err(Error::NoBandwidthControl(_))));
}

#[test]
fn a_group_may_have_a_part_of_what_others_have() {
    for (version, file, [whole, thousandth, least]) in [
        (Version::V1, "cpu/a/cpu.shares", ["262144", "262", "2"]),
        (Version::V2, "a/cpu.weight", ["10000", "10", "1"]),
    ] {
        let top = tempfile::tempdir().unwrap();
        let group = group(version, top.path());
        let weights = [(1000, thousandth), (1, whole), (0, whole), (u64::MAX, least)];
        for (parts, weight) in weights {
            group.set_cpu_part(parts).unwrap();
            assert_eq!(fs::read_to_string(top.path().join(file)).unwrap(), weight);
        }
    }
}

#[test]
fn a_group_above_with_less_is_named() {
    let top = tempfile::tempdir().unwrap();
    let group = group(Version::V2, top.path());
    fs::write(top.path().join("cpu.max"), "1000 20000\n").unwrap();
    let error = group.set_bandwidth(&bandwidth()).unwrap_err().to_string();
    assert!(error.contains("1000 us in 20000 us") && error.contains("lower"), "{error}");
    fs::write(top.path().join("cpu.max"), "max 20000\n").unwrap();
    group.set_bandwidth(&bandwidth()).unwrap();
    assert_eq!(fs::read_to_string(top.path().join("a/cpu.max")).unwrap(), "1450 20000");
}

#[tokio::test]
async fn version_2_freezes_when_the_kernel_says_so() {
    let top = tempfile::tempdir().unwrap();
    let group = group(Version::V2, top.path());
    fs::write(top.path().join("a/cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
    group.freeze().await.unwrap();
    assert_eq!(fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap(), "1");
    group.thaw().unwrap();
    assert_eq!(fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap(), "0");
}

#[tokio::test]
async fn what_does_not_freeze_is_thawed_and_named() {
    let top = tempfile::tempdir().unwrap();
    let group = group(Version::V2, top.path());
    fs::write(top.path().join("a/cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    let error = group.freeze().await.unwrap_err();
    assert!(matches!(error, Error::Unfreezable(_)));
    assert_eq!(fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap(), "0");
}

#[tokio::test]
async fn what_could_not_be_looked_at_is_thawed() {
    let top = tempfile::tempdir().unwrap();
    let group = group(Version::V2, top.path());
    // As without a descriptor for it.
    let _ = fs::remove_file(top.path().join("a/cgroup.events"));
    assert!(group.freeze().await.is_err());
    assert_eq!(fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap(), "0");
}

#[tokio::test]
async fn thawing_opens_nothing() {
    let top = tempfile::tempdir().unwrap();
    let group = group(Version::V2, top.path());
    fs::write(top.path().join("a/cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
    group.freeze().await.unwrap();
    let (path, kept) = (top.path().join("a/cgroup.freeze"), top.path().join("kept"));
    fs::rename(&path, &kept).unwrap();
    group.thaw().unwrap();
    assert_eq!(fs::read_to_string(&kept).unwrap(), "0");
}

#[tokio::test]
async fn a_group_runs_when_there_is_no_reason_left_not_to() {
    let top = tempfile::tempdir().unwrap();
    let group = group(Version::V2, top.path());
    fs::write(top.path().join("a/cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
    let frozen = || fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap() == "1";
    group.hold().unwrap();
    assert!(frozen());
    group.freeze().await.unwrap();
    group.let_go().unwrap();
    assert!(frozen(), "it is paused");
    group.hold().unwrap();
    group.thaw().unwrap();
    assert!(frozen(), "it is held");
    group.let_go().unwrap();
    assert!(!frozen());
    group.hold().unwrap();
    group.release().unwrap();
    group.hold().unwrap();
    assert!(!frozen(), "it is ending");
    assert!(matches!(group.freeze().await, Err(Error::Ending)));
}

#[test]
fn a_period_that_the_kernel_refuses_is_refused_before_anything_is_made() {
    let top = tempfile::tempdir().unwrap();
    let layout = layout(Version::V2, top.path());
    let limits = Limits { period_us: 999, ..limits() };
    let error = Group::create(&layout, "a", &limits).unwrap_err();
    assert!(error.to_string().contains("999 us"));
    assert!(!top.path().join("a").exists());
}

#[test]
fn a_group_of_the_same_name_is_not_taken_for_ones_own() {
    let top = tempfile::tempdir().unwrap();
    let layout = layout(Version::V1, top.path());
    let other = top.path().join("freezer/a");
    fs::create_dir(&other).unwrap();
    let error = Group::unlimited(&layout, "a").unwrap_err();
    assert!(matches!(error, Error::Make(folder, _) if folder == other));
    assert!(other.exists() && !top.path().join("cpu/a").exists());
}

#[tokio::test]
async fn a_real_group_is_limited_frozen_and_removed() {
    let layout = Mounts::read().unwrap().discover(&own_name(), &Controller::ALL, false);
    let Some(layout) = layout.filter(|it| Controller::ALL.iter().all(|one| it.has(*one))) else {
        eprintln!("not run: no control groups that this process may make");
        return;
    };
    let group = Group::create(&layout, "a", &limits()).unwrap();
    group.set_quota(&limits()).unwrap();
    group.set_bandwidth(&bandwidth()).unwrap();
    group.set_cpu_part(1).unwrap();
    group.set_cpu_part(u64::MAX).unwrap();
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    for file in group.join_files() {
        write(&file, &child.id().to_string()).unwrap();
    }
    assert_eq!(group.leader(), i32::try_from(child.id()).ok());
    group.freeze().await.unwrap();
    let readings = group.counters().read_all();
    assert!(readings.cpu.is_some() && readings.throttling.is_some(), "{readings:?}");
    assert!(readings.memory.is_some() && readings.oom_kills == Some(0), "{readings:?}");
    assert_eq!(group.counters().threads(), Some(1));
    let folders: Vec<_> = group.unique().map(Path::to_owned).collect();
    drop(group);
    assert!(folders.iter().all(|folder| !folder.exists()));
    child.wait().unwrap();
    layout.remove().unwrap();
    assert!(layout.folders().iter().all(|folder| !folder.exists()));
}
