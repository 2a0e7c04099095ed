//! The monitor of the scheduler, of a group whose CPU time is known. Needs root, the tree of version 2, and
//! `uncia-bpf`, which `UNCIA_BPF` names.

mod common;

use common::{Group, child, sum, watching};

#[test]
fn threads_that_run_are_those_whose_cpu_time_the_kernel_accounts() {
    let Some(group) = Group::make("schedule") else { return };
    let spin = "import time\nwhile time.process_time() < 0.6: pass\n";
    let (rows, events, used) = watching(&["schedule"], &group.pattern(), || child(&group, spin));
    if events.iter().any(|event| event.contains("unsupported")) {
        assert!(!rows.iter().any(|row| row.counter.starts_with("schedule.")));
        return;
    }
    let of = |counter: &str| sum(&rows, counter, Some(&group.path));
    let counted = of("schedule.cpu_ns");
    let apart = (counted - used.cpu_ns).abs() / used.cpu_ns;
    assert!(apart < 0.03, "{counted} ns counted, {} ns by getrusage", used.cpu_ns);
    assert!(of("schedule.involuntary_switches_count") <= used.switches + 2.0);
    let is_bin = |it: &&common::Row| it.counter.starts_with("schedule.wait_within_");
    let bins = rows.iter().filter(|it| it.cgroup.as_deref() == Some(&group.path)).filter(is_bin);
    assert_eq!(bins.map(|it| it.value).sum::<f64>(), of("schedule.wait_count"));
    assert!(sum(&rows, "schedule.cpu_ns", None) >= counted);
    assert!(sum(&rows, "monitor.cpu_ns", None) > 0.0);
}
