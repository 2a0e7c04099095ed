//! Enforcing CPU shares without the kernel's quota.
//!
//! The kernel notices that a quota is exhausted at its next tick or context switch, so whoever has a
//! quota that is no whole number of ticks runs on for up to a tick. Here a thread of high priority
//! has a one-shot timer for each instance instead, for the moment at which its budget of the period
//! may be exhausted at the earliest. It then looks at what was used, and either sets the timer anew
//! or holds the instance by its freezer until the next period. What to do is decided by
//! [`uncia_policy::Budget`].

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use uncia_clock::thread_cpu_ns;
use uncia_policy::{Budget, Nanos, Verdict};

use super::cgroup::{Counters, Group, Limits, Running, Threads, Throttling};
use super::priority;
use super::threads::{self, Failure};

/// How long an invocation may wait for an exact account.
const VISIT_TIMEOUT: Duration = Duration::from_millis(2);

/// Up to so many threads of a group are asked whether they run, at 3 us each; with more of them, every
/// CPU is visited instead.
const MAX_ASKED: i64 = 64;

/// Finds the CPUs to visit, in the thread.
type Find = Box<dyn FnOnce() -> Running + Send>;

/// Who waits for a visit.
type Visit = (Find, oneshot::Sender<()>);

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
pub(super) struct Enforcer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    origin: Instant,
    queue: Mutex<Queue>,
    /// The thread, to be woken.
    thread: OnceLock<Thread>,
    ended: AtomicBool,
    realtime: AtomicBool,
    cpu_ns: AtomicU64,
    looks: AtomicU64,
    cpus: u32,
}

/// What the thread has to do. Locked for moments only: those who add to it must not wait.
#[derive(Default)]
struct Queue {
    watched: HashMap<u64, Weak<Watched>>,
    next_id: u64,
    /// When to look at whom. What an instance itself says of its next look is what counts: an entry
    /// that does not agree is out of date.
    due: BinaryHeap<Reverse<(Nanos, u64)>>,
    visits: Vec<Visit>,
    /// Until when the thread sleeps.
    next: Nanos,
}

