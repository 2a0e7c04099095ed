//! What was used last, as far as there is room for it.

use std::collections::VecDeque;

/// Keys with their sizes, the least recently used first; together they have no more bytes than the limit.
#[derive(Debug)]
pub(super) struct Recent<K> {
    limit: u64,
    bytes: u64,
    order: VecDeque<(K, u64)>,
}

impl<K: PartialEq> Recent<K> {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, bytes: 0, order: VecDeque::new() }
    }

    /// Notes that something is used now. Returns whether it is kept from now on and was not before, and what has to
    /// go for it. What alone is larger than the limit is not kept.
    pub(super) fn touch(&mut self, key: K, bytes: u64) -> (bool, Vec<K>) {
        if let Some(index) = self.order.iter().position(|(known, _)| *known == key) {
            let used = self.order.remove(index);
            self.order.extend(used);
            return (false, Vec::new());
        }
        if bytes > self.limit {
            return (false, Vec::new());
        }
        self.order.push_back((key, bytes));
        self.bytes += bytes;
        let mut gone = Vec::new();
        while self.bytes > self.limit {
            let Some((key, bytes)) = self.order.pop_front() else { break };
            self.bytes -= bytes;
            gone.push(key);
        }
        (true, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut recent = Recent::new(10);
        assert_eq!(recent.touch('a', 4), (true, vec![]));
        assert_eq!(recent.touch('b', 4), (true, vec![]));
        assert_eq!(recent.touch('a', 4), (false, vec![]));
        assert_eq!(recent.touch('c', 4), (true, vec!['b']));
        // It needs the room of both.
        assert_eq!(recent.touch('d', 10), (true, vec!['a', 'c']));
        assert_eq!(recent.bytes, 10);
    }

    #[test]
    fn what_does_not_fit_leaves_the_others() {
        let mut recent = Recent::new(10);
        recent.touch('a', 10);
        assert_eq!(recent.touch('b', 11), (false, vec![]));
        assert_eq!(recent.touch('a', 10), (false, vec![]));
        assert_eq!(Recent::new(0).touch('a', 1), (false, vec![]));
    }
}
