//! What answers wait for: records that are on their way into the database, in files that only grow.
//!
//! Writing a record is one system call, after which the record survives the end of the process,
//! however it comes. The database is filled from memory; only after a crash is the journal read.

mod segment;

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) use segment::LogId;

use super::entry::Record;
use crate::store::DatabaseError;

/// A file is followed by another once it is as long as this.
const SEGMENT_BYTES: u64 = 4 * 1024 * 1024;
/// Between two attempts to make another file.
const ROLL_RETRY_BYTES: u64 = 64 * 1024;
/// A buffer that a larger record has used is given back.
const KEPT_BUFFER_BYTES: usize = 64 * 1024;
const SUFFIX: &str = "records";
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// Why the journal cannot be read or written. Nothing was changed by the failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    #[error(
        "{0} is not of this log's journal: move it away (it may hold rows of another log), or choose \
         another state folder"
    )]
    Foreign(PathBuf),
    #[error(
        "{path} was written by another version of uncia (its format is {found}, this one knows \
         {known}): start and stop that version once, which leaves no journal, or choose another state \
         folder"
    )]
    Format { path: PathBuf, found: u16, known: u16 },
    #[error(
        "{path} is damaged at byte {at}, more than a crash does: restore it from a copy, or move it away, \
         which loses the rows in it that are not in the database"
    )]
    Damaged { path: PathBuf, at: usize },
    #[error(
        "{path} has a record (number {number}) that this version of uncia cannot read ({error}): \
         start the version that wrote it, or move the file away, which loses the rows in it that are \
         not in the database"
    )]
    Record { path: PathBuf, number: u64, error: String },
    #[error(
        "{path} begins with record {found} where {expected} is next: restore the files that belong to \
         it, or move them all away, which loses the rows in them that are not in the database"
    )]
    Gap { path: PathBuf, expected: u64, found: u64 },
    #[error("{path} cannot be read: {message}")]
    Unreadable { path: PathBuf, message: String },
    /// A file or folder cannot be written.
    #[error(transparent)]
    File(#[from] DatabaseError),
}

/// The writing end of the journal.
pub(super) struct Journal {
    folder: PathBuf,
    log: LogId,
    path: PathBuf,
    file: File,
    /// Where the next record goes; what stands there is no record.
    end: u64,
    /// Where another file is begun.
    roll_at: u64,
    /// The number of the next record.
    next: u64,
    /// The number of the last record that is in the database.
    applied: u64,
    /// Files that are not written to any more, with the number of the last record of each.
    full: VecDeque<(u64, PathBuf)>,
    buffer: Vec<u8>,
}

/// What a worker that was killed has left.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Records that may not be in the database, in order.
    pub records: Vec<(u64, Record)>,
    /// The number of the next record.
    pub next: u64,
    files: Vec<PathBuf>,
}

/// The files in `folder`, in order: their names are the numbers of their first records, with leading
/// zeros.
fn files(folder: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let unreadable = |error: io::Error| JournalError::unreadable(folder, &error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unreadable)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|suffix| suffix == SUFFIX) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Refuses what is left in `folder` if there is anything: the database has no journal.
pub(super) fn expect_none(folder: &Path) -> Result<(), JournalError> {
    files(folder)?.into_iter().next().map_or(Ok(()), |path| Err(JournalError::Foreign(path)))
}

