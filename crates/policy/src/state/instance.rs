//! What is known of an instance.

use smallvec::SmallVec;

use crate::state::function::{Key, Request};
use crate::state::list::Links;
use crate::state::timer::Timer;
use crate::{FunctionSettings, InstanceId, Nanos, Pause, Resources, StopReason};

/// What an instance does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It is being started.
    Starting,
    /// It serves nothing and waits for requests.
    Idle,
    /// It serves at least one request.
    Active,
    /// It is to be stopped while it serves.
    Preempting,
    /// It is being stopped, or is gone and the ends of its requests are still to be reported.
    Stopping,
}

/// An instance, from the decision to start it until it is reported gone.
///
/// Each event is about another instance than the last, mostly, so that its size counts: it is two
/// cache lines, with all that a request needs. What is needed only when it starts and ends is in
/// [`Extra`], and its [`Size`] with its function.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    /// Since when it is in its phase; an active one keeps the time of its first request.
    pub(crate) since: Nanos,
    pub(crate) timer: Timer,
    /// When an idle one is removed.
    pub(crate) stop_at: Nanos,
    /// Among the available instances of its function.
    pub(crate) function_links: Links,
    /// Among the evictable or the active preemptible instances of its worker.
    pub(crate) worker_links: Links,
    /// The slots of its function and its worker.
    pub(crate) function: u32,
    pub(crate) worker: u32,
    pub(crate) serving: SmallVec<[Request; 1]>,
    /// Requests that it was given so far.
    pub(crate) served: u32,
    pub(crate) concurrency: u32,
    pub(crate) phase: Phase,
    /// It is to be stopped as soon as it serves nothing.
    pub(crate) retiring: Option<StopReason>,
    /// Removed only when its function's settings or version change.
    pub(crate) kept: bool,
    pub(crate) preemptible: bool,
    pub(crate) paused: Option<Pause>,
    /// How an idle one is paused when its time comes, if it is.
    pub(crate) pause: Option<Pause>,
    /// Its function's settings have changed since it was started: its size is in its [`Extra`].
    pub(crate) has_own_size: bool,
    /// It was started for a hint and has served nothing, or is kept for one.
    pub(crate) on_hint: bool,
}

const _: () = assert!(size_of::<Instance>() == 128);

/// What is known of an instance, too, and seldom asked.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// The requests that it was started for and that wait for it.
    pub(crate) bound: SmallVec<[Key; 1]>,
    /// What it uses, by the last sample.
    pub(crate) used: Resources,
    /// When that was taken, and what was used until then since it began to serve.
    pub(crate) sampled: Nanos,
    pub(crate) volume: Volume,
    /// Positions in the lists of members of its function and worker.
    pub(crate) function_index: u32,
    pub(crate) worker_index: u32,
    /// Its size, if its function's instances have another by now.
    pub(crate) size: Option<Box<Size>>,
}

/// Resources in use, summed over time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Volume {
    /// micro-vCPU x ns.
    pub cpu: u128,
    /// Bytes x ns.
    pub memory: u128,
}

impl Volume {
    /// Adds what is used for so long.
    pub(crate) fn add(&mut self, used: Resources, time: Nanos) {
        self.cpu += u128::from(used.cpu) * u128::from(time);
        self.memory += u128::from(used.memory) * u128::from(time);
    }
}

impl Extra {
    /// What an instance has used from `since` to `now`: what each sample says until the next, and
    /// `unsampled` before the first. A sample at `since` itself ends what was before.
    pub(crate) fn volume(&self, unsampled: Resources, since: Nanos, now: Nanos) -> Volume {
        let mut volume = if self.sampled <= since { Volume::default() } else { self.volume };
        let used = if self.used == Resources::ZERO { unsampled } else { self.used };
        volume.add(used, now.saturating_sub(self.sampled.max(since)));
        volume
    }
}

/// What an instance takes up, by its function's settings when it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) allocation: Resources,
    /// What it has of them for itself while it serves.
    pub(crate) reservation: Resources,
    /// What it takes up of its worker's capacity: one of the two.
    pub(crate) room: Resources,
}

impl Size {
    /// That of instances which are started with these settings, where they take up what is reserved
    /// for them alone, or all that is allocated to them.
    #[inline]
    pub(crate) fn new(settings: &FunctionSettings, reserves_only: bool) -> Self {
        let (allocation, reservation) = (settings.allocation, settings.reservation());
        Self { allocation, reservation, room: if reserves_only { reservation } else { allocation } }
    }
}

impl Default for Instance {
    /// None: what is in a free slot.
    fn default() -> Self {
        Self::new(0, 0, &FunctionSettings::default(), None, 0)
    }
}

impl Instance {
    /// One that starts at `now`, without a name yet.
    pub(crate) fn new(
        function: usize,
        worker: usize,
        settings: &FunctionSettings,
        retiring: Option<StopReason>,
        now: Nanos,
    ) -> Self {
        Self {
            id: InstanceId(0),
            since: now,
            timer: Timer::default(),
            stop_at: Nanos::MAX,
            function_links: Links::NONE,
            worker_links: Links::NONE,
            function: function as u32,
            worker: worker as u32,
            serving: SmallVec::new(),
            served: 0,
            concurrency: settings.concurrency.max(1),
            phase: Phase::Starting,
            retiring,
            kept: false,
            preemptible: settings.preemptible,
            paused: None,
            pause: None,
            has_own_size: false,
            on_hint: false,
        }
    }

    /// Takes the request at `index` of those that it serves; the order of the others stays.
    #[inline]
    pub(crate) fn take_served(&mut self, index: usize) -> Request {
        let request = self.serving[index];
        if index + 1 < self.serving.len() {
            self.serving.copy_within(index + 1.., index);
        }
        self.serving.pop();
        request
    }

    /// The slot of its function.
    pub(crate) fn function(&self) -> usize {
        self.function as usize
    }

    /// The slot of its worker.
    pub(crate) fn worker(&self) -> usize {
        self.worker as usize
    }

    /// Whether it serves as many requests as it can.
    pub(crate) fn is_full(&self) -> bool {
        self.serving.len() >= self.concurrency as usize
    }

    /// Whether it can take a request now.
    pub(crate) fn is_available(&self) -> bool {
        self.retiring.is_none()
            && (self.phase == Phase::Idle || self.phase == Phase::Active && !self.is_full())
    }

    /// Whether it can give up its room without a request lost.
    pub(crate) fn is_evictable(&self) -> bool {
        self.phase == Phase::Idle && !self.kept
    }

    /// Whether it serves and may be stopped nevertheless.
    pub(crate) fn is_preemptible(&self) -> bool {
        self.phase == Phase::Active && self.preemptible
    }

    /// Whether it takes up room on its worker.
    pub(crate) fn takes_room(&self) -> bool {
        self.phase != Phase::Stopping
    }

    /// Whether it may have given up room for others when it came to do what it does.
    pub(crate) fn may_give_up_room(&self) -> bool {
        !matches!(self.phase, Phase::Starting | Phase::Active)
    }

    /// The memory that its end will free, if it is on its way.
    pub(crate) fn freeing(&self, size: &Size, used: Resources) -> u64 {
        match self.phase {
            // Gone already.
            Phase::Stopping if !self.serving.is_empty() => 0,
            Phase::Stopping | Phase::Preempting if used.memory > 0 => used.memory,
            Phase::Stopping | Phase::Preempting => size.allocation.memory,
            Phase::Starting | Phase::Idle | Phase::Active => 0,
        }
    }
}
