//! What the machine's CPUs do while nothing runs: sleep, or wait awake.
//!
//! The kernel lets an idle CPU sleep no deeper than the shortest time in which any process must have it
//! back (`Documentation/power/pm_qos_interface.rst`). Where that time is 0, it does not sleep at all: it
//! polls, and runs a thread that becomes ready within a microsecond. Polling is what the kernel does
//! when nothing else can run, so it takes no time from anybody, and none of it is accounted to a process.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};

/// Where processes say how soon they must have a CPU back, in us: as long as the file is open.
const LATENCY: &str = "/dev/cpu_dma_latency";
/// What decides how deep idle CPUs sleep; without it the file above changes nothing.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

/// No CPU of the machine sleeps as long as this lives, or until the process ends in whichever way.
#[derive(Debug)]
pub struct Awake {
    _latency: File,
}

impl Awake {
    /// Keeps the CPUs awake from now on.
    ///
    /// # Errors
    /// This process may not, or the kernel cannot; see [`obstacle`].
    pub fn keep() -> io::Result<Self> {
        let mut file = File::options().write(true).open(LATENCY)?;
        file.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self { _latency: file })
    }
}

/// Why the CPUs cannot be kept awake here, in words; `None` if they can.
#[must_use]
pub fn obstacle() -> Option<String> {
    // Without a number written to it, an open file asks for nothing.
    if let Err(error) = File::options().write(true).open(LATENCY) {
        return Some(match error.kind() {
            ErrorKind::NotFound => format!(
                "there is no {LATENCY}: the kernel lacks it (CONFIG_CPU_IDLE), or this container does"
            ),
            ErrorKind::PermissionDenied => format!("only root may write to {LATENCY}"),
            _ => format!("{LATENCY} cannot be opened: {error}"),
        });
    }
    let driver = fs::read_to_string(DRIVER).unwrap_or_default();
    let driver = driver.trim();
    (driver.is_empty() || driver == "none").then(|| {
        format!("the kernel has no driver that knows another idling than sleep ({DRIVER})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of this process's files are the kernel's of latencies.
    fn open_files() -> usize {
        let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
        files.filter(|file| fs::read_link(file.path()).is_ok_and(|it| it == *LATENCY)).count()
    }

    #[test]
    fn cpus_are_kept_awake_or_it_is_said_why_not() {
        let obstacle = obstacle();
        let open = if cfg!(target_os = "linux") { open_files() } else { 0 };
        match Awake::keep() {
            Ok(awake) => {
                assert_eq!(open_files(), open + 1);
                drop(awake);
                assert_eq!(open_files(), open);
                // It can be asked for where there is no driver that heeds it.
                assert!(obstacle.is_none_or(|it| it.contains("driver")));
            }
            Err(error) => assert!(obstacle.is_some_and(|it| it.contains(LATENCY)), "{error}"),
        }
    }
}
