use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Decimal128Builder, Float64Builder, Int32Builder, Int64Builder,
    StringBuilder,
};
use arrow_array::types::{Decimal128Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, DictionaryArray, Int64Array, ListArray,
    PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{
    BooleanBuffer, BooleanBufferBuilder, Buffer, MutableBuffer, NullBuffer, OffsetBuffer,
    ScalarBuffer,
};
use arrow_schema::{DataType, Field};

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
}

const DECIMAL_PRECISION: u8 = 38;
const MONEY_SCALE: i8 = 18;

const INTERVAL_FIELDS: [&str; 2] = ["start", "end"];
const PHASE_FIELDS: [&str; 3] = ["duration", "threads", "memory"];

/// The items of a list: structures of these fields, all `int64`.
fn item_field(names: &[&str]) -> Arc<Field> {
    let fields = names.iter().map(|name| Field::new(*name, DataType::Int64, false));
    Arc::new(Field::new("item", DataType::Struct(fields.collect()), false))
}

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
            Self::Intervals => DataType::List(item_field(&INTERVAL_FIELDS)),
            Self::Phases => DataType::List(item_field(&PHASE_FIELDS)),
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

/// A growing column of one Rust value type.
///
/// A row that is passed over is null, and costs nothing: nulls are made when a later row has a
/// value, or at the end, where a column without a single value takes its nulls from memory that
/// all such columns share. A column that is never null must be given each row.
pub(crate) trait Append<T> {
    /// Gives `row` its value; rows come in ascending order.
    fn append(&mut self, row: usize, value: T);
}

/// Zeros, for the values and the validity of columns that are null throughout.
fn zeros(bytes: usize) -> Buffer {
    const SHARED_BYTES: usize = 8_192 * size_of::<i128>();
    static SHARED: LazyLock<Buffer> =
        LazyLock::new(|| MutableBuffer::from_len_zeroed(SHARED_BYTES).into());
    match bytes {
        ..=SHARED_BYTES => SHARED.slice_with_length(0, bytes),
        _ => MutableBuffer::from_len_zeroed(bytes).into(),
    }
}

fn all_null(rows: usize) -> NullBuffer {
    NullBuffer::new(BooleanBuffer::new(zeros(rows.div_ceil(8)), 0, rows))
}

fn null_numbers<T: ArrowPrimitiveType>(rows: usize) -> PrimitiveArray<T> {
    let values = zeros(rows * size_of::<T::Native>());
    PrimitiveArray::new(ScalarBuffer::new(values, 0, rows), Some(all_null(rows)))
}

