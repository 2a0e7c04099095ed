use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Decimal128Builder, Float64Builder, Int64Builder, ListBuilder,
    StringBuilder, StringDictionaryBuilder, StructBuilder,
};
use arrow::datatypes::{DataType, Field, Fields, Int32Type};

/// Text that repeats from row to row; cheap to clone.
pub type Text = Arc<str>;

/// The Arrow types that columns have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// `dictionary<int32, utf8>`: text that repeats (names, kinds).
    Text,
    /// `utf8`: text that is mostly different in each row (identifiers, messages).
    Id,
    Int64,
    Float64,
    Bool,
    /// `decimal128(38, 0)`: an exact quantity.
    Quantity,
    /// `decimal128(38, 18)`: US dollars.
    Money,
    /// `list<struct<start: int64, end: int64>>`: intervals of time.
    Intervals,
}

const DECIMAL_PRECISION: u8 = 38;
const MONEY_SCALE: i8 = 18;

fn interval_fields() -> Fields {
    Fields::from(vec![
        Field::new("start", DataType::Int64, false),
        Field::new("end", DataType::Int64, false),
    ])
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
            Self::Intervals => DataType::List(Arc::new(Field::new(
                "item",
                DataType::Struct(interval_fields()),
                false,
            ))),
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
        }
    }
}

/// A column as declared: its name, type, unit, whether and when it may be null, and its meaning.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub kind: ColumnKind,
    pub nullable: bool,
    pub unit: &'static str,
    pub null_rule: &'static str,
    pub meaning: &'static str,
}

impl Column {
    pub(crate) fn field(&self) -> Field {
        Field::new(self.name, self.kind.data_type(), self.nullable)
    }
}

/// A growing column of one Rust value type.
pub(crate) trait Append<T> {
    fn append(&mut self, value: T);
}

pub(crate) struct TextColumn(StringDictionaryBuilder<Int32Type>);
pub(crate) struct IdColumn(StringBuilder);
pub(crate) struct Int64Column(Int64Builder);
pub(crate) struct Float64Column(Float64Builder);
pub(crate) struct BoolColumn(BooleanBuilder);
pub(crate) struct QuantityColumn(Decimal128Builder);
pub(crate) struct MoneyColumn(Decimal128Builder);
pub(crate) struct IntervalsColumn(ListBuilder<StructBuilder>);

macro_rules! simple_column {
    ($column:ident, $builder:ident, $value:ty) => {
        impl $column {
            pub(crate) fn new() -> Self {
                Self($builder::new())
            }
            pub(crate) fn finish(&mut self) -> ArrayRef {
                Arc::new(self.0.finish())
            }
        }
        impl Append<&Option<$value>> for $column {
            fn append(&mut self, value: &Option<$value>) {
                self.0.append_option(*value);
            }
        }
        impl Append<&$value> for $column {
            fn append(&mut self, value: &$value) {
                self.0.append_value(*value);
            }
        }
    };
}

simple_column!(Int64Column, Int64Builder, i64);
simple_column!(Float64Column, Float64Builder, f64);
simple_column!(BoolColumn, BooleanBuilder, bool);

impl TextColumn {
    pub(crate) fn new() -> Self {
        Self(StringDictionaryBuilder::new())
    }
    pub(crate) fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}
impl Append<&Option<Text>> for TextColumn {
    fn append(&mut self, value: &Option<Text>) {
        self.0.append_option(value.as_deref());
    }
}
impl Append<&Text> for TextColumn {
    fn append(&mut self, value: &Text) {
        self.0.append_value(value);
    }
}

impl IdColumn {
    pub(crate) fn new() -> Self {
        Self(StringBuilder::new())
    }
    pub(crate) fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}
impl Append<&Option<String>> for IdColumn {
    fn append(&mut self, value: &Option<String>) {
        self.0.append_option(value.as_deref());
    }
}
impl Append<&String> for IdColumn {
    fn append(&mut self, value: &String) {
        self.0.append_value(value);
    }
}

macro_rules! decimal_column {
    ($column:ident, $scale:expr) => {
        impl $column {
            pub(crate) fn new() -> Self {
                let builder = Decimal128Builder::new()
                    .with_precision_and_scale(DECIMAL_PRECISION, $scale)
                    .expect("38 digits is what Decimal128 holds");
                Self(builder)
            }
            pub(crate) fn finish(&mut self) -> ArrayRef {
                Arc::new(self.0.finish())
            }
        }
        impl Append<&Option<i128>> for $column {
            fn append(&mut self, value: &Option<i128>) {
                self.0.append_option(*value);
            }
        }
    };
}

decimal_column!(QuantityColumn, 0);
decimal_column!(MoneyColumn, MONEY_SCALE);

impl IntervalsColumn {
    pub(crate) fn new() -> Self {
        let fields = interval_fields();
        let item = Arc::new(Field::new("item", DataType::Struct(fields.clone()), false));
        Self(ListBuilder::new(StructBuilder::from_fields(fields, 0)).with_field(item))
    }
    pub(crate) fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}
impl Append<&Option<Vec<(i64, i64)>>> for IntervalsColumn {
    fn append(&mut self, value: &Option<Vec<(i64, i64)>>) {
        let Some(intervals) = value else {
            self.0.append_null();
            return;
        };
        let items = self.0.values();
        for (start, end) in intervals {
            for (index, time) in [start, end].into_iter().enumerate() {
                items
                    .field_builder::<Int64Builder>(index)
                    .expect("both fields of an interval are int64")
                    .append_value(*time);
            }
            items.append(true);
        }
        self.0.append(true);
    }
}
