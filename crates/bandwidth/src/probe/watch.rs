//! Algorithm 1: a loop that reads the monotonic clock and notes when it jumps.

use nix::time::{ClockId, clock_gettime};

use crate::Nanos;

/// Steps of the clock from one turn of the loop to the next are counted exactly below this, in ns.
const EXACT: usize = 4_096;
/// Above, by their number of bits.
const BITS: usize = 64;
/// How much a loop time is rounded: reads of the clock take some tens of ns.
const MEDIAN: f64 = 0.5;
const HIGH: f64 = 0.99;

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// So long after its start.
    Elapsed(Nanos),
    /// When so much time has passed without the jumps: the CPU time of a task.
    Ran(Nanos),
}

/// A jump of the clock: when it was seen, and by how much.
pub(super) type Jump = (Nanos, Nanos);

/// What a run was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Watched {
    /// When the loop began, on the monotonic clock, in ns.
    pub start: Nanos,
    /// When the loop ended, on the same clock.
    pub end: Nanos,
    /// Turns of the loop.
    pub loops: u64,
    /// Whether there was no room for a further jump, so that the run ended before its time.
    pub full: bool,
}

/// How long turns of the loop take, jumps left out.
#[derive(Debug, Clone)]
pub(super) struct Steps {
    exact: Vec<u64>,
    longer: [u64; BITS + 1],
}

impl Default for Steps {
    fn default() -> Self {
        Self { exact: vec![0; EXACT], longer: [0; BITS + 1] }
    }
}

impl Steps {
    /// Forgets all steps, for the next run.
    pub(super) fn clear(&mut self) {
        self.exact.fill(0);
        self.longer.fill(0);
    }

    #[inline]
    fn add(&mut self, step: Nanos) {
        match self.exact.get_mut(usize::try_from(step).unwrap_or(usize::MAX)) {
            Some(count) => *count += 1,
            None => self.longer[(u64::BITS - step.leading_zeros()) as usize] += 1,
        }
    }

    /// The smallest step above 0: what the clock can tell apart, or a turn of the loop if that is
    /// longer. `None` without steps.
    #[must_use]
    pub(super) fn least(&self) -> Option<Nanos> {
        self.counts().find(|(step, count)| *step > 0 && *count > 0).map(|(step, _)| step)
    }

    /// The step that half of them do not exceed, `None` without steps.
    #[must_use]
    pub(super) fn median(&self) -> Option<Nanos> {
        self.quantile(MEDIAN)
    }

    /// The step that 99 % of them do not exceed, `None` without steps.
    #[must_use]
    pub(super) fn high(&self) -> Option<Nanos> {
        self.quantile(HIGH)
    }

    /// The step that a share of all steps do not exceed; above 4 us rounded up to a power of two.
    fn quantile(&self, share: f64) -> Option<Nanos> {
        let total: u64 = self.counts().map(|(_, count)| count).sum();
        let rank = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.counts().find_map(|(step, count)| {
            seen += count;
            (count > 0 && seen >= rank).then_some(step)
        })
    }

    fn counts(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        let exact = self.exact.iter().enumerate().map(|(step, count)| (step as Nanos, *count));
        let longer = self.longer.iter().enumerate().map(|(bits, count)| {
            (1_u64.checked_shl(u32::try_from(bits).unwrap_or(u32::MAX)).unwrap_or(u64::MAX), *count)
        });
        exact.chain(longer)
    }
}

/// The monotonic clock in ns. Read without a system call where the kernel offers a vDSO.
#[must_use]
pub(super) fn now() -> Nanos {
    clock(ClockId::CLOCK_MONOTONIC)
}

/// CPU time of this thread in ns: the scheduler's own account. A system call.
#[must_use]
pub(super) fn cpu_time() -> Nanos {
    clock(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(id: ClockId) -> Nanos {
    // These clocks are on every Linux, and are not negative.
    clock_gettime(id)
        .map_or(0, |time| (time.tv_sec() as Nanos) * 1_000_000_000 + time.tv_nsec() as Nanos)
}

/// Watches the clock, and notes each jump of at least `threshold` in `jumps`.
///
/// No memory is allocated and no system call made: both would let the kernel account the CPU time
/// at other moments than at its ticks. `jumps` has the room that it needs, and is not grown.
pub(super) fn watch(
    until: Until,
    threshold: Nanos,
    jumps: &mut Vec<Jump>,
    steps: &mut Steps,
) -> Watched {
    let start = now();
    let (mut last, mut lost, mut loops) = (start, 0, 0);
    loop {
        let now = now();
        let step = now.saturating_sub(last);
        loops += 1;
        if step >= threshold {
            if jumps.len() == jumps.capacity() {
                return Watched { start, end: now, loops, full: true };
            }
            jumps.push((now, step));
            lost += step;
        } else {
            steps.add(step);
        }
        last = now;
        let over = match until {
            Until::Elapsed(duration) => now - start >= duration,
            Until::Ran(needed) => now - start - lost >= needed,
        };
        if over {
            return Watched { start, end: now, loops, full: false };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_when_it_should_and_jumps_lie_within_it() {
        let (mut jumps, mut steps) = (Vec::with_capacity(1_000), Steps::default());
        let run = watch(Until::Elapsed(3_000_000), 100_000, &mut jumps, &mut steps);
        assert!(run.end - run.start >= 3_000_000 && !run.full && run.loops > 0);
        let lost: Nanos = jumps.iter().map(|(_, gap)| gap).sum();
        assert!(lost <= run.end - run.start);
        let mut before = run.start;
        for (end, gap) in jumps {
            assert!(gap >= 100_000 && end - gap >= before && end <= run.end);
            before = end;
        }
    }

    #[test]
    fn a_task_runs_for_what_it_needs_beside_the_jumps() {
        let (mut jumps, mut steps) = (Vec::with_capacity(1_000), Steps::default());
        let run = watch(Until::Ran(2_000_000), 100_000, &mut jumps, &mut steps);
        let lost: Nanos = jumps.iter().map(|(_, gap)| gap).sum();
        assert!(run.end - run.start - lost >= 2_000_000);
    }

    #[test]
    fn a_run_without_room_says_so() {
        let (mut jumps, mut steps) = (Vec::new(), Steps::default());
        // Every turn of the loop is a jump.
        let run = watch(Until::Elapsed(u64::MAX), 0, &mut jumps, &mut steps);
        assert!(run.full);
    }

    #[test]
    fn steps_are_counted_by_their_size() {
        let mut steps = Steps::default();
        assert_eq!((steps.least(), steps.median(), steps.high()), (None, None, None));
        for step in [0, 40, 41, 41, 5_000] {
            steps.add(step);
        }
        assert_eq!((steps.least(), steps.median()), (Some(40), Some(41)));
        assert_eq!(steps.high(), Some(8_192));
        steps.clear();
        assert_eq!(steps.median(), None);
    }
}
