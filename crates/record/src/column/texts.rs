//! Columns of text: names that repeat, and identifiers that do not.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, Int32Builder, StringBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, StringArray};
use arrow_buffer::OffsetBuffer;

use super::nulls::{PassTo, all_null, null_numbers, zero_offsets, zeros};
use super::{Text, Value};

/// Texts whose keys a column of text remembers without hashing; a power of two.
const RECENT_TEXTS: usize = 8;

/// A column of [`super::ColumnKind::Text`].
pub struct TextColumn {
    keys: Int32Builder,
    values: StringBuilder,
    index: HashMap<Text, i32>,
    /// Texts by their address: most rows repeat one of few texts that are the same in memory, too.
    recent: [Option<(Text, i32)>; RECENT_TEXTS],
}

impl TextColumn {
    pub(crate) fn new() -> Self {
        Self {
            keys: Int32Builder::new(),
            values: StringBuilder::new(),
            index: HashMap::new(),
            recent: Default::default(),
        }
    }

    /// Gives `row` its value; rows come in ascending order, and those passed over are null.
    #[inline]
    pub fn set(&mut self, row: usize, text: &Text) {
        // An allocation's address is a multiple of 16.
        let slot = (text.as_ptr().addr() >> 4) % RECENT_TEXTS;
        let key = match &self.recent[slot] {
            Some((known, key)) if Arc::ptr_eq(known, text) => *key,
            _ => self.look_up(slot, text),
        };
        self.keys.pass_to(row);
        self.keys.append_value(key);
    }

    fn look_up(&mut self, slot: usize, text: &Text) -> i32 {
        let key = match self.index.get(text) {
            Some(key) => *key,
            None => {
                let key = i32::try_from(self.index.len()).expect("a batch has fewer rows");
                self.values.append_value(text);
                self.index.insert(text.clone(), key);
                key
            }
        };
        self.recent[slot] = Some((text.clone(), key));
        key
    }

    pub(crate) fn finish(&mut self, rows: usize) -> ArrayRef {
        let keys = if self.keys.is_empty() {
            null_numbers::<Int32Type>(rows)
        } else {
            self.keys.pass_to(rows);
            self.keys.finish()
        };
        self.index.clear();
        self.recent = Default::default();
        Arc::new(DictionaryArray::new(keys, Arc::new(self.values.finish())))
    }
}

impl Value<TextColumn> for Text {
    #[inline]
    fn append_to(&self, column: &mut TextColumn, row: usize) {
        column.set(row, self);
    }
}

/// A column of [`super::ColumnKind::Id`].
pub struct IdColumn(StringBuilder);

impl IdColumn {
    pub(crate) fn new() -> Self {
        Self(StringBuilder::new())
    }

    /// Gives `row` its value; rows come in ascending order, and those passed over are null.
    pub fn set(&mut self, row: usize, text: &str) {
        self.0.pass_to(row);
        self.0.append_value(text);
    }

    /// Like [`IdColumn::set`], for `prefix` followed by `number` in decimal digits.
    #[inline]
    pub fn set_numbered(&mut self, row: usize, prefix: &str, number: u64) {
        self.0.pass_to(row);
        let mut digits = Digits::default();
        // What is written so far becomes the row's value when a value is appended; writing to
        // memory does not fail.
        let _ = self.0.write_str(prefix);
        self.0.append_value(digits.of(number));
    }

    pub(crate) fn finish(&mut self, rows: usize) -> ArrayRef {
        if self.0.is_empty() {
            let offsets = OffsetBuffer::new(zero_offsets(rows));
            return Arc::new(StringArray::new(offsets, zeros(0), Some(all_null(rows))));
        }
        self.0.pass_to(rows);
        Arc::new(self.0.finish())
    }
}

impl Value<IdColumn> for String {
    #[inline]
    fn append_to(&self, column: &mut IdColumn, row: usize) {
        column.set(row, self);
    }
}

/// Room for the decimal digits of a number.
#[derive(Default)]
struct Digits([u8; 20]);

impl Digits {
    fn of(&mut self, mut number: u64) -> &str {
        let mut first = self.0.len();
        loop {
            first -= 1;
            self.0[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        std::str::from_utf8(&self.0[first..]).expect("digits are ASCII")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn digits_are_those_of_the_number(number in any::<u64>()) {
            let mut digits = Digits::default();
            prop_assert_eq!(digits.of(number), number.to_string());
        }
    }
}
