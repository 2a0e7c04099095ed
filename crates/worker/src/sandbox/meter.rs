//! What an invocation uses, measured from outside.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::cgroup::{Counters, Cpu, Threads, Throttling};
use super::enforcer::{Enforcer, Watched};
use crate::instance::Usage;

/// Between two looks at the memory of running invocations. A look costs 0.5 us an instance.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);

/// The sampler keeps its rhythm this long after the last invocation before it goes to sleep, so that
/// an invocation seldom has to wake it.
const SAMPLER_LINGER: Duration = Duration::from_secs(1);

/// Measures the invocations of one instance.
pub struct Meter {
    counters: Source,
    /// Who counts the throttling, if not the kernel.
    watched: Option<Arc<Watched>>,
    /// Who brings the kernel's account up to date.
    enforcer: Option<Arc<Enforcer>>,
    threads: Mutex<Threads>,
    state: Mutex<State>,
    running: AtomicBool,
}

/// Where the numbers come from.
pub enum Source {
    Groups(Counters),
    /// Without control groups: the CPU time of the runtime's process alone.
    Process,
}

struct State {
    /// The runtime's process in the worker's numbering.
    runtime: Option<libc::pid_t>,
    /// Where the counters stood when the invocation began.
    before: Readings,
    memory: MemoryAverage,
    /// Where the counters stood at the end of the instance, whose control groups are gone.
    last: Option<Readings>,
    idle: IdleCpu,
}

/// CPU time used outside of invocations.
#[derive(Debug, Default)]
struct IdleCpu {
    /// Where the account stood when the instance began to idle; None while it serves.
    since: Option<i64>,
    /// Used in earlier idle times; None if it is not measured.
    ns: Option<i64>,
}

impl IdleCpu {
    fn begin(&mut self, cpu: Option<Cpu>) {
        self.since = cpu.map(|cpu| cpu.total);
        // What was not measured once is not known as a whole.
        self.ns = self.ns.filter(|_| self.since.is_some());
    }

    fn end(&mut self, cpu: Option<Cpu>) {
        let Some(since) = self.since.take() else { return };
        let used = cpu.map(|cpu| (cpu.total - since).max(0));
        self.ns = self.ns.zip(used).map(|(before, used)| before + used);
    }
}

/// Where the counters stand.
#[derive(Debug, Clone, Copy, Default)]
struct Readings {
    cpu: Option<Cpu>,
    throttling: Option<Throttling>,
    memory: Option<i64>,
    peak: Option<i64>,
    oom_kills: Option<i64>,
}

impl Meter {
    pub fn new(
        counters: Source,
        watched: Option<Arc<Watched>>,
        enforcer: Option<Arc<Enforcer>>,
    ) -> Self {
        let state = State {
            runtime: None,
            before: Readings::default(),
            memory: MemoryAverage::default(),
            last: None,
            idle: IdleCpu { since: None, ns: Some(0) },
        };
        let threads = Mutex::default();
        Self {
            counters,
            watched,
            enforcer,
            threads,
            state: Mutex::new(state),
            running: AtomicBool::new(false),
        }
    }

    pub fn set_runtime(&self, pid: libc::pid_t) {
        self.lock().runtime = Some(pid);
    }

    /// The instance is ready, and idles from now on.
    pub fn ready(&self) {
        let mut state = self.lock();
        let cpu = self.read(&state).cpu;
        state.idle.begin(cpu);
    }

    /// CPU time that the instance used in the idle times that are over; None if it is not measured.
    pub fn idle_cpu(&self) -> Option<i64> {
        self.lock().idle.ns
    }

    /// Notes where the counters stand.
    pub fn begin(&self) {
        let mut state = self.lock();
        if let Source::Groups(counters) = &self.counters {
            counters.reset_peak();
        }
        state.memory = MemoryAverage::default();
        let before = self.read(&state);
        state.before = before;
        state.idle.end(before.cpu);
        if let Some(bytes) = state.before.memory {
            state.memory.add(Instant::now(), bytes);
        }
        drop(state);
        // Sequentially consistent with `asleep`: either this invocation sees that the sampler sleeps,
        // or the sampler sees this invocation before it does.
        self.running.store(true, Ordering::SeqCst);
    }

