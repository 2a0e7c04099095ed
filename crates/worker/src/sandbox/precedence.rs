//! Who goes first while CPUs are short, where no policy divides them.
//!
//! The kernel lets a thread that has begun to run go on for some 3 ms before one that has just become
//! ready, and between two requests everybody's turn comes anew. So beside a function that uses all the CPU
//! it may, a request would wait for the worker's thread and for its own instance, each time.
//!
//! The worker's thread goes first, as long as it takes little. Of functions those go first that do not use
//! all they may: they take it in short pieces, which delay the others by little, and are ordinary again
//! once they do. A function that gets less than half of what it may use is ordinary, too, so that what goes
//! first takes no more from it than the kernel would give away.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use uncia_process::thread;

use super::meter::Meter;
use super::priority;
use super::shares::Shares;

/// Between two looks. The kernel gives quotas for periods, so that shorter times tell less.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A function yields that uses at least these parts of what it may, in percent.
const BUSY_PERCENT: u64 = 80;

/// A function that yields does so no more when it uses less.
const LEAST_PERCENT: u64 = 50;

/// A function is what it was for so long without being seen: an instance that is ended for its lasting
/// too long is often followed by another.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The worker's thread goes first while it uses at most so many percent of a CPU, and until it uses more
/// than twice that: who waits for a CPU on which it runs is not let on elsewhere at once.
const LITTLE_PERCENT: u64 = 5;

/// What is seen of functions and of the worker's thread, time and again.
pub(super) struct Precedence {
    shares: Arc<Shares>,
    cpus: u64,
    /// CPU time of each instance that ran at the last look, by the address of its meter.
    instances: HashMap<usize, i64>,
    functions: Functions,
    worker: WorkerThread,
    looked: Instant,
}

impl Precedence {
    /// Of functions by their shares; the worker's thread is the one with this number in the kernel.
    pub(super) fn new(shares: Arc<Shares>, thread: i32) -> Self {
        Self {
            shares,
            cpus: u64::try_from(priority::allowed_cpus().len()).unwrap_or(u64::MAX).max(1),
            instances: HashMap::new(),
            functions: Functions::default(),
            worker: WorkerThread { number: thread, used: None, is_first: false },
            looked: Instant::now(),
        }
    }

    /// Looks at those that run an invocation now, unless it did so a moment ago. Blocks for the kernel.
    pub(super) fn look(&mut self, running: &[Arc<Meter>], now: Instant) {
        let elapsed = now.saturating_duration_since(self.looked);
        if elapsed < LOOK_INTERVAL {
            return;
        }
        self.looked = now;
        self.worker.look(elapsed);
        let uses = self.uses(running, elapsed);
        for (function, yields) in self.functions.advance(now, &uses, |it| self.shares.parts(it)) {
            self.shares.set_yields(&function, yields);
        }
    }

    /// Nothing runs for now.
    pub(super) fn rest(&mut self) {
        self.worker.set_first(false);
        self.worker.used = None;
        self.instances.clear();
    }

    /// What each function's instances have used since the last look, and what they could have.
    fn uses(&mut self, running: &[Arc<Meter>], elapsed: Duration) -> HashMap<Arc<str>, Use> {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let before = std::mem::take(&mut self.instances);
        let mut uses: HashMap<Arc<str>, Use> = HashMap::new();
        for meter in running {
            let Some((function, micro)) = meter.function() else { continue };
            let Some(cpu) = meter.cpu_so_far() else { continue };
            let address = Arc::as_ptr(meter).addr();
            self.instances.insert(address, cpu);
            // Of one that was not there it is not known how long it has been.
            let Some(before) = before.get(&address) else { continue };
            let one = uses.entry(function.clone()).or_default();
            one.used_ns += u64::try_from(cpu - before).unwrap_or(0);
            let may = u128::from(*micro) * u128::from(elapsed_ns) / 1_000_000;
            one.may_ns = one.may_ns.saturating_add(u64::try_from(may).unwrap_or(u64::MAX));
        }
        let all_ns = self.cpus.saturating_mul(elapsed_ns);
        for one in uses.values_mut() {
            one.may_ns = one.may_ns.min(all_ns);
        }
        uses
    }
}

/// What a function's instances used in a time, and what they could have.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    used_ns: u64,
    may_ns: u64,
}

impl Use {
    fn is_at_least(self, percent: u64) -> bool {
        u128::from(self.used_ns) * 100 >= u128::from(self.may_ns) * u128::from(percent)
    }
}

/// Which functions use all they may, and which of them yield.
#[derive(Default)]
struct Functions {
    busy: HashMap<Arc<str>, Seen>,
}

struct Seen {
    at: Instant,
    yields: bool,
}

impl Functions {
    /// Goes on to the next look; returns those that yield from now on, and those that do so no more.
    ///
    /// `parts`: how many groups a function has, each of which counts as much as any other among those that
    /// yield. Where that would give one busy function more than another, none yields.
    fn advance(
        &mut self,
        now: Instant,
        uses: &HashMap<Arc<str>, Use>,
        parts: impl Fn(&str) -> usize,
    ) -> Vec<(Arc<str>, bool)> {
        let mut changes = Vec::new();
        self.busy.retain(|function, seen| {
            let stays = match uses.get(function) {
                Some(one) if one.is_at_least(LEAST_PERCENT) => {
                    seen.at = now;
                    true
                }
                Some(_) => false,
                None => now.saturating_duration_since(seen.at) < REMEMBERED,
            };
            if !stays && seen.yields {
                changes.push((function.clone(), false));
            }
            stays
        });
        for (function, one) in uses {
            if one.may_ns > 0 && one.is_at_least(BUSY_PERCENT) && !self.busy.contains_key(function)
            {
                self.busy.insert(function.clone(), Seen { at: now, yields: false });
            }
        }
        let is_fair = self.busy.len() <= 1 || self.busy.keys().all(|it| parts(it) <= 1);
        for (function, seen) in &mut self.busy {
            if seen.yields != is_fair {
                seen.yields = is_fair;
                changes.push((function.clone(), is_fair));
            }
        }
        changes
    }
}

