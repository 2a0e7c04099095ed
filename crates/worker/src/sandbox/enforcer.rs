//! Enforcing CPU shares without the kernel's quota.
//!
//! The kernel notices that a quota is exhausted at its next tick or context switch, so whoever has a
//! quota that is no whole number of ticks runs on for up to a tick. Here a thread of high priority
//! has a one-shot timer for each instance instead, for the moment at which its budget of the period
//! may be exhausted at the earliest. It then looks at what was used, and either sets the timer anew
//! or holds the instance by its freezer until the next period. What to do is decided by
//! [`uncia_policy::Budget`].

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use uncia_policy::{Budget, Nanos, Verdict};

use super::cgroup::{Counters, Group, Limits, Running, Threads, Throttling};
use super::priority;

/// How long an invocation may wait for an exact account.
const VISIT_TIMEOUT: Duration = Duration::from_millis(2);

/// CPUs to visit, and who waits for it.
type Visit = (Vec<usize>, mpsc::Sender<()>);

/// What the thread has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EnforcerUse {
    /// CPU time of the thread in ns.
    pub cpu_ns: u64,
    /// How often it looked at an instance.
    pub looks: u64,
    /// Whether it runs before every ordinary process; without that, looks are late on a busy machine.
    pub realtime: bool,
}

/// The thread, and the instances that it watches.
pub struct Enforcer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    origin: Instant,
    watched: Mutex<Vec<Arc<Watched>>>,
    visits: Mutex<Vec<Visit>>,
    wake: Condvar,
    /// Until when the thread sleeps.
    next: AtomicU64,
    ended: AtomicBool,
    realtime: AtomicBool,
    cpu_ns: AtomicU64,
    looks: AtomicU64,
    cpus: u32,
}

impl Enforcer {
    pub fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            origin: Instant::now(),
            watched: Mutex::default(),
            visits: Mutex::default(),
            wake: Condvar::new(),
            next: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            realtime: AtomicBool::new(false),
            cpu_ns: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            cpus: thread::available_parallelism().map_or(1, |it| it.get() as u32),
        });
        let own = shared.clone();
        let thread =
            thread::Builder::new().name("uncia-enforcer".into()).spawn(move || own.run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Makes an instance one that can be watched; it is from [`Watched::engage`] on.
    pub fn watch(&self, group: Arc<Group>, limits: &Limits) -> Arc<Watched> {
        let now = self.shared.now();
        let counters = group.counters();
        let used = used(&counters);
        let state = State {
            budget: Budget::new(limits.quota_ns(), limits.period_ns(), now, used),
            due: None,
            serving: false,
            running: 1,
        };
        let state = Mutex::new(state);
        let watched = Arc::new(Watched {
            group,
            counters,
            state,
            threads: Mutex::default(),
            shared: self.shared.clone(),
        });
        self.shared.list().push(watched.clone());
        watched
    }

    /// Brings the account of those who run on these CPUs up to date. Returns when that is done, some
    /// 50 us later; or soon, if the thread has no time.
    pub fn settle(&self, cpus: Vec<usize>) {
        let (done, wait) = mpsc::channel();
        self.shared.visits().push((cpus, done));
        self.shared.rouse();
        // Failing means that the account is as old as the last tick.
        let _ = wait.recv_timeout(VISIT_TIMEOUT);
    }

    pub fn usage(&self) -> EnforcerUse {
        EnforcerUse {
            cpu_ns: self.shared.cpu_ns.load(Ordering::Relaxed),
            looks: self.shared.looks.load(Ordering::Relaxed),
            realtime: self.shared.realtime.load(Ordering::Relaxed),
        }
    }

    /// Ends the thread; nothing is held any more by then.
    pub fn end(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.rouse();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread was reported by the panic hook already.
            let _ = thread.join();
        }
        for watched in self.shared.list().drain(..) {
            // Failing means that the group is gone.
            let _ = watched.group.let_go();
        }
    }
}

impl Drop for Enforcer {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn run(&self) {
        self.realtime.store(priority::raise(), Ordering::Relaxed);
        let mut due = Vec::new();
        loop {
            let mut list = self.list();
            loop {
                if self.ended.load(Ordering::SeqCst) {
                    return;
                }
                for (cpus, done) in self.visits().drain(..) {
                    priority::visit(&cpus);
                    // Whoever asked may have given up.
                    let _ = done.send(());
                }
                let now = self.now();
                let mut next = Nanos::MAX;
                for watched in list.iter() {
                    match watched.state().due {
                        Some(at) if at <= now => due.push(watched.clone()),
                        Some(at) => next = next.min(at),
                        None => {}
                    }
                }
                if !due.is_empty() {
                    break;
                }
                self.next.store(next, Ordering::SeqCst);
                list = self.wait(list, next.saturating_sub(now));
            }
            drop(list);
            for watched in due.drain(..) {
                watched.look();
                self.looks.fetch_add(1, Ordering::Relaxed);
            }
            self.cpu_ns.store(priority::thread_cpu_ns(), Ordering::Relaxed);
        }
    }

