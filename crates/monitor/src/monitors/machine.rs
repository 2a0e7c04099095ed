//! How busy the machine is, and with what: steal, other programs, pressure, load, interrupts.

use std::collections::HashMap;
use std::fs;

use super::Monitor;
use crate::samples::{Counters, Samples};

const NS_PER_US: i64 = 1_000;
/// The kernel counts CPU time in ticks of 10 ms: below this, shares of it are too coarse.
const SHORTEST_NS: i64 = 200_000_000;
/// A sample that comes early for the one before, which came late, is no reason to leave one out.
const SLACK_NS: i64 = SHORTEST_NS / 4;
const PRESSURE: [(&str, &str); 3] = [
    ("cpu", "pressure.cpu_percent"),
    ("memory", "pressure.memory_percent"),
    ("io", "pressure.io_percent"),
];
const COUNTS: [(&str, &str); 3] = [
    ("intr", "machine.interrupts_count"),
    ("ctxt", "machine.context_switches_count"),
    ("processes", "machine.forks_count"),
];

/// Reads /proc.
pub(super) struct Machine {
    ours: Vec<i32>,
    before: Option<Reading>,
    counters: Counters,
}

/// CPU time in ticks since boot, and us in which some task waited.
struct Reading {
    at: i64,
    busy: i64,
    idle: i64,
    iowait: i64,
    steal: i64,
    ours: i64,
    pressure: [Option<i64>; 3],
}

impl Machine {
    pub(super) fn new(ours: &[i32]) -> Result<Self, String> {
        let mut ours = ours.to_vec();
        ours.push(std::process::id().cast_signed());
        let mut made = Self { ours, before: None, counters: Counters::default() };
        made.read(0).map(|_| made).ok_or_else(|| "there is no readable /proc/stat".to_owned())
    }

    fn read(&mut self, at: i64) -> Option<Reading> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let [user, nice, system, idle, iowait, irq, softirq, steal] = times(&text)?;
        let pressure = PRESSURE.map(|(resource, _)| {
            let text = fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
            super::pressure::total(&text, "some")
        });
        let busy = user + nice + system + irq + softirq;
        let ours = tree_ticks(&self.ours);
        Some(Reading { at, busy, idle, iowait, steal, ours, pressure })
    }
}

impl Monitor for Machine {
    fn shortest_ns(&self) -> i64 {
        SHORTEST_NS
    }

    fn sample(&mut self, samples: &mut Samples) {
        let is_short = self
            .before
            .as_ref()
            .is_some_and(|before| samples.now - before.at < SHORTEST_NS - SLACK_NS);
        if is_short {
            return;
        }
        let Some(after) = self.read(samples.now) else { return };
        if let Some(before) = &self.before {
            add_shares(before, &after, samples);
        }
        self.before = Some(after);
        if let Ok(text) = fs::read_to_string("/proc/stat") {
            for (key, counter) in COUNTS {
                let value = text.lines().find_map(|line| {
                    line.strip_prefix(key)?.strip_prefix(' ')?.split(' ').next()?.parse().ok()
                });
                let grown = self.counters.grown(counter, value, samples.now);
                samples.growth(None, counter, grown);
            }
        }
    }
}

fn add_shares(before: &Reading, after: &Reading, samples: &mut Samples) {
    let busy = after.busy - before.busy;
    let steal = after.steal - before.steal;
    let iowait = after.iowait - before.iowait;
    let total = busy + steal + iowait + after.idle - before.idle;
    // The kernel samples the busy time of CPUs at ticks and counts that of processes exactly, so
    // the difference of the two may come out slightly below zero.
    let others = (busy - (after.ours - before.ours).max(0)).max(0);
    let ticks = [
        ("cpu.steal_percent", steal),
        ("cpu.background_percent", others),
        ("cpu.busy_percent", busy),
        ("cpu.iowait_percent", iowait.max(0)),
    ];
    for (counter, ticks) in ticks {
        let share = (total > 0).then(|| 100.0 * ticks as f64 / total as f64);
        samples.level(None, counter, share);
    }
    let ns = (after.at - before.at) as f64;
    for (index, (_, counter)) in PRESSURE.into_iter().enumerate() {
        let waited = before.pressure[index].zip(after.pressure[index]);
        // What is read a moment after the clock was counted for a moment longer.
        let share =
            waited.map(|(from, to)| (((to - from) * NS_PER_US) as f64 / ns * 100.0).min(100.0));
        samples.level(None, counter, share);
    }
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split(' ').next()?.parse().ok());
    samples.level(None, "load.1m", load);
    let memory = fs::read_to_string("/proc/meminfo").ok();
    let available = memory.as_deref().and_then(available);
    samples.level(None, "memory.available_bytes", available.map(|it| it as f64));
}

