//! How much of the log is kept.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, Params, params};
use uncia_record::Instance;

/// Rows of one table that one step removes, nearly; bounds how long the entries that come meanwhile
/// wait. More than are written between two steps, so that no rate of writing outruns them.
const STEP_ROWS: i64 = 1_000;
/// Idle intervals of one instance that are kept apart, at least; bounds what reading one takes.
pub(super) const INSTANCE_INTERVALS: i64 = 100_000;

/// How much of the log is kept. Of the invocations, the spans, the instances and the idle intervals,
/// the rows with the newest ids are; accepted events and instances that live always are. Idle intervals
/// that are too many are merged, so that an instance's idle time stays exact as long as its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention {
    /// Ids of each table: one for every invocation, every span and every idle interval, and one for
    /// each of the three states that an instance is written in.
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
    pub(crate) fn step(
        self,
        connection: &Connection,
        counts: &mut Counts,
    ) -> rusqlite::Result<bool> {
        let mut more = false;
        for table in ["invocations", "spans"] {
            if let Some((upto, left)) = self.oldest(connection, table)? {
                let sql = format!("DELETE FROM {table} WHERE id <= ?1");
                connection.prepare_cached(&sql)?.execute([upto])?;
                more |= left;
            }
        }
        if let Some((upto, left)) = self.oldest(connection, "idle_intervals")? {
            counts.remove(&merge(connection, "id <= ?1", [upto])?);
            more |= left;
        }
        let long =
            counts.0.iter_mut().filter(|(_, count)| **count >= INSTANCE_INTERVALS + STEP_ROWS);
        for (instance, count) in long {
            *count -= merge_oldest_of(connection, instance, STEP_ROWS)?;
        }
        if let Some(newest) = self.newest_to_remove(connection, "instances")? {
            more |= delete_oldest_instances(connection, newest)?;
        }
        Ok(more)
    }

    /// The newest id that is not kept.
    fn newest_to_remove(
        self,
        connection: &Connection,
        table: &str,
    ) -> rusqlite::Result<Option<i64>> {
        let rows = i64::try_from(self.rows).unwrap_or(i64::MAX);
        let sql = format!("SELECT MAX(id) FROM {table}");
        let last: Option<i64> = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
        Ok(last.map(|last| last.saturating_sub(rows)).filter(|newest| *newest > 0))
    }

    /// The id up to which one step removes, and whether there are more that are not kept.
    fn oldest(self, connection: &Connection, table: &str) -> rusqlite::Result<Option<(i64, bool)>> {
        let Some(newest) = self.newest_to_remove(connection, table)? else { return Ok(None) };
        let sql = format!("SELECT MIN(id) FROM {table}");
        let first: Option<i64> =
            connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
        Ok(first.filter(|first| *first <= newest).map(|first| {
            let upto = newest.min(first.saturating_add(STEP_ROWS - 1));
            (upto, upto < newest)
        }))
    }
}

/// How many idle intervals of each living instance there are, so that nobody has to count them.
#[derive(Debug, Default)]
pub(crate) struct Counts(HashMap<Arc<str>, i64>);

impl Counts {
    pub(crate) fn add(&mut self, instance: &Arc<str>) {
        match self.0.get_mut(instance) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(instance.clone(), 1)),
        }
    }

    /// An ended instance has all that it will ever have.
    pub(crate) fn note(&mut self, row: &Instance) {
        if row.ended.is_some() {
            self.0.remove(&row.instance);
        }
    }

    fn remove(&mut self, merged: &HashMap<String, Merged>) {
        for (instance, merged) in merged {
            if let Some(count) = self.0.get_mut(instance.as_str()) {
                *count -= merged.intervals;
            }
        }
    }
}

/// Idle intervals of an instance that are not kept apart any more.
#[derive(Debug, Default)]
struct Merged {
    intervals: i64,
    last_end: i64,
    total: i64,
}

/// Merges the oldest intervals of an instance; returns how many.
pub(super) fn merge_oldest_of(
    connection: &Connection,
    instance: &str,
    intervals: i64,
) -> rusqlite::Result<i64> {
    let which = "id IN (SELECT id FROM idle_intervals WHERE instance = ?1 ORDER BY start LIMIT ?2)";
    let merged = merge(connection, which, params![instance, intervals])?;
    Ok(merged.values().map(|merged| merged.intervals).sum())
}

