use crate::Idle;

/// Decides which of a function's idle instances serves the next request.
pub trait Reuse: Send {
    /// The index of the choice. `idle` is not empty, and ordered: the longest idle comes first.
    fn choose(&self, idle: &[Idle]) -> usize;
}

/// The instance that was used last: the likeliest to be unfrozen and in the caches, while those
/// that are not needed any more age towards their removal.
#[derive(Debug, Clone, Copy, Default)]
pub struct MostRecentlyUsed;

impl Reuse for MostRecentlyUsed {
    fn choose(&self, idle: &[Idle]) -> usize {
        idle.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InstanceId;

    #[test]
    fn the_last_used_serves() {
        let idle = |instance, since| Idle { instance: InstanceId(instance), since, paused: None };
        assert_eq!(MostRecentlyUsed.choose(&[idle(5, 1), idle(4, 2), idle(9, 3)]), 2);
    }
}
