//! What is known of a function's past.

use crate::{Nanos, Usage};

/// An average of all values.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mean {
    sum: u64,
    count: u64,
}

impl Mean {
    pub(crate) fn add(&mut self, value: u64) {
        self.sum = self.sum.saturating_add(value);
        self.count += 1;
    }

    pub(crate) fn get(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }
}

/// Each gap between arrivals weighs this part of the average gap.
const GAP_WEIGHT: u64 = 8;

/// Arrivals, and what ended invocations used: in one cache line, since every request changes it.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) arrivals: u64,
    /// When the last one was, if there was any.
    last_arrival: Nanos,
    /// Exponentially weighted average of the gaps between arrivals, if there were two.
    gap: Nanos,
    /// Durations of those that ended.
    duration: Mean,
    cpu: u64,
    memory: u64,
    /// Of the durations, those that come with CPU time and memory.
    cpu_count: u32,
    memory_count: u32,
}

impl Statistics {
    pub(crate) fn on_arrival(&mut self, now: Nanos) {
        let gap = now - self.last_arrival;
        self.gap = match self.arrivals {
            0 => 0,
            1 => gap,
            _ => self.gap - self.gap / GAP_WEIGHT + gap / GAP_WEIGHT,
        };
        self.arrivals += 1;
        self.last_arrival = now;
    }

    pub(crate) fn on_end(&mut self, usage: &Usage) {
        if *usage == Usage::default() {
            // It did not run.
            return;
        }
        self.duration.add(usage.duration);
        if let Some(cpu) = usage.cpu {
            add(&mut self.cpu, &mut self.cpu_count, cpu);
        }
        if let Some(memory) = usage.memory {
            add(&mut self.memory, &mut self.memory_count, memory);
        }
    }

    pub(crate) fn last_arrival(&self) -> Option<Nanos> {
        (self.arrivals > 0).then_some(self.last_arrival)
    }

    /// Invocations that ended.
    pub(crate) fn ended(&self) -> u64 {
        self.duration.count
    }

    pub(crate) fn mean_duration(&self) -> Option<Nanos> {
        self.duration.get()
    }

    pub(crate) fn mean_cpu(&self) -> Option<Nanos> {
        self.cpu.checked_div(self.cpu_count.into())
    }

    pub(crate) fn mean_memory(&self) -> Option<u64> {
        self.memory.checked_div(self.memory_count.into())
    }

    /// Arrivals a second: the inverse of the average gap, or of the time since the last arrival if
    /// that is longer, so that the rate of a function that nobody calls any more falls.
    pub(crate) fn arrival_rate(&self, now: Nanos) -> f64 {
        if self.arrivals < 2 {
            return 0.0;
        }
        1e9 / self.gap.max(now.saturating_sub(self.last_arrival)).max(1) as f64
    }
}

/// Adds to a sum of so many values; when no more can be counted, both are halved, which leaves the
/// mean.
fn add(sum: &mut u64, count: &mut u32, value: u64) {
    match (sum.checked_add(value), count.checked_add(1)) {
        (Some(new), Some(more)) => (*sum, *count) = (new, more),
        _ => {
            (*sum, *count) = (*sum / 2, *count / 2);
            *sum = sum.saturating_add(value);
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_gaps_and_falls_when_nothing_comes() {
        let mut past = Statistics::default();
        assert_eq!(past.arrival_rate(5), 0.0);
        for at in [0, 1_000_000, 2_000_000, 3_000_000] {
            past.on_arrival(at);
        }
        assert_eq!(past.arrival_rate(3_000_000), 1_000.0);
        assert_eq!(past.arrival_rate(13_000_000), 100.0);
        assert_eq!((past.arrivals, past.last_arrival()), (4, Some(3_000_000)));
    }

    #[test]
    fn means_are_of_what_was_measured() {
        let mut past = Statistics::default();
        past.on_end(&Usage { duration: 10, cpu: Some(4), memory: None });
        past.on_end(&Usage { duration: 21, cpu: None, memory: None });
        assert_eq!(past.mean_duration(), Some(15));
        assert_eq!((past.mean_cpu(), past.mean_memory(), past.ended()), (Some(4), None, 2));
    }

    #[test]
    fn a_sum_that_is_full_keeps_its_mean() {
        let (mut sum, mut count) = (40, u32::MAX);
        add(&mut sum, &mut count, 1);
        assert_eq!((sum, count), (21, u32::MAX / 2 + 1));
        let (mut sum, mut count) = (u64::MAX, 4);
        add(&mut sum, &mut count, u64::MAX / 4);
        assert_eq!((sum / u64::from(count), count), (u64::MAX / 4, 3));
    }
}
