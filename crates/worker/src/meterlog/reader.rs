//! Reading the log while it is written, a page at a time.

use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row, Statement};
use uncia_record::{Instance, Invocation, Span};

use super::entry::{KeptTrigger, WaitingEvent};
use super::{LogError, tables};
use crate::store::DatabaseError;

/// Most rows of a page. A page of instances also ends before the instance with which the idle
/// intervals in it would be more than this; an instance alone on its page has them all, and
/// [`super::retention`] bounds how many they are.
pub(crate) const MAX_PAGE_ROWS: usize = 10_000;
/// A page also ends before the row with which it would be larger than this, unless it is the first.
const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Rows that a page goes through in search of those of one function. It may end without any.
const MAX_SCANNED_ROWS: usize = 100_000;

/// Rows of a table in order of their ids.
#[derive(Debug)]
pub(crate) struct Page<T> {
    pub rows: Vec<T>,
    /// The id of the last row, returned or passed over; the next page is after it.
    pub last: i64,
    /// Whether there may be rows after it.
    pub more: bool,
}

/// Which rows to read.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    /// Rows with greater ids.
    pub after: i64,
    pub function: Option<String>,
    /// At most so many, from 1 to [`MAX_PAGE_ROWS`].
    pub limit: usize,
}

impl Default for Query {
    fn default() -> Self {
        Self { after: 0, function: None, limit: MAX_PAGE_ROWS }
    }
}

/// A connection that reads.
pub(crate) struct Reader {
    path: PathBuf,
    connection: Connection,
}

impl Reader {
    pub(crate) fn open(path: &Path) -> Result<Self, LogError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        match Connection::open_with_flags(path, flags) {
            Ok(connection) => Ok(Self { path: path.to_owned(), connection }),
            Err(error) => Err(DatabaseError::of(path, &error).into()),
        }
    }

    pub(crate) fn invocations(&self, query: &Query) -> Result<Page<Invocation>, LogError> {
        self.page(query, tables::select_invocations, |row, _| {
            tables::read_invocation(row).map(Some)
        })
    }

    pub(crate) fn spans(&self, query: &Query) -> Result<Page<Span>, LogError> {
        self.page(query, tables::select_spans, |row, _| tables::read_span(row).map(Some))
    }

    /// The instances, those that live as they were when they became ready.
    pub(crate) fn instances(&self, query: &Query) -> Result<Page<Instance>, LogError> {
        let mut intervals = 0;
        self.page(query, tables::select_instances, |row, first| {
            let mut instance = tables::read_instance(row)?;
            if instance.initialized.is_some() {
                let room = MAX_PAGE_ROWS - intervals;
                // One more than there is room for tells that there are more; -1 is no limit.
                let limit = if first { -1 } else { room as i64 + 1 };
                let idle =
                    tables::read_idle_intervals(&self.connection, &instance.instance, limit)?;
                if !first && idle.len() > room {
                    return Ok(None);
                }
                intervals = MAX_PAGE_ROWS.min(intervals + idle.len());
                instance.idle = Some(idle);
            }
            Ok(Some(instance))
        })
    }

    /// The id of a table's newest row; 0 if it has none.
    pub(crate) fn newest(&self, table: &str) -> Result<i64, LogError> {
        let sql = format!("SELECT IFNULL(MAX(id), 0) FROM {table}");
        self.error(self.connection.query_row(&sql, [], |row| row.get(0)))
    }

    /// The events that are accepted and not done, oldest first.
    pub(crate) fn events(&self) -> Result<Vec<WaitingEvent>, LogError> {
        self.error(tables::read_events(&self.connection))
    }

    /// The triggers, by name.
    pub(crate) fn triggers(&self) -> Result<Vec<KeptTrigger>, LogError> {
        self.error(tables::read_triggers(&self.connection))
    }

    /// The name of the invocation that a request was, if its row is one of the newest `most`.
    pub(crate) fn invocation_of(
        &self,
        request_id: &str,
        most: i64,
    ) -> Result<Option<String>, LogError> {
        self.error(tables::read_invocation_of(&self.connection, request_id, most))
    }

    /// An event's payload; none if it is done.
    pub(crate) fn payload(&self, id: i64) -> Result<Option<Vec<u8>>, LogError> {
        self.error(tables::read_payload(&self.connection, id))
    }

    /// `read` is given a row and whether it is the page's first; it returns none to end the page
    /// before it.
    fn page<'a, T>(
        &'a self,
        query: &Query,
        select: impl FnOnce(&'a Connection) -> rusqlite::Result<Statement<'a>>,
        mut read: impl FnMut(&Row<'_>, bool) -> rusqlite::Result<Option<T>>,
    ) -> Result<Page<T>, LogError> {
        let mut page = Page { rows: Vec::new(), last: query.after, more: false };
        let limit = query.limit.clamp(1, MAX_PAGE_ROWS);
        let fill = || -> rusqlite::Result<()> {
            let mut statement = select(&self.connection)?;
            let mut rows = statement.query([query.after])?;
            let (mut scanned, mut bytes) = (0, 0);
            while let Some(row) = rows.next()? {
                let mut ends = page.rows.len() == limit || scanned == MAX_SCANNED_ROWS;
                if !ends && query.function.as_deref().is_none_or(|name| is_of(row, name)) {
                    bytes += size(row);
                    let first = page.rows.is_empty();
                    match if first || bytes <= MAX_PAGE_BYTES { read(row, first)? } else { None } {
                        Some(next) => page.rows.push(next),
                        None => ends = true,
                    }
                }
                if ends {
                    page.more = true;
                    return Ok(());
                }
                page.last = row.get("id")?;
                scanned += 1;
            }
            Ok(())
        };
        let filled = fill();
        self.error(filled)?;
        Ok(page)
    }

    fn error<T>(&self, result: rusqlite::Result<T>) -> Result<T, LogError> {
        result.map_err(|error| DatabaseError::of(&self.path, &error).into())
    }
}

/// Whether a row is of the function with this name.
fn is_of(row: &Row<'_>, name: &str) -> bool {
    row.get_ref("function").is_ok_and(|function| function.as_str() == Ok(name))
}

/// What a row occupies, nearly.
fn size(row: &Row<'_>) -> usize {
    let columns = (0..).map_while(|index| row.get_ref(index).ok());
    columns
        .map(|value| match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => 16 + bytes.len(),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 8,
        })
        .sum()
}
