//! Data while nothing is done with it: as text, since its values take up to sixteen times the memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// Room for the data of executions, of which each may wait for a year.
#[derive(Clone)]
pub struct Room(Arc<Count>);

struct Count {
    used: AtomicUsize,
    most: usize,
}

impl Room {
    /// Room for so many bytes of JSON.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Count { used: AtomicUsize::new(0), most }))
    }

    /// The bytes that are held.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Whether there is room for so many bytes more.
    #[must_use]
    pub fn has(&self, bytes: usize) -> bool {
        self.used().checked_add(bytes).is_some_and(|bytes| bytes <= self.0.most)
    }

    /// The most bytes that may be held.
    #[must_use]
    pub fn most(&self) -> usize {
        self.0.most
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Room({} of {})", self.used(), self.0.most)
    }
}

impl PartialEq for Room {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Room {}

/// A value as text.
#[derive(Debug, Clone)]
pub(super) struct Stored(Arc<Held>);

#[derive(Debug)]
struct Held {
    text: Box<str>,
    room: Room,
}

impl Stored {
    pub(super) fn new(room: &Room, value: &Value) -> Self {
        let text = value.to_string().into_boxed_str();
        room.0.used.fetch_add(text.len(), Ordering::Relaxed);
        Self(Arc::new(Held { text, room: room.clone() }))
    }

    /// The value again.
    pub(super) fn value(&self) -> Value {
        // Of data, which is never deeper than can be read, the text is always that of a value.
        serde_json::from_str(&self.0.text).unwrap_or_default()
    }

    /// Its bytes.
    pub(super) fn len(&self) -> usize {
        self.0.text.len()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.0.used.fetch_sub(self.text.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_held_is_counted_once_however_many_share_it() {
        let room = Room::new(21);
        let value = json!({"a": [1, 2.5, "é\n"]});
        let stored = Stored::new(&room, &value);
        assert_eq!((stored.value(), stored.len(), room.used()), (value.clone(), 20, 20));
        let shared = stored.clone();
        assert!(room.has(1) && !room.has(2) && !room.has(usize::MAX));
        drop(stored);
        assert_eq!(room.used(), 20);
        drop(shared);
        assert_eq!(room.used(), 0);
    }
}
