//! The instances of a worker that has joined, all of which one connection to the controller has asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connection to the controller, among those that the worker has had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionId(u64);

/// Instances by id.
pub(super) struct Instances<T>(Mutex<State<T>>);

struct State<T> {
    connection: ConnectionId,
    by_id: HashMap<String, Arc<T>>,
}

impl<T> Default for Instances<T> {
    fn default() -> Self {
        Self(Mutex::new(State { connection: ConnectionId(0), by_id: HashMap::new() }))
    }
}

impl<T> Instances<T> {
    /// The connection that there is, or is to come.
    pub(super) fn connection(&self) -> ConnectionId {
        self.lock().connection
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<T>> {
        self.lock().by_id.get(id).cloned()
    }

    /// Adds an instance that a connection has asked for; gives it back if that has ended meanwhile.
    pub(super) fn insert(
        &self,
        connection: ConnectionId,
        id: String,
        instance: T,
    ) -> Result<(), T> {
        let mut state = self.lock();
        if state.connection != connection {
            return Err(instance);
        }
        state.by_id.insert(id, Arc::new(instance));
        Ok(())
    }

    pub(super) fn remove(&self, id: &str) {
        self.lock().by_id.remove(id);
    }

    /// The connection has ended: returns what it has asked for, which nobody asks for now.
    pub(super) fn end_connection(&self) -> Vec<Arc<T>> {
        let mut state = self.lock();
        state.connection.0 += 1;
        state.by_id.drain().map(|(_, instance)| instance).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // It is whole after every statement, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_ready_after_its_connection_is_given_back() {
        let instances = Instances::default();
        let first = instances.connection();
        assert_eq!(instances.insert(first, "i".to_owned(), 1), Ok(()));
        assert_eq!(instances.end_connection(), [Arc::new(1)]);
        assert_eq!(instances.insert(first, "j".to_owned(), 2), Err(2));
        let second = instances.connection();
        assert_eq!(instances.insert(second, "k".to_owned(), 3), Ok(()));
        assert_eq!(["i", "j", "k"].map(|id| instances.get(id)), [None, None, Some(Arc::new(3))]);
        instances.remove("k");
        assert!(instances.end_connection().is_empty());
    }
}
