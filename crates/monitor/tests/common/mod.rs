//! Groups of the tests' own, processes in them, and monitors beside both.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{RecordBatch, StringArray};
use serde_json::{Value, json};
use uncia_cgroup::{Mounts, Version};
use uncia_monitor::{Config, Event, run};
use uncia_record::read_stream;

/// A group in the trees of CPU time and memory, and in that of version 2; removed when dropped.
pub(crate) struct Group {
    pub path: String,
    folders: Vec<PathBuf>,
}

impl Group {
    /// `None` where this user may make none.
    pub(crate) fn make(name: &str) -> Option<Self> {
        let path = format!("/uncia-monitor-test-{name}-{}", std::process::id());
        let mut folders = Vec::new();
        for (version, controllers, mount) in Mounts::read().ok()?.mounted() {
            let is_wanted = version == Version::V2
                || controllers
                    .iter()
                    .any(|it| ["cpu", "cpuacct", "pids", "blkio"].contains(&it.as_str()));
            if is_wanted {
                let folder = mount.join(&path[1..]);
                // Without the rights there is nothing to test.
                fs::create_dir(&folder).ok()?;
                folders.push(folder);
            }
        }
        (!folders.is_empty()).then_some(Self { path, folders })
    }

    pub(crate) fn pattern(&self) -> [String; 1] {
        [self.path.clone()]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// What getrusage says of a process that has ended.
#[allow(dead_code, reason = "not every test looks at all")]
pub(crate) struct Used {
    pub cpu_ns: f64,
    pub switches: f64,
}

/// Runs a Python program in a group, from its first instruction.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
pub(crate) fn child(group: &Group, program: &str) -> Used {
    let files: Vec<_> = group.folders.iter().map(|it| it.join("cgroup.procs")).collect();
    let mut command = Command::new("python3");
    command.args(["-S", "-E", "-c", program]);
    // SAFETY: it writes to files whose paths are made already; the tests' other threads hold no
    // lock that this needs, as allocation is only of small strings after a fork by glibc's leave.
    unsafe {
        command.pre_exec(move || files.iter().try_for_each(|file| fs::write(file, "0")));
    }
    let process = command.spawn().expect("python3 runs");
    let mut status = 0;
    // SAFETY: all zeros are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places live during the call, and the child is ours and not yet waited for.
    let waited =
        unsafe { libc::wait4(process.id().cast_signed(), &raw mut status, 0, &raw mut usage) };
    assert!(waited > 0 && status == 0, "the program ended with {status}");
    let ns = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
    Used {
        cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
        switches: (usage.ru_nvcsw + usage.ru_nivcsw) as f64,
    }
}

/// Whether this user may count events.
#[allow(dead_code, reason = "not every test counts events")]
pub(crate) fn events_work() -> bool {
    let (_, events) = watched(&["perf"], &[], || ());
    !events.iter().any(|event| event.contains("unsupported"))
}

/// The rows of monitors of these groups while something is done, and the events as JSON.
pub(crate) fn watched(
    monitors: &[&str],
    groups: &[String],
    meanwhile: impl FnOnce(),
) -> (Vec<Row>, Vec<String>) {
    let (rows, events, ()) = watching(monitors, groups, meanwhile);
    (rows, events)
}

/// As [`watched`], with what was done.
#[allow(dead_code, reason = "not every test looks at all")]
pub(crate) fn with_monitors<T>(
    monitors: &[&str],
    groups: &[String],
    meanwhile: impl FnOnce() -> T,
) -> (Vec<Row>, T) {
    let (rows, _, result) = watching(monitors, groups, meanwhile);
    (rows, result)
}

#[allow(dead_code, reason = "not every test looks at all")]
pub(crate) fn watching<T>(
    monitors: &[&str],
    groups: &[String],
    meanwhile: impl FnOnce() -> T,
) -> (Vec<Row>, Vec<String>, T) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("machine.arrows");
    let monitors: Vec<_> =
        monitors.iter().map(|it| json!({"monitor": it, "interval_ns": 20_000_000})).collect();
    let config = json!({"out": out, "epoch_unix_ns": 0, "groups": groups, "monitors": monitors});
    let config = Config::from_json(&config.to_string()).unwrap();
    let (stop, stopped) = mpsc::channel();
    let (started, is_started) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut events = Vec::new();
        let result = run(&config, &stopped, &mut |event| {
            let text = json!(event).to_string();
            if text.contains("\"started\"") {
                started.send(()).unwrap();
            }
            events.push(text);
        });
        result.map(|()| events)
    });
    is_started.recv().unwrap();
    let result = meanwhile();
    drop(stop);
    let events = thread.join().unwrap().unwrap();
    (read_rows(&out), events, result)
}

/// Watches with these monitors for a time; gives the rows, and the events' sentences.
#[allow(dead_code, reason = "other tests watch until something is done")]
pub(crate) fn watch(monitors: Value, ms: i64) -> (Vec<Row>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("rows.arrows");
    let config = json!({
        "out": out, "epoch_unix_ns": 0, "duration_ns": ms * 1_000_000, "monitors": monitors,
    });
    let config = Config::from_json(&config.to_string()).unwrap();
    let (_stop, stopped) = mpsc::channel();
    let mut sentences = Vec::new();
    run(&config, &stopped, &mut |event| match event {
        Event::Warning { message, .. } | Event::Unsupported { message, .. } => {
            sentences.push(message.clone());
        }
        _ => {}
    })
    .unwrap();
    (read_rows(&out), sentences)
}

/// The sum of a counter's values.
pub(crate) fn sum(rows: &[Row], counter: &str, group: Option<&str>) -> f64 {
    let of = rows.iter().filter(|it| it.counter == counter && it.cgroup.as_deref() == group);
    of.map(|it| it.value).sum()
}

/// A row of the table `machine`, as far as tests look at it.
#[allow(dead_code, reason = "not every test looks at all")]
pub(crate) struct Row {
    pub time: i64,
    pub counter: String,
    pub cgroup: Option<String>,
    pub value: f64,
}

pub(crate) fn read_rows(path: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    let add = |batch| {
        rows.extend(rows_of(&batch));
        Ok(())
    };
    read_stream(path, add).unwrap();
    rows
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let text = |name: &str, row: usize| {
        let words = column(name).as_dictionary::<Int32Type>();
        let words = words.downcast_dict::<StringArray>().unwrap();
        let mut values = words.into_iter().skip(row);
        values.next().flatten().map(str::to_owned)
    };
    let (times, values) =
        (column("time").as_primitive::<Int64Type>(), column("value").as_primitive::<Float64Type>());
    let row = |row| Row {
        time: times.value(row),
        counter: text("counter", row).unwrap(),
        cgroup: text("cgroup", row),
        value: values.value(row),
    };
    (0..batch.num_rows()).map(row).collect()
}
