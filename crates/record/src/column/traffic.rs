//! Columns of bytes that passed between instances and services.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, ListArray, StructArray};
use arrow_schema::{DataType, Field, Fields};

use super::lists::Lists;
use super::{Traffic, Value};

const NUMBERS: [&str; 2] = ["sent", "received"];

fn fields() -> Fields {
    let number = |name: &str| Field::new(name, DataType::Int64, false);
    std::iter::once(Field::new("service", DataType::Utf8, false))
        .chain(NUMBERS.iter().map(|name| number(name)))
        .collect()
}

pub(super) fn item_field() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(fields()), false))
}

/// A column of [`super::ColumnKind::Traffic`].
pub struct TrafficColumn {
    services: StringBuilder,
    numbers: Lists<2>,
}

impl TrafficColumn {
    pub(crate) fn new() -> Self {
        Self { services: StringBuilder::new(), numbers: Lists::new(NUMBERS) }
    }

    /// Gives `row` its value; rows come in ascending order, and those passed over are null.
    pub fn set(&mut self, row: usize, traffic: &[Traffic]) {
        for it in traffic {
            self.services.append_value(&it.service);
        }
        self.numbers.set(row, traffic.iter().map(|it| [it.sent, it.received]));
    }

    pub(crate) fn finish(&mut self, rows: usize) -> ArrayRef {
        let (_, ends, numbers, nulls) = self.numbers.finish(rows).into_parts();
        let services: ArrayRef = Arc::new(self.services.finish());
        let numbers = arrow_array::cast::AsArray::as_struct(&numbers).columns().iter().cloned();
        let columns = std::iter::once(services).chain(numbers).collect();
        let items = StructArray::new(fields(), columns, None);
        Arc::new(ListArray::new(item_field(), ends, Arc::new(items), nulls))
    }
}

impl Value<TrafficColumn> for Vec<Traffic> {
    fn append_to(&self, column: &mut TrafficColumn, row: usize) {
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
                prop::option::of(prop::collection::vec(any::<(u8, i64, i64)>(), 0..4)), 0..40)
        ) {
            let items = StructBuilder::from_fields(fields(), 0);
            let mut plain = ListBuilder::new(items).with_field(item_field());
            let mut column = TrafficColumn::new();
            for (row, list) in rows.iter().enumerate() {
                for (service, sent, received) in list.iter().flatten() {
                    let items = plain.values();
                    items.field_builder::<StringBuilder>(0).unwrap().append_value(service.to_string());
                    items.field_builder::<Int64Builder>(1).unwrap().append_value(*sent);
                    items.field_builder::<Int64Builder>(2).unwrap().append_value(*received);
                    items.append(true);
                }
                plain.append(list.is_some());
                let traffic = |&(service, sent, received): &(u8, i64, i64)| {
                    Traffic { service: service.to_string().into(), sent, received }
                };
                let list = list.as_ref().map(|list| list.iter().map(traffic).collect::<Vec<_>>());
                list.append_to(&mut column, row);
            }
            let actual = column.finish(rows.len());
            let expected: ArrayRef = Arc::new(plain.finish());
            prop_assert_eq!(actual.data_type(), &ColumnKind::Traffic.data_type());
            prop_assert_eq!(&actual, &expected);
            // A column begins anew after each batch.
            prop_assert_eq!(column.finish(3).null_count(), 3);
        }
    }
}
