//! What functions printed: the last of it of each invocation, by the id of its request.
//!
//! It is written by a thread of its own, which no answer waits for, to a file that is followed by another
//! when it is full; of the files only the last two are kept. What comes faster than the disk takes it is
//! dropped and counted.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use uncia_record::Invocation;

/// Of a file, at which it is followed by another.
const FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Entries that may wait for the disk: some MB.
const QUEUE: usize = 1_024;
/// Entries that are read at once.
pub(crate) const MAX_ENTRIES: usize = 200;
/// Only its owner may read what functions print.
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// What a function printed during an invocation, or while its instance started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub request_id: Option<String>,
    pub function: String,
    pub instance: Option<String>,
    pub attempt: i64,
    pub outcome: String,
    /// Unix ns.
    pub ended: Option<i64>,
    /// The last 4 KiB; what is no UTF-8 is replaced.
    pub output: String,
}

impl Entry {
    pub(crate) fn new(row: &Invocation, output: &[u8]) -> Self {
        Self {
            request_id: row.request_id.clone(),
            function: row.function.to_string(),
            instance: row.instance.as_deref().map(str::to_owned),
            attempt: row.attempt,
            outcome: row.outcome.to_string(),
            ended: row.ended,
            output: String::from_utf8_lossy(output).into_owned(),
        }
    }
}

/// Which entries to read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    pub function: Option<String>,
    pub request_id: Option<String>,
    /// The newest, at most so many.
    pub limit: usize,
}

enum Message {
    Entry(Box<Entry>),
    /// Answered when all before it is in the files.
    Flush(SyncSender<()>),
}

