//! Performance events of a group, against known facts. Needs root and groups.

mod common;

use common::{Group, child, events_work, sum, with_monitors};

/// Pages touched, beside which what one start of the interpreter takes more than another is little; and sleeps.
const PAGES: f64 = 40_000.0;
const SLEEPS: f64 = 300.0;

/// What a program counts of an event beyond an empty one.
fn beyond_empty(counter: &str, program: &str) -> Option<f64> {
    let group = Group::make("perf").filter(|_| events_work())?;
    let mut counts = ["pass", program].map(|program| {
        let (rows, _) = with_monitors(&["perf"], &group.pattern(), || child(&group, program));
        sum(&rows, counter, Some(&group.path))
    });
    assert!(counts[0] > 0.0, "an empty program has some, too");
    counts[1] -= counts[0];
    Some(counts[1])
}

#[test]
fn page_faults_are_those_of_the_pages_touched() {
    let program = "import mmap\nm = mmap.mmap(-1, 40000 * 4096)\nm.madvise(15)\n\
                   for i in range(40000): m[i * 4096] = 1\n";
    let Some(faults) = beyond_empty("perf.minor_faults_count", program) else { return };
    assert!((PAGES * 0.99..PAGES * 1.01).contains(&faults), "{faults} for {PAGES} pages");
}

#[test]
fn context_switches_are_those_that_the_kernel_accounts() {
    let Some(group) = Group::make("switches").filter(|_| events_work()) else { return };
    let program = "import time\nfor i in range(300): time.sleep(0.0005)\n";
    let (rows, used) = with_monitors(&["perf"], &group.pattern(), || child(&group, program));
    let counted = sum(&rows, "perf.context_switches_count", Some(&group.path));
    assert!(counted >= SLEEPS, "{counted}");
    // Where processes are slow, some are before it has joined the group.
    let bound = 2.0 + used.switches / 100.0;
    assert!((counted - used.switches).abs() <= bound, "{counted}, {} by getrusage", used.switches);
    let clock = sum(&rows, "perf.task_clock_ns", Some(&group.path));
    assert!((clock - used.cpu_ns).abs() / used.cpu_ns < 0.25, "{clock} ns, {}", used.cpu_ns);
}
