//! What waits for one subscriber, bounded: beyond it, events are dropped and counted.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::event;
use super::subscription::Subscription;

/// Whether anything is sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Runs,
    /// The instance is frozen, and its listener with it.
    Paused,
    /// The instance ends: what there is is sent at once.
    Ends,
    /// Nothing is sent any more.
    Over,
}

/// Events on their way to one subscriber. What waits is at most what fills one batch, beside the one that
/// is being sent.
pub(super) struct Queue {
    pub subscription: Subscription,
    /// Its extension.
    pub name: String,
    state: Mutex<State>,
    changed: Notify,
}

/// What is sent at once.
pub(super) struct Batch {
    /// A JSON array.
    pub body: Bytes,
    /// How many events are lost if it is, and their size, with those that it says were lost before.
    events: u64,
    bytes: u64,
}

struct State {
    mode: Mode,
    events: VecDeque<Bytes>,
    bytes: usize,
    /// Since when the oldest of them waits.
    since: Instant,
    is_sending: bool,
    dropped_events: u64,
    dropped_bytes: u64,
    why_dropped: &'static str,
}

impl Queue {
    pub(super) fn new(name: String, subscription: Subscription) -> Self {
        let state = State {
            mode: Mode::Runs,
            events: VecDeque::new(),
            bytes: 0,
            since: Instant::now(),
            is_sending: false,
            dropped_events: 0,
            dropped_bytes: 0,
            why_dropped: "",
        };
        Self { name, subscription, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Adds an event, or drops it if there are too many.
    pub(super) fn push(&self, event: &Bytes) {
        let mut state = self.lock();
        if state.mode == Mode::Over {
            return;
        }
        // A comma or bracket follows each.
        let bytes = state.bytes + event.len() + 1;
        if state.events.len() >= self.subscription.max_items
            || bytes > self.subscription.max_bytes && !state.events.is_empty()
        {
            let why = "The subscriber takes telemetry more slowly than it comes";
            return state.drop_events(1, event.len() as u64, why);
        }
        if state.events.is_empty() {
            state.since = Instant::now();
        }
        state.events.push_back(event.clone());
        state.bytes = bytes;
        let is_news = state.events.len() == 1 || self.is_full(&state);
        drop(state);
        if is_news {
            self.changed.notify_one();
        }
    }

    /// The next batch; waits until it is to be sent. None when none will be.
    pub(super) async fn batch(&self) -> Option<Batch> {
        loop {
            let due = {
                let mut state = self.lock();
                state.is_sending = false;
                let due =
                    (!state.events.is_empty()).then(|| state.since + self.subscription.timeout);
                match state.mode {
                    Mode::Over => return None,
                    Mode::Paused => None,
                    _ if due.is_none() => None,
                    Mode::Ends => return Some(state.take()),
                    Mode::Runs if self.is_full(&state) || due <= Some(Instant::now()) => {
                        return Some(state.take());
                    }
                    Mode::Runs => due,
                }
            };
            match due {
                None => self.changed.notified().await,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = self.changed.notified() => {}
                },
            }
        }
    }

    /// Counts what could not be sent as dropped.
    pub(super) fn lose(&self, batch: &Batch) {
        let why =
            "The subscriber could not be reached, or did not answer that it had received them";
        let mut state = self.lock();
        state.drop_events(batch.events, batch.bytes, why);
    }

    pub(super) fn mode(&self) -> Mode {
        self.lock().mode
    }

    /// From an end there is no way back.
    pub(super) fn set_mode(&self, mode: Mode) {
        let mut state = self.lock();
        match (state.mode, mode) {
            (Mode::Over, _) | (Mode::Ends, Mode::Runs | Mode::Paused) => {}
            _ => state.mode = mode,
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Waits until the instance is not frozen.
    pub(super) async fn resumed(&self) {
        while self.mode() == Mode::Paused {
            self.changed.notified().await;
        }
    }

    /// Whether all was sent.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.lock();
        state.mode == Mode::Over || state.events.is_empty() && !state.is_sending
    }

    fn is_full(&self, state: &State) -> bool {
        state.events.len() >= self.subscription.max_items
            // Another line of usual length would not fit.
            || state.bytes + FULL_WITHIN >= self.subscription.max_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch is full when less than this is missing.
const FULL_WITHIN: usize = 4 * 1024;

impl State {
    fn drop_events(&mut self, events: u64, bytes: u64, why: &'static str) {
        self.dropped_events += events;
        self.dropped_bytes += bytes;
        self.why_dropped = why;
    }

    fn take(&mut self) -> Batch {
        self.is_sending = true;
        let events = self.events.len() as u64 + self.dropped_events;
        let own_bytes: usize = self.events.iter().map(Bytes::len).sum();
        let bytes = own_bytes as u64 + self.dropped_bytes;
        let mut body = Vec::with_capacity(self.bytes + 256);
        body.push(b'[');
        if self.dropped_events > 0 {
            let (events, bytes) = (self.dropped_events, self.dropped_bytes);
            body.extend_from_slice(&event::logs_dropped(self.why_dropped, events, bytes));
            body.push(b',');
            (self.dropped_events, self.dropped_bytes) = (0, 0);
        }
        for event in self.events.drain(..) {
            body.extend_from_slice(&event);
            body.push(b',');
        }
        self.bytes = 0;
        if body.len() > 1 {
            body.pop();
        }
        body.push(b']');
        Batch { body: body.into(), events, bytes }
    }
}
