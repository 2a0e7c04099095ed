//! Who goes first while CPUs are short, where no policy divides them.
//!
//! The kernel lets a thread that has begun to run go on for some 3 ms before one that has just become
//! ready, and between two requests everybody's turn comes anew. So beside a function that uses all the CPU
//! it may, a request would wait for the worker's thread and for its own instance, each time.
//!
//! The worker's thread goes first, as long as it takes little. Of functions those go first that do not use
//! all they may: they take it in short pieces, which delay the others by little. The others yield, as long
//! as there is enough for all, or they use as much as their equal part of what there is. One that gets less
//! than half of what it may use yields no more, and not again for a while: then the kernel divides.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// There is not enough for all while this much of the CPUs is used, in percent.
const SCARCE_PERCENT: u64 = 80;

/// A function is what it was for so long without being seen: an instance that is ended for its lasting
/// too long is often followed by another.
const REMEMBERED: Duration = Duration::from_secs(2);

/// A function that got too little does not yield for so long, nor does the worker's thread go first in a
/// flood.
const SPARED: Duration = Duration::from_secs(10);

/// So many connections that the platform does not admit, between two looks, are a flood: the thread that
/// takes each of them goes first no more, as it would do so for whoever floods it.
const FLOOD: u64 = 10;

/// The worker's thread goes first while it uses at most so many percent of a CPU, and until it uses more
/// than twice that: who waits for a CPU on which it runs is not let on elsewhere at once.
const LITTLE_PERCENT: u64 = 5;

/// What precedence lacks: a sentence. `asked`: whether somebody asked for it, and did not just leave it on;
/// `is_shared`: whether a policy divides the CPU; `folder`: the control group that those of functions are in.
pub(super) fn warning(asked: bool, is_shared: bool, folder: Option<&Path>) -> Option<String> {
    if is_shared {
        let why = "it is not for platforms with cpu_sharing, which divides the CPU by reservations";
        return asked.then(|| format!("precedence has no effect: {why}"));
    }
    let Some(folder) = folder else {
        return asked.then(|| {
            "precedence is the platform's thread's alone: there is no control group for CPUs, so that no function \
             can let others go first"
                .to_owned()
        });
    };
    // Whatever the kernel's version: distributions take it over to older ones.
    (!folder.join("cpu.idle").exists()).then(|| {
        "precedence: this kernel has no cpu.idle (Linux has it since 5.15), so that functions that use all the CPU \
         they may have the least weight instead, and others wait for them now and then"
            .to_owned()
    })
}

/// What is seen of functions and of the worker's thread, time and again.
pub(super) struct Precedence {
    shares: Arc<Shares>,
    cpus: u64,
    /// CPU time of each instance that ran at the last look, by the address of its meter.
    instances: HashMap<usize, i64>,
    functions: Functions,
    worker: WorkerThread,
    /// Connections of functions that the platform did not admit so far, and at the last look.
    refused: Arc<AtomicU64>,
    refused_before: u64,
    /// Until when the worker's thread does not go first for a flood.
    flooded_until: Instant,
    looked: Instant,
}