    /// What was used since [`Self::begin`].
    pub fn end(&self) -> Usage {
        self.running.store(false, Ordering::Release);
        let mut state = self.lock();
        let (before, after) = (state.before, self.read(&state));
        let mut usage = Usage::default();
        if let (Some(before), Some(after)) = (before.cpu, after.cpu) {
            let (user, system) = split(before, after);
            usage.cpu_user_ns = Some(user);
            usage.cpu_system_ns = Some(system);
        }
        if let (Some(before), Some(after)) = (before.throttling, after.throttling) {
            usage.throttled_count = Some(after.count - before.count);
            usage.throttled_ns = Some(after.ns - before.ns);
        }
        if let Some(bytes) = after.memory {
            state.memory.add(Instant::now(), bytes);
        }
        state.idle.begin(after.cpu);
        usage.memory_avg = state.memory.average();
        usage.memory_peak = after.peak.max(state.memory.peak());
        usage
    }

    /// Keeps the last readings: to be called when all processes of the instance have ended, before
    /// its control groups are removed.
    pub fn finish(&self) {
        let mut state = self.lock();
        // Its process number may be another's from now on.
        state.runtime = None;
        let mut last = self.read(&state);
        // The memory of a process that has ended is no longer in use, but it was until just now.
        last.memory = None;
        state.idle.end(last.cpu);
        state.last = Some(last);
    }

    /// Whether the kernel has killed a process of the instance for lack of memory since
    /// [`Self::begin`], or ever, before the first.
    pub fn out_of_memory(&self) -> bool {
        let state = self.lock();
        let after = self.read(&state).oom_kills.unwrap_or_default();
        after > state.before.oom_kills.unwrap_or_default()
    }

    fn read(&self, state: &State) -> Readings {
        if let Some(last) = state.last {
            return last;
        }
        match &self.counters {
            Source::Groups(counters) => {
                self.settle(counters);
                Readings {
                    cpu: counters.cpu(),
                    throttling: match &self.watched {
                        Some(watched) => Some(watched.throttling()),
                        None => counters.throttling(),
                    },
                    memory: counters.memory(),
                    peak: counters.peak(),
                    oom_kills: counters.oom_kills(),
                }
            }
            Source::Process => {
                Readings { cpu: state.runtime.and_then(process_cpu), ..Readings::default() }
            }
        }
    }

    /// Has the scheduler account for what those of the group who run now have used. Otherwise the time
    /// since the last tick (4 ms at 250 Hz) of a thread that runs on may be missing: a background
    /// thread's, or the runtime's in the moment after it has sent its answer. Asking for a CPU clock
    /// helps with one's own threads only.
    fn settle(&self, counters: &Counters) {
        let Some(enforcer) = &self.enforcer else { return };
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let running = counters.running(&mut threads);
        drop(threads);
        if running.threads > 0 {
            enforcer.settle(running.cpus);
        }
    }

