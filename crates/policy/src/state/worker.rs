//! What is known of a worker.

use crate::state::list::{List, OfWorker};
use crate::state::outlook::Outlook;
use crate::state::rooms::Room;
use crate::{Capacity, Resources, WorkerId};

/// A worker and all that is counted by worker. What placements compare comes first, so that they
/// read few cache lines of each.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Worker {
    /// Instances that take up room, and their allocations.
    pub(crate) instances: u32,
    pub(crate) allocated: Resources,
    pub(crate) capacity: Capacity,
    /// Those of them that can be evicted.
    pub(crate) evictable_resources: Resources,
    pub(crate) evictable: u32,
    /// Instances that are being preempted, and their allocations.
    pub(crate) preempting: u32,
    pub(crate) preempting_resources: Resources,
    /// What starting and active instances have for themselves.
    pub(crate) reserved: Resources,
    /// Allocations of active instances that may be preempted.
    pub(crate) preemptible: Resources,
    /// Evictable instances, the longest idle first.
    pub(crate) idle: List<OfWorker>,
    /// Active preemptible instances; the one whose requests or settings changed last comes last.
    pub(crate) active: List<OfWorker>,
    /// An instance was preempted, and nothing has ended since.
    pub(crate) is_pressed: bool,
    /// Memory that instances which are being stopped or preempted will free.
    pub(crate) freeing: u64,
    /// What instances use, by their last samples.
    pub(crate) used: Resources,
    /// What is expected of what it serves, where policies read that.
    pub(crate) outlook: Outlook,
    pub(crate) id: WorkerId,
    /// All its instances, in no order.
    pub(crate) members: Vec<u32>,
}

impl Default for Worker {
    /// None: what is in a free slot.
    fn default() -> Self {
        Self::new(WorkerId(0), Capacity::NONE)
    }
}

impl Worker {
    pub(crate) fn new(id: WorkerId, capacity: Capacity) -> Self {
        Self {
            id,
            capacity,
            instances: 0,
            allocated: Resources::ZERO,
            evictable: 0,
            evictable_resources: Resources::ZERO,
            reserved: Resources::ZERO,
            preemptible: Resources::ZERO,
            preempting: 0,
            preempting_resources: Resources::ZERO,
            is_pressed: false,
            freeing: 0,
            used: Resources::ZERO,
            outlook: Outlook::default(),
            idle: List::default(),
            active: List::default(),
            members: Vec::new(),
        }
    }

    /// The room beside `instances` with `allocated`.
    fn room_beside(&self, instances: u32, allocated: Resources) -> Room {
        let Capacity { resources, max_instances } = self.capacity;
        if !allocated.fits(resources) {
            return Room::default();
        }
        let left = |of: u64, taken: u64| if of == u64::MAX { of } else { of - taken };
        Room {
            resources: Resources {
                cpu: left(resources.cpu, allocated.cpu),
                memory: left(resources.memory, allocated.memory),
            },
            instances: max_instances.saturating_sub(instances),
        }
    }

    /// The room as things are.
    pub(crate) fn room(&self) -> Room {
        self.room_beside(self.instances, self.allocated)
    }

    /// The room once idle instances are evicted.
    pub(crate) fn room_after_eviction(&self) -> Room {
        let instances = self.instances - self.evictable;
        self.room_beside(instances, self.allocated - self.evictable_resources)
    }

    /// The room once, too, those that are being preempted are gone.
    pub(crate) fn room_after_preemption(&self) -> Room {
        let instances = self.instances - self.evictable - self.preempting;
        let stays = self.allocated - self.evictable_resources - self.preempting_resources;
        self.room_beside(instances, stays)
    }

    /// Whether an instance fits on the empty worker.
    pub(crate) fn could_hold(&self, allocation: Resources) -> bool {
        self.room_beside(0, Resources::ZERO).fits(allocation)
    }

    /// Whether it has more than its capacity, as after a change of it.
    pub(crate) fn is_overfull(&self) -> bool {
        self.instances > self.capacity.max_instances
            || !self.allocated.fits(self.capacity.resources)
    }
}