macro_rules! number_column {
    ($(#[$doc:meta])* $column:ident, $builder:ident, $value:ty, $new:expr, $nulls:expr) => {
        $(#[$doc])*
        pub struct $column($builder);

        impl $column {
            pub(crate) fn new() -> Self {
                Self($new)
            }

            /// Gives `row` its value; rows come in ascending order, and those passed over are null.
            #[inline]
            pub fn set(&mut self, row: usize, value: $value) {
                self.pass_to(row);
                self.0.append_value(value);
            }

            #[inline]
            fn pass_to(&mut self, row: usize) {
                let passed = row - self.0.len();
                if passed > 0 {
                    self.0.append_nulls(passed);
                }
            }

            pub(crate) fn finish(&mut self, rows: usize) -> ArrayRef {
                if self.0.is_empty() {
                    return $nulls(rows);
                }
                self.pass_to(rows);
                Arc::new(self.0.finish())
            }
        }

        impl Append<&Option<$value>> for $column {
            #[inline]
            fn append(&mut self, row: usize, value: &Option<$value>) {
                if let Some(value) = value {
                    self.set(row, *value);
                }
            }
        }

        impl Append<&$value> for $column {
            #[inline]
            fn append(&mut self, row: usize, value: &$value) {
                self.set(row, *value);
            }
        }
    };
}

fn decimals(scale: i8) -> Decimal128Builder {
    Decimal128Builder::new()
        .with_precision_and_scale(DECIMAL_PRECISION, scale)
        .expect("38 digits is what Decimal128 holds")
}

fn null_decimals(kind: ColumnKind, rows: usize) -> ArrayRef {
    Arc::new(null_numbers::<Decimal128Type>(rows).with_data_type(kind.data_type()))
}

fn null_bools(rows: usize) -> ArrayRef {
    let values = BooleanBuffer::new(zeros(rows.div_ceil(8)), 0, rows);
    Arc::new(BooleanArray::new(values, Some(all_null(rows))))
}

number_column!(
    /// A column of [`ColumnKind::Int64`].
    Int64Column,
    Int64Builder,
    i64,
    Int64Builder::new(),
    |rows| Arc::new(null_numbers::<Int64Type>(rows))
);
number_column!(
    /// A column of [`ColumnKind::Float64`].
    Float64Column,
    Float64Builder,
    f64,
    Float64Builder::new(),
    |rows| Arc::new(null_numbers::<Float64Type>(rows))
);
number_column!(
    /// A column of [`ColumnKind::Bool`].
    BoolColumn,
    BooleanBuilder,
    bool,
    BooleanBuilder::new(),
    null_bools
);
number_column!(
    /// A column of [`ColumnKind::Quantity`].
    QuantityColumn,
    Decimal128Builder,
    i128,
    decimals(0),
    |rows| null_decimals(ColumnKind::Quantity, rows)
);
number_column!(
    /// A column of [`ColumnKind::Money`].
    MoneyColumn,
    Decimal128Builder,
    i128,
    decimals(MONEY_SCALE),
    |rows| null_decimals(ColumnKind::Money, rows)
);

/// Texts whose keys a column of text remembers without hashing; a power of two.
const RECENT_TEXTS: usize = 8;

/// A column of [`ColumnKind::Text`].
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
        let place = (text.as_ptr().addr() >> 4) % RECENT_TEXTS;
        let key = match &self.recent[place] {
            Some((known, key)) if Arc::ptr_eq(known, text) => *key,
            _ => self.look_up(place, text),
        };
        self.pass_to(row);
        self.keys.append_value(key);
    }

    fn look_up(&mut self, place: usize, text: &Text) -> i32 {
        let key = match self.index.get(text) {
            Some(key) => *key,
            None => {
                let key = i32::try_from(self.index.len()).expect("a batch has fewer rows");
                self.values.append_value(text);
                self.index.insert(text.clone(), key);
                key
            }
        };
        self.recent[place] = Some((text.clone(), key));
        key
    }

    #[inline]
    fn pass_to(&mut self, row: usize) {
        let passed = row - self.keys.len();
        if passed > 0 {
            self.keys.append_nulls(passed);
        }
    }

    pub(crate) fn finish(&mut self, rows: usize) -> ArrayRef {
        let keys = if self.keys.is_empty() {
            null_numbers::<Int32Type>(rows)
        } else {
            self.pass_to(rows);
            self.keys.finish()
        };
        self.index.clear();
        self.recent = Default::default();
        Arc::new(DictionaryArray::new(keys, Arc::new(self.values.finish())))
    }
}

impl Append<&Option<Text>> for TextColumn {
    #[inline]
    fn append(&mut self, row: usize, value: &Option<Text>) {
        if let Some(text) = value {
            self.set(row, text);
        }
    }
}

impl Append<&Text> for TextColumn {
    #[inline]
    fn append(&mut self, row: usize, value: &Text) {
        self.set(row, value);
    }
}

/// A column of [`ColumnKind::Id`].
pub struct IdColumn(StringBuilder);

impl IdColumn {
    pub(crate) fn new() -> Self {
        Self(StringBuilder::new())
    }

    /// Gives `row` its value; rows come in ascending order, and those passed over are null.
    pub fn set(&mut self, row: usize, text: &str) {
        self.pass_to(row);
        self.0.append_value(text);
    }

