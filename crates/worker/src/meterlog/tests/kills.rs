//! Ends without notice: copied files, killed processes, a full disk.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::journal::{files, kill};
use super::*;

#[derive(Debug, Clone)]
enum Step {
    Accept,
    /// An attempt of one of the events that wait: which, and what becomes of it.
    Attempt(usize, u8),
    Invoke,
    Delete(usize),
    Start,
    End(usize),
    /// The worker is gone, and another one opens what it left.
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Accept),
        4 => (any::<usize>(), 0..3_u8).prop_map(|(which, how)| Step::Attempt(which, how)),
        3 => Just(Step::Invoke),
        1 => any::<usize>().prop_map(Step::Delete),
        2 => Just(Step::Start),
        1 => any::<usize>().prop_map(Step::End),
        2 => Just(Step::Kill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_is_lost_and_nothing_twice(steps in prop::collection::vec(step(), 1..60)) {
        let mut folder = tempfile::tempdir().unwrap();
        let mut log = open_with_short_files(folder.path());
        let mut events: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        let mut invocations = Vec::new();
        let mut instances: BTreeMap<String, bool> = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            let name = format!("n{number}");
            match step {
                Step::Accept => {
                    events.insert(accept(&log, event(&name)), (0, 0));
                }
                Step::Attempt(which, how) if !events.is_empty() => {
                    let index = which % events.len();
                    let (&id, progress) = events.iter_mut().nth(index).unwrap();
                    progress.0 += 1;
                    let (attempt, failures) = *progress;
                    let update = match how {
                        0 => EventUpdate::Done { id },
                        1 => {
                            progress.1 += 1;
                            EventUpdate::Failed { id, attempt, failures: failures + 1 }
                        }
                        _ => EventUpdate::Attempted { id, attempt },
                    };
                    if how == 0 {
                        events.remove(&id);
                    }
                    record(&log, Recorded { event: Some(update), ..invocation(&name) }).unwrap();
                    invocations.push(name);
                }
                Step::Invoke => {
                    record(&log, invocation(&name)).unwrap();
                    invocations.push(name);
                }
                Step::Delete(which) if !events.is_empty() => {
                    let id = *events.keys().nth(which % events.len()).unwrap();
                    events.remove(&id);
                    log.drop_events(vec![id]);
                }
                Step::Start => {
                    log.instance(instance(&name));
                    instances.insert(name, true);
                }
                Step::End(which) if !instances.is_empty() => {
                    let index = which % instances.len();
                    let (name, lives) = instances.iter_mut().nth(index).unwrap();
                    if *lives {
                        log.instance(ended(name));
                    }
                    *lives = false;
                }
                Step::Kill => {
                    folder = kill(folder.path());
                    log = open_with_short_files(folder.path());
                    for lives in instances.values_mut() {
                        *lives = false;
                    }
                }
                _ => {}
            }
        }
        barrier(&log);
        let left = log.left_events().unwrap();
        let left: BTreeMap<_, _> =
            left.iter().map(|it| (it.id, (it.attempt, it.failures))).collect();
        prop_assert_eq!(left, events);
        prop_assert_eq!(names(folder.path()), invocations);
        let rows = reader(folder.path()).instances(&Query::default()).unwrap().rows;
        let rows: BTreeMap<_, _> =
            rows.iter().map(|row| (row.instance.to_string(), row.ended.is_none())).collect();
        prop_assert_eq!(rows, instances);
    }
}

/// Set for the process that is to be killed: the state folder it writes to.
const CHILD: &str = "UNCIA_TEST_LOG";

