//! What a worker that was killed has left in the journal, as far as it can be read.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::aside::{self, Problem};
use super::segment::{self, Segment};
use super::{JournalError, LogId, Noted, SUFFIX, name_of, path_of};
use crate::meterlog::entry::Record;

/// Sentences about one journal that are passed on; of more, how many there are.
const MAX_WARNINGS: usize = 8;

/// What a worker that was killed has left.
#[derive(Debug, Default)]
pub(in crate::meterlog) struct Left {
    /// Records that may not be in the database, in order.
    pub records: Vec<(u64, Record)>,
    /// The number of the next record.
    pub next: u64,
    /// What a clean end does not leave, a sentence each.
    pub warnings: Vec<String>,
    /// Files that nobody needs once these records are in the database.
    pub(super) files: Vec<PathBuf>,
    /// What the database has noted as [`Noted::begun`].
    begun: u64,
    /// What the journal goes on without.
    aside: Vec<(PathBuf, Problem)>,
}

/// The files in `folder`, in order: the name of each is a number, with leading zeros, that its first
/// record has or comes after, and that is greater than those of all records before.
fn files(folder: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let unreadable = |error: io::Error| JournalError::unreadable(folder, &error);
    let entries = match fs::read_dir(folder) {
        Err(error) if aside::is_no_folder(&error) => return Ok(Vec::new()),
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

/// Reads what is left in `folder` beyond the record with the number `applied`, which the database has,
/// with all before it. Changes nothing.
pub(in crate::meterlog) fn read(
    folder: &Path,
    log: &LogId,
    applied: u64,
    noted: &Noted,
) -> Result<Left, JournalError> {
    let mut left = Left { begun: noted.begun, ..Left::default() };
    left.warnings.extend(aside::earlier(folder)?);
    if folder.symlink_metadata().is_ok() && !folder.is_dir() {
        left.aside.push((folder.to_owned(), Problem::NotAFolder));
    }
    let mut segments = Vec::new();
    for path in files(folder)? {
        let segment = segment::read(&path, log);
        let segment = segment.map_err(|error| JournalError::unreadable(&path, &error))?;
        segments.push((path, segment));
    }
    let last = segments.iter().filter_map(|(path, _)| name_of(path)).max();
    // One that has a problem was not emptied.
    let is_begun = |segment: &Segment| segment.first.is_some() || segment.problem.is_some();
    let begun = segments.iter().filter(|(_, segment)| is_begun(segment));
    let newest = begun.filter_map(|(path, _)| name_of(path)).max();
    find_emptied(&mut segments, noted);

    let mut records = BTreeMap::new();
    let mut ranges = Vec::new();
    left.next = noted.written.max(applied) + 1;
    for (path, segment) in &mut segments {
        left.next = left.next.max(segment.bound());
        // The numbers in it come after all that the database knows, and are not to be used again.
        let newest = name_of(path).filter(|name| [noted.file, noted.spare].contains(&Some(*name)));
        if let Some(name) = newest.filter(|_| segment.first.is_none()) {
            left.next = left.next.max(name).saturating_add(segment.most_records());
        }
        // The last start has left no such file: somebody has moved it there, and nobody knows whether its
        // records are in the database, whatever their numbers.
        if let Some(first) = segment.first.filter(|first| *first < noted.begun) {
            segment.problem = Some(Problem::Returned(first));
            segment.records.clear();
            continue;
        }
        // All of a file, or nothing: of two that differ, the first is this log's.
        let differs =
            |(number, it): &&(u64, Record)| records.get(number).is_some_and(|had| had != it);
        if let Some((number, _)) = segment.records.iter().find(differs) {
            segment.problem = Some(Problem::Conflict(*number));
            continue;
        }
        records.extend(segment.records.drain(..));
        if let Some(first) = segment.first {
            ranges.push((first, segment.end, path.clone()));
        }
    }
    let end = find_missing(&mut left, folder, applied, ranges, &mut segments);
    for (path, segment) in segments {
        if segment.torn > 0 && segment.problem.is_none() {
            left.warnings.push(format!(
                "{} ends with {} bytes of a record that was being written when the platform was \
                 killed; unless the file was cut off since, nobody was answered for it",
                path.display(),
                segment.torn
            ));
        }
        match segment.problem {
            Some(problem) => left.aside.push((path, problem)),
            None => left.files.push(path),
        }
    }
    left.warnings.extend(noted.missing(folder, newest, last, end, !left.aside.is_empty()));
    left.records = records.split_off(&(applied + 1)).into_iter().collect();
    Ok(left)
}

/// Files that hold nothing, and that others follow which were begun later.
fn find_emptied(segments: &mut [(PathBuf, Segment)], noted: &Noted) {
    let mut is_followed = false;
    for (path, segment) in segments.iter_mut().rev() {
        if segment.problem.is_some() {
            continue;
        }
        // One that the database does not know was made when that could not be noted.
        let known = noted.file.is_none_or(|file| name_of(path) <= Some(file));
        if segment.first.is_some() {
            is_followed = true;
        } else if is_followed && known {
            segment.problem = Some(Problem::Emptied);
        }
    }
}

/// Says which records there are not between those that there are, by the `ranges` of files; returns the number
/// after all that there are. A file that ends before the next one begins, within a record, was cut off.
fn find_missing(
    left: &mut Left,
    folder: &Path,
    applied: u64,
    mut ranges: Vec<(u64, u64, PathBuf)>,
    segments: &mut [(PathBuf, Segment)],
) -> u64 {
    ranges.sort();
    let mut end = applied + 1;
    let mut before: Option<&PathBuf> = None;
    for (first, upto, path) in &ranges {
        if *first > end {
            let cut = segments.iter_mut().find(|(path, _)| before == Some(path));
            if let Some((_, segment)) = cut.filter(|(_, it)| it.torn > 0 && it.problem.is_none()) {
                segment.problem = Some(segment.cut_off());
            }
            let has_problems = segments.iter().any(|(_, segment)| segment.problem.is_some());
            let why = match before {
                _ if has_problems => ", unless they are in what is set aside",
                None => "; the database is older than its journal",
                Some(_) => "",
            };
            let (folder, last) = (folder.display(), first - 1);
            left.warnings.push(format!("{folder}: the records {end} to {last} are missing{why}"));
        }
        (end, before) = (end.max(*upto), Some(path));
    }
    end
}

impl Left {
    /// What the database is to know of the files with the records. If something is to be set aside, a file that
    /// is left is never taken for one that is done: not even if this start comes to no end.
    pub(in crate::meterlog) fn to_note(&self) -> Noted {
        let begun = if self.aside.is_empty() { self.begun } else { self.next };
        Noted { begun, ..Noted::default() }
    }

    /// Sets aside what the journal goes on without. Records that were read from it must be in the database.
    pub(in crate::meterlog) fn set_aside(&mut self) {
        let sentences =
            self.aside.drain(..).map(|(path, problem)| aside::set_aside(&path, &problem));
        // They come first: they cost most.
        self.warnings.splice(..0, sentences);
    }

    /// The sentences that are passed on; what is too much is printed.
    pub(in crate::meterlog) fn take_warnings(&mut self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        if warnings.len() > MAX_WARNINGS {
            let rest = warnings.split_off(MAX_WARNINGS - 1);
            for warning in &rest {
                tracing::warn!("{warning}");
            }
            let more = rest.len();
            warnings.push(format!(
                "{more} more sentences on the log's journal are in what the platform has printed"
            ));
        }
        warnings
    }
}

impl Noted {
    /// What is missing: `newest` is the last file that was begun, `last` the last file, and `next` is
    /// the number that comes after all records that there are. `aside`: some may be in files that are set aside.
    fn missing(
        &self,
        folder: &Path,
        newest: Option<u64>,
        last: Option<u64>,
        next: u64,
        aside: bool,
    ) -> Option<String> {
        let gone = |name: Option<u64>, upto| name.filter(|name| upto < Some(*name));
        let gone = gone(self.file, newest).or(gone(self.spare, last));
        let what = match gone {
            Some(name) => format!("{} is missing, or was emptied", path_of(folder, name).display()),
            None if next > self.written => return None,
            None if aside => {
                return Some(format!(
                    "{}: the rows of records {next} to {}, which the platform wrote, are not in the log, and maybe \
                     later ones, unless they are in what is set aside",
                    folder.display(),
                    self.written
                ));
            }
            None => format!("{} was cut off", folder.display()),
        };
        Some(if next <= self.written {
            format!(
                "{what}, since the platform wrote to it: the rows of records {next} to {} are lost, \
                 and maybe later ones",
                self.written
            )
        } else {
            format!(
                "{what}, since the platform wrote to it: the rows of records from {next} on are lost, \
                 if there were any"
            )
        })
    }
}
