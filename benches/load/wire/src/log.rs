//! What arrived, and when.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

/// Room at the start, so that the log does not move in memory while it is timed.
const CAPACITY: usize = 1 << 20;

/// A request that has arrived in full. Times are Unix times in nanoseconds.
#[derive(Clone, Copy)]
pub struct Arrival {
    /// When the kernel received the segment that completed it; none if it did not say.
    pub kernel_ns: Option<i64>,
    /// When this server had read it.
    pub read_ns: i64,
    /// Number of the connection, from 0.
    pub connection: u64,
}

/// All arrivals of a run, in the order in which they were read.
pub struct Log {
    pub arrivals: Vec<Arrival>,
    pub connections: u64,
    /// Connections that were closed because what came could not be understood.
    pub malformed: u64,
    /// The real-time clock less the monotonic one at the start: tells of a clock that was set.
    clocks_ns: i64,
}

impl Log {
    pub fn new() -> nix::Result<Self> {
        let arrivals = Vec::with_capacity(CAPACITY);
        Ok(Self { arrivals, connections: 0, malformed: 0, clocks_ns: clocks_ns()? })
    }

    /// Writes the arrivals as CSV: `kernel_ns` (empty if unknown), `read_ns`, `connection`.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        writeln!(file, "kernel_ns,read_ns,connection")?;
        for arrival in &self.arrivals {
            if let Some(time) = arrival.kernel_ns {
                write!(file, "{time}")?;
            }
            writeln!(file, ",{},{}", arrival.read_ns, arrival.connection)?;
        }
        file.flush()
    }

    /// One line of JSON. `clock_step_ns` is how far the real-time clock was set during the run; some
    /// hundreds of nanoseconds are the reading's own inexactness.
    pub fn summary(&self) -> String {
        let step = clocks_ns().map_or(0, |now| now - self.clocks_ns);
        let stamped = self.arrivals.iter().filter(|arrival| arrival.kernel_ns.is_some()).count();
        format!(
            "{{\"requests\": {}, \"kernel_timestamps\": {stamped}, \"connections\": {}, \
             \"malformed\": {}, \"clock_step_ns\": {step}}}",
            self.arrivals.len(),
            self.connections,
            self.malformed,
        )
    }
}

pub fn nanoseconds(time: TimeSpec) -> i64 {
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

/// The real-time clock, the one that the kernel's timestamps are of.
pub fn now_ns() -> nix::Result<i64> {
    clock_gettime(ClockId::CLOCK_REALTIME).map(nanoseconds)
}

fn clocks_ns() -> nix::Result<i64> {
    let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map(nanoseconds)?;
    Ok(now_ns()? - monotonic)
}
