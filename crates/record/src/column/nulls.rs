//! Rows without a value: nulls that cost nothing until a later row has one.

use std::sync::LazyLock;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Decimal128Builder, Float64Builder, Int32Builder, Int64Builder,
    StringBuilder,
};
use arrow_array::{ArrowPrimitiveType, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, ScalarBuffer};

/// Zeros, for the values and the validity of columns that are null throughout.
pub(super) fn zeros(bytes: usize) -> Buffer {
    const SHARED_BYTES: usize = 8_192 * size_of::<i128>();
    static SHARED: LazyLock<Buffer> =
        LazyLock::new(|| MutableBuffer::from_len_zeroed(SHARED_BYTES).into());
    match bytes {
        ..=SHARED_BYTES => SHARED.slice_with_length(0, bytes),
        _ => MutableBuffer::from_len_zeroed(bytes).into(),
    }
}

pub(super) fn all_null(rows: usize) -> NullBuffer {
    NullBuffer::new(BooleanBuffer::new(zeros(rows.div_ceil(8)), 0, rows))
}

pub(super) fn null_numbers<T: ArrowPrimitiveType>(rows: usize) -> PrimitiveArray<T> {
    let values = zeros(rows * size_of::<T::Native>());
    PrimitiveArray::new(ScalarBuffer::new(values, 0, rows), Some(all_null(rows)))
}

/// The offsets of lists and texts that are all empty.
pub(super) fn zero_offsets(rows: usize) -> ScalarBuffer<i32> {
    ScalarBuffer::new(zeros((rows + 1) * size_of::<i32>()), 0, rows + 1)
}

/// A builder of an array, whose rows come in ascending order.
pub(super) trait PassTo {
    /// Gives the rows before `row` that have no value yet a null each.
    fn pass_to(&mut self, row: usize);
}

macro_rules! pass_to {
    ($($builder:ident),*) => {
        $(impl PassTo for $builder {
            #[inline]
            fn pass_to(&mut self, row: usize) {
                let passed = row - self.len();
                if passed > 0 {
                    self.append_nulls(passed);
                }
            }
        })*
    };
}

pass_to!(
    BooleanBuilder,
    Decimal128Builder,
    Float64Builder,
    Int32Builder,
    Int64Builder,
    StringBuilder
);