/// The outputs, and who writes them.
pub(crate) struct OutputLog {
    folder: PathBuf,
    /// None once it is closed.
    queue: Mutex<Option<SyncSender<Message>>>,
    dropped: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl OutputLog {
    /// Opens the folder in the state folder, with what is there.
    pub(crate) fn open(state: &Path) -> io::Result<Self> {
        Self::open_with(state, FILE_BYTES)
    }

    fn open_with(state: &Path, file_bytes: u64) -> io::Result<Self> {
        let folder = state.join("output");
        match fs::DirBuilder::new().mode(PRIVATE_FOLDER).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let (queue, messages) = sync_channel(QUEUE);
        let dropped = Arc::<AtomicU64>::default();
        let mut writer = Writer {
            files: Files::new(&folder),
            file_bytes,
            file: None,
            written: 0,
            dropped: dropped.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || writer.run(&messages))?;
        Ok(Self {
            folder,
            queue: Mutex::new(Some(queue)),
            dropped,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Keeps what was printed, some time soon.
    pub(crate) fn add(&self, row: &Invocation, output: &[u8]) {
        if output.is_empty() {
            return;
        }
        let entry = Message::Entry(Box::new(Entry::new(row, output)));
        let is_taken = self.queue().as_ref().is_some_and(|queue| queue.try_send(entry).is_ok());
        if !is_taken {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Outputs that were dropped: more came than the disk took, or it was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The newest entries, oldest first. Reads from the disk.
    pub(crate) fn read(&self, query: &Query) -> io::Result<Vec<Entry>> {
        let (flushed, done) = sync_channel(1);
        let queue = self.queue().clone();
        if queue.is_some_and(|queue| queue.send(Message::Flush(flushed)).is_ok()) {
            // The thread ends only with the queue.
            let _ = done.recv();
        }
        let mut newest = VecDeque::new();
        let files = Files::new(&self.folder);
        for path in [files.older, files.newer] {
            let file = match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for line in BufReader::new(file).split(b'\n') {
                // A line that was cut off when the platform was killed is none.
                let Ok(entry) = serde_json::from_slice::<Entry>(&line?) else { continue };
                if !query.wants(&entry) {
                    continue;
                }
                if newest.len() == query.limit.clamp(1, MAX_ENTRIES) {
                    newest.pop_front();
                }
                newest.push_back(entry);
            }
        }
        Ok(newest.into())
    }

    /// Writes what is left, and ends the thread.
    pub(crate) fn close(&self) {
        drop(self.queue().take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It panics nowhere, and nothing depends on it.
            let _ = thread.join();
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Option<SyncSender<Message>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OutputLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl Query {
    fn wants(&self, entry: &Entry) -> bool {
        self.function.as_ref().is_none_or(|name| *name == entry.function)
            && (self.request_id.is_none() || self.request_id == entry.request_id)
    }
}

/// The two files that are kept.
struct Files {
    newer: PathBuf,
    older: PathBuf,
}

impl Files {
    fn new(folder: &Path) -> Self {
        Self { newer: folder.join("newer.jsonl"), older: folder.join("older.jsonl") }
    }
}

/// What the thread writes with.
struct Writer {
    files: Files,
    file_bytes: u64,
    file: Option<File>,
    /// Bytes of the newer file.
    written: u64,
    dropped: Arc<AtomicU64>,
}

impl Writer {
    fn run(&mut self, messages: &Receiver<Message>) {
        let mut is_warned = false;
        for message in messages {
            match message {
                Message::Entry(entry) => {
                    if let Err(error) = self.write(&entry) {
                        // It is opened anew, in case somebody has removed it.
                        self.file = None;
                        self.dropped.fetch_add(1, Ordering::Relaxed);
                        if !std::mem::replace(&mut is_warned, true) {
                            tracing::warn!("what functions print cannot be kept: {error}");
                        }
                    }
                }
                // Whoever waits may have gone away.
                Message::Flush(done) => drop(done.send(())),
            }
        }
    }

    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        if self.written >= self.file_bytes {
            self.file = None;
            fs::rename(&self.files.newer, &self.files.older)?;
            self.written = 0;
        }
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            options.create(true).read(true).append(true).mode(PRIVATE_FILE);
            let mut file = options.open(&self.files.newer)?;
            self.written = file.metadata()?.len();
            if self.written > 0 {
                // After a line that was cut off, the next begins on its own.
                file.write_all(b"\n")?;
            }
            self.file = Some(file);
        }
        if let Some(file) = &mut self.file {
            file.write_all(&line)?;
        }
        self.written += line.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(function: &str, request: &str) -> Invocation {
        Invocation {
            function: function.into(),
            request_id: Some(request.to_owned()),
            ..Invocation::default()
        }
    }

    fn requests(log: &OutputLog, query: &Query) -> Vec<String> {
        log.read(query).unwrap().into_iter().filter_map(|entry| entry.request_id).collect()
    }

    #[test]
    fn the_newest_are_found_by_function_and_request() {
        let folder = tempfile::tempdir().unwrap();
        let log = OutputLog::open(folder.path()).unwrap();
        for (function, request) in [("f", "1"), ("g", "2"), ("f", "3"), ("f", "4")] {
            log.add(&row(function, request), &[b"of ", request.as_bytes(), b"\n\xff"].concat());
        }
        log.add(&row("f", "silent"), b"");
        let of_f = Query { function: Some("f".to_owned()), limit: 2, ..Query::default() };
        assert_eq!(requests(&log, &of_f), ["3", "4"]);
        let second = Query { request_id: Some("2".to_owned()), limit: 9, ..Query::default() };
        assert_eq!(log.read(&second).unwrap()[0].output, "of 2\n\u{fffd}");
        log.close();
        // The next worker goes on, behind a line that was cut off.
        let file = folder.path().join("output/newer.jsonl");
        OpenOptions::new().append(true).open(file).unwrap().write_all(b"{\"fun").unwrap();
        let log = OutputLog::open(folder.path()).unwrap();
        log.add(&row("f", "5"), b"x");
        let all = Query { limit: 9, ..Query::default() };
        assert_eq!(requests(&log, &all), ["1", "2", "3", "4", "5"]);
        assert_eq!(log.dropped(), 0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let log = OutputLog::open_with(folder.path(), 10_000).unwrap();
        let all = Query { limit: MAX_ENTRIES, ..Query::default() };
        for number in 0..300 {
            log.add(&row("f", &number.to_string()), &[b'x'; 400]);
            if number % 50 == 0 {
                log.read(&all).unwrap();
            }
        }
        let kept = requests(&log, &all);
        assert_eq!(kept.last().unwrap(), "299");
        assert!((15..80).contains(&kept.len()), "{}", kept.len());
        let sizes = fs::read_dir(folder.path().join("output")).unwrap();
        let total: u64 = sizes.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(total < 22_000, "{total}");
    }
}