/// Memory that programs could still have, in bytes.
fn available(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_ascii_whitespace().next()?.parse::<i64>().ok()?.checked_mul(1_024)
}

/// The times of all CPUs together; what an old kernel does not have is 0. Guest time is within user
/// time.
fn times(text: &str) -> Option<[i64; 8]> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut times = [0; 8];
    for (time, field) in times.iter_mut().zip(line.split_ascii_whitespace()) {
        *time = field.parse().ok()?;
    }
    Some(times)
}

/// CPU time in ticks of processes and all their descendants, those that ended and were waited for
/// included.
fn tree_ticks(roots: &[i32]) -> i64 {
    let mut processes: HashMap<i32, (i32, i64)> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let text = fs::read_to_string(entry.path().join("stat")).ok();
        // Without one, it ended meanwhile.
        if let Some(process) = text.as_deref().and_then(process) {
            processes.insert(pid, process);
        }
    }
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, (parent, _)) in &processes {
        children.entry(*parent).or_default().push(*pid);
    }
    let (mut total, mut waiting) = (0, roots.to_vec());
    let mut visited = std::collections::HashSet::new();
    while let Some(pid) = waiting.pop() {
        if visited.insert(pid) {
            total += processes.get(&pid).map_or(0, |(_, ticks)| *ticks);
            waiting.extend(children.get(&pid).into_iter().flatten());
        }
    }
    total
}

/// The parent of a process, and its CPU time in ticks with that of children it waited for. The name, in
/// parentheses, may itself hold spaces and parentheses.
fn process(stat: &str) -> Option<(i32, i64)> {
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks =
        fields.get(11..15)?.iter().map(|field| field.parse::<i64>().ok()).sum::<Option<_>>()?;
    Some((fields.get(1)?.parse().ok()?, ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_as_the_kernel_writes_them() {
        let text = "cpu  100 20 30 4000 50 6 7 80 90 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(times(text), Some([100, 20, 30, 4000, 50, 6, 7, 80]));
        assert_eq!(times("cpu  1 2 3 4\n"), Some([1, 2, 3, 4, 0, 0, 0, 0]), "an old kernel");
        assert_eq!(times("intr 1\n"), None);
        let zeros = ["0"; 9].join(" ");
        assert_eq!(process(&format!("7 (a) S 1 (b) S 3 {zeros} 1 2 4 8 0")), Some((3, 15)));
        assert_eq!(process("7 (a"), None);
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:  2 kB\n"), Some(2_048));
    }

    #[test]
    fn shares_are_of_all_cpu_time() {
        let reading = |at, busy, idle, steal, iowait, ours, cpu| Reading {
            at,
            busy,
            idle,
            iowait,
            steal,
            ours,
            pressure: [Some(cpu), None, None],
        };
        let before = reading(0, 100, 1_000, 5, 7, 40, 1_000_000);
        let after = reading(2_000_000_000, 200, 1_080, 15, 17, 100, 1_500_000);
        let mut samples = Samples::default();
        add_shares(&before, &after, &mut samples);
        let value =
            |name: &str| samples.rows.iter().find(|row| *row.counter == *name).map(|row| row.value);
        assert_eq!(value("cpu.busy_percent"), Some(50.0));
        assert_eq!(value("cpu.background_percent"), Some(20.0));
        assert_eq!(value("cpu.steal_percent"), Some(5.0));
        assert_eq!(value("cpu.iowait_percent"), Some(5.0));
        assert_eq!(value("pressure.cpu_percent"), Some(25.0));
        assert_eq!(value("pressure.io_percent"), None);
        // A total that was read later than the clock.
        let late = reading(2_000_000_000, 200, 1_080, 15, 17, 100, 3_010_000);
        let mut samples = Samples::default();
        add_shares(&before, &late, &mut samples);
        let pressure = samples.rows.iter().find(|row| *row.counter == *"pressure.cpu_percent");
        assert_eq!(pressure.map(|row| row.value), Some(100.0));
    }
}
