//! Reading the log while it is written.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, Row, Statement, params};
use uncia_record::{Instance, Invocation, Span};

use super::LogError;
use super::tables;

/// Rows of one table, and the id of the last of them.
pub type Page<T> = (Vec<T>, i64);

/// A connection that reads.
pub struct Reader {
    path: PathBuf,
    connection: Connection,
}

/// Which rows to read.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Rows with greater ids.
    pub after: i64,
    pub function: Option<String>,
    /// At most so many.
    pub limit: Option<i64>,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        match Connection::open_with_flags(path, flags) {
            Ok(connection) => Ok(Self { path: path.to_owned(), connection }),
            Err(error) => Err(error_at(path, &error)),
        }
    }

    pub fn invocations(&self, query: &Query) -> Result<Page<Invocation>, LogError> {
        self.page(query, tables::select_invocations, tables::read_invocation)
    }

    pub fn spans(&self, query: &Query) -> Result<Page<Span>, LogError> {
        self.page(query, tables::select_spans, tables::read_span)
    }

    /// The instances that have ended.
    pub fn ended_instances(&self, query: &Query) -> Result<Page<Instance>, LogError> {
        self.page(query, tables::select_ended_instances, tables::read_instance)
    }

    fn page<'a, T>(
        &'a self,
        query: &Query,
        select: impl FnOnce(&'a Connection) -> rusqlite::Result<Statement<'a>>,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Page<T>, LogError> {
        let mut last = query.after;
        let rows = select(&self.connection).and_then(|mut statement| {
            // A negative limit is none.
            let limit = query.limit.unwrap_or(-1);
            statement
                .query_map(params![query.after, query.function, limit], |row| {
                    last = row.get("id")?;
                    read(row)
                })?
                .collect::<rusqlite::Result<Vec<T>>>()
        });
        rows.map(|rows| (rows, last)).map_err(|error| error_at(&self.path, &error))
    }
}

fn error_at(path: &Path, error: &rusqlite::Error) -> LogError {
    LogError::Database { path: path.to_owned(), message: error.to_string() }
}