/// The thread that reads requests and answers them.
struct WorkerThread {
    number: i32,
    /// Its CPU time at the last look.
    used: Option<Duration>,
    is_first: bool,
}

impl WorkerThread {
    fn look(&mut self, elapsed: Duration) {
        let now = self.cpu_time().ok();
        let used = now.zip(self.used).map(|(now, before)| now.saturating_sub(before));
        self.used = now;
        if let Some(used) = used {
            self.set_first(goes_first(self.is_first, used, elapsed));
        }
    }

    fn cpu_time(&self) -> nix::Result<Duration> {
        // A thread's clock has its number in it (CPUCLOCK_PERTHREAD and CPUCLOCK_SCHED).
        let clock = (!self.number << 3) | 6;
        clock_gettime(ClockId::from_raw(clock)).map(Duration::from)
    }

    fn set_first(&mut self, first: bool) {
        if first == self.is_first {
            return;
        }
        // Refused without the right to: it is as quick as any. What it starts is ordinary.
        let set: io::Result<()> = if first {
            thread::set_realtime_of(self.number, 1)
        } else {
            thread::set_ordinary_of(self.number)
        };
        self.is_first = first && set.is_ok();
    }
}

/// Whether the worker's thread goes first, which has used so much in so long.
fn goes_first(is_first: bool, used: Duration, elapsed: Duration) -> bool {
    let bound = if is_first { 2 * LITTLE_PERCENT } else { LITTLE_PERCENT };
    used.as_nanos() * 100 <= elapsed.as_nanos() * u128::from(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Use = Use { used_ns: 100, may_ns: 100 };
    const LITTLE: Use = Use { used_ns: 10, may_ns: 100 };
    const HALF: Use = Use { used_ns: 50, may_ns: 100 };
    const NOTHING: Use = Use { used_ns: 0, may_ns: 0 };

    fn uses(of: &[(&str, Use)]) -> HashMap<Arc<str>, Use> {
        of.iter().map(|(name, one)| (Arc::from(*name), *one)).collect()
    }

    fn changes(
        functions: &mut Functions,
        at: Instant,
        of: &[(&str, Use)],
        parts: usize,
    ) -> Vec<(String, bool)> {
        let mut changes: Vec<_> = functions
            .advance(at, &uses(of), |_| parts)
            .into_iter()
            .map(|(name, yields)| (name.to_string(), yields))
            .collect();
        changes.sort();
        changes
    }

    #[test]
    fn who_uses_all_yields_until_it_gets_less_than_half() {
        let (mut functions, now) = (Functions::default(), Instant::now());
        let change = |yields| vec![("a".to_owned(), yields)];
        assert!(changes(&mut functions, now, &[("a", HALF), ("b", LITTLE)], 1).is_empty());
        assert_eq!(changes(&mut functions, now, &[("a", ALL), ("b", LITTLE)], 1), change(true));
        assert!(changes(&mut functions, now, &[("a", HALF)], 1).is_empty(), "it goes on");
        assert_eq!(changes(&mut functions, now, &[("a", LITTLE)], 1), change(false));
        assert!(changes(&mut functions, now, &[("a", NOTHING)], 1).is_empty());
    }

    #[test]
    fn who_comes_back_is_what_it_was_for_a_while() {
        let (mut functions, now) = (Functions::default(), Instant::now());
        changes(&mut functions, now, &[("a", ALL)], 1);
        let soon = now + REMEMBERED / 2;
        assert!(changes(&mut functions, soon, &[], 1).is_empty());
        let late = now + REMEMBERED;
        assert_eq!(changes(&mut functions, late, &[], 1), [("a".to_owned(), false)]);
        assert!(functions.busy.is_empty(), "nothing grows");
    }

    #[test]
    fn nobody_yields_where_one_would_have_more_of_what_is_left_than_another() {
        let (mut functions, now) = (Functions::default(), Instant::now());
        let names = |yields| vec![("a".to_owned(), yields), ("b".to_owned(), yields)];
        assert_eq!(changes(&mut functions, now, &[("a", ALL)], 3), [("a".to_owned(), true)]);
        let both = [("a", ALL), ("b", ALL)];
        assert_eq!(changes(&mut functions, now, &both, 3), [("a".to_owned(), false)]);
        assert_eq!(changes(&mut functions, now, &both, 1), names(true));
    }

    #[test]
    fn the_worker_goes_first_while_it_takes_little() {
        let elapsed = Duration::from_millis(100);
        for (was, used, is) in [
            (false, 0, true),
            (false, 5, true),
            (false, 6, false),
            (true, 10, true),
            (true, 11, false),
            (true, 100, false),
        ] {
            assert_eq!(goes_first(was, Duration::from_millis(used), elapsed), is, "{was} {used}");
        }
    }

    #[test]
    fn a_threads_clock_is_its_own() {
        let number = nix::unistd::gettid().as_raw();
        let mut worker = WorkerThread { number, used: None, is_first: false };
        let before = worker.cpu_time().unwrap();
        while worker.cpu_time().unwrap() < before + Duration::from_millis(20) {}
        std::thread::spawn(move || {
            // Another thread sees that one's, which waits.
            let other = worker.cpu_time().unwrap();
            assert!(other >= before + Duration::from_millis(20));
            worker.set_first(false);
            assert!(!worker.is_first);
        })
        .join()
        .unwrap();
    }
}
