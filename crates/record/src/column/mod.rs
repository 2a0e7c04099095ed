//! Columns: their Arrow types, how they are declared, and how they grow row by row.

mod lists;
mod nulls;
mod numbers;
mod texts;
mod traffic;

use std::sync::Arc;

use arrow_schema::{DataType, Field};

pub use lists::{IntervalsColumn, PhasesColumn};
pub use numbers::{BoolColumn, Float64Column, Int64Column, MoneyColumn, QuantityColumn};
pub use texts::{IdColumn, TextColumn};
pub use traffic::TrafficColumn;

/// Text that repeats from row to row; cheap to clone.
pub type Text = Arc<str>;

/// The Arrow types that columns have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// `dictionary<int32, utf8>`: text that repeats (names, kinds).
    Text,
    /// `utf8`: text that is mostly different in each row (identifiers, messages).
    Id,
    /// `int64`: times, sizes and counts.
    Int64,
    /// `float64`: readings that are no whole numbers.
    Float64,
    /// `bool`.
    Bool,
    /// `decimal128(38, 0)`: an exact quantity.
    Quantity,
    /// `decimal128(38, 18)`: US dollars.
    Money,
    /// `list<struct<start: int64, end: int64>>`: intervals of time.
    Intervals,
    /// `list<struct<duration: int64, threads: int64, memory: int64>>`: what a request does.
    Phases,
    /// `list<struct<service: utf8, sent: int64, received: int64>>`: bytes that passed.
    Traffic,
}

const DECIMAL_PRECISION: u8 = 38;
const MONEY_SCALE: i8 = 18;

/// A stretch of a request with the same needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Phase {
    /// How long it lasts, in ns, if each of its threads has a CPU.
    pub duration: i64,
    /// Threads that run all the time; 0 sleeps.
    pub threads: i64,
    /// Memory held, in bytes.
    pub memory: i64,
}

/// What passed between an instance and a service.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Traffic {
    /// The service's name.
    pub service: Text,
    /// Bytes that the instance sent.
    pub sent: i64,
    /// Bytes that it received.
    pub received: i64,
}

impl ColumnKind {
    /// The Arrow data type of a column of this kind.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            Self::Id => DataType::Utf8,
            Self::Int64 => DataType::Int64,
            Self::Float64 => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::Quantity => DataType::Decimal128(DECIMAL_PRECISION, 0),
            Self::Money => DataType::Decimal128(DECIMAL_PRECISION, MONEY_SCALE),
            Self::Intervals => DataType::List(lists::item_field(&lists::INTERVAL_FIELDS)),
            Self::Phases => DataType::List(lists::item_field(&lists::PHASE_FIELDS)),
            Self::Traffic => DataType::List(traffic::item_field()),
        }
    }

    /// The type's name in `uncia-engine schema` and the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "dictionary<int32, utf8>",
            Self::Id => "utf8",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::Bool => "bool",
            Self::Quantity => "decimal128(38, 0)",
            Self::Money => "decimal128(38, 18)",
            Self::Intervals => "list<struct<start: int64, end: int64>>",
            Self::Phases => "list<struct<duration: int64, threads: int64, memory: int64>>",
            Self::Traffic => "list<struct<service: utf8, sent: int64, received: int64>>",
        }
    }
}

/// A column as declared: its name, type, unit, whether and when it may be null, and its meaning.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its name in the table.
    pub name: &'static str,
    /// Its Arrow type.
    pub kind: ColumnKind,
    /// Whether it may be null.
    pub nullable: bool,
    /// Its unit; empty if it has none.
    pub unit: &'static str,
    /// When it is null; empty if never.
    pub null_rule: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

impl Column {
    pub(crate) fn field(&self) -> Field {
        Field::new(self.name, self.kind.data_type(), self.nullable)
    }
}

/// A value of a growing column of the type `C`, or none.
///
/// A row that is passed over is null, and costs nothing: nulls are made when a later row has a
/// value, or at the end, where a column without a single value takes its nulls from memory that
/// all such columns share. A column that is never null must be given each row.
pub(crate) trait Value<C> {
    /// Gives `row` of the column this value; rows come in ascending order.
    fn append_to(&self, column: &mut C, row: usize);
}

impl<C, V: Value<C>> Value<C> for Option<V> {
    #[inline]
    fn append_to(&self, column: &mut C, row: usize) {
        if let Some(value) = self {
            value.append_to(column, row);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::builder::StringBuilder;
    use arrow_array::types::Int32Type;
    use arrow_array::{
        Array, ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, Int64Array,
    };
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against arrow's own builders, for every mixture of values and nulls.
        #[test]
        fn rows_that_are_passed_over_are_null(
            values in prop::collection::vec(prop::option::of(0u8..20), 0..300)
        ) {
            let texts: Vec<Option<Text>> =
                values.iter().map(|value| value.map(|v| Text::from(v.to_string()))).collect();
            let rows = values.len();
            let (mut numbers, mut bools) = (Int64Column::new(), BoolColumn::new());
            let (mut quantities, mut ids) = (QuantityColumn::new(), IdColumn::new());
            let (mut names, mut plain) = (TextColumn::new(), StringBuilder::new());
            for (row, (value, text)) in values.iter().zip(&texts).enumerate() {
                value.map(i64::from).append_to(&mut numbers, row);
                value.map(|v| v % 2 == 0).append_to(&mut bools, row);
                value.map(i128::from).append_to(&mut quantities, row);
                text.append_to(&mut names, row);
                plain.append_option(text.as_deref());
                if let Some(number) = value {
                    ids.set_numbered(row, "", u64::from(*number));
                }
            }
            let actual = [
                numbers.finish(rows),
                bools.finish(rows),
                quantities.finish(rows),
                ids.finish(rows),
                names.finish(rows),
            ];
            let quantities: Decimal128Array = values.iter().map(|v| v.map(i128::from)).collect();
            let expected: [ArrayRef; 5] = [
                Arc::new(values.iter().map(|v| v.map(i64::from)).collect::<Int64Array>()),
                Arc::new(values.iter().map(|v| v.map(|v| v % 2 == 0)).collect::<BooleanArray>()),
                Arc::new(quantities.with_data_type(ColumnKind::Quantity.data_type())),
                Arc::new(plain.finish()),
                Arc::new(texts.iter().map(Option::as_deref).collect::<DictionaryArray<Int32Type>>()),
            ];
            prop_assert_eq!(actual, expected);
            // A column begins anew after each batch.
            prop_assert_eq!(numbers.finish(3).null_count(), 3);
            prop_assert_eq!(names.finish(0).len(), 0);
        }
    }

    #[test]
    fn more_nulls_than_are_kept_at_hand() {
        let rows = 100_000;
        for nulls in [
            QuantityColumn::new().finish(rows),
            IdColumn::new().finish(rows),
            PhasesColumn::new().finish(rows),
            TrafficColumn::new().finish(rows),
            TextColumn::new().finish(rows),
        ] {
            assert_eq!((nulls.len(), nulls.null_count()), (rows, rows));
        }
    }
}
