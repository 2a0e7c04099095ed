use crate::{Idle, InstanceId};

/// Decides which idle instance gives its place to another function when the worker is full.
pub trait Eviction: Send {
    /// `idle` holds the idle instances of all functions, in no particular order.
    fn victim(&self, idle: &mut dyn Iterator<Item = Idle>) -> Option<InstanceId>;
}

/// The instance that has idled longest goes.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeastRecentlyUsed;

impl Eviction for LeastRecentlyUsed {
    fn victim(&self, idle: &mut dyn Iterator<Item = Idle>) -> Option<InstanceId> {
        idle.min_by_key(|idle| (idle.since, idle.instance)).map(|idle| idle.instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_goes() {
        let idle = |instance, since| Idle { instance: InstanceId(instance), since, paused: None };
        let mut all = [idle(1, 30), idle(2, 10), idle(3, 20)].into_iter();
        assert_eq!(LeastRecentlyUsed.victim(&mut all), Some(InstanceId(2)));
        assert_eq!(LeastRecentlyUsed.victim(&mut [].into_iter()), None);
    }
}
