//! Monitors of real control groups, against what the kernel says otherwise. Needs root and groups.

mod common;

use common::{Group, child, sum, watched, with_monitors};

#[test]
fn cpu_time_of_a_group_is_that_of_its_process() {
    let Some(group) = Group::make("cpu") else { return };
    // What the process used before it joined, and its end, are not in both: of a slow processor, more.
    let spin = "import time\nend = max(0.6, 4 * time.process_time())\nwhile time.process_time() < end: pass\n";
    let (rows, used) = with_monitors(&["cgroup"], &group.pattern(), || child(&group, spin));
    let counted = sum(&rows, "cgroup.cpu_ns", Some(&group.path));
    let apart = (counted - used.cpu_ns).abs() / used.cpu_ns;
    assert!(apart < 0.01, "{counted} ns counted, {} ns by getrusage", used.cpu_ns);
    let costs = rows.iter().filter(|row| row.counter == "monitor.cpu_ns");
    assert!(costs.map(|row| row.value).sum::<f64>() > 0.0);
}

#[test]
fn a_group_that_vanishes_ends_its_rows_and_no_others() {
    let Some(group) = Group::make("gone") else { return };
    let path = group.path.clone();
    let other = Group::make("stays").unwrap();
    let groups = [path.clone(), other.path.clone()];
    let (rows, events) = watched(&["cgroup", "pressure"], &groups, || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(group);
        std::thread::sleep(std::time::Duration::from_millis(150));
    });
    let last = |path: &str| {
        let of = rows.iter().filter(|row| row.cgroup.as_deref() == Some(path));
        of.map(|row| row.time).max().unwrap()
    };
    assert!(last(&other.path) - last(&path) > 100_000_000);
    let told = events.iter().filter(|event| event.contains("is gone")).count();
    assert!(told >= 1, "{events:?}");
}