    /// Like [`IdColumn::set`], for `prefix` followed by `number` in decimal digits.
    #[inline]
    pub fn set_numbered(&mut self, row: usize, prefix: &str, number: u64) {
        self.pass_to(row);
        let mut digits = Digits::default();
        // What is written so far becomes the row's value when a value is appended; writing to
        // memory does not fail.
        let _ = self.0.write_str(prefix);
        self.0.append_value(digits.of(number));
    }

    fn pass_to(&mut self, row: usize) {
        let passed = row - self.0.len();
        if passed > 0 {
            self.0.append_nulls(passed);
        }
    }

    pub(crate) fn finish(&mut self, rows: usize) -> ArrayRef {
        if self.0.is_empty() {
            let offsets = OffsetBuffer::new(ScalarBuffer::new(zeros((rows + 1) * 4), 0, rows + 1));
            return Arc::new(StringArray::new(offsets, zeros(0), Some(all_null(rows))));
        }
        self.pass_to(rows);
        Arc::new(self.0.finish())
    }
}

impl Append<&Option<String>> for IdColumn {
    #[inline]
    fn append(&mut self, row: usize, value: &Option<String>) {
        if let Some(text) = value {
            self.set(row, text);
        }
    }
}

impl Append<&String> for IdColumn {
    fn append(&mut self, row: usize, value: &String) {
        self.set(row, value);
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

/// Lists of structures of `N` fields, all `int64`.
struct Lists<const N: usize> {
    names: [&'static str; N],
    fields: [Vec<i64>; N],
    /// Where each row's list ends.
    ends: Vec<i32>,
    valid: BooleanBufferBuilder,
}

impl<const N: usize> Lists<N> {
    fn new(names: [&'static str; N]) -> Self {
        let fields = std::array::from_fn(|_| Vec::new());
        Self { names, fields, ends: vec![0], valid: BooleanBufferBuilder::new(0) }
    }

    fn set(&mut self, row: usize, items: impl Iterator<Item = [i64; N]>) {
        self.pass_to(row);
        for item in items {
            for (field, value) in self.fields.iter_mut().zip(item) {
                field.push(value);
            }
        }
        self.end_row(true);
    }

    fn pass_to(&mut self, row: usize) {
        for _ in self.valid.len()..row {
            self.end_row(false);
        }
    }

    fn end_row(&mut self, valid: bool) {
        let items = self.fields.first().map_or(0, Vec::len);
        self.ends.push(i32::try_from(items).expect("a batch has fewer items"));
        self.valid.append(valid);
    }

    fn finish(&mut self, rows: usize) -> ArrayRef {
        let item = item_field(&self.names);
        let DataType::Struct(fields) = item.data_type() else { unreachable!("a list's items") };
        let (ends, nulls) = if self.valid.is_empty() {
            (ScalarBuffer::new(zeros((rows + 1) * 4), 0, rows + 1), all_null(rows))
        } else {
            self.pass_to(rows);
            let ends = std::mem::replace(&mut self.ends, vec![0]);
            (ends.into(), NullBuffer::new(self.valid.finish()))
        };
        let values = self.fields.iter_mut().map(|field| {
            let values: ArrayRef = Arc::new(Int64Array::from(std::mem::take(field)));
            values
        });
        let items = StructArray::new(fields.clone(), values.collect(), None);
        Arc::new(ListArray::new(item, OffsetBuffer::new(ends), Arc::new(items), Some(nulls)))
    }
}

/// A column of [`ColumnKind::Intervals`].
pub struct IntervalsColumn(Lists<2>);

impl IntervalsColumn {
    pub(crate) fn new() -> Self {
        Self(Lists::new(INTERVAL_FIELDS))
    }

    /// Gives `row` its value; rows come in ascending order, and those passed over are null.
    pub fn set(&mut self, row: usize, intervals: &[(i64, i64)]) {
        self.0.set(row, intervals.iter().map(|&(start, end)| [start, end]));
    }

    pub(crate) fn finish(&mut self, rows: usize) -> ArrayRef {
        self.0.finish(rows)
    }
}

impl Append<&Option<Vec<(i64, i64)>>> for IntervalsColumn {
    fn append(&mut self, row: usize, value: &Option<Vec<(i64, i64)>>) {
        if let Some(intervals) = value {
            self.set(row, intervals);
        }
    }
}

/// A column of [`ColumnKind::Phases`].
pub struct PhasesColumn(Lists<3>);

impl PhasesColumn {
    pub(crate) fn new() -> Self {
        Self(Lists::new(PHASE_FIELDS))
    }

    /// Gives `row` its value; rows come in ascending order, and those passed over are null.
    pub fn set(&mut self, row: usize, phases: &[Phase]) {
        let values = |phase: &Phase| [phase.duration, phase.threads, phase.memory];
        self.0.set(row, phases.iter().map(values));
    }

    pub(crate) fn finish(&mut self, rows: usize) -> ArrayRef {
        self.0.finish(rows)
    }
}

impl Append<&Option<Vec<Phase>>> for PhasesColumn {
    fn append(&mut self, row: usize, value: &Option<Vec<Phase>>) {
        if let Some(phases) = value {
            self.set(row, phases);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::builder::{ListBuilder, StructBuilder};
    use arrow_array::{Array, Decimal128Array, Int64Array};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn digits_are_those_of_the_number(number in any::<u64>()) {
            let mut digits = Digits::default();
            prop_assert_eq!(digits.of(number), number.to_string());
        }

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
                numbers.append(row, &value.map(i64::from));
                bools.append(row, &value.map(|v| v % 2 == 0));
                quantities.append(row, &value.map(i128::from));
                names.append(row, text);
                plain.append_option(text.as_deref());
                if let Some(number) = value {
                    ids.set_numbered(row, "", u64::from(*number));
                }
            }
            let found = [
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
            prop_assert_eq!(found, expected);
            // A column begins anew after each batch.
            prop_assert_eq!(numbers.finish(3).null_count(), 3);
            prop_assert_eq!(names.finish(0).len(), 0);
        }
    }

    proptest! {
        /// Against arrow's own builders.
        #[test]
        fn lists_have_their_items_and_nulls(
            rows in prop::collection::vec(
                prop::option::of(prop::collection::vec(any::<[i64; 3]>(), 0..4)), 0..40)
        ) {
            let item = item_field(&PHASE_FIELDS);
            let DataType::Struct(fields) = item.data_type() else { unreachable!() };
            let items = StructBuilder::from_fields(fields.clone(), 0);
            let mut plain = ListBuilder::new(items).with_field(item);
            let mut column = PhasesColumn::new();
            for (row, list) in rows.iter().enumerate() {
                for item in list.iter().flatten() {
                    for (index, value) in item.iter().enumerate() {
                        let field = plain.values().field_builder::<Int64Builder>(index).unwrap();
                        field.append_value(*value);
                    }
                    plain.values().append(true);
                }
                plain.append(list.is_some());
                let phase =
                    |&[duration, threads, memory]: &[i64; 3]| Phase { duration, threads, memory };
                let phases = list.as_ref().map(|list| list.iter().map(phase).collect::<Vec<_>>());
                column.append(row, &phases);
            }
            let found = column.finish(rows.len());
            let expected: ArrayRef = Arc::new(plain.finish());
            prop_assert_eq!(found.data_type(), &ColumnKind::Phases.data_type());
            prop_assert_eq!(&found, &expected);
            // A column begins anew after each batch.
            prop_assert_eq!(column.finish(3).null_count(), 3);
        }
    }

    #[test]
    fn more_nulls_than_are_kept_at_hand() {
        let rows = 100_000;
        for nulls in [
            QuantityColumn::new().finish(rows),
            IdColumn::new().finish(rows),
            PhasesColumn::new().finish(rows),
            TextColumn::new().finish(rows),
        ] {
            assert_eq!((nulls.len(), nulls.null_count()), (rows, rows));
        }
    }
}