impl Enforcer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub(super) fn new(failure: &Failure) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            origin: Instant::now(),
            queue: Mutex::default(),
            thread: OnceLock::new(),
            ended: AtomicBool::new(false),
            realtime: AtomicBool::new(false),
            cpu_ns: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            cpus: thread::available_parallelism().map_or(1, |it| it.get() as u32),
        });
        let own = shared.clone();
        let thread =
            threads::start("uncia-enforcer", "enforces CPU shares", failure, move || own.run())?;
        let _ = shared.thread.set(thread.thread().clone());
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Makes an instance one that can be watched; it is from [`Watched::engage`] on.
    pub(super) fn watch(&self, group: Arc<Group>, limits: &Limits) -> Arc<Watched> {
        let now = self.shared.now();
        let counters = group.counters();
        let used = used(&counters);
        let state = State {
            budget: Budget::new(limits.quota_ns(), limits.period_ns(), now, used),
            due: None,
            serving: false,
            running: 1,
        };
        let mut queue = self.shared.queue();
        let id = queue.next_id;
        queue.next_id += 1;
        let watched = Arc::new(Watched {
            id,
            group,
            counters,
            state: Mutex::new(state),
            threads: Mutex::default(),
            shared: self.shared.clone(),
        });
        queue.watched.insert(id, Arc::downgrade(&watched));
        watched
    }

    /// Brings the account of those threads up to date that run on these CPUs now, some 50 us later. If the
    /// thread has no time for that, the account is as old as the last tick.
    pub(super) async fn settle(&self, find: impl FnOnce() -> Running + Send + 'static) {
        let (done, wait) = oneshot::channel();
        self.shared.queue().visits.push((Box::new(find), done));
        self.shared.wake();
        let _ = tokio::time::timeout(VISIT_TIMEOUT, wait).await;
    }

    /// Whether the thread goes before every ordinary one.
    pub(super) fn goes_first(&self) -> bool {
        self.shared.realtime.load(Ordering::Relaxed)
    }

    pub(super) fn usage(&self) -> EnforcerUse {
        EnforcerUse {
            cpu_ns: self.shared.cpu_ns.load(Ordering::Relaxed),
            looks: self.shared.looks.load(Ordering::Relaxed),
            realtime: self.goes_first(),
        }
    }

    /// Ends the thread; nothing is held any more by then.
    pub(super) fn end(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread was reported already.
            let _ = thread.join();
        }
        let watched = std::mem::take(&mut self.shared.queue().watched);
        for watched in watched.values().filter_map(Weak::upgrade) {
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
        let (mut visits, mut due) = (Vec::new(), Vec::new());
        while !self.ended.load(Ordering::SeqCst) {
            let now = self.now();
            let next = self.take(now, &mut visits, &mut due);
            if visits.is_empty() && due.is_empty() {
                // Whoever adds something from here on wakes it, even before it sleeps.
                thread::park_timeout(Duration::from_nanos(next.saturating_sub(now)));
                continue;
            }
            visit(visits.drain(..));
            for watched in due.drain(..) {
                if watched.is_due(now) {
                    watched.look();
                    self.looks.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.cpu_ns.store(thread_cpu_ns().cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Takes what is to be done by `now` out of the queue; returns until when there is nothing else.
    fn take(&self, now: Nanos, visits: &mut Vec<Visit>, due: &mut Vec<Arc<Watched>>) -> Nanos {
        let mut queue = self.queue();
        visits.append(&mut queue.visits);
        queue.next = Nanos::MAX;
        while let Some(Reverse((at, id))) = queue.due.peek().copied() {
            if at > now {
                queue.next = at;
                break;
            }
            queue.due.pop();
            due.extend(queue.watched.get(&id).and_then(Weak::upgrade));
        }
        queue.next
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Has the thread look at an instance at this time.
    fn look_at(&self, at: Nanos, id: u64) {
        let mut queue = self.queue();
        queue.due.push(Reverse((at, id)));
        let sooner = at < queue.next;
        drop(queue);
        if sooner {
            self.wake();
        }
    }

    fn now(&self) -> Nanos {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Visits the CPUs of all who have asked, and not given up, each once.
fn visit(visits: impl Iterator<Item = Visit>) {
    let mut cpus = BTreeSet::new();
    let asked: Vec<_> = visits
        .filter(|(_, done)| !done.is_closed())
        .map(|(find, done)| {
            cpus.extend(find().cpus);
            done
        })
        .collect();
    priority::visit(&cpus.into_iter().collect::<Vec<_>>());
    for done in asked {
        // Whoever asked may have given up meanwhile.
        let _ = done.send(());
    }
}

/// Finds out which threads of a group run now; with many threads, says that they run everywhere.
pub(super) fn running(counters: &Counters, threads: &Mutex<Threads>) -> Running {
    if counters.threads().is_some_and(|count| count > MAX_ASKED) {
        let cpus = priority::allowed_cpus();
        return Running { threads: u32::try_from(cpus.len()).unwrap_or(u32::MAX), cpus };
    }
    counters.running(&mut threads.lock().unwrap_or_else(PoisonError::into_inner))
}

/// An instance whose share is enforced by the worker.
pub(super) struct Watched {
    id: u64,
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
    pub(super) fn engage(&self) {
        let mut state = self.state();
        let (now, used) = (self.shared.now(), used(&self.counters));
        state.budget.rouse(now, used);
        self.follow(&mut state, now, used);
    }

    /// A request is about to be handed over.
    pub(super) fn begin(&self) {
        self.state().serving = true;
        self.engage();
    }

    /// The request has been answered.
    pub(super) fn rest(&self) {
        self.state().serving = false;
    }

    /// It is frozen in its keep-alive, and cannot use any CPU time.
    pub(super) fn pause(&self) {
        self.state().due = None;
    }

    /// Enforces other limits, with a whole budget.
    pub(super) fn set(&self, limits: &Limits) {
        let mut state = self.state();
        let (now, used) = (self.shared.now(), used(&self.counters));
        state.budget.set(limits.quota_ns(), limits.period_ns(), now, used);
        self.follow(&mut state, now, used);
    }

    /// How often and how long it has been held.
    pub(super) fn throttling(&self) -> Throttling {
        let (count, ns) = self.state().budget.held(self.shared.now());
        let whole = |value| i64::try_from(value).unwrap_or(i64::MAX);
        Throttling { count: whole(count), ns: whole(ns), ..Throttling::default() }
    }

    /// The instance is gone or about to be.
    pub(super) fn end(&self) {
        self.state().due = None;
        self.shared.queue().watched.remove(&self.id);
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.state().due.is_some_and(|at| at <= now)
    }

    /// Looks at what was used; called by the thread when it is due.
    fn look(&self) {
        let held = self.state().budget.is_held();
        if !held {
            let Running { threads, cpus } = running(&self.counters, &self.threads);
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

    /// Does what the budget says, and sets the timer.
    fn follow(&self, state: &mut State, now: Nanos, used: u64) {
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
        self.shared.look_at(at, self.id);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.shared.queue().watched.remove(&self.id);
    }
}

/// CPU time of the group in ns, as far as it is accounted for.
fn used(counters: &Counters) -> u64 {
    counters.cpu().and_then(|cpu| u64::try_from(cpu.total).ok()).unwrap_or_default()
}
