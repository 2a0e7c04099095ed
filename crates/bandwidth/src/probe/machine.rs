//! What the machine says that the probe cannot.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};

/// CPU time that the host kept for others since boot, on all CPUs, in ns; `None` if not counted.
pub(super) fn steal_ns() -> Option<u64> {
    let ticks = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    Some(steal_ticks(&fs::read_to_string("/proc/stat").ok()?)? * (1_000_000_000 / ticks))
}

/// The eighth number of the line of all CPUs (proc(5)).
fn steal_ticks(stat: &str) -> Option<u64> {
    stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number() {
        assert_eq!(steal_ticks("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1"), Some(88));
        assert_eq!(steal_ticks("cpu  1 2 3 4"), None);
        assert_eq!(steal_ticks(""), None);
    }
}
