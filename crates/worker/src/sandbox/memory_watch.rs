//! One thread that tells what all instances use, and when that is more memory than there is.
//!
//! The kernel tells of the group that holds all instances' groups ([`MemoryNotices`]). That group also
//! holds what was started ahead of them, and what is kept of files, so its crossing the capacity is a
//! reason to look: what counts is the memory of the instances less that of files. While the group is above
//! the capacity the thread looks each millisecond, since the kernel has nothing more to tell then.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::cgroup::{Controller, MemoryNotices};
use super::host::Host;
use super::threads;

/// Between two looks while the group is above the capacity.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Between two samples for policies that decide by them.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// A look's time is at most such a part of the time until the next: 5 % of a core.
const MIN_INTERVALS: u32 = 20;
/// Between two looks, however many instances there are.
const LONGEST_INTERVAL: Duration = Duration::from_millis(250);
/// CPU time is counted over this time at least: the kernel's account may be a tick behind.
const RATE_INTERVAL: Duration = Duration::from_millis(40);

/// What instances use at a moment.
#[derive(Debug)]
pub(crate) struct InUse {
    pub of: Vec<InstanceUse>,
    /// Bytes that are to be freed.
    pub excess: u64,
    /// When the kernel told of it, or it was seen.
    pub noticed: Instant,
}

/// What one instance uses.
#[derive(Debug)]
pub(crate) struct InstanceUse {
    pub instance: String,
    /// In micro-vCPU.
    pub cpu: u64,
    /// In bytes.
    pub memory: u64,
}

/// The thread.
pub(super) struct MemoryWatch {
    wake: Arc<EventFd>,
    ended: Arc<AtomicBool>,
    warning: Option<String>,
}

impl MemoryWatch {
    /// Starts the thread, which tells `report` of too much memory, if there is a capacity, and what
    /// instances use from time to time, if it `samples`.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub(super) fn start(
        host: &Arc<Host>,
        capacity: Option<u64>,
        samples: bool,
        report: impl Fn(InUse) + Send + 'static,
    ) -> io::Result<Self> {
        let (bound, warning) = match capacity.map(|capacity| Bound::open(host, capacity)) {
            None => (None, None),
            Some(Ok(bound)) => (Some(bound), None),
            Some(Err(error)) => {
                let sentence =
                    "nobody is stopped when instances use more memory than capacity_memory";
                (None, Some(format!("{sentence}: {error}")))
            }
        };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        let ended = Arc::new(AtomicBool::new(false));
        let mut thread = Thread {
            host: Arc::downgrade(host),
            bound,
            samples,
            rates: HashMap::new(),
            wake: wake.clone(),
            ended: ended.clone(),
        };
        let purpose = "watches instances' memory";
        threads::start("uncia-memory", purpose, &host.failure, move || thread.run(&report))?;
        Ok(Self { wake, ended, warning })
    }

    /// Why the kernel does not tell when memory runs short, if it does not; a sentence.
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        // It fails only when it has been told countless times.
        let _ = self.wake.write(1);
    }
}

/// The memory that there is.
struct Bound {
    notices: MemoryNotices,
    capacity: u64,
    /// Whether the group was above it at the last look.
    is_above: bool,
}

impl Bound {
    fn open(host: &Host, capacity: u64) -> Result<Self, String> {
        let layout = host.layout.as_ref();
        let group = layout.and_then(|it| Some((it.version, it.parents.get(&Controller::Memory)?)));
        let (version, folder) = group.ok_or("there is no control group for memory")?;
        let notices = MemoryNotices::open(version, folder, capacity);
        Ok(Self { notices: notices.map_err(|error| error.to_string())?, capacity, is_above: false })
    }

    /// Bytes that instances use beyond it.
    fn excess(&mut self, uses: &[InstanceUse], is_out_of_memory: bool) -> u64 {
        let was_above = self.is_above;
        self.is_above = self.notices.usage().is_some_and(|usage| usage >= self.capacity);
        let turned = match (was_above, self.is_above) {
            (false, true) => self.notices.hush(),
            (true, false) => self.notices.arm(),
            _ => Ok(()),
        };
        if let Err(error) = turned {
            tracing::warn!("{error}");
        }
        let used: u64 = uses.iter().map(|it| it.memory).sum();
        let excess = excess(used, self.capacity, || self.notices.of_files().unwrap_or_default());
        // Of a bound above this group's nobody knows by how much: one goes.
        excess.max(is_out_of_memory.into())
    }
}

