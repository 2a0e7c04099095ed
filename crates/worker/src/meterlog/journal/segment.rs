//! A file of the journal: a head, then records, each with its length, its checksum and its number.
//!
//! ```text
//! head    "uncia journal\n", format (u16), log (16 bytes), number of the first record (u64), checksum (u32)
//! record  length of the text (u32), checksum of number and text (u32), number (u64), text (JSON)
//! ```
//!
//! Numbers are little-endian; checksums are CRC-32.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::aside::Problem;
use crate::meterlog::entry::Record;

const MAGIC: &[u8; 14] = b"uncia journal\n";
/// The version of this layout, and of what the columns of the records mean.
pub(crate) const FORMAT: u16 = 1;

const HEAD_BYTES: usize = MAGIC.len() + 2 + 16 + 8 + 4;
const RECORD_HEAD_BYTES: usize = 4 + 4 + 8;
/// The longest text of a record: of four characters of any other text, read as a length, none is as short.
const MAX_TEXT_BYTES: usize = 128 * 1024 * 1024;

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
pub(super) fn encode(record: &Record, number: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    buffer.resize(RECORD_HEAD_BYTES, 0);
    serde_json::to_writer(&mut *buffer, record)?;
    let length = buffer.len() - RECORD_HEAD_BYTES;
    if length > MAX_TEXT_BYTES {
        return Err(io::Error::other(format!("a record of {length} bytes is too long")));
    }
    let length = length as u32;
    buffer[8..16].copy_from_slice(&number.to_le_bytes());
    let sum = crc32fast::hash(&buffer[8..]);
    buffer[..4].copy_from_slice(&length.to_le_bytes());
    buffer[4..8].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// What a file holds.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Segment {
    /// The number of the first record that was to be written to it; none if it has no head.
    pub first: Option<u64>,
    /// Those that can be read, in order.
    pub records: Vec<(u64, Record)>,
    /// The number after those of all whole records; 0 without a head.
    pub end: u64,
    /// Bytes at its end that are no whole record: what a process that was killed was writing.
    pub torn: usize,
    /// Why there may be records in it that were not read.
    pub problem: Option<Problem>,
    length: usize,
}

impl Segment {
    fn refused(problem: Problem) -> Self {
        Self { problem: Some(problem), ..Self::default() }
    }

    /// A number that is greater than those of all records that may be in the file.
    pub(super) fn bound(&self) -> u64 {
        let damaged = matches!(self.problem, Some(Problem::Damaged { .. }));
        let most = if damaged { self.most_records() } else { 0 };
        self.end.max(self.first.unwrap_or_default().saturating_add(most))
    }

    /// Not more records are in a file of this length.
    pub(super) fn most_records(&self) -> u64 {
        (self.length / RECORD_HEAD_BYTES) as u64
    }

    /// It ends where a file does that was cut off, and not where a crash has stopped it.
    pub(super) fn cut_off(&self) -> Problem {
        Problem::Damaged { at: self.length - self.torn, skipped: self.torn }
    }
}

/// Reads what is at `path`.
///
/// # Errors
///
/// It cannot be read now, and maybe another time.
pub(super) fn read(path: &Path, log: &LogId) -> io::Result<Segment> {
    match read_file(path, log) {
        Err(error) if is_lasting(&error) => {
            Ok(Segment::refused(Problem::Unreadable(error.to_string())))
        }
        read => read,
    }
}

/// Whether reading fails for what the file is, and not for what the machine lacks at the moment.
fn is_lasting(error: &io::Error) -> bool {
    // A disk's error may pass, and rights can be given: neither says that its rows are not readable.
    error.kind() == io::ErrorKind::NotFound
        || matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EISDIR))
}

fn read_file(path: &Path, log: &LogId) -> io::Result<Segment> {
    // A pipe would never end.
    if !fs::metadata(path)?.is_file() {
        return Ok(Segment::refused(Problem::NotAFile));
    }
    let mut file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    // Whatever it is, it may be large.
    file.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut bytes)?;
    if bytes.len() == HEAD_BYTES
        && !is_blank(&bytes)
        && let Err(problem) = read_head(log, &bytes)
    {
        return Ok(Segment { length, ..Segment::refused(problem) });
    }
    file.read_to_end(&mut bytes)?;
    Ok(decode(log, &bytes))
}

