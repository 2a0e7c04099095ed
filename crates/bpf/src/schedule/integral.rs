//! An integral over time that costs two additions for each interval within it.

/// Times begin so many ns before the programs were loaded.
const EPOCH_NS: u64 = 1 << 46;
/// What is added between two looks is up to the present less this part of it.
const SLACK: u64 = 16;

/// The clock of the programs: the kernel's monotonic one, but from `EPOCH_NS` before they were loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// What is added to the kernel's (`offset_ns` of the programs).
    pub(crate) offset: u64,
}

impl Clock {
    /// The clock of programs that are loaded at `now` of the kernel's.
    pub(crate) fn new(now: u64) -> Self {
        Self { offset: EPOCH_NS.wrapping_sub(now) }
    }

    /// Its time at `now` of the kernel's, in ns.
    pub(crate) fn at(self, now: u64) -> u64 {
        now.wrapping_add(self.offset)
    }

    /// Whether integrals are right at `now` if they were looked at `before`, and there are no more threads than
    /// these; says why not.
    pub(crate) fn check(self, threads: u64, before: u64, now: u64) -> Result<(), String> {
        let (present, passed) = (self.at(now), now.saturating_sub(before));
        if u128::from(threads + 1) * u128::from(present) > u128::from(u64::MAX) {
            return Err(format!(
                "after {} h, times of {threads} threads are more than a sum holds: start it anew",
                (present - EPOCH_NS) / 3_600_000_000_000
            ));
        }
        if u128::from(threads) * u128::from(passed) > u128::from(present - present / SLACK) {
            return Err(format!(
                "the look before was {} s ago, in which times of {threads} threads are more than can be told",
                passed / 1_000_000_000
            ));
        }
        Ok(())
    }
}

/// The time that threads spend in a state, summed, as it was read last, in ns.
///
/// The word in the kernel is the sum of the ends of intervals less that of their begins, modulo 2^64. With n
/// intervals open it is short of n times the present. What is added between two looks is less than the
/// present, which counts from long before the programs were loaded; so n is what brings the integral next to
/// where it was, or above. `Clock::check` says where that holds.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Integral {
    value: u64,
}

impl Integral {
    /// What was added since the last look, in ns, by the word as it is at `present` of the programs' clock; and
    /// how many threads are in that state.
    pub(crate) fn look(&mut self, word: u64, present: u64) -> (u64, u64) {
        let short = self.value.wrapping_sub(word);
        // The word is read a little after or before the present, and so may be short of less than nothing.
        let threads = short.wrapping_add(present - present / SLACK) / present;
        let value = word.wrapping_add(threads.wrapping_mul(present));
        // What ends there is counted next time.
        let added = value.wrapping_sub(self.value).cast_signed().max(0).cast_unsigned();
        self.value = self.value.wrapping_add(added);
        (added, threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const HOUR: u64 = 3_600 * SECOND;

    /// As the programs count; times are from when they were loaded.
    #[derive(Default)]
    struct Word(u64);

    impl Word {
        fn begin(&mut self, at: u64) {
            self.0 = self.0.wrapping_sub(at + EPOCH_NS);
        }

        fn end(&mut self, at: u64) {
            self.0 = self.0.wrapping_add(at + EPOCH_NS);
        }
    }

    /// A look at a time from when the programs were loaded.
    fn look(integral: &mut Integral, word: &Word, at: u64) -> (u64, u64) {
        integral.look(word.0, at + EPOCH_NS)
    }

    #[test]
    fn intervals_count_while_they_are_open() {
        let (mut word, mut integral) = (Word::default(), Integral::default());
        assert_eq!(look(&mut integral, &word, 1_000), (0, 0));
        word.begin(1_000);
        word.begin(1_500);
        assert_eq!(look(&mut integral, &word, 2_000), (1_500, 2));
        word.end(2_200);
        assert_eq!(look(&mut integral, &word, 3_000), (1_200, 1));
        word.end(3_000);
        assert_eq!(look(&mut integral, &word, 4_000), (0, 0));
    }

    #[test]
    fn thousands_of_threads_for_days() {
        const THREADS: u64 = 10_000;
        let (mut word, mut integral) = (Word::default(), Integral::default());
        for _ in 0..THREADS {
            word.begin(0);
        }
        let mut sum = 0;
        for second in 1..=600 {
            let (added, threads) = look(&mut integral, &word, second * SECOND);
            sum += added;
            assert_eq!(threads, THREADS);
        }
        assert_eq!(sum, THREADS * 600 * SECOND);
        let (mut word, mut integral) = (Word::default(), Integral::default());
        word.begin(0);
        let sum: u64 = (1..=10).map(|it| look(&mut integral, &word, it * 10 * HOUR).0).sum();
        assert_eq!(sum, 100 * HOUR);
    }

    #[test]
    fn a_machine_that_is_up_for_a_year_has_as_many_threads_as_there_is_room_for() {
        const THREADS: u64 = 65_536;
        let loaded = 365 * 24 * HOUR;
        let clock = Clock::new(loaded);
        let (mut word, mut integral) = (0_u64, Integral::default());
        for _ in 0..THREADS {
            word = word.wrapping_sub(clock.at(loaded + 1));
        }
        let mut sum = 0;
        for second in 1..=100 {
            let now = loaded + second * SECOND;
            clock.check(THREADS, now - SECOND, now).unwrap();
            let (added, threads) = integral.look(word, clock.at(now));
            assert_eq!(threads, THREADS);
            sum += added;
        }
        assert_eq!(sum, THREADS * (100 * SECOND - 1));
        for _ in 0..THREADS {
            word = word.wrapping_add(clock.at(loaded + 101 * SECOND));
        }
        assert_eq!(integral.look(word, clock.at(loaded + 101 * SECOND)), (THREADS * SECOND, 0));
    }

    #[test]
    fn what_can_not_be_told_is_refused() {
        let clock = Clock::new(HOUR);
        let check = |threads, before, now| clock.check(threads, HOUR + before, HOUR + now);
        check(1_000, 0, 60 * SECOND).unwrap();
        let why = check(1_000, 0, 70 * SECOND).unwrap_err();
        assert!(why.contains("the look before was 70 s ago"), "{why}");
        let week = 7 * 24 * HOUR;
        check(20_000, week - SECOND, week).unwrap();
        let why = check(30_000, week - SECOND, week).unwrap_err();
        assert!(why.contains("after 168 h, times of 30000 threads"), "{why}");
        // At the bounds they are right.
        for (threads, before, now) in [(1_000, 0, 60 * SECOND), (27_000, week - SECOND, week)] {
            check(threads, before, now).unwrap();
            let (mut word, mut integral) = (Word::default(), Integral::default());
            (0..threads).for_each(|_| word.begin(before));
            assert_eq!(look(&mut integral, &word, now), (threads * (now - before), threads));
        }
    }

    #[test]
    fn a_look_just_before_an_interval_ends_takes_nothing_back() {
        let (mut word, mut integral) = (Word::default(), Integral::default());
        word.begin(1_000);
        assert_eq!(look(&mut integral, &word, 2_000), (1_000, 1));
        // It ended at 1,990, which the last look could not see.
        word.end(1_990);
        assert_eq!(look(&mut integral, &word, 3_000), (0, 0));
        word.begin(3_000);
        assert_eq!(look(&mut integral, &word, 3_100), (90, 1));
    }
}