/// Bytes of what is used beyond the capacity, less what is kept of files, which is asked for if it matters.
fn excess(used: u64, capacity: u64, of_files: impl FnOnce() -> u64) -> u64 {
    let beyond = used.saturating_sub(capacity);
    if beyond == 0 { 0 } else { beyond.saturating_sub(of_files()) }
}

/// How fast an instance has used CPU time.
struct Rate {
    at: Instant,
    cpu_ns: i64,
    micro: u64,
}

impl Rate {
    /// Goes on to a later account; returns the rate in micro-vCPU.
    fn advance(&mut self, now: Instant, cpu_ns: i64) -> u64 {
        let time = now.saturating_duration_since(self.at);
        if time >= RATE_INTERVAL {
            let used = u128::from(cpu_ns.saturating_sub(self.cpu_ns).max(0).unsigned_abs());
            self.micro = (used * 1_000_000 / time.as_nanos()) as u64;
            (self.at, self.cpu_ns) = (now, cpu_ns);
        }
        self.micro
    }
}

struct Thread {
    host: Weak<Host>,
    bound: Option<Bound>,
    samples: bool,
    rates: HashMap<String, Rate>,
    wake: Arc<EventFd>,
    ended: Arc<AtomicBool>,
}

impl Thread {
    fn run(&mut self, report: &impl Fn(InUse)) {
        let mut cost = Duration::ZERO;
        loop {
            let is_out_of_memory = match self.wait(cost) {
                Ok(is_out_of_memory) => is_out_of_memory,
                Err(error) => {
                    tracing::error!("the kernel's notices of memory cannot be waited for: {error}");
                    return;
                }
            };
            let noticed = Instant::now();
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            let Some(host) = self.host.upgrade() else { return };
            let of = self.uses(&host, noticed);
            drop(host);
            let excess = self.bound.as_mut().map_or(0, |bound| bound.excess(&of, is_out_of_memory));
            if excess > 0 || self.samples && !of.is_empty() {
                report(InUse { of, excess, noticed });
            }
            cost = noticed.elapsed();
        }
    }

    /// Waits for the next look, the last of which took so long; whether it is for lack of any memory.
    fn wait(&self, cost: Duration) -> io::Result<bool> {
        let is_above = self.bound.as_ref().is_some_and(|it| it.is_above);
        let interval =
            if is_above { Some(LOOK_INTERVAL) } else { self.samples.then_some(SAMPLE_INTERVAL) };
        let interval =
            interval.map(|least| (cost * MIN_INTERVALS).clamp(least, LONGEST_INTERVAL.max(least)));
        if let Some(bound) = &self.bound {
            return Ok(bound.notices.wait(self.wake.as_fd(), interval)?.is_out_of_memory);
        }
        let timeout = interval.and_then(|it| it.try_into().ok());
        let timeout = timeout.unwrap_or(nix::poll::PollTimeout::NONE);
        let wake = nix::poll::PollFd::new(self.wake.as_fd(), nix::poll::PollFlags::POLLIN);
        match nix::poll::poll(&mut [wake], timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// What each instance uses.
    fn uses(&mut self, host: &Host, now: Instant) -> Vec<InstanceUse> {
        let instances: Vec<_> = host.lock().values().cloned().collect();
        let mut uses = Vec::with_capacity(instances.len());
        for instance in &instances {
            let Some((cpu_ns, memory)) = instance.meter.in_use() else { continue };
            let rate = match self.rates.get_mut(&instance.id) {
                Some(rate) => rate.advance(now, cpu_ns),
                None => {
                    let rate = Rate { at: now, cpu_ns, micro: 0 };
                    self.rates.insert(instance.id.clone(), rate);
                    0
                }
            };
            uses.push(InstanceUse { instance: instance.id.clone(), cpu: rate, memory });
        }
        if self.rates.len() > instances.len() {
            self.rates.retain(|id, _| instances.iter().any(|it| it.id == *id));
        }
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_files_is_no_excess() {
        assert_eq!(excess(100, 100, || unreachable!("nothing is beyond")), 0);
        assert_eq!(excess(150, 100, || 20), 30);
        assert_eq!(excess(150, 100, || 70), 0);
    }

    #[test]
    fn a_rate_is_counted_over_a_while() {
        let start = Instant::now();
        let mut rate = Rate { at: start, cpu_ns: 1_000, micro: 7 };
        assert_eq!(rate.advance(start + Duration::from_millis(1), 900_000), 7);
        assert_eq!(rate.advance(start + Duration::from_millis(50), 25_001_000), 500_000);
        // No account goes back.
        assert_eq!(rate.advance(start + Duration::from_millis(100), 0), 0);
    }
}