/// Takes a file's bytes apart.
fn decode(log: &LogId, bytes: &[u8]) -> Segment {
    let length = bytes.len();
    let begun = MAGIC.starts_with(&bytes[..length.min(MAGIC.len())]);
    if length < HEAD_BYTES && begun || is_blank(bytes) {
        return Segment { torn: length, length, ..Segment::default() };
    }
    let Some((head, mut rest)) = bytes.split_at_checked(HEAD_BYTES) else {
        return Segment::refused(Problem::Foreign);
    };
    let first = match read_head(log, head) {
        Ok(first) => first,
        Err(problem) => return Segment { length, ..Segment::refused(problem) },
    };
    let mut damage: Option<(usize, usize)> = None;
    let mut segment = Segment { first: Some(first), end: first, length, ..Segment::default() };
    while !rest.is_empty() {
        let next = segment.end;
        match read_record(rest) {
            Some((number, text, after)) if number == next => {
                match serde_json::from_slice(text) {
                    Ok(record) => segment.records.push((number, record)),
                    Err(error) => {
                        let problem = || Problem::Record { number, error: error.to_string() };
                        segment.problem.get_or_insert_with(problem);
                    }
                }
                rest = after;
                segment.end += 1;
            }
            _ => {
                let follows = next_record(rest, next);
                if follows.is_none() && is_torn(rest, next) {
                    break;
                }
                // Its number and its checksum say that what follows was written there.
                let (skipped, number) = follows.unwrap_or((rest.len(), next));
                damage.get_or_insert((length - rest.len(), 0)).1 += skipped;
                (rest, segment.end) = (&rest[skipped..], number);
            }
        }
    }
    segment.torn = rest.len();
    if let Some((at, skipped)) = damage {
        segment.problem = Some(Problem::Damaged { at, skipped });
    }
    segment
}