/// Accepts events, runs most of them, and tells what is certain on its standard error, until it is
/// killed. Does nothing as a test of its own.
#[test]
fn write_until_killed() {
    let Some(state) = std::env::var_os(CHILD) else { return };
    let log = open_with_short_files(Path::new(&state));
    let mut file = files(Path::new(&state)).pop();
    let id = std::process::id();
    log.instance(instance(&format!("instance-{id}")));
    for number in 0.. {
        let name = format!("{id}-{number}");
        let event = accept(&log, event(&name));
        let mut line = format!("accepted {event}\n");
        if number % 3 != 0 {
            let done = Some(EventUpdate::Done { id: event });
            let idle = Some(idle(&format!("instance-{id}"), number));
            record(&log, Recorded { event: done, idle, ..invocation(&name) }).unwrap();
            line += &format!("done {event} {name}\n");
        }
        let newest = files(Path::new(&state)).pop();
        if newest != file {
            line += "rolled\n";
            file = newest;
        }
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn killed_processes_keep_their_word() {
    let folder = tempfile::tempdir().unwrap();
    let (mut accepted, mut done, mut answered) = (HashSet::new(), HashSet::new(), Vec::new());
    let mut rolls = 0;
    for round in 0..10 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "meterlog::tests::kills::write_until_killed", "--nocapture"])
            .env(CHILD, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut take = |line: String| {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["rolled"] => rolls += 1,
                ["accepted", id] => drop(accepted.insert(id.parse::<i64>().unwrap())),
                ["done", id, name] => {
                    done.insert(id.parse::<i64>().unwrap());
                    answered.push(name.to_owned());
                }
                _ => panic!("{line}"),
            }
        };
        for line in lines.by_ref().take(20 + 37 * round) {
            take(line.unwrap());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        lines.map_while(Result::ok).for_each(take);
        let log = open(folder.path());
        let left: HashSet<i64> = log.left_events().unwrap().iter().map(|it| it.id).collect();
        assert!(left.is_disjoint(&done), "what is done is shown again");
        let lost: Vec<_> =
            accepted.iter().filter(|id| !done.contains(id) && !left.contains(id)).collect();
        assert!(lost.is_empty(), "{lost:?}");
        let names = names(folder.path());
        let unique: HashSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "a row is there twice");
        assert!(answered.iter().all(|name| unique.contains(name)), "an answer is not there");
        let instances = reader(folder.path()).instances(&Query::default()).unwrap().rows;
        assert!(instances.iter().all(|row| row.end_reason.as_deref() == Some("crash")));
        log.close();
    }
    assert!(rolls > 20, "{rolls} files: what happens at their ends is not tested");
}

/// A small file system of its own.
pub(super) struct SmallDisk(pub tempfile::TempDir);

impl SmallDisk {
    pub(super) fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let flags = nix::mount::MsFlags::empty();
        let (kind, size) = (Some("tmpfs"), Some("size=2m"));
        nix::mount::mount(kind, folder.path(), kind, flags, size).ok().map(|()| Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, should something still be open in it.
        let _ = nix::mount::umount2(self.0.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_disk_loses_nothing_that_was_promised() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: a small file system takes the right to mount");
        return;
    };
    let state = disk.0.path();
    let log = open(state);
    accept(&log, event("kept"));
    record(&log, invocation("before")).unwrap();
    barrier(&log);
    let filler = state.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    let big = || Bytes::from(vec![b' '; 200_000]);
    let refused = block_on(log.accept(AcceptedEvent { payload: big(), ..event("refused") }, None));
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("meter.sqlite"), "{message}");
    // Nobody waits for these; they are written when there is room.
    let began = Instant::now();
    let mut written = Vec::new();
    let mut full = false;
    while !full {
        let name = format!("i{}", written.len());
        log.instance(instance(&name));
        written.push(name);
        full = block_on(log.barrier()).unwrap() > 0;
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    // What nobody waits for keeps nobody from reading, and what is there is whole.
    assert_eq!(names(state), ["before"]);
    // It stays in its order, though there is room for others meanwhile.
    log.instance(ended("i0"));
    assert_eq!(block_on(log.barrier()), Ok(2));
    fs::remove_file(&filler).unwrap();
    record(&log, invocation("after")).unwrap();
    barrier(&log);
    accept(&log, AcceptedEvent { payload: big(), ..event("taken") });
    let log_reader = reader(state);
    let instances = all(1_000, |query| log_reader.instances(query));
    written.rotate_left(1);
    assert!(instances.iter().map(|row| row.instance.to_string()).eq(written));
    assert!(instances.last().unwrap().ended.is_some());
    let left = log.left_events().unwrap();
    assert_eq!(left.iter().map(|it| &it.invocation).collect::<Vec<_>>(), ["kept", "taken"]);
    log.close();
    assert_eq!(names(state), ["before", "after"]);
}
