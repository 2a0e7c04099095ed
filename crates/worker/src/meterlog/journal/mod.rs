//! What answers wait for: records that are on their way into the database, in files that only grow.
//!
//! Writing a record is one system call, after which the record survives the end of the process,
//! however it comes. The database is filled from memory; only after a crash is the journal read.

mod aside;
mod left;
mod segment;

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) use left::{Left, read};
pub(crate) use segment::FORMAT;
pub(super) use segment::LogId;

use super::entry::Record;
use crate::store::DatabaseError;

/// A file is followed by another once it is as long as this, and another is ready.
pub(super) const SEGMENT_BYTES: u64 = 4 * 1024 * 1024;
/// Between two attempts to begin the next file.
const ROLL_RETRY_BYTES: u64 = 64 * 1024;
/// Another file is made ready once this one is as long as this part of where it is followed.
const SPARE_DENOMINATOR: u64 = 2;
/// A buffer that a larger record has used is given back.
const KEPT_BUFFER_BYTES: usize = 64 * 1024;
const SUFFIX: &str = "records";
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// Why the journal cannot be read or written. Nothing was changed by the failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
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
    /// How long a file is when it is followed by another.
    segment_bytes: u64,
    /// Where the next file is begun, if it is ready.
    roll_at: u64,
    spare: Option<NextFile>,
    /// The number of the first record.
    begun: u64,
    /// The number of the next record.
    next: u64,
    /// The number of the last record that is in the database.
    applied: u64,
    /// Files that are not written to any more, with the number of the last record of each.
    full: VecDeque<(u64, PathBuf)>,
    buffer: Vec<u8>,
    is_finished: bool,
}

/// An empty file that is made before it is needed, so that no request waits for it.
pub(super) struct NextFile {
    pub path: PathBuf,
    file: File,
}

/// What the database knows of the files: it notices if one of them is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// The name of the file that is written to, as a number.
    pub file: Option<u64>,
    /// The number of the last record that was written.
    pub written: u64,
    /// The name of the file that comes next, as a number.
    pub spare: Option<u64>,
    /// The number of the first record since the last start. Records before it are in the database, or in files
    /// that were set aside.
    pub begun: u64,
}

fn path_of(folder: &Path, name: u64) -> PathBuf {
    folder.join(format!("{name:020}.{SUFFIX}"))
}

fn name_of(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}

impl JournalError {
    fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), message: error.to_string() }
    }
}

impl Journal {
    /// Removes what was left, which is in the database by now, and begins anew.
    pub(super) fn begin(
        folder: &Path,
        log: LogId,
        left: &Left,
        segment_bytes: u64,
    ) -> Result<Self, JournalError> {
        let refused = |error: io::Error| DatabaseError::of_io(folder, &error);
        for file in &left.files {
            fs::remove_file(file).map_err(refused)?;
        }
        DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(folder).map_err(refused)?;
        let mut next = left.next;
        let NextFile { path, file } = loop {
            match create(folder, next) {
                // What could not be set aside.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => next += 1,
                created => break created.map_err(refused)?,
            }
        };
        let end = write_head(&file, &log, next).map_err(refused)?;
        Ok(Self {
            folder: folder.to_owned(),
            log,
            path,
            file,
            end,
            segment_bytes,
            roll_at: segment_bytes,
            spare: None,
            begun: next,
            next,
            applied: next - 1,
            full: VecDeque::new(),
            buffer: Vec::new(),
            is_finished: false,
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
            .map_err(|error| refused(&self.path, error))?;
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

    /// Goes on in the next file, if it is ready.
    fn roll(&mut self) -> io::Result<()> {
        let Some(spare) = &self.spare else { return Ok(()) };
        self.end = write_head(&spare.file, &self.log, self.next)?;
        if let Some(NextFile { path, file }) = self.spare.take() {
            self.full.push_back((self.next - 1, std::mem::replace(&mut self.path, path)));
            (self.file, self.roll_at) = (file, self.segment_bytes);
        }
        Ok(())
    }

    /// Where the next file is to be made, and under which name, if it is time to.
    pub(super) fn wants_next_file(&self) -> Option<(PathBuf, u64)> {
        let wanted = self.spare.is_none() && self.end >= self.segment_bytes / SPARE_DENOMINATOR;
        wanted.then(|| (self.folder.clone(), self.next))
    }

    /// Goes on in this file, which the database knows, when the present one is full.
    pub(super) fn set_next_file(&mut self, file: NextFile) {
        self.spare = Some(file);
    }

    /// What the database is to know of the files as they are now.
    pub(super) fn to_note(&self) -> Noted {
        Noted {
            file: name_of(&self.path),
            written: self.next - 1,
            spare: self.spare.as_ref().and_then(|spare| name_of(&spare.path)),
            begun: self.begun,
        }
    }

    /// The number of the last record that is in the database.
    pub(super) fn last_applied(&self) -> u64 {
        self.applied
    }

    /// Notes that the database has the records up to the one with this number; returns the files that
    /// hold no others, and that nobody needs any more.
    pub(super) fn applied(&mut self, number: u64) -> Vec<PathBuf> {
        self.applied = number;
        let done = self.full.partition_point(|(last, _)| *last <= number);
        self.full.drain(..done).map(|(_, path)| path).collect()
    }

    /// What the database is to know of the files once nothing is written any more.
    pub(super) fn last_note(&self) -> Noted {
        if self.is_done() {
            Noted { begun: self.begun, ..Noted::default() }
        } else {
            Noted { spare: None, ..self.to_note() }
        }
    }

    /// The database knows ([`Self::last_note`]).
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Removes the files that nobody needs any more. Nothing may be written any more.
    pub(super) fn remove_if_finished(&mut self) {
        if !self.is_finished {
            return;
        }
        // If one cannot be removed it is read again, and found to be done.
        if self.is_done() {
            let _ = fs::remove_file(&self.path);
        }
        if let Some(spare) = self.spare.take() {
            let _ = fs::remove_file(spare.path);
        }
    }

    /// Whether all that was written is in the database.
    fn is_done(&self) -> bool {
        self.applied + 1 == self.next
    }
}

/// Makes an empty file for records with the number `name` and greater ones. What is there already stays.
pub(super) fn create(folder: &Path, name: u64) -> io::Result<NextFile> {
    let path = path_of(folder, name);
    let file = File::options().write(true).create_new(true).mode(PRIVATE_FILE).open(&path)?;
    Ok(NextFile { path, file })
}

/// Begins a file whose first record has the number `first`; returns where that goes.
fn write_head(file: &File, log: &LogId, first: u64) -> io::Result<u64> {
    let head = segment::head(log, first);
    file.write_all_at(&head, 0)?;
    Ok(head.len() as u64)
}
