//! The monitors, a file each.

mod block;
mod cgroup;
mod command;
mod machine;
mod perf;
mod pressure;
mod programs;
mod schedule;

use crate::config::{Asked, Config, Kind};
use crate::samples::Samples;

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
            Self::Command => "command",
        }
    }
}

/// Makes a monitor; or says why it does not work on this machine.
pub(crate) fn make(asked: &Asked, config: &Config) -> Result<Box<dyn Monitor>, String> {
    let groups = asked.groups.as_ref().unwrap_or(&config.groups);
    Ok(match asked.monitor {
        Kind::Machine => Box::new(machine::Machine::new(&config.ours)?),
        Kind::Cgroup => Box::new(cgroup::Cgroup::new(groups)?),
        Kind::Pressure => Box::new(pressure::Pressure::new(groups)?),
        Kind::Perf => Box::new(perf::Perf::new(groups)?),
        Kind::Block => Box::new(block::Block::new(groups)?),
        Kind::Schedule => Box::new(schedule::Schedule::new(groups, asked.interval_ns)?),
        Kind::Command => Box::new(command::Command::new(asked)?),
    })
}

/// The number after a key in a text of lines "key number".
fn keyed(text: &str, key: &str) -> Option<i64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}
