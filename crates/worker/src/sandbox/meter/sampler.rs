//! One thread that samples the memory of all instances that run an invocation, and has those go first
//! that do not use all the CPU they may.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::Meter;
use super::memory::{Lending, MemoryUse, count_lent};
use crate::sandbox::precedence::Precedence;
use crate::sandbox::threads::{self, Failure};

/// Between two samples, if few instances run. One costs 0.5 to 3 us an instance.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);

/// A sample's CPU time is at most such a part of the time until the next: 2.5 % of a core.
const MIN_INTERVALS: u32 = 40;

/// Between two samples, however many instances run.
const LONGEST_INTERVAL: Duration = Duration::from_millis(250);

/// The sampler keeps its rhythm this long after the last invocation before it goes to sleep, so that
/// an invocation seldom has to wake it.
const SAMPLER_LINGER: Duration = Duration::from_secs(1);

/// The thread; clones are the same.
#[derive(Clone)]
pub(crate) struct Sampler {
    shared: Arc<Shared>,
}

struct Shared {
    /// By address: those that run an invocation now. Locked for moments only.
    running: Mutex<HashMap<usize, Weak<Meter>>>,
    asleep: AtomicBool,
    ended: AtomicBool,
    /// The thread, to be woken.
    thread: OnceLock<Thread>,
    /// The memory that there is, where it is counted who lends what is reserved.
    capacity: Option<u64>,
    /// What was lent at the last sample.
    lending: Mutex<Lending>,
    /// Set where the kernel alone divides the CPU.
    precedence: OnceLock<Mutex<Precedence>>,
}

impl Sampler {
    /// Starts the thread; it counts what is lent of `capacity` bytes.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub(crate) fn new(failure: &Failure, capacity: Option<u64>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            running: Mutex::default(),
            asleep: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            thread: OnceLock::new(),
            capacity,
            lending: Mutex::default(),
            precedence: OnceLock::new(),
        });
        let own = shared.clone();
        let thread = threads::start("uncia-sampler", "samples memory", failure, move || own.run())?;
        let _ = shared.thread.set(thread.thread().clone());
        Ok(Self { shared })
    }

    /// Has it look who goes first, too, while invocations run. Once.
    pub(crate) fn set_precedence(&self, precedence: Precedence) {
        let _ = self.shared.precedence.set(Mutex::new(precedence));
    }

    /// Whether it does.
    pub(crate) fn has_precedence(&self) -> bool {
        self.shared.precedence.get().is_some()
    }

    /// Samples an instance from now on.
    pub(crate) fn add(&self, meter: &Arc<Meter>) {
        self.shared.running().insert(Arc::as_ptr(meter).addr(), Arc::downgrade(meter));
        // Either the thread sees the instance before it sleeps, or this sees that it does.
        if self.shared.asleep.load(Ordering::SeqCst) {
            self.shared.wake();
        }
    }

    /// Samples an instance no more.
    pub(crate) fn remove(&self, meter: &Meter) {
        self.shared.running().remove(&std::ptr::from_ref(meter).addr());
    }

    /// What somebody lends who begins to serve now, as far as the last sample says; None if it is not
    /// counted.
    pub(super) fn lent_of(&self, one: MemoryUse) -> Option<i64> {
        self.shared.capacity?;
        let lent = self.shared.lending().of(one);
        Some(i64::try_from(lent).unwrap_or(i64::MAX))
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.wake();
    }
}

impl Shared {
    fn run(&self) {
        let mut last_running = Instant::now();
        let mut running = Vec::new();
        let mut cpu_before = cpu_time();
        while !self.ended.load(Ordering::SeqCst) {
            running.extend(self.running().values().filter_map(Weak::upgrade));
            let now = Instant::now();
            if !running.is_empty() {
                last_running = now;
            }
            let uses: Vec<_> = running.iter().map(|meter| meter.sample(Instant::now())).collect();
            if let Some(capacity) = self.capacity {
                self.count_lent(capacity, &running, &uses);
            }
            self.look(|precedence| precedence.look(&running, now));
            running.clear();
            if now.duration_since(last_running) <= SAMPLER_LINGER {
                let cpu = cpu_time();
                thread::sleep(interval(cpu.saturating_sub(cpu_before)));
                cpu_before = cpu;
                continue;
            }
            self.look(Precedence::rest);
            self.asleep.store(true, Ordering::SeqCst);
            if self.running().is_empty() && !self.ended.load(Ordering::SeqCst) {
                thread::park();
            }
            self.asleep.store(false, Ordering::SeqCst);
            last_running = Instant::now();
        }
        self.look(Precedence::rest);
    }

    /// Has each of those that serve lend what others use of theirs.
    fn count_lent(&self, capacity: u64, running: &[Arc<Meter>], uses: &[Option<MemoryUse>]) {
        let serving = running.iter().zip(uses);
        let (meters, uses): (Vec<_>, Vec<_>) =
            serving.filter_map(|(meter, one)| Some((meter, (*one)?))).unzip();
        let now = Instant::now();
        let lending = count_lent(capacity, &uses, |index, bytes| meters[index].lend(now, bytes));
        *self.lending() = lending;
    }

    fn look(&self, look: impl FnOnce(&mut Precedence)) {
        if let Some(precedence) = self.precedence.get() {
            look(&mut precedence.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn lending(&self) -> MutexGuard<'_, Lending> {
        self.lending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<usize, Weak<Meter>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long to wait after a sample that took so much CPU time.
fn interval(used: Duration) -> Duration {
    (used * MIN_INTERVALS).clamp(SAMPLE_INTERVAL, LONGEST_INTERVAL)
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_instances_are_sampled_less_often() {
        assert_eq!(interval(Duration::from_micros(50)), SAMPLE_INTERVAL);
        assert_eq!(interval(Duration::from_micros(500)), Duration::from_millis(20));
        assert_eq!(interval(Duration::from_secs(1)), LONGEST_INTERVAL);
    }
}
