//! How much of the log is kept.

use rusqlite::{Connection, OptionalExtension, params};

/// Rows of one table that one step removes; bounds how long the entries that come meanwhile wait.
const STEP_ROWS: i64 = 1_000;

/// How much of the log is kept. Of the invocations, the spans and the instances, the rows with the
/// newest ids are; accepted events and instances that live always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Ids of each table: one for every invocation and every span, and one for each of the three
    /// states that an instance is written in.
    pub rows: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { rows: u64::MAX }
    }
}

impl Retention {
    /// Removes a few of the oldest rows that are too many, within the caller's transaction; returns
    /// whether there are more of them.
    pub fn step(self, connection: &Connection) -> rusqlite::Result<bool> {
        let rows = i64::try_from(self.rows).unwrap_or(i64::MAX);
        let mut more = false;
        for table in ["invocations", "spans"] {
            if let Some(newest) = newest_to_remove(connection, table, rows)? {
                more |= delete_oldest(connection, table, newest)?;
            }
        }
        if let Some(newest) = newest_to_remove(connection, "instances", rows)? {
            more |= delete_oldest_instance(connection, newest)?;
        }
        Ok(more)
    }
}

/// The newest id that is not kept.
fn newest_to_remove(
    connection: &Connection,
    table: &str,
    rows: i64,
) -> rusqlite::Result<Option<i64>> {
    let sql = format!("SELECT MAX(id) FROM {table}");
    let last: Option<i64> = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    Ok(last.map(|last| last.saturating_sub(rows)).filter(|newest| *newest > 0))
}

/// Returns whether there are more up to `newest`.
fn delete_oldest(connection: &Connection, table: &str, newest: i64) -> rusqlite::Result<bool> {
    let sql = format!("SELECT MIN(id) FROM {table}");
    let first: Option<i64> = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    let Some(first) = first.filter(|first| *first <= newest) else { return Ok(false) };
    let upto = newest.min(first.saturating_add(STEP_ROWS - 1));
    let sql = format!("DELETE FROM {table} WHERE id <= ?1");
    connection.prepare_cached(&sql)?.execute([upto])?;
    Ok(upto < newest)
}

/// Removes the oldest instance that has ended, after its idle intervals.
fn delete_oldest_instance(connection: &Connection, newest: i64) -> rusqlite::Result<bool> {
    let sql = "SELECT id, instance FROM instances WHERE ended IS NOT NULL AND id <= ?1
               ORDER BY id LIMIT 1";
    let oldest: Option<(i64, String)> = connection
        .prepare_cached(sql)?
        .query_row([newest], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((id, instance)) = oldest else { return Ok(false) };
    let sql = "DELETE FROM idle_intervals WHERE instance = ?1 AND (start, end) IN
               (SELECT start, end FROM idle_intervals WHERE instance = ?1
                ORDER BY start, end LIMIT ?2)";
    let deleted = connection.prepare_cached(sql)?.execute(params![instance, STEP_ROWS])?;
    if (deleted as i64) < STEP_ROWS {
        connection.prepare_cached("DELETE FROM instances WHERE id = ?1")?.execute([id])?;
    }
    Ok(true)
}
