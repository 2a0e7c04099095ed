//! What an invocation uses: CPU time while it is polled, and the memory of its instance.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use uncia_code::{Failure, Report};

/// Of what is printed, so much is kept: the last of it, as Lambda shows it.
const PRINTED_BYTES: usize = 4 * 1024;

/// What one invocation has used so far.
pub(crate) struct Usage {
    cpu_ns: AtomicI64,
    system_ns: AtomicI64,
    /// The thread's CPU time when it was polled last.
    polled_at: AtomicI64,
    memory: Mutex<Memory>,
    printed: Mutex<Vec<u8>>,
    refused: AtomicBool,
}

struct Memory {
    now: usize,
    peak: usize,
    /// Bytes times nanoseconds.
    area: u128,
    since: Instant,
    began: Instant,
}

impl Memory {
    fn advance(&mut self) {
        let now = Instant::now();
        self.area += self.now as u128 * (now - self.since).as_nanos();
        self.since = now;
    }
}

impl Usage {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            cpu_ns: AtomicI64::new(0),
            system_ns: AtomicI64::new(0),
            polled_at: AtomicI64::new(0),
            memory: Mutex::new(Memory { now: 0, peak: 0, area: 0, since: now, began: now }),
            printed: Mutex::default(),
            refused: AtomicBool::new(false),
        }
    }

    /// CPU time up to now, asked for by the thread that polls it.
    pub(crate) fn cpu(&self) -> Duration {
        let current = thread_cpu_ns() - self.polled_at.load(Ordering::Relaxed);
        Duration::from_nanos((self.cpu_ns.load(Ordering::Relaxed) + current).max(0) as u64)
    }

    /// Its memories have grown by so many bytes, unless that is more than it may have.
    pub(crate) fn grow(&self, bytes: usize, limit: usize) -> bool {
        let mut memory = self.memory();
        let wanted = memory.now.saturating_add(bytes);
        if wanted > limit {
            self.refused.store(true, Ordering::Relaxed);
            return false;
        }
        memory.advance();
        memory.now = wanted;
        memory.peak = memory.peak.max(wanted);
        true
    }

    /// Whether it has wanted more memory than it may have.
    pub(crate) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Keeps what it printed.
    pub(crate) fn print(&self, bytes: &[u8]) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        printed.extend_from_slice(&bytes[bytes.len().saturating_sub(PRINTED_BYTES)..]);
        let surplus = printed.len().saturating_sub(PRINTED_BYTES);
        printed.drain(..surplus);
    }

    /// All of it, when it has ended.
    pub(crate) fn report(&self, failure: Option<Failure>) -> Report {
        let (cpu, system) =
            (self.cpu_ns.load(Ordering::Relaxed), self.system_ns.load(Ordering::Relaxed));
        // Two clocks, of which one counts microseconds.
        let system = system.min(cpu);
        let mut memory = self.memory();
        memory.advance();
        let time = (memory.since - memory.began).as_nanos().max(1);
        let printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        Report {
            cpu_user_ns: cpu - system,
            cpu_system_ns: system,
            memory_avg: i64::try_from(memory.area / time).unwrap_or(i64::MAX),
            memory_peak: i64::try_from(memory.peak).unwrap_or(i64::MAX),
            printed: String::from_utf8_lossy(&printed).into_owned(),
            failure,
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A future whose polls are charged to an invocation.
pub(crate) struct Metered<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    usage: Arc<Usage>,
}

impl<T> Metered<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static, usage: Arc<Usage>) -> Self {
        Self { future: Box::pin(future), usage }
    }
}

impl<T> Future for Metered<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let system = thread_system_ns();
        let began = thread_cpu_ns();
        self.usage.polled_at.store(began, Ordering::Relaxed);
        let result = self.future.as_mut().poll(context);
        self.usage.cpu_ns.fetch_add(thread_cpu_ns() - began, Ordering::Relaxed);
        self.usage.system_ns.fetch_add(thread_system_ns() - system, Ordering::Relaxed);
        result
    }
}

/// CPU time of this thread, in ns.
fn thread_cpu_ns() -> i64 {
    // This clock is always there.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(0, |time| time.num_nanoseconds())
}

/// What of it was in the kernel, in ns.
fn thread_system_ns() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.system_time().num_nanoseconds())
}
