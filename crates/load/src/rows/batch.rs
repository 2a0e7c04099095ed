//! What the sending thread hands to the recording thread: many requests at a time, in buffers that
//! go back and forth, so that sending neither allocates nor wakes anybody for each request.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::failure::Failure;
use crate::plan::Entry;

/// A batch is handed over when it has so many requests,
const FULL_ROWS: usize = 1_024;
/// or so many bytes of answers,
const FULL_BYTES: usize = 256 << 10;
/// or when its first request has waited this long: together with the table's own half second it
/// stays below the second that a crash may cost.
pub(super) const MAX_AGE_NS: i64 = 100_000_000;

/// With more than this waiting to be written, the disk has lost: about 200 bytes a row.
const MAX_BACKLOG_ROWS: u64 = 500_000;
/// The same for the kept parts of answers.
const MAX_BACKLOG_BYTES: u64 = 192 << 20;

/// A request that is over. Times are nanoseconds since the epoch.
#[derive(Debug)]
pub(crate) struct Completion {
    pub entry: Entry,
    /// None of a later stage of a chain.
    pub scheduled: Option<i64>,
    pub sent: i64,
    /// Index of the stream whose answer released it; its request has the same number.
    pub parent: Option<usize>,
    pub connected: Option<i64>,
    pub first_byte: Option<i64>,
    pub received: Option<i64>,
    /// None: there was no connection.
    pub reused: Option<bool>,
    /// Bytes of the body of the request; none: nothing of the request went out.
    pub request_bytes: Option<i64>,
    pub status: Option<u16>,
    pub response_bytes: Option<u64>,
    /// In a box, because most have none.
    pub failure: Option<Box<Failure>>,
    head: Range<usize>,
    body: Range<usize>,
}

impl Completion {
    /// A request of which nothing is known yet but that it was tried.
    pub(crate) fn new(entry: Entry, scheduled: Option<i64>, sent: i64) -> Self {
        Self {
            entry,
            scheduled,
            sent,
            parent: None,
            connected: None,
            first_byte: None,
            received: None,
            reused: None,
            request_bytes: None,
            status: None,
            response_bytes: None,
            failure: None,
            head: 0..0,
            body: 0..0,
        }
    }
}

/// Requests, and the kept parts of their answers.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    completions: Vec<Completion>,
    bytes: Vec<u8>,
}

impl Batch {
    fn push(&mut self, mut completion: Completion, head: &[u8], body: &[u8]) {
        let mut keep = |part: &[u8]| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(part);
            start..self.bytes.len()
        };
        completion.head = keep(head);
        completion.body = keep(body);
        self.completions.push(completion);
    }

    fn clear(&mut self) {
        self.completions.clear();
        self.bytes.clear();
    }

    /// Each request with the head and the body of its answer, as far as they were kept.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Completion, &[u8], &[u8])> {
        self.completions.iter().map(|completion| {
            let part = |range: &Range<usize>| &self.bytes[range.clone()];
            (completion, part(&completion.head), part(&completion.body))
        })
    }
}

#[derive(Debug, Default)]
struct Backlog {
    rows: AtomicU64,
    bytes: AtomicU64,
}

/// The sending thread's end.
pub(crate) struct Outbox {
    full: Sender<Batch>,
    empty: Receiver<Batch>,
    current: Batch,
    /// When the first request of the current batch came.
    since: i64,
    backlog: Arc<Backlog>,
}

/// The recording thread's end.
pub(crate) struct Inbox {
    full: Receiver<Batch>,
    empty: Sender<Batch>,
    backlog: Arc<Backlog>,
}

/// What an inbox found.
pub(crate) enum Received {
    Batch(Batch),
    Nothing,
    /// The sender is gone, and everything was received.
    End,
}

/// Both ends.
pub(crate) fn channel() -> (Outbox, Inbox) {
    let (full_in, full_out) = mpsc::channel();
    let (empty_in, empty_out) = mpsc::channel();
    let backlog = Arc::new(Backlog::default());
    let outbox = Outbox {
        full: full_in,
        empty: empty_out,
        current: Batch::default(),
        since: 0,
        backlog: backlog.clone(),
    };
    (outbox, Inbox { full: full_out, empty: empty_in, backlog })
}

impl Outbox {
    /// Adds a request that ended at `now`.
    pub(crate) fn push(&mut self, completion: Completion, head: &[u8], body: &[u8], now: i64) {
        if self.current.completions.is_empty() {
            self.since = now;
        }
        self.current.push(completion, head, body);
        if self.current.completions.len() >= FULL_ROWS || self.current.bytes.len() >= FULL_BYTES {
            self.hand_over();
        }
    }