    fn wait<'a>(
        &self,
        list: MutexGuard<'a, Vec<Arc<Watched>>>,
        ns: Nanos,
    ) -> MutexGuard<'a, Vec<Arc<Watched>>> {
        if ns > Duration::from_secs(3_600).as_nanos() as u64 {
            return self.wake.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
        let waited = self.wake.wait_timeout(list, Duration::from_nanos(ns));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Has the thread look at its timers anew.
    fn rouse(&self) {
        // Under the lock, so that this does not fall between its look and its sleep.
        let _list = self.list();
        self.wake.notify_all();
    }

    /// Has the thread look at an instance at this time, if it would not wake up by then anyway. Not
    /// to be called with the instance's state locked: the thread locks the list before.
    fn look_at(&self, at: Nanos) {
        // While the thread does not hold the list it either sleeps until `next`, or is going to look
        // at all timers.
        let _list = self.list();
        if at < self.next.load(Ordering::SeqCst) {
            self.wake.notify_all();
        }
    }

    fn now(&self) -> Nanos {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn visits(&self) -> MutexGuard<'_, Vec<Visit>> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Watched>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An instance whose share is enforced by the worker.
pub struct Watched {
    group: Arc<Group>,
    counters: Counters,
    state: Mutex<State>,
    /// Only the thread uses them.
    threads: Mutex<Threads>,
    shared: Arc<Shared>,
}

struct State {
    budget: Budget,
    /// When to look; None while it is not enforced, or cannot run.
    due: Option<Nanos>,
    /// Whether it serves a request. If not, a beginning of work in the background may go unnoticed
    /// until the period ends, and is paid for later.
    serving: bool,
    /// How many threads ran at the last look that could tell.
    running: u32,
}

impl Watched {
    /// Enforces from now on, or again after [`Self::pause`]. A rested instance begins a period.
    pub fn engage(&self) {
        let mut state = self.state();
        let (now, used) = (self.shared.now(), used(&self.counters));
        state.budget.rouse(now, used);
        let at = self.follow(&mut state, now, used);
        drop(state);
        self.shared.look_at(at);
    }

    /// A request is about to be handed over.
    pub fn begin(&self) {
        self.state().serving = true;
        self.engage();
    }

    /// The request has been answered.
    pub fn rest(&self) {
        self.state().serving = false;
    }

    /// It is frozen in its keep-alive, and cannot use any CPU time.
    pub fn pause(&self) {
        self.state().due = None;
    }

    /// Enforces other limits, with a whole budget.
    pub fn set(&self, limits: &Limits) {
        let mut state = self.state();
        let (now, used) = (self.shared.now(), used(&self.counters));
        state.budget.set(limits.quota_ns(), limits.period_ns(), now, used);
        let at = self.follow(&mut state, now, used);
        drop(state);
        self.shared.look_at(at);
    }

    /// How often and how long it has been held.
    pub fn throttling(&self) -> Throttling {
        let (count, ns) = self.state().budget.held(self.shared.now());
        let whole = |value| i64::try_from(value).unwrap_or(i64::MAX);
        Throttling { count: whole(count), ns: whole(ns), ..Throttling::default() }
    }

    /// The instance is gone or about to be.
    pub fn end(&self) {
        self.state().due = None;
        self.shared.list().retain(|other| !std::ptr::eq(&raw const **other, self));
    }

    /// Looks at what was used; called by the thread when it is due.
    fn look(&self) {
        let held = self.state().budget.is_held();
        if !held {
            let mut list = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            let Running { threads, cpus } = self.counters.running(&mut list);
            drop(list);
            // Where it runs, the account is behind by up to a tick; but not where it was just
            // preempted, as by this thread.
            priority::visit(&cpus);
            self.state().running = threads.min(self.shared.cpus);
        }
        let mut state = self.state();
        if state.due.is_some() {
            let (now, used) = (self.shared.now(), used(&self.counters));
            self.follow(&mut state, now, used);
        }
    }

    /// Does what the budget says, and sets the timer: to the time that it returns.
    fn follow(&self, state: &mut State, now: Nanos, used: u64) -> Nanos {
        let running = if state.serving { state.running.max(1) } else { state.running };
        // A group that can be neither frozen nor thawed is one that is gone.
        let at = match state.budget.look(now, used, running) {
            Verdict::Run { look_at } => {
                let _ = self.group.let_go();
                look_at
            }
            Verdict::Hold { until } => {
                let _ = self.group.hold();
                until
            }
        };
        state.due = Some(at);
        at
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// CPU time of the group in ns, as far as it is accounted for.
fn used(counters: &Counters) -> u64 {
    counters.cpu().and_then(|cpu| u64::try_from(cpu.total).ok()).unwrap_or_default()
}
