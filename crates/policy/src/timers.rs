//! The times at which something is due, and when to be woken for the next.

use std::collections::{BTreeSet, HashMap};

use crate::{InstanceId, Nanos};

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Pause,
    Stop,
}

/// At most one timer per instance.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    order: BTreeSet<(Nanos, InstanceId, Timer)>,
    by_instance: HashMap<InstanceId, (Nanos, Timer)>,
    /// The wake-up that was asked for and has not come yet.
    armed: Option<Nanos>,
}

impl Timers {
    pub fn set(&mut self, instance: InstanceId, at: Nanos, timer: Timer) {
        self.clear(instance);
        self.order.insert((at, instance, timer));
        self.by_instance.insert(instance, (at, timer));
    }

    pub fn clear(&mut self, instance: InstanceId) {
        if let Some((at, timer)) = self.by_instance.remove(&instance) {
            self.order.remove(&(at, instance, timer));
        }
    }

    /// Takes the next timer that is due.
    pub fn due(&mut self, now: Nanos) -> Option<(InstanceId, Timer)> {
        let &(at, instance, timer) = self.order.first()?;
        if at > now {
            return None;
        }
        self.clear(instance);
        Some((instance, timer))
    }

    /// The wake-up to ask for. None if the one that is on its way comes early enough: most timers
    /// are cleared long before they are due, and asking anew each time would cost more than being
    /// woken once in vain.
    pub fn arm(&mut self, now: Nanos) -> Option<Nanos> {
        self.armed = self.armed.filter(|&at| at > now);
        let &(next, ..) = self.order.first()?;
        if self.armed.is_some_and(|armed| armed <= next) {
            return None;
        }
        self.armed = Some(next);
        Some(next)
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_timer_an_instance_and_one_wake_up() {
        let mut timers = Timers::default();
        let (a, b) = (InstanceId(1), InstanceId(2));
        timers.set(a, 10, Timer::Pause);
        assert_eq!(timers.arm(0), Some(10));
        timers.set(a, 20, Timer::Stop);
        timers.set(b, 15, Timer::Pause);
        assert_eq!(timers.arm(1), None, "the wake-up at 10 is early enough");
        assert_eq!(timers.len(), 2);
        assert_eq!(timers.due(10), None);
        assert_eq!(timers.arm(10), Some(15));
        assert_eq!(timers.due(30), Some((b, Timer::Pause)));
        assert_eq!(timers.due(30), Some((a, Timer::Stop)));
        assert_eq!((timers.due(30), timers.arm(30), timers.len()), (None, None, 0));
    }
}
