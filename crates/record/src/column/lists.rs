//! Columns of lists: intervals of time, and phases of requests.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, ListArray, StructArray};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};

use super::nulls::{all_null, zero_offsets};
use super::{Phase, Value};

pub(super) const INTERVAL_FIELDS: [&str; 2] = ["start", "end"];
pub(super) const PHASE_FIELDS: [&str; 3] = ["duration", "threads", "memory"];

/// The items of a list: structures of these fields, all `int64`.
pub(super) fn item_field(names: &[&str]) -> Arc<Field> {
    let fields = names.iter().map(|name| Field::new(*name, DataType::Int64, false));
    Arc::new(Field::new("item", DataType::Struct(fields.collect()), false))
}

/// Lists of structures of `N` fields, all `int64`.
pub(super) struct Lists<const N: usize> {
    names: [&'static str; N],
    fields: [Vec<i64>; N],
    /// Where each row's list ends.
    ends: Vec<i32>,
    valid: BooleanBufferBuilder,
}

impl<const N: usize> Lists<N> {
    pub(super) fn new(names: [&'static str; N]) -> Self {
        let fields = std::array::from_fn(|_| Vec::new());
        Self { names, fields, ends: vec![0], valid: BooleanBufferBuilder::new(0) }
    }

    pub(super) fn set(&mut self, row: usize, items: impl Iterator<Item = [i64; N]>) {
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

    pub(super) fn finish(&mut self, rows: usize) -> ListArray {
        let item = item_field(&self.names);
        let DataType::Struct(fields) = item.data_type() else { unreachable!("a list's items") };
        let (ends, nulls) = if self.valid.is_empty() {
            (zero_offsets(rows), all_null(rows))
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
        ListArray::new(item, OffsetBuffer::new(ends), Arc::new(items), Some(nulls))
    }
}

/// A column of [`super::ColumnKind::Intervals`].
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
        Arc::new(self.0.finish(rows))
    }
}

impl Value<IntervalsColumn> for Vec<(i64, i64)> {
    fn append_to(&self, column: &mut IntervalsColumn, row: usize) {
        column.set(row, self);
    }
}

/// A column of [`super::ColumnKind::Phases`].
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
        Arc::new(self.0.finish(rows))
    }
}

impl Value<PhasesColumn> for Vec<Phase> {
    fn append_to(&self, column: &mut PhasesColumn, row: usize) {
        column.set(row, self);
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::builder::{Int64Builder, ListBuilder, StructBuilder};
    use proptest::prelude::*;

    use super::super::ColumnKind;
    use super::*;

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
                phases.append_to(&mut column, row);
            }
            let actual = column.finish(rows.len());
            let expected: ArrayRef = Arc::new(plain.finish());
            prop_assert_eq!(actual.data_type(), &ColumnKind::Phases.data_type());
            prop_assert_eq!(&actual, &expected);
            // A column begins anew after each batch.
            prop_assert_eq!(column.finish(3).null_count(), 3);
        }
    }
}
