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
        match self.count {
            0 => None,
            count => Some(self.sum / count),
        }
    }
}

/// Each gap between arrivals weighs this part of the average gap.
const GAP_WEIGHT: u64 = 8;

/// Arrivals, and what ended invocations used.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) arrivals: u64,
    pub(crate) last_arrival: Option<Nanos>,
    /// Exponentially weighted average of the gaps between arrivals.
    gap: Option<Nanos>,
    pub(crate) ended: u64,
    pub(crate) duration: Mean,
    pub(crate) cpu: Mean,
    pub(crate) memory: Mean,
    pub(crate) initialization: Mean,
}

impl Statistics {
    pub(crate) fn on_arrival(&mut self, now: Nanos) {
        if let Some(last) = self.last_arrival {
            let gap = now - last;
            self.gap = Some(match self.gap {
                Some(mean) => mean - mean / GAP_WEIGHT + gap / GAP_WEIGHT,
                None => gap,
            });
        }
        self.arrivals += 1;
        self.last_arrival = Some(now);
    }

    pub(crate) fn on_end(&mut self, usage: &Usage) {
        if *usage == Usage::default() {
            // It did not run.
            return;
        }
        self.ended += 1;
        self.duration.add(usage.duration);
        if let Some(cpu) = usage.cpu {
            self.cpu.add(cpu);
        }
        if let Some(memory) = usage.memory {
            self.memory.add(memory);
        }
    }

    /// Arrivals a second: the inverse of the average gap, or of the time since the last arrival if
    /// that is longer, so that the rate of a function that nobody calls any more falls.
    pub(crate) fn arrival_rate(&self, now: Nanos) -> f64 {
        let (Some(gap), Some(last)) = (self.gap, self.last_arrival) else { return 0.0 };
        1e9 / gap.max(now.saturating_sub(last)).max(1) as f64
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
        assert_eq!((past.arrivals, past.last_arrival), (4, Some(3_000_000)));
    }

    #[test]
    fn means_are_of_what_was_measured() {
        let mut past = Statistics::default();
        past.on_end(&Usage { duration: 10, cpu: Some(4), memory: None });
        past.on_end(&Usage { duration: 21, cpu: None, memory: None });
        assert_eq!(past.duration.get(), Some(15));
        assert_eq!((past.cpu.get(), past.memory.get(), past.ended), (Some(4), None, 2));
    }
}
