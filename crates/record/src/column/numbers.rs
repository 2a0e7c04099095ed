//! Columns of numbers and truth values.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Decimal128Builder, Float64Builder, Int64Builder,
};
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type};
use arrow_array::{ArrayRef, BooleanArray};
use arrow_buffer::BooleanBuffer;

use super::nulls::{PassTo, all_null, null_numbers, zeros};
use super::{ColumnKind, DECIMAL_PRECISION, MONEY_SCALE, Value};

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
                self.0.pass_to(row);
                self.0.append_value(value);
            }

            pub(crate) fn finish(&mut self, rows: usize) -> ArrayRef {
                if self.0.is_empty() {
                    return $nulls(rows);
                }
                self.0.pass_to(rows);
                Arc::new(self.0.finish())
            }
        }

        impl Value<$column> for $value {
            #[inline]
            fn append_to(&self, column: &mut $column, row: usize) {
                column.set(row, *self);
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
    /// A column of [`super::ColumnKind::Int64`].
    Int64Column,
    Int64Builder,
    i64,
    Int64Builder::new(),
    |rows| Arc::new(null_numbers::<Int64Type>(rows))
);
number_column!(
    /// A column of [`super::ColumnKind::Float64`].
    Float64Column,
    Float64Builder,
    f64,
    Float64Builder::new(),
    |rows| Arc::new(null_numbers::<Float64Type>(rows))
);
number_column!(
    /// A column of [`super::ColumnKind::Bool`].
    BoolColumn,
    BooleanBuilder,
    bool,
    BooleanBuilder::new(),
    null_bools
);
number_column!(
    /// A column of [`super::ColumnKind::Quantity`].
    QuantityColumn,
    Decimal128Builder,
    i128,
    decimals(0),
    |rows| null_decimals(ColumnKind::Quantity, rows)
);
number_column!(
    /// A column of [`super::ColumnKind::Money`].
    MoneyColumn,
    Decimal128Builder,
    i128,
    decimals(MONEY_SCALE),
    |rows| null_decimals(ColumnKind::Money, rows)
);