/// Reads what is left in `folder` beyond the record with the number `applied`, which the database has,
/// with all before it.
pub(super) fn read(folder: &Path, log: &LogId, applied: u64) -> Result<Left, JournalError> {
    let mut left = Left { next: applied + 1, files: files(folder)?, ..Left::default() };
    let mut expected = None;
    for path in &left.files {
        let bytes = fs::read(path).map_err(|error| JournalError::unreadable(path, &error))?;
        let segment = segment::decode(path, log, &bytes)?;
        if segment.torn > 0 {
            tracing::warn!(
                "{} ends with {} bytes of a record that was being written when the platform was \
                 killed; nobody was answered for it",
                path.display(),
                segment.torn
            );
        }
        let Some(first) = segment.first else {
            if Some(path) == left.files.last() {
                continue;
            }
            // Files that follow it have been written, so its head was.
            return Err(JournalError::Damaged { path: path.to_owned(), at: 0 });
        };
        match expected {
            Some(expected) if expected != first => {
                return Err(JournalError::Gap { path: path.to_owned(), expected, found: first });
            }
            None if first > left.next => tracing::warn!(
                "{}: the records {} to {} are missing; the database is older than its journal",
                folder.display(),
                left.next,
                first - 1
            ),
            _ => {}
        }
        let end = segment.records.last().map_or(first, |(number, _)| number + 1);
        expected = Some(end);
        left.records.extend(segment.records.into_iter().filter(|(number, _)| *number > applied));
        left.next = left.next.max(end);
    }
    Ok(left)
}

impl JournalError {
    fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), message: error.to_string() }
    }
}

impl Journal {
    /// Removes what was left, which is in the database by now, and begins anew.
    pub(super) fn begin(folder: &Path, log: LogId, left: Left) -> Result<Self, JournalError> {
        let refused = |error: io::Error| DatabaseError::of_io(folder, &error);
        for file in &left.files {
            fs::remove_file(file).map_err(refused)?;
        }
        DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(folder).map_err(refused)?;
        let (path, file, end) = create(folder, &log, left.next).map_err(refused)?;
        Ok(Self {
            folder: folder.to_owned(),
            log,
            path,
            file,
            end,
            roll_at: SEGMENT_BYTES,
            next: left.next,
            applied: left.next - 1,
            full: VecDeque::new(),
            buffer: Vec::new(),
        })
    }

    /// Writes a record; returns its number. After an error it is as if it had not been tried.
    pub(super) fn append(&mut self, record: &Record) -> Result<u64, DatabaseError> {
        let refused = |path: &Path, error: io::Error| DatabaseError::of_io(path, &error);
        if self.end >= self.roll_at && self.roll().is_err() {
            // Where there is no room for another file there may be some in this.
            self.roll_at = self.end + ROLL_RETRY_BYTES;
        }
        segment::encode(record, self.next, &mut self.buffer)
            .map_err(|error| refused(&self.path, error.into()))?;
        let written = self.file.write_all_at(&self.buffer, self.end);
        let length = self.buffer.len() as u64;
        if self.buffer.capacity() > KEPT_BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        if let Err(error) = written {
            // A part of it may be there, and must not stay if a shorter record follows.
            let _ = self.file.set_len(self.end);
            return Err(refused(&self.path, error));
        }
        self.end += length;
        self.next += 1;
        Ok(self.next - 1)
    }

    fn roll(&mut self) -> io::Result<()> {
        let (path, file, end) = create(&self.folder, &self.log, self.next)?;
        self.full.push_back((self.next - 1, std::mem::replace(&mut self.path, path)));
        (self.file, self.end, self.roll_at) = (file, end, SEGMENT_BYTES);
        Ok(())
    }

    /// Notes that the database has the records up to the one with this number; returns the files that
    /// hold no others, and that nobody needs any more.
    pub(super) fn applied(&mut self, number: u64) -> Vec<PathBuf> {
        self.applied = number;
        let done = self.full.partition_point(|(last, _)| *last <= number);
        self.full.drain(..done).map(|(_, path)| path).collect()
    }

    /// Removes the last file if the database has all of its records. Nothing may be written any more.
    pub(super) fn remove_if_done(&mut self) {
        if self.applied + 1 == self.next {
            // If it cannot be removed it is read again, and found to be done.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes the file whose first record has the number `first`; returns where that goes.
fn create(folder: &Path, log: &LogId, first: u64) -> io::Result<(PathBuf, File, u64)> {
    let path = folder.join(format!("{first:020}.{SUFFIX}"));
    let file =
        File::options().write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(&path)?;
    let head = segment::head(log, first);
    if let Err(error) = file.write_all_at(&head, 0) {
        let _ = fs::remove_file(&path);
        return Err(error);
    }
    Ok((path, file, head.len() as u64))
}