    fn sample(&self, now: Instant) {
        if !self.running.load(Ordering::Acquire) {
            return;
        }
        let Source::Groups(counters) = &self.counters else { return };
        let mut state = self.lock();
        // The invocation may have ended while this waited for the lock.
        if self.running.load(Ordering::Acquire)
            && state.last.is_none()
            && let Some(bytes) = counters.memory()
        {
            state.memory.add(now, bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn process_clock(pid: libc::pid_t) -> Option<i64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write only to the variables given.
    let ok = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    ok.then(|| time.tv_sec * 1_000_000_000 + time.tv_nsec)
}

/// CPU time of a process without control groups: the total from its clock, the proportion of user
/// and system from its statistics, which count 10 ms ticks.
fn process_cpu(pid: libc::pid_t) -> Option<Cpu> {
    let total = process_clock(pid)?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces; user and system time are fields 14 and 15.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user = fields.next()?.parse().ok()?;
    let system = fields.next()?.parse().ok()?;
    Some(Cpu { total, user, system })
}

/// Splits the exact total between user and system in the proportion that the kernel saw; where it
/// saw nothing of this invocation, in the proportion of the group's life, and without any, all user.
fn split(before: Cpu, after: Cpu) -> (i64, i64) {
    let total = (after.total - before.total).max(0);
    let (mut user, mut system) =
        ((after.user - before.user).max(0), (after.system - before.system).max(0));
    if user + system == 0 {
        (user, system) = (after.user.max(0), after.system.max(0));
    }
    let seen = i128::from(user) + i128::from(system);
    if seen == 0 {
        return (total, 0);
    }
    let user = i128::from(total) * i128::from(user) / seen;
    let user = i64::try_from(user).unwrap_or(total);
    (user, total - user)
}

/// The time-weighted average of samples, by trapezoids.
#[derive(Debug, Default)]
struct MemoryAverage {
    last: Option<(Instant, i64)>,
    /// Twice the area, in byte ns.
    double_area: i128,
    ns: i128,
    peak: Option<i64>,
}

impl MemoryAverage {
    fn add(&mut self, now: Instant, bytes: i64) {
        if let Some((then, before)) = self.last {
            // The sampler's clock may be read before the start's.
            let ns = now.saturating_duration_since(then).as_nanos() as i128;
            self.double_area += ns * (i128::from(before) + i128::from(bytes));
            self.ns += ns;
        }
        self.last = Some((now, bytes));
        self.peak = self.peak.max(Some(bytes));
    }

    fn average(&self) -> Option<i64> {
        let (_, last) = self.last?;
        if self.ns == 0 {
            return Some(last);
        }
        i64::try_from(self.double_area / (2 * self.ns)).ok()
    }

    fn peak(&self) -> Option<i64> {
        self.peak
    }
}

/// One thread that looks at the memory of all instances that run an invocation.
#[derive(Clone)]
pub struct Sampler {
    shared: Arc<Shared>,
}

struct Shared {
    meters: Mutex<Vec<Weak<Meter>>>,
    asleep: AtomicBool,
    wake: Condvar,
    /// Guards `asleep` against a wake-up between the look and the sleep.
    gate: Mutex<()>,
    ended: AtomicBool,
}

impl Sampler {
    pub fn new() -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            meters: Mutex::default(),
            asleep: AtomicBool::new(false),
            wake: Condvar::new(),
            gate: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let own = shared.clone();
        thread::Builder::new().name("uncia-sampler".into()).spawn(move || own.run())?;
        Ok(Self { shared })
    }

    pub fn add(&self, meter: &Arc<Meter>) {
        let mut meters = self.shared.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.retain(|meter| meter.strong_count() > 0);
        meters.push(Arc::downgrade(meter));
    }

    /// To be called when an invocation begins.
    pub fn rouse(&self) {
        if self.shared.asleep.load(Ordering::SeqCst) {
            let _gate = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.wake.notify_all();
        }
    }

    pub fn end(&self) {
        self.shared.ended.store(true, Ordering::Release);
        self.rouse();
    }
}

impl Shared {
    fn run(&self) {
        let mut last_running = Instant::now();
        let mut running = Vec::new();
        while !self.ended.load(Ordering::Acquire) {
            thread::sleep(SAMPLE_INTERVAL);
            {
                let meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
                running.extend(meters.iter().filter_map(Weak::upgrade).filter(is_running));
            }
            let now = Instant::now();
            for meter in running.drain(..) {
                last_running = now;
                meter.sample(Instant::now());
            }
            if now.duration_since(last_running) > SAMPLER_LINGER {
                self.sleep();
                last_running = Instant::now();
            }
        }
    }

    /// Sleeps until an invocation begins.
    fn sleep(&self) {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.store(true, Ordering::SeqCst);
        loop {
            let any = {
                let meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
                meters.iter().filter_map(Weak::upgrade).any(|meter| is_running(&meter))
            };
            if any || self.ended.load(Ordering::Acquire) {
                break;
            }
            gate = self.wake.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.store(false, Ordering::Release);
    }
}

fn is_running(meter: &Arc<Meter>) -> bool {
    meter.running.load(Ordering::SeqCst)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_average_is_weighted_by_time() {
        let start = Instant::now();
        let mut average = MemoryAverage::default();
        assert_eq!(average.average(), None);
        average.add(start, 100);
        assert_eq!(average.average(), Some(100));
        average.add(start + Duration::from_millis(10), 100);
        average.add(start + Duration::from_millis(10), 400);
        average.add(start + Duration::from_millis(40), 400);
        assert_eq!(average.average(), Some((100 * 10 + 400 * 30) / 40));
        assert_eq!(average.peak(), Some(400));
    }

    #[test]
    fn a_proportion_is_found_even_for_a_short_invocation() {
        let before = Cpu { total: 1_000, user: 300, system: 100 };
        // No tick fell into it: the group's life says 3 to 1.
        assert_eq!(split(before, Cpu { total: 1_400, ..before }), (300, 100));
        assert_eq!(split(before, Cpu { total: 2_000, user: 300, system: 200 }), (0, 1_000));
        assert_eq!(split(Cpu::default(), Cpu { total: 70, user: 0, system: 0 }), (70, 0));
    }

    #[test]
    fn idle_cpu_is_what_lies_between_invocations() {
        let cpu = |total| Some(Cpu { total, user: 0, system: 0 });
        let mut idle = IdleCpu { since: None, ns: Some(0) };
        idle.begin(cpu(100));
        idle.end(cpu(130));
        // An invocation used 50.
        idle.begin(cpu(180));
        idle.end(cpu(181));
        assert_eq!(idle.ns, Some(31));
        idle.end(cpu(500));
        assert_eq!(idle.ns, Some(31), "it did not idle");
        idle.begin(cpu(600));
        idle.end(None);
        assert_eq!(idle.ns, None, "a part that is not known");
        idle.begin(cpu(700));
        idle.end(cpu(800));
        assert_eq!(idle.ns, None);
    }

    #[test]
    fn this_process_has_a_clock() {
        let pid = libc::pid_t::try_from(std::process::id()).unwrap();
        let before = process_cpu(pid).unwrap();
        let busy = Instant::now();
        while busy.elapsed() < Duration::from_millis(30) {}
        let after = process_cpu(pid).unwrap();
        assert!(after.total - before.total > 1_000_000);
    }

    #[test]
    fn the_sampler_wakes_for_an_invocation() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("memory.current"), "1000\n").unwrap();
        let path = folder.path().to_owned();
        let counters = Counters::open(super::super::cgroup::Version::V2, |_| Some(path.as_path()));
        let meter = Arc::new(Meter::new(Source::Groups(counters), None, None));
        let sampler = Sampler::new().unwrap();
        sampler.add(&meter);
        meter.begin();
        sampler.rouse();
        std::fs::write(folder.path().join("memory.current"), "9000\n").unwrap();
        while meter.lock().memory.peak() != Some(9000) {
            thread::yield_now();
        }
        std::fs::write(folder.path().join("memory.current"), "2000\n").unwrap();
        let usage = meter.end();
        assert_eq!(usage.memory_peak, Some(9000));
        let average = usage.memory_avg.unwrap();
        assert!((1000..=9000).contains(&average), "{average}");
        assert_eq!(usage.cpu_user_ns, None);
        sampler.end();
    }

    proptest! {
        #[test]
        fn user_and_system_always_add_up(
            a in 0_i64..1 << 60, total in 0_i64..1 << 60, user in 0_i64..1 << 60,
            system in 0_i64..1 << 60, seen in 0_i64..1 << 50,
        ) {
            let before = Cpu { total: a, user: 0, system: 0 };
            let after = Cpu { total: a + total, user: user.min(seen), system };
            let (user, system) = split(before, after);
            prop_assert!(user >= 0 && system >= 0);
            prop_assert_eq!(user + system, total);
        }

        #[test]
        fn the_average_lies_between_the_samples(
            samples in proptest::collection::vec((0_u64..1_000_000_000, 0_i64..1 << 45), 1..50),
        ) {
            let mut now = Instant::now();
            let mut average = MemoryAverage::default();
            for (step, bytes) in &samples {
                now += Duration::from_nanos(*step);
                average.add(now, *bytes);
            }
            let low = samples.iter().map(|(_, bytes)| *bytes).min().unwrap();
            let high = samples.iter().map(|(_, bytes)| *bytes).max().unwrap();
            let mean = average.average().unwrap();
            prop_assert!((low..=high).contains(&mean));
        }
    }
}
