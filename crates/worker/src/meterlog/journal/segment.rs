//! A file of the journal: a head, then records, each with its length, its checksum and its number.
//!
//! ```text
//! head    "uncia journal\n", format (u16), log (16 bytes), number of the first record (u64), checksum (u32)
//! record  length of the text (u32), checksum of number and text (u32), number (u64), text (JSON)
//! ```
//!
//! Numbers are little-endian; checksums are CRC-32.

use std::path::Path;

use super::JournalError;
use crate::meterlog::entry::Record;

const MAGIC: &[u8; 14] = b"uncia journal\n";
/// The version of this layout, and of what the columns of the records mean.
const FORMAT: u16 = 1;

const HEAD_BYTES: usize = MAGIC.len() + 2 + 16 + 8 + 4;
const RECORD_HEAD_BYTES: usize = 4 + 4 + 8;

/// Which log a journal belongs to.
pub(in crate::meterlog) type LogId = [u8; 16];

/// The head of a file whose first record has the number `first`.
pub(super) fn head(log: &LogId, first: u64) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&FORMAT.to_le_bytes());
    head.extend_from_slice(log);
    head.extend_from_slice(&first.to_le_bytes());
    let sum = crc32fast::hash(&head);
    head.extend_from_slice(&sum.to_le_bytes());
    head
}

/// Writes a record to `buffer`, in place of what was there.
pub(super) fn encode(record: &Record, number: u64, buffer: &mut Vec<u8>) -> serde_json::Result<()> {
    buffer.clear();
    buffer.resize(RECORD_HEAD_BYTES, 0);
    serde_json::to_writer(&mut *buffer, record)?;
    let length = (buffer.len() - RECORD_HEAD_BYTES) as u32;
    buffer[8..16].copy_from_slice(&number.to_le_bytes());
    let sum = crc32fast::hash(&buffer[8..]);
    buffer[..4].copy_from_slice(&length.to_le_bytes());
    buffer[4..8].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// What a file holds.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Segment {
    /// The number of the first record that was to be written to it; none if it ends within its head.
    pub first: Option<u64>,
    pub records: Vec<(u64, Record)>,
    /// Bytes at its end that are no whole record: what a process that was killed was writing.
    pub torn: usize,
}

/// Reads a file.
pub(super) fn decode(path: &Path, log: &LogId, bytes: &[u8]) -> Result<Segment, JournalError> {
    let Some((head, mut rest)) = bytes.split_at_checked(HEAD_BYTES) else {
        if MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]) {
            return Ok(Segment { torn: bytes.len(), ..Segment::default() });
        }
        return Err(JournalError::Foreign(path.to_owned()));
    };
    let first = read_head(path, log, head)?;
    let mut segment = Segment { first: Some(first), ..Segment::default() };
    let mut next = first;
    while !rest.is_empty() {
        match read_record(rest) {
            Some((number, text, after)) if number == next => {
                let record = serde_json::from_slice(text).map_err(|error| {
                    JournalError::Record { path: path.to_owned(), number, error: error.to_string() }
                })?;
                segment.records.push((number, record));
                rest = after;
                next += 1;
            }
            _ if !is_torn(rest) || is_followed_by_another(rest, next) => {
                let at = bytes.len() - rest.len();
                return Err(JournalError::Damaged { path: path.to_owned(), at });
            }
            _ => break,
        }
    }
    segment.torn = rest.len();
    Ok(segment)
}

fn read_head(path: &Path, log: &LogId, head: &[u8]) -> Result<u64, JournalError> {
    let foreign = || JournalError::Foreign(path.to_owned());
    let head = head.strip_prefix(MAGIC).ok_or_else(foreign)?;
    let (format, rest) = head.split_first_chunk().ok_or_else(foreign)?;
    let format = u16::from_le_bytes(*format);
    if format != FORMAT {
        return Err(JournalError::Format { path: path.to_owned(), found: format, known: FORMAT });
    }
    let (of, rest) = rest.split_first_chunk::<16>().ok_or_else(foreign)?;
    let (first, _) = rest.split_first_chunk().ok_or_else(foreign)?;
    let first = u64::from_le_bytes(*first);
    if self::head(of, first)[MAGIC.len()..] != *head {
        return Err(JournalError::Damaged { path: path.to_owned(), at: 0 });
    }
    if of != log {
        return Err(foreign());
    }
    Ok(first)
}

/// The number and the text of the record at the start of `bytes`, and what follows; None if there is
/// no whole one.
fn read_record(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let summed = rest.get(..8 + usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    if crc32fast::hash(summed) != u32::from_le_bytes(*sum) {
        return None;
    }
    let (number, text) = summed.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), text, &rest[summed.len()..]))
}

/// Whether `bytes`, which begin with no valid record, are what a process was writing when it was killed:
/// the beginning of one. After a loss of power they may also be zeros.
fn is_torn(bytes: &[u8]) -> bool {
    let length = bytes.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
    length.is_none_or(|length| bytes.len() < RECORD_HEAD_BYTES + length)
        || bytes.iter().all(|byte| *byte == 0)
}

/// Whether a whole record with a greater number than `next` follows: then it is not the end.
fn is_followed_by_another(bytes: &[u8], next: u64) -> bool {
    let sought = next + 1..next + bytes.len() as u64;
    (1..bytes.len().saturating_sub(RECORD_HEAD_BYTES)).any(|at| {
        let number = bytes[at + 8..].first_chunk().map(|number| u64::from_le_bytes(*number));
        number.is_some_and(|number| sought.contains(&number)) && read_record(&bytes[at..]).is_some()
    })
}