    /// When the current batch has to be handed over.
    pub(crate) fn due(&self) -> Option<i64> {
        (!self.current.completions.is_empty()).then_some(self.since + MAX_AGE_NS)
    }

    /// Hands the current batch over if it is due.
    pub(crate) fn tick(&mut self, now: i64) {
        if self.due().is_some_and(|due| due <= now) {
            self.hand_over();
        }
    }

    pub(crate) fn hand_over(&mut self) {
        if self.current.completions.is_empty() {
            return;
        }
        let next = self.empty.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.current, next);
        self.backlog.rows.fetch_add(batch.completions.len() as u64, Ordering::Relaxed);
        self.backlog.bytes.fetch_add(batch.bytes.len() as u64, Ordering::Relaxed);
        // A recorder that is gone has said why, and stops the run.
        let _ = self.full.send(batch);
    }

    /// The rows that wait to be written, if they are too many.
    pub(crate) fn excess(&self) -> Option<u64> {
        let rows = self.backlog.rows.load(Ordering::Relaxed);
        let bytes = self.backlog.bytes.load(Ordering::Relaxed);
        (rows > MAX_BACKLOG_ROWS || bytes > MAX_BACKLOG_BYTES).then_some(rows)
    }
}

impl Inbox {
    pub(crate) fn receive(&self, timeout: Duration) -> Received {
        match self.full.recv_timeout(timeout) {
            Ok(batch) => Received::Batch(batch),
            Err(RecvTimeoutError::Timeout) => Received::Nothing,
            Err(RecvTimeoutError::Disconnected) => Received::End,
        }
    }

    /// Gives a batch back once it has been dealt with.
    pub(crate) fn give_back(&self, mut batch: Batch) {
        self.backlog.rows.fetch_sub(batch.completions.len() as u64, Ordering::Relaxed);
        self.backlog.bytes.fetch_sub(batch.bytes.len() as u64, Ordering::Relaxed);
        batch.clear();
        // Nobody needs it any more when the sender is gone.
        let _ = self.empty.send(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(number: u64) -> Completion {
        Completion::new(Entry { at: 0, stream: 0, number, burst: None }, Some(0), 0)
    }

    #[test]
    fn everything_arrives_in_order_with_its_own_bytes() {
        const COUNT: u64 = 10_000;
        let (mut outbox, inbox) = channel();
        let sender = std::thread::spawn(move || {
            for number in 0..COUNT {
                let text = number.to_string();
                outbox.push(completion(number), b"head", text.as_bytes(), 0);
            }
            outbox.hand_over();
            assert!(outbox.excess().is_none());
        });
        let mut expected = 0;
        loop {
            match inbox.receive(Duration::from_secs(10)) {
                Received::Batch(batch) => {
                    for (completion, head, body) in batch.iter() {
                        assert_eq!(completion.entry.number, expected);
                        assert_eq!(head, b"head");
                        assert_eq!(body, expected.to_string().as_bytes());
                        expected += 1;
                    }
                    inbox.give_back(batch);
                }
                Received::Nothing => panic!("the sender is stuck"),
                Received::End => break,
            }
        }
        sender.join().unwrap();
        assert_eq!(expected, COUNT);
        assert_eq!(inbox.backlog.rows.load(Ordering::Relaxed), 0);
        assert_eq!(inbox.backlog.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_batch_is_due_a_while_after_its_first_request() {
        let (mut outbox, inbox) = channel();
        assert_eq!(outbox.due(), None);
        outbox.push(completion(0), b"", b"", 5);
        outbox.push(completion(1), b"", b"", 50);
        assert_eq!(outbox.due(), Some(5 + MAX_AGE_NS));
        outbox.tick(4 + MAX_AGE_NS);
        assert!(matches!(inbox.receive(Duration::ZERO), Received::Nothing));
        outbox.tick(5 + MAX_AGE_NS);
        assert!(matches!(inbox.receive(Duration::ZERO), Received::Batch(_)));
        assert_eq!(outbox.due(), None);
    }

    #[test]
    fn too_much_waiting_is_noticed() {
        let (mut outbox, _inbox) = channel();
        for number in 0..=MAX_BACKLOG_ROWS + FULL_ROWS as u64 {
            outbox.push(completion(number), b"", b"", 0);
        }
        assert!(outbox.excess().is_some_and(|rows| rows > MAX_BACKLOG_ROWS));
    }
}
