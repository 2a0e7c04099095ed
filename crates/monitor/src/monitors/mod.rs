//! The monitors, a file each.

mod block;
mod bpftrace;
mod cgroup;
mod command;
mod machine;
mod perf;
mod pressure;
mod printing;
mod programs;
mod resctrl;
mod schedule;

use crate::config::{Asked, Config, Kind};
use crate::samples::Samples;

/// What begins sentences of monitors that do not work.
const UNSUPPORTED: &str = "not supported on this machine";

/// Something that reads numbers at regular moments.
pub(crate) trait Monitor: Send {
    /// Reads them.
    fn sample(&mut self, samples: &mut Samples);

    /// The shortest interval, in ns, of which its rows can say something.
    fn shortest_ns(&self) -> i64 {
        0
    }

    /// Reads them for the last time, and ends what it has started.
    fn finish(&mut self, samples: &mut Samples) {
        self.sample(samples);
    }

    /// What it is to run once all monitors have finished; gives a sentence if that fails.
    fn after(&mut self) -> Option<String> {
        None
    }
}

impl Kind {
    /// Its name in rows, if nothing else is asked for.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Cgroup => "cgroup",
            Self::Pressure => "pressure",
            Self::Perf => "perf",
            Self::Block => "block",
            Self::Schedule => "schedule",
            Self::Resctrl => "resctrl",
            Self::Command => "command",
            Self::Bpftrace => "bpftrace",
        }
    }
}

/// Makes a monitor; or says why it does not watch.
pub(crate) fn make(asked: &Asked, config: &Config) -> Result<Box<dyn Monitor>, String> {
    works(asked, config).map_err(|why| match asked.monitor {
        // What it has to say of a program is nothing about the machine.
        Kind::Bpftrace => why,
        _ => format!("{UNSUPPORTED}: {why}"),
    })
}

fn works(asked: &Asked, config: &Config) -> Result<Box<dyn Monitor>, String> {
    let groups = asked.groups.as_ref().unwrap_or(&config.groups);
    Ok(match asked.monitor {
        Kind::Machine => Box::new(machine::Machine::new(&config.ours)?),
        Kind::Cgroup => Box::new(cgroup::Cgroup::new(groups)?),
        Kind::Pressure => Box::new(pressure::Pressure::new(groups)?),
        Kind::Perf => Box::new(perf::Perf::new(groups)?),
        Kind::Block => Box::new(block::Block::new(groups)?),
        Kind::Schedule => Box::new(schedule::Schedule::new(groups, asked.interval_ns)?),
        Kind::Resctrl => Box::new(resctrl::Resctrl::new(asked, groups)?),
        Kind::Command => Box::new(command::Command::new(asked)?),
        Kind::Bpftrace => Box::new(bpftrace::Bpftrace::new(asked)?),
    })
}

/// The number after a key in a text of lines "key number".
fn keyed(text: &str, key: &str) -> Option<i64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}
