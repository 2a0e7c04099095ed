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

use super::entry::{AcceptedEvent, Ack, Entry, OnCommit, Recorded, Room, WaitingEvent};
use super::queue::Queue;
use super::reader::Reader;
use super::retention::Retention;
use super::writer::Writer;
use super::{LogError, schema, tables};
use crate::store::{DatabaseError, database};

/// Payloads of events that may wait for the disk, in KiB; who brings more waits.
const EVENT_ROOM_KIB: usize = 8 * 1024;
/// Invocations that may wait for the disk; more are refused. A request waits for one, so that with
/// a disk that keeps up there are not nearly as many.
const INVOCATION_ROOM: usize = 50_000;

/// The writing end of the log; shared by all.
pub(crate) struct MeterLog {
    path: PathBuf,
    queue: Arc<Queue>,
    event_room: Arc<Semaphore>,
    invocation_room: Arc<Semaphore>,
    payloads: Mutex<Reader>,
    /// Why the thread ended unasked, if it did.
    failure: watch::Receiver<Option<String>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl MeterLog {
    /// Opens the log in the state folder. Instances that an earlier worker left running, which are
    /// gone by now, are recorded as such.
    pub(crate) fn open(state: &Path, retention: Retention) -> Result<Self, LogError> {
        let path = state.join("meter.sqlite");
        let (mut connection, version) = database::open(&path, &schema::FORMAT)?;
        let refused = |error: rusqlite::Error| DatabaseError::of(&path, &error);
        schema::migrate(&mut connection, version).map_err(refused)?;
        tables::end_left_instances(&connection).map_err(refused)?;
        let payloads = Mutex::new(Reader::open(&path)?);
        let queue = Arc::<Queue>::default();
        let event_room = Arc::new(Semaphore::new(EVENT_ROOM_KIB));
        let (failed, failure) = watch::channel(None);
        let writer = Writer::new(path.clone(), connection, retention);
        let thread = std::thread::Builder::new()
            .name("meter-log".to_owned())
            .spawn({
                let (queue, event_room) = (queue.clone(), event_room.clone());
                move || {
                    // Nothing of the writer is used after a panic but the queue, which is whole.
                    let end = catch_unwind(AssertUnwindSafe(|| writer.run(&queue)));
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
            queue,
            event_room,
            invocation_room: Arc::new(Semaphore::new(INVOCATION_ROOM)),
            payloads,
            failure,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The database, for readers.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes an invocation; the writer's thread calls `on_commit` when it is committed, or once it
    /// is certain that it is not. It must return soon: everybody waits for that thread. If the log
    /// is closed or too far behind, it is called at once by this one.
    pub(crate) fn invocation(
        &self,
        recorded: Recorded,
        on_commit: impl FnOnce(Result<(), LogError>) + Send + 'static,
    ) {
        let on_commit = OnCommit::new(on_commit);
        match self.invocation_room.clone().try_acquire_owned() {
            Ok(room) => {
                let recorded = Box::new(recorded);
                self.queue.push(Entry::Invocation { recorded, on_commit, _room: room });
            }
            Err(_) => on_commit.call(Err(LogError::Behind)),
        }
    }

    /// Writes an event that is about to be accepted; returns its id when it is committed. Waits
    /// while many others wait for the disk. Once called it must be awaited to its end: an event
    /// whose future was dropped may have been accepted without anybody's knowledge.
    pub(crate) async fn accept(&self, event: AcceptedEvent) -> Result<i64, LogError> {
        let kib = (event.payload.len() / 1024 + 1).min(EVENT_ROOM_KIB);
        let room = self.event_room.clone().acquire_many_owned(kib as u32).await;
        let room: Room = room.map_err(|_| LogError::Closed)?;
        self.ask(|ack| Entry::Event { event: Box::new(event), ack, _room: room }).await
    }

    /// The events that are accepted and not done, oldest first, without their payloads.
    pub(crate) fn left_events(&self) -> Result<Vec<WaitingEvent>, LogError> {
        self.reading().events()
    }

    /// An event's payload, none if the event is done. Reads from the disk.
    pub(crate) fn payload(&self, id: i64) -> Result<Option<Bytes>, LogError> {
        Ok(self.reading().payload(id)?.map(Bytes::from))
    }

    /// Forgets an event, some time soon.
    pub(crate) fn drop_event(&self, id: i64) {
        // After closing, the event stays for the next start.
        self.queue.push(Entry::DropEvent(id));
    }

    /// Writes the state of an instance, some time soon, and adds the idle intervals that the row
    /// carries to those that are known.
    pub(crate) fn instance(&self, row: Instance) {
        // After closing, the next start records that the instance is gone.
        self.queue.push(Entry::Instance(Box::new(row)));
    }

    /// Returns when every invocation and instance that was written before is committed, or cannot be
    /// now; with the number of changes of instances and events that a full disk holds up.
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
        self.queue.close();
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
    use std::sync::mpsc;

    use super::super::tests::{block_on, event, invocation};
    use super::*;

    #[test]
    fn what_waits_for_the_disk_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let log = Arc::new(MeterLog::open(folder.path(), Retention::default()).unwrap());
        // The thread stands still while this callback does.
        let (go_on, stopped) = mpsc::channel::<()>();
        let (standing, stands) = mpsc::channel();
        log.invocation(invocation("first"), move |_| {
            standing.send(()).unwrap();
            let _ = stopped.recv();
        });
        stands.recv().unwrap();
        let tasks = tokio::task::LocalSet::new();
        let accept = || {
            let log = log.clone();
            let payload = Bytes::from(vec![b' '; 255 * 1024]);
            async move { log.accept(AcceptedEvent { payload, ..event("x") }).await }
        };
        let events: Vec<_> = (0..40).map(|_| tasks.spawn_local(accept())).collect();
        block_on(tasks.run_until(async {
            while log.event_room.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            // 32 of them fill the room, and the others wait outside.
            assert_eq!(log.queue.counts(), (0, 32));
            let (sender, results) = mpsc::channel();
            // The first still has its place.
            for _ in 0..INVOCATION_ROOM {
                let sender = sender.clone();
                log.invocation(invocation("x"), move |result| sender.send(result).unwrap());
            }
            assert_eq!(results.try_recv(), Ok(Err(LogError::Behind)));
            go_on.send(()).unwrap();
            for event in events {
                event.await.unwrap().unwrap();
            }
            drop(sender);
            assert_eq!(results.iter().flatten().count(), INVOCATION_ROOM - 1);
        }));
        assert_eq!(log.left_events().unwrap().len(), 40);
    }
}
