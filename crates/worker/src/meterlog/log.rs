//! The writing end of the log.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot, watch};
use uncia_record::Instance;

use super::entry::{
    AcceptedEvent, Ack, Entry, KeptTrigger, Passed, Record, Recorded, Room, Row, TriggerUpdate,
    WaitingEvent,
};
use super::journal::{self, Journal};
use super::queue::Queue;
use super::reader::Reader;
use super::retention::Retention;
use super::writer::Writer;
use super::{LogError, schema, tables};
use crate::store::{DatabaseError, database};

/// Payloads of events that may wait for the disk, in KiB; who brings more waits.
const EVENT_ROOM_KIB: usize = 8 * 1024;
/// Invocations that may wait for the database; more are refused. With a database that keeps up there
/// are not nearly as many.
const INVOCATION_ROOM: usize = 50_000;
/// Rows nobody waits for that may wait for the database. What does not fit any more, the next start
/// makes good: it ends the instances that are left, and drops the events of functions that are gone.
const STATE_ROOM: usize = 10_000;

/// When rows are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keeping {
    /// Into the journal, before their answers go out.
    #[default]
    Durable,
    /// Into the database alone, once somebody reads it or many wait: a measure of what writing takes.
    Memory,
}

/// The writing end of the log; shared by all.
pub(crate) struct MeterLog {
    path: PathBuf,
    keeping: Keeping,
    journal: Arc<Mutex<Journal>>,
    queue: Arc<Queue>,
    event_room: Arc<Semaphore>,
    invocation_room: Arc<Semaphore>,
    state_room: Arc<Semaphore>,
    payloads: Mutex<Reader>,
    /// Why the thread ended unasked, if it did.
    failure: watch::Receiver<Option<String>>,
    warnings: Vec<String>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl MeterLog {
    /// Opens the log in the state folder, with what the journal has of an earlier worker that was
    /// killed. Instances that it left running, which are gone by now, are recorded as such.
    pub(crate) fn open(
        state: &Path,
        retention: Retention,
        keeping: Keeping,
    ) -> Result<Self, LogError> {
        Self::open_with(state, retention, keeping, journal::SEGMENT_BYTES, Writer::run)
    }

    /// A file of the journal is followed by another at `segment_bytes`; `run` is what the thread does.
    pub(super) fn open_with(
        state: &Path,
        retention: Retention,
        keeping: Keeping,
        segment_bytes: u64,
        run: impl FnOnce(Writer, &Queue) + Send + 'static,
    ) -> Result<Self, LogError> {
        let path = state.join("meter.sqlite");
        let folder = state.join("journal");
        let (mut connection, version) = database::open(&path, &schema::FORMAT)?;
        let refused = |error: rusqlite::Error| DatabaseError::of(&path, &error);
        schema::migrate(&mut connection, version).map_err(refused)?;
        let (log, applied) = tables::applied(&connection).map_err(refused)?;
        let noted = tables::noted(&connection).map_err(refused)?;
        let mut left = journal::read(&folder, &log, applied, &noted)?;
        tables::insert_left(&mut connection, &left).map_err(refused)?;
        tables::end_left_instances(&connection).map_err(refused)?;
        // Not before what was read of it is in the database: a kill here changes nothing.
        left.set_aside();
        let journal = Journal::begin(&folder, log, &left, segment_bytes)?;
        let warnings = left.take_warnings();
        // Before anything is written to it.
        tables::set_applied(&connection, journal.last_applied()).map_err(refused)?;
        tables::set_noted(&connection, &journal.to_note()).map_err(refused)?;
        let journal = Arc::new(Mutex::new(journal));
        let payloads = Mutex::new(Reader::open(&path)?);
        let queue = Arc::new(Queue::new(keeping));
        let event_room = Arc::new(Semaphore::new(EVENT_ROOM_KIB));
        let (failed, failure) = watch::channel(None);
        let writer = Writer::new(path.clone(), connection, journal.clone(), retention);
        let thread = std::thread::Builder::new()
            .name("meter-log".to_owned())
            .spawn({
                let (queue, event_room) = (queue.clone(), event_room.clone());
                move || {
                    // Nothing of the writer is used after a panic but the queue, which is whole.
                    let end = catch_unwind(AssertUnwindSafe(|| run(writer, &queue)));
                    event_room.close();
                    if let Err(panic) = end {
                        failed.send_replace(Some(describe(&*panic)));
                        queue.abandon();
                    }
                }
            })
            .map_err(|error| LogError::Thread(error.to_string()))?;
        Ok(Self {
            path,
            keeping,
            journal,
            queue,
            event_room,
            invocation_room: Arc::new(Semaphore::new(INVOCATION_ROOM)),
            state_room: Arc::new(Semaphore::new(STATE_ROOM)),
            payloads,
            failure,
            warnings,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The database, for readers.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What was found when it was opened and may have cost rows, a sentence each.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Writes an invocation: when this returns, it survives the end of the process, or will never be
    /// in the log.
    pub(crate) fn invocation(&self, recorded: Arc<Recorded>) -> Result<(), LogError> {
        let room = self.invocation_room.clone().try_acquire_owned();
        let room = room.map_err(|_| LogError::Behind)?;
        self.write(Record::Invocation(recorded), room, false)
    }

    /// Writes an event that is about to be accepted; returns its id when it is committed. Waits
    /// while many others wait for the disk. Once called it must be awaited to its end: an event
    /// whose future was dropped may have been accepted without anybody's knowledge. With a change that
    /// it came from, that its trigger has passed that is written, too, or neither is.
    pub(crate) async fn accept(
        &self,
        event: AcceptedEvent,
        change: Option<Passed>,
    ) -> Result<i64, LogError> {
        let kib = (event.payload.len() / 1024 + 1).min(EVENT_ROOM_KIB);
        let room = self.event_room.clone().acquire_many_owned(kib as u32).await;
        let room: Room = room.map_err(|_| LogError::Closed)?;
        self.ask(|ack| Entry::Event { event: Box::new(event), change, ack, _room: room }).await
    }

    /// Writes what becomes of a trigger, behind the events that it began.
    pub(crate) async fn trigger(&self, update: TriggerUpdate) -> Result<(), LogError> {
        self.ask(|ack| Entry::Trigger { update, ack }).await
    }

    /// The triggers that there are, by name.
    pub(crate) fn triggers(&self) -> Result<Vec<KeptTrigger>, LogError> {
        self.reading().triggers()
    }

    /// The name of the invocation that a request was, if its row is in the database and one of the newest
    /// `most`. Reads from the disk.
    pub(crate) fn invocation_of(
        &self,
        request_id: &str,
        most: i64,
    ) -> Result<Option<String>, LogError> {
        self.reading().invocation_of(request_id, most)
    }

    /// The events that are accepted and not done, oldest first, without their payloads.
    pub(crate) fn left_events(&self) -> Result<Vec<WaitingEvent>, LogError> {
        self.reading().events()
    }

    /// An event's payload, none if the event is done. Reads from the disk.
    pub(crate) fn payload(&self, id: i64) -> Result<Option<Bytes>, LogError> {
        Ok(self.reading().payload(id)?.map(Bytes::from))
    }

    /// Forgets events, some time soon.
    pub(crate) fn drop_events(&self, ids: Vec<i64>) {
        // After closing, they stay for the next start.
        self.note(Record::DropEvents(ids));
    }

    /// Writes the state of an instance, some time soon, and adds the idle intervals that the row
    /// carries to those that are known.
    pub(crate) fn instance(&self, row: Instance) {
        // After closing, the next start records that the instance is gone.
        self.note(Record::Instance(Box::new(row)));
    }

    /// Writes a record that nobody waits for, even if the journal does not take it.
    fn note(&self, record: Record) {
        if let Ok(room) = self.state_room.clone().try_acquire_owned() {
            // It is with the thread, or the log is closed.
            let _ = self.write(record, room, true);
        }
    }

    /// Writes a record to the journal, and gives it to the thread: in `any_case`, or if the journal has
    /// it.
    fn write(&self, record: Record, room: Room, any_case: bool) -> Result<(), LogError> {
        // It is whole after every statement, so a panic elsewhere does not spoil it.
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if self.queue.is_closed() {
            return Err(LogError::Closed);
        }
        let written = match self.keeping {
            Keeping::Durable => journal.append(&record).map(Some),
            Keeping::Memory => Ok(None),
        };
        let number = written.as_ref().ok().copied().flatten();
        if any_case || written.is_ok() {
            // Under the lock, so that rows reach the database in the order of their numbers.
            self.queue.push(Entry::Row(Box::new(Row { record, number, _room: room })));
        }
        Ok(written.map(drop)?)
    }

    /// Returns when every row that was written before can be read in the database, or cannot be
    /// brought there now; with the number of rows that a full disk holds up.
    pub(crate) async fn barrier(&self) -> Result<usize, LogError> {
        self.ask(Entry::Barrier).await
    }

    /// Resolves with a sentence when the thread that writes ends unasked; from then on nothing is
    /// written any more. Never resolves after [`Self::close`].
    pub(crate) fn failed(&self) -> impl Future<Output = String> + Send + use<> {
        let mut failure = self.failure.clone();
        async move {
            let failed = failure.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
            match failed {
                Some(message) => message,
                None => std::future::pending().await,
            }
        }
    }

    /// Writes what is left and ends the thread.
    pub(crate) fn close(&self) {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Its panics are caught.
            let _ = thread.join();
            self.journal.lock().unwrap_or_else(PoisonError::into_inner).remove_if_finished();
        }
    }

    async fn ask<T>(&self, entry: impl FnOnce(Ack<T>) -> Entry) -> Result<T, LogError> {
        let (ack, answer) = oneshot::channel();
        self.queue.push(entry(ack));
        answer.await.map_err(|_| LogError::Closed)?
    }

    fn reading(&self) -> std::sync::MutexGuard<'_, Reader> {
        // Reading changes nothing that a panic could leave half-done.
        self.payloads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MeterLog {
    fn drop(&mut self) {
        self.close();
    }
}

fn describe(panic: &(dyn Any + Send)) -> String {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "for an unknown reason".to_owned());
    format!("the thread that writes the log ended: {message}; start the platform again")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{barrier, block_on, event, hold, invocation, names, record};
    use super::*;

    #[test]
    fn what_waits_for_the_database_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let log = Arc::new(
            MeterLog::open(folder.path(), Retention::default(), Keeping::Durable).unwrap(),
        );
        let held = hold(folder.path());
        let tasks = tokio::task::LocalSet::new();
        let accept = || {
            let log = log.clone();
            let payload = Bytes::from(vec![b' '; 255 * 1024]);
            async move { log.accept(AcceptedEvent { payload, ..event("x") }, None).await }
        };
        let events: Vec<_> = (0..40).map(|_| tasks.spawn_local(accept())).collect();
        block_on(tasks.run_until(async {
            while log.event_room.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            for _ in 0..INVOCATION_ROOM {
                record(&log, invocation("x")).unwrap();
            }
            assert_eq!(record(&log, invocation("x")), Err(LogError::Behind));
            drop(held);
            for event in events {
                // SQLite gives up waiting for another program after some seconds.
                let _ = event.await.unwrap();
            }
        }));
        barrier(&log);
        assert_eq!(names(folder.path()).len(), INVOCATION_ROOM);
    }

    #[test]
    fn a_thread_that_ends_unasked_is_reported_and_leaves_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let (fail, told) = std::sync::mpsc::channel::<()>();
        let run = move |_: Writer, _: &Queue| {
            told.recv().unwrap();
            panic!("the test wants it");
        };
        let size = journal::SEGMENT_BYTES;
        let log =
            MeterLog::open_with(folder.path(), Retention::default(), Keeping::Durable, size, run);
        let log = Arc::new(log.unwrap());
        let failed = log.failed();
        record(&log, invocation("answered")).unwrap();
        let accepting = std::thread::spawn({
            let log = log.clone();
            move || block_on(log.accept(event("e"), None))
        });
        fail.send(()).unwrap();
        let sentence = block_on(failed);
        assert!(sentence.contains("the test wants it"), "{sentence}");
        assert_eq!(accepting.join().unwrap(), Err(LogError::Closed));
        assert_eq!(record(&log, invocation("late")), Err(LogError::Closed));
        assert_eq!(block_on(log.barrier()), Err(LogError::Closed));
        log.close();
        drop(log);
        drop(MeterLog::open(folder.path(), Retention::default(), Keeping::Durable).unwrap());
        assert_eq!(names(folder.path()), ["answered"]);
    }
}