fn read_head(log: &LogId, head: &[u8]) -> Result<u64, Problem> {
    let foreign = || Problem::Foreign;
    let head = head.strip_prefix(MAGIC).ok_or_else(foreign)?;
    let (format, rest) = head.split_first_chunk().ok_or_else(foreign)?;
    let format = u16::from_le_bytes(*format);
    if format != FORMAT {
        return Err(Problem::Format { found: format, known: FORMAT });
    }
    let (of, rest) = rest.split_first_chunk::<16>().ok_or_else(foreign)?;
    let (first, _) = rest.split_first_chunk().ok_or_else(foreign)?;
    let first = u64::from_le_bytes(*first);
    if self::head(of, first)[MAGIC.len()..] != *head {
        return Err(Problem::Damaged { at: 0, skipped: HEAD_BYTES });
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

/// Whether `bytes`, which begin with no whole record, are what a process was writing when it was killed:
/// the beginning of the record with the number `next`. After a loss of power they may also be blank.
fn is_torn(bytes: &[u8], next: u64) -> bool {
    if is_blank(bytes) {
        return true;
    }
    let Some(length) = bytes.first_chunk().map(|length| u32::from_le_bytes(*length) as usize)
    else {
        return true;
    };
    let number = bytes.get(8..).unwrap_or_default();
    let (number, text) = number.split_at(number.len().min(8));
    length <= MAX_TEXT_BYTES
        && text.len() < length
        && next.to_le_bytes().starts_with(number)
        && serde_json::from_slice::<Record>(text).is_err_and(|error| error.is_eof())
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Where the next whole record begins, and its number, which is `next` or greater: before it is damage.
fn next_record(bytes: &[u8], next: u64) -> Option<(usize, u64)> {
    let sought = next..next.saturating_add(bytes.len() as u64);
    (1..bytes.len().saturating_sub(RECORD_HEAD_BYTES)).find_map(|at| {
        let number = bytes[at + 8..].first_chunk().map(|number| u64::from_le_bytes(*number));
        let number = number.filter(|number| sought.contains(number))?;
        read_record(&bytes[at..]).map(|_| (at, number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meterlog::tests::{event, idle, instance, invocation, span};
    use crate::meterlog::{EventUpdate, Recorded};

    const LOG: LogId = [7; 16];

    /// A file with a record of each kind, and where each of them begins.
    fn file() -> (Vec<u8>, Vec<usize>) {
        let mut recorded = Recorded {
            spans: vec![span("a")],
            idle: Some(idle("i", 10)),
            event: Some(EventUpdate::Failed { id: 3, attempt: 2, failures: 1 }),
            ..invocation("x")
        };
        recorded.row.error = Some("\u{e4} \" \\ \n \u{0} \u{1f600}".to_owned());
        recorded.row.preemptible = Some(false);
        recorded.row.cpu_user = Some(-17);
        let records = [
            Record::DropEvents(vec![event("e").id, 12]),
            Record::Instance(Box::new(instance("i"))),
            Record::Invocation(recorded.into()),
        ];
        let (mut bytes, mut starts, mut buffer) = (head(&LOG, 5), Vec::new(), Vec::new());
        for (number, record) in (5..).zip(&records) {
            encode(record, number, &mut buffer).unwrap();
            starts.push(bytes.len());
            bytes.extend_from_slice(&buffer);
        }
        (bytes, starts)
    }

    fn read(bytes: &[u8]) -> Segment {
        decode(&LOG, bytes)
    }

    #[test]
    fn wherever_a_kill_cuts_it_off_what_is_whole_is_read() {
        let (bytes, starts) = file();
        for length in 0..=bytes.len() {
            let segment = read(&bytes[..length]);
            assert_eq!(segment.problem, None);
            let ends = starts[1..].iter().copied().chain([bytes.len()]);
            let whole = ends.filter(|end| *end <= length).count();
            assert_eq!(segment.records.len(), whole, "{length}");
            assert_eq!(segment.first, (length >= HEAD_BYTES).then_some(5));
        }
    }

    #[test]
    fn records_from_before_a_column_was_there_are_read() {
        let records =
            [Record::Invocation(invocation("x").into()), Record::Instance(instance("i").into())];
        let (mut bytes, mut buffer) = (head(&LOG, 5), Vec::new());
        for (number, record) in (5_u64..).zip(&records) {
            encode(record, number, &mut buffer).unwrap();
            let text = std::str::from_utf8(&buffer[RECORD_HEAD_BYTES..]).unwrap();
            let text = text.replace(",\"worker\":null", "").replace(",\"phases\":null", "");
            assert!(text.len() + RECORD_HEAD_BYTES < buffer.len());
            let summed = [&number.to_le_bytes(), text.as_bytes()].concat();
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(crc32fast::hash(&summed).to_le_bytes());
            bytes.extend(summed);
        }
        let segment = read(&bytes);
        assert_eq!((segment.torn, &segment.problem), (0, &None));
        assert!(segment.records.iter().map(|(_, record)| record).eq(&records));
    }

    #[test]
    fn what_no_kill_leaves_is_damage() {
        let (bytes, starts) = file();
        let last = starts[2];
        let colon = bytes.iter().rposition(|byte| *byte == b':').unwrap();
        let no_json = [&bytes[..=colon], b"?"].concat();
        let text = b"appended by hand, and long enough for the head of a record\n";
        let another_number = [&bytes[last..last + 8], &6_u64.to_le_bytes(), b"{"].concat();
        for (end, at) in [
            (text.to_vec(), bytes.len()),
            (b"oops\n".to_vec(), bytes.len()),
            (another_number, bytes.len()),
            (vec![0, 0, 0, 1, 0, 0, 0, 0, 0], bytes.len()),
        ] {
            let damaged = [&bytes[..], &end].concat();
            let segment = read(&damaged);
            let skipped = end.len();
            assert_eq!(segment.problem, Some(Problem::Damaged { at, skipped }), "{end:?}");
            // What is before it is read, and whatever may be behind it has lower numbers.
            assert_eq!((segment.records.len(), segment.end), (3, 8));
            assert!(segment.bound() >= 8);
        }
        let segment = read(&no_json);
        let skipped = no_json.len() - last;
        assert_eq!(segment.problem, Some(Problem::Damaged { at: last, skipped }));
        assert_eq!(segment.records.len(), 2);
    }

    #[test]
    fn what_follows_damage_is_read() {
        let (bytes, starts) = file();
        let numbers = |segment: &Segment| -> Vec<u64> {
            segment.records.iter().map(|(number, _)| *number).collect()
        };
        let ends = [starts[1], starts[2], bytes.len()];
        for byte in starts[0]..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1;
            let segment = read(&damaged);
            let lost = ends.iter().position(|end| byte < *end).unwrap();
            let others: Vec<u64> = (5..8).filter(|number| *number != 5 + lost as u64).collect();
            assert_eq!(numbers(&segment), others, "{byte}");
            if lost < 2 {
                let (at, skipped) = (starts[lost], ends[lost] - starts[lost]);
                assert_eq!(segment.problem, Some(Problem::Damaged { at, skipped }));
                assert_eq!(segment.end, 8);
            }
        }
        // Twice, with bytes that were put between two records, and a torn end.
        let mut damaged = bytes[..bytes.len() - 3].to_vec();
        damaged.splice(starts[2]..starts[2], *b"between");
        damaged[starts[0] + 20] ^= 1;
        let segment = read(&damaged);
        assert_eq!((numbers(&segment), segment.end), (vec![6], 7));
        damaged.extend(&bytes[bytes.len() - 3..]);
        let segment = read(&damaged);
        let skipped = starts[1] - starts[0] + 7;
        assert_eq!(segment.problem, Some(Problem::Damaged { at: starts[0], skipped }));
        assert_eq!((numbers(&segment), segment.end), (vec![6, 7], 8));
    }

    #[test]
    fn what_may_be_read_another_time_is_no_problem_of_the_file() {
        for code in [libc::EIO, libc::EACCES, libc::EPERM, libc::EMFILE, libc::ENOMEM] {
            assert!(!is_lasting(&io::Error::from_raw_os_error(code)), "{code}");
        }
        for code in [libc::ENOENT, libc::ELOOP, libc::EISDIR] {
            assert!(is_lasting(&io::Error::from_raw_os_error(code)), "{code}");
        }
    }

    #[test]
    fn a_record_of_another_version_costs_no_other() {
        let (mut bytes, starts) = file();
        let unknown = br#"{"Unheard":[]}"#;
        let summed = [&6_u64.to_le_bytes()[..], unknown].concat();
        let record = [
            &(unknown.len() as u32).to_le_bytes()[..],
            &crc32fast::hash(&summed).to_le_bytes(),
            &summed,
        ];
        bytes.splice(starts[1]..starts[2], record.concat());
        let segment = read(&bytes);
        let Some(Problem::Record { number, .. }) = segment.problem else {
            panic!("{:?}", segment.problem)
        };
        assert_eq!(number, 6);
        let numbers: Vec<_> = segment.records.iter().map(|(number, _)| *number).collect();
        assert_eq!((numbers, segment.end), (vec![5, 7], 8));
    }

    #[test]
    fn of_what_is_no_file_of_the_journal_nothing_more_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large.records");
        let file = File::create(&path).unwrap();
        io::Write::write_all(&mut &file, &[b'x'; HEAD_BYTES]).unwrap();
        // More than there is memory.
        file.set_len(1 << 42).unwrap();
        assert_eq!(read_file(&path, &LOG).unwrap().problem, Some(Problem::Foreign));
        let pipe = folder.path().join("pipe.records");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(super::read(&pipe, &LOG).unwrap().problem, Some(Problem::NotAFile));
        let gone = folder.path().join("gone.records");
        let problem = super::read(&gone, &LOG).unwrap().problem;
        assert!(matches!(problem, Some(Problem::Unreadable(_))), "{problem:?}");
    }
}