impl Precedence {
    /// Of functions by their shares; the worker's thread is the one with this number in the kernel.
    /// `refused`: how many connections of functions it did not admit so far.
    pub(super) fn new(shares: Arc<Shares>, thread: i32, refused: Arc<AtomicU64>) -> Self {
        Self {
            shares,
            cpus: u64::try_from(priority::allowed_cpus().len()).unwrap_or(u64::MAX).max(1),
            instances: HashMap::new(),
            functions: Functions::default(),
            worker: WorkerThread::new(thread),
            refused,
            refused_before: 0,
            flooded_until: Instant::now(),
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
        let refused = self.refused.load(Ordering::Relaxed);
        if refused - std::mem::replace(&mut self.refused_before, refused) > FLOOD {
            self.flooded_until = now + SPARED;
        }
        // On a CPU alone, what goes before all others goes before whoever looks, too.
        self.worker.look(elapsed, self.cpus > 1 && now >= self.flooded_until);
        let uses = self.uses(running, elapsed);
        let all_ns = self.cpus.saturating_mul(nanoseconds(elapsed));
        let parts = |function: &str| self.shares.parts(function);
        for (function, yields) in self.functions.advance(now, &uses, all_ns, parts) {
            self.shares.set_yields(&function, yields);
        }
    }

    /// Nothing runs for now, or nobody will look again: all is as the kernel has it.
    pub(super) fn rest(&mut self) {
        self.worker.set_first(false);
        self.worker.used = None;
        self.instances.clear();
        for function in self.functions.clear() {
            self.shares.set_yields(&function, false);
        }
    }

    /// What each function's instances have used since the last look, and what they could have.
    fn uses(&mut self, running: &[Arc<Meter>], elapsed: Duration) -> HashMap<Arc<str>, Use> {
        let elapsed_ns = nanoseconds(elapsed);
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

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Which functions use all they may, and which of them yield.
#[derive(Default)]
struct Functions {
    busy: HashMap<Arc<str>, Seen>,
    /// Those that got too little when they last yielded, and until when they do not.
    spared: HashMap<Arc<str>, Instant>,
}

struct Seen {
    at: Instant,
    yields: bool,
}

impl Functions {
    /// Goes on to the next look; returns those that yield from now on, and those that do so no more.
    ///
    /// `all_ns`: what all could use together. `parts`: how many groups a function has, each of which counts as
    /// much as any other among those that yield. Where that would give one busy function more than another,
    /// none yields.
    fn advance(
        &mut self,
        now: Instant,
        uses: &HashMap<Arc<str>, Use>,
        all_ns: u64,
        parts: impl Fn(&str) -> usize,
    ) -> Vec<(Arc<str>, bool)> {
        let mut changes = Vec::new();
        self.spared.retain(|_, until| *until > now);
        let used_ns = uses.values().map(|it| it.used_ns).fold(0, u64::saturating_add);
        let is_scarce = Use { used_ns, may_ns: all_ns }.is_at_least(SCARCE_PERCENT);
        let equal_ns = all_ns / u64::try_from(uses.len()).unwrap_or(u64::MAX).max(1);
        // With enough for all, whoever yields loses nothing; else nobody does who has less than others.
        let may_yield = |one: &Use| {
            !is_scarce || Use { used_ns: one.used_ns, may_ns: equal_ns }.is_at_least(BUSY_PERCENT)
        };
        self.busy.retain(|function, seen| {
            let stays = match uses.get(function) {
                Some(one) if one.is_at_least(LEAST_PERCENT) => {
                    seen.at = now;
                    may_yield(one)
                }
                Some(_) => {
                    if seen.yields && is_scarce {
                        self.spared.insert(function.clone(), now + SPARED);
                    }
                    false
                }
                None => !is_scarce && now.saturating_duration_since(seen.at) < REMEMBERED,
            };
            if !stays && seen.yields {
                changes.push((function.clone(), false));
            }
            stays
        });
        for (function, one) in uses {
            let is_busy = one.may_ns > 0 && one.is_at_least(BUSY_PERCENT) && may_yield(one);
            let is_new = !self.busy.contains_key(function) && !self.spared.contains_key(function);
            if is_busy && is_new {
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

    /// Forgets all; returns those that yield.
    fn clear(&mut self) -> Vec<Arc<str>> {
        let busy = std::mem::take(&mut self.busy).into_iter();
        busy.filter(|(_, seen)| seen.yields).map(|(function, _)| function).collect()
    }
}

/// The thread that reads requests and answers them.
struct WorkerThread {
    number: i32,
    /// Its CPU time at the last look.
    used: Option<Duration>,
    is_first: bool,
    /// Whether somebody else has given it its place already.
    is_placed: bool,
}

impl WorkerThread {
    fn new(number: i32) -> Self {
        let is_placed = !thread::is_ordinary(number);
        Self { number, used: None, is_first: false, is_placed }
    }

    fn look(&mut self, elapsed: Duration, may_be_first: bool) {
        let now = self.cpu_time().ok();
        let used = now.zip(self.used).map(|(now, before)| now.saturating_sub(before));
        self.used = now;
        if let Some(used) = used {
            self.set_first(may_be_first && goes_first(self.is_first, used, elapsed));
        }
    }

    fn cpu_time(&self) -> nix::Result<Duration> {
        // A thread's clock has its number in it (CPUCLOCK_PERTHREAD and CPUCLOCK_SCHED).
        let clock = (!self.number << 3) | 6;
        clock_gettime(ClockId::from_raw(clock)).map(Duration::from)
    }

    fn set_first(&mut self, first: bool) {
        if first == self.is_first || self.is_placed {
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

    /// Of two CPUs, in a look.
    const BOTH_NS: u64 = 200;
    const ALL: Use = Use { used_ns: 100, may_ns: 100 };
    const LITTLE: Use = Use { used_ns: 10, may_ns: 100 };
    const HALF: Use = Use { used_ns: 50, may_ns: 100 };
    const NOTHING: Use = Use { used_ns: 0, may_ns: 0 };
    const SMALL: Use = Use { used_ns: 7, may_ns: 7 };

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
            .advance(at, &uses(of), BOTH_NS, |_| parts)
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
        assert_eq!(changes(&mut functions, now, &[("a", ALL)], 1), change(true));
        assert_eq!(functions.clear(), [Arc::from("a")]);
        assert!(functions.clear().is_empty());
    }

    #[test]
    fn who_comes_back_is_what_it_was_for_a_moment() {
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
    fn who_has_little_yields_only_while_there_is_enough_for_all() {
        let (mut functions, now) = (Functions::default(), Instant::now());
        let enough = [("small", SMALL), ("a", HALF)];
        assert_eq!(changes(&mut functions, now, &enough, 1), [("small".to_owned(), true)]);
        // These are not busy, as they might use more, and take all that there is.
        let large = Use { used_ns: 96, may_ns: 170 };
        let scarce = [("small", SMALL), ("a", large), ("b", large)];
        assert_eq!(changes(&mut functions, now, &scarce, 1), [("small".to_owned(), false)]);
        assert!(changes(&mut functions, now, &scarce, 1).is_empty());
        assert_eq!(changes(&mut functions, now, &enough, 1), [("small".to_owned(), true)]);
        // It got nothing, so it is left alone for a while.
        let starved = Use { used_ns: 0, may_ns: 7 };
        let scarce = [("small", starved), ("a", large), ("b", large)];
        assert_eq!(changes(&mut functions, now, &scarce, 1), [("small".to_owned(), false)]);
        assert!(changes(&mut functions, now, &enough, 1).is_empty());
        let later = now + SPARED;
        assert_eq!(changes(&mut functions, later, &enough, 1), [("small".to_owned(), true)]);
    }

    #[test]
    fn a_start_is_not_kept_waiting_by_what_its_function_was() {
        let (mut functions, now) = (Functions::default(), Instant::now());
        changes(&mut functions, now, &[("a", ALL)], 1);
        let large = Use { used_ns: 96, may_ns: 170 };
        let others = [("b", large), ("c", large)];
        assert_eq!(changes(&mut functions, now, &others, 1), [("a".to_owned(), false)]);
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
    fn what_is_lacking_is_said_where_it_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let said = |asked, is_shared, folder| warning(asked, is_shared, folder).unwrap_or_default();
        assert!(said(true, true, Some(folder.path())).contains("no effect"));
        assert!(said(true, false, None).contains("no control group"));
        assert_eq!(said(false, true, None) + &said(false, false, None), "");
        // The kernel's fault is everybody's to know.
        assert!(said(false, false, Some(folder.path())).contains("5.15"));
        std::fs::write(folder.path().join("cpu.idle"), "0").unwrap();
        assert_eq!(said(true, false, Some(folder.path())), "");
    }

    #[test]
    fn a_threads_clock_is_its_own() {
        let number = nix::unistd::gettid().as_raw();
        let mut worker = WorkerThread::new(number);
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
