//! The last invocations.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::meterlog::Recorded;

/// Rows that are kept.
const MAX_ROWS: usize = 50;

/// The last rows, each with its number since the start, from 1.
#[derive(Default)]
pub(crate) struct Recent {
    rows: VecDeque<Arc<Recorded>>,
    last: u64,
}

impl Recent {
    pub(crate) fn record(&mut self, recorded: Arc<Recorded>) {
        if self.rows.len() == MAX_ROWS {
            self.rows.pop_front();
        }
        self.rows.push_back(recorded);
        self.last += 1;
    }

    /// The number of the last row; 0 before the first.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// The last rows after the one with this number, at most so many, oldest first.
    pub(crate) fn after(
        &self,
        number: u64,
        most: usize,
    ) -> impl Iterator<Item = (u64, &Arc<Recorded>)> {
        let first = self.last - self.rows.len() as u64;
        let numbered = (first + 1..).zip(&self.rows);
        let few = self.rows.len().saturating_sub(most);
        numbered.skip(few).filter(move |(its, _)| *its > number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rows_keep_their_numbers() {
        let mut recent = Recent::default();
        for _ in 0..MAX_ROWS + 7 {
            recent.record(Arc::default());
        }
        let last = recent.last();
        assert_eq!(last, MAX_ROWS as u64 + 7);
        let numbers = |number, most| recent.after(number, most).map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(numbers(0, usize::MAX), (8..=last).collect::<Vec<_>>());
        assert_eq!(numbers(last - 2, usize::MAX), [last - 1, last]);
        assert_eq!(numbers(0, 1), [last]);
        assert!(numbers(last, 10).is_empty());
    }
}
