//! What this process uses, as the kernel says it.

use std::fs;

use super::exposition::{Exposition, Kind, Seconds};

/// Clock ticks a second in `/proc`, on every architecture of today.
const TICKS_PER_S: u128 = 100;
const NS_PER_S: u128 = 1_000_000_000;

/// Puts the metrics of the process; what the kernel does not say is left out.
pub(super) fn put(text: &mut Exposition) {
    let cpu = u128::try_from(uncia_clock::process_cpu_ns()).unwrap_or(0);
    text.family(
        "process_cpu_seconds_total",
        Kind::Counter,
        "CPU time of the platform itself, without its instances.",
    );
    text.sample(&[], Seconds(cpu));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = [
        ("process_resident_memory_bytes", "Resident memory of the platform itself.", "VmRSS:"),
        ("process_virtual_memory_bytes", "Virtual memory of the platform itself.", "VmSize:"),
    ];
    for (name, help, key) in memory {
        gauge(text, name, help, field(&status, key).map(|kib| kib * 1024));
    }
    let threads = field(&status, "Threads:");
    gauge(text, "process_threads", "Threads of the platform itself.", threads);
    let open = fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64);
    gauge(text, "process_open_fds", "Open files of the platform itself.", open);
    let limit = uncia_process::descriptors::limit();
    gauge(text, "process_max_fds", "Files that it may have open.", limit);
    if let Some(started) = started_ns() {
        let help = "When it started, Unix time.";
        text.family("process_start_time_seconds", Kind::Gauge, help);
        text.sample(&[], Seconds(started));
    }
}

fn gauge(text: &mut Exposition, name: &'static str, help: &str, value: Option<u64>) {
    if let Some(value) = value {
        text.family(name, Kind::Gauge, help);
        text.sample(&[], value);
    }
}

/// The number behind a key.
fn field(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// When this process started, in Unix ns.
fn started_ns() -> Option<u128> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field may contain anything; the rest is numbers. The start is field 22.
    let ticks: u128 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: u128 = field(&boot, "btime")?.into();
    Some(boot * NS_PER_S + ticks * NS_PER_S / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known() {
        let mut text = Exposition::default();
        put(&mut text);
        let text = text.finish();
        assert_eq!(text.lines().filter(|line| line.starts_with("# TYPE")).count(), 7, "{text}");
        let now = u128::try_from(uncia_clock::unix_ns()).unwrap();
        let age = now.abs_diff(started_ns().unwrap());
        assert!(age < 24 * 3_600 * NS_PER_S, "{age} ns");
    }
}
