//! What an invocation does, phase by phase.

use uncia_arrivals::RandomStream;

use crate::functions::Function;

/// A stretch of an invocation with the same needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// How long it lasts, in ns, if each of its threads has a CPU.
    pub duration: i64,
    /// Threads that run.
    pub threads: i64,
    /// Memory held, in bytes.
    pub memory: i64,
}

/// Draws the phases of an invocation (section 5.1.2): the time of all of them from the function's
/// durations, divided equally; threads of each, up to the function's maximum, so that their mean is
/// the function's; memory of each from the function's.
///
/// The sum of threads is a whole number: the mean times the phases, rounded up or down at random so
/// that it is right on average. A phase's number is first drawn uniformly from 0 to the maximum;
/// then phases, drawn uniformly too, are moved towards the sum by a random part of what they can.
pub(crate) fn draw(function: &Function, stream: &mut RandomStream, phases: &mut Vec<Phase>) {
    let count = i64::from(function.phases);
    // Each phase lasts a nanosecond at least: some traces round what is short to 0.
    let time = function.durations.at(stream.uniform()).max(count);
    let most = i64::from(function.parallelism.max);
    let target = libm::floor(function.parallelism.mean * count as f64 + stream.uniform()) as i64;
    let edge = |index: i64| (i128::from(time) * i128::from(index) / i128::from(count)) as i64;
    phases.clear();
    phases.extend((0..count).map(|index| Phase {
        duration: edge(index + 1) - edge(index),
        threads: below(stream, most + 1),
        memory: 0,
    }));
    balance(phases, target.min(most * count), most, stream);
    for phase in phases {
        phase.memory = function.memory.at(stream.uniform());
    }
}

/// Moves the threads of phases until their sum is the target.
fn balance(phases: &mut [Phase], target: i64, most: i64, stream: &mut RandomStream) {
    let mut missing = target - phases.iter().map(|phase| phase.threads).sum::<i64>();
    while missing != 0 {
        let phase = &mut phases[below(stream, phases.len() as i64) as usize];
        let room = if missing > 0 { most - phase.threads } else { phase.threads };
        let room = room.min(missing.abs());
        if room > 0 {
            let step = (1 + below(stream, room)) * missing.signum();
            phase.threads += step;
            missing -= step;
        }
    }
}

/// A whole number from 0 to `choices - 1`; there are so few that each is as likely as any other to
/// within 2^-32.
fn below(stream: &mut RandomStream, choices: i64) -> i64 {
    (stream.uniform() * choices as f64) as i64
}