/// Removes intervals and adds their lengths to their instances' sums.
fn merge(
    connection: &Connection,
    which: &str,
    params: impl Params,
) -> rusqlite::Result<HashMap<String, Merged>> {
    let mut merged: HashMap<String, Merged> = HashMap::new();
    let sql = format!("DELETE FROM idle_intervals WHERE {which} RETURNING instance, start, end");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params)?;
    while let Some(row) = rows.next()? {
        let (start, end): (i64, i64) = (row.get(1)?, row.get(2)?);
        let sum = merged.entry(row.get(0)?).or_default();
        sum.intervals += 1;
        sum.last_end = sum.last_end.max(end);
        sum.total = sum.total.saturating_add(end.saturating_sub(start));
    }
    // Sums go with their instances, so there is none without.
    let sql = "INSERT INTO merged_idle (instance, last_end, total)
               SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM instances WHERE instance = ?1)
               ON CONFLICT (instance) DO UPDATE SET
                   last_end = MAX(last_end, excluded.last_end), total = total + excluded.total";
    let mut statement = connection.prepare_cached(sql)?;
    for (instance, sum) in &merged {
        statement.execute(params![instance, sum.last_end, sum.total])?;
    }
    Ok(merged)
}

/// Removes the oldest instances that have ended, each after its idle intervals; returns whether there
/// may be more up to `newest`.
fn delete_oldest_instances(connection: &Connection, newest: i64) -> rusqlite::Result<bool> {
    let sql = "SELECT id, instance FROM instances WHERE ended IS NOT NULL AND id <= ?1
               ORDER BY id LIMIT ?2";
    let oldest: Vec<(i64, String)> = connection
        .prepare_cached(sql)?
        .query_map([newest, STEP_ROWS], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut removed = 0;
    for (id, instance) in &oldest {
        let sql = "DELETE FROM idle_intervals WHERE id IN
                   (SELECT id FROM idle_intervals WHERE instance = ?1 LIMIT ?2)";
        let room = STEP_ROWS - removed;
        let intervals = connection.prepare_cached(sql)?.execute(params![instance, room])? as i64;
        if intervals == room {
            return Ok(true);
        }
        connection
            .prepare_cached("DELETE FROM merged_idle WHERE instance = ?1")?
            .execute([instance])?;
        connection.prepare_cached("DELETE FROM instances WHERE id = ?1")?.execute([id])?;
        removed += intervals + 1;
        if removed >= STEP_ROWS {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::super::{schema, tables};
    use super::*;

    fn count(connection: &Connection, table: &str) -> i64 {
        let sql = format!("SELECT COUNT(*) FROM {table}");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    fn instance(name: &str) -> Instance {
        Instance { instance: Arc::from(name), ended: Some(9), ..Instance::default() }
    }

    #[test]
    fn a_step_keeps_up_with_what_is_written_between_two() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, 0).unwrap();
        let mut counts = Counts::default();
        for number in 0..3_000 {
            let idle = Some(vec![(0, 1)]);
            let row = Instance { idle, ..instance(&format!("i{number}")) };
            tables::put_instance(&connection, &row).unwrap();
        }
        let retention = Retention { rows: 100 };
        retention.step(&connection, &mut counts).unwrap();
        assert!(count(&connection, "instances") <= 2_500);
        let mut steps = 1;
        while retention.step(&connection, &mut counts).unwrap() {
            steps += 1;
        }
        assert!(steps < 8, "{steps}");
        let left = ["instances", "idle_intervals", "merged_idle"].map(|it| count(&connection, it));
        assert_eq!(left, [100, 100, 0]);
    }

    #[test]
    fn one_instance_keeps_a_bounded_number_of_intervals() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, 0).unwrap();
        let mut counts = Counts::default();
        let lives = Instance { ended: None, initialized: Some(1), ..instance("i") };
        tables::put_instance(&connection, &lives).unwrap();
        let total = INSTANCE_INTERVALS + 10 * STEP_ROWS;
        for start in 0..total {
            schema::insert_idle_interval(&connection, "i", 2 * start, 2 * start + 1).unwrap();
            counts.add(&lives.instance);
            if start % 500 == 0 {
                Retention::default().step(&connection, &mut counts).unwrap();
            }
        }
        let kept = count(&connection, "idle_intervals");
        assert!((INSTANCE_INTERVALS..=INSTANCE_INTERVALS + 2 * STEP_ROWS).contains(&kept));
        assert_eq!(counts.0["i"], kept);
        let idle = tables::read_idle_intervals(&connection, "i", -1).unwrap();
        assert_eq!(idle.iter().map(|(start, end)| end - start).sum::<i64>(), total);
        counts.note(&instance("i"));
        assert!(counts.0.is_empty());
    }
}
