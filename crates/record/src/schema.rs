use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use serde::Serialize;

use crate::column::Column;
use crate::stream::{Epoch, Table};
use crate::tables::{
    Arrivals, Bill, Instance, Invocation, Locality, Machine, Profile, Span, TraceFunction,
};

/// Version of the tables' schemas; goes up when a column changes its meaning or goes away.
/// Adding a nullable column does not change it.
pub const SCHEMA_VERSION: u32 = 1;
/// Metadata key: the table's name.
pub const TABLE_KEY: &str = "uncia.table";
/// Metadata key: [`SCHEMA_VERSION`] of the writer.
pub const VERSION_KEY: &str = "uncia.schema_version";
/// Metadata key: the Unix time, in ns, that the table's times are counted from.
pub const EPOCH_KEY: &str = "uncia.epoch_unix_ns";

pub(crate) fn arrow_schema(name: &str, columns: &[Column], epoch: Epoch) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(Column::field).collect();
    let metadata = HashMap::from([
        (TABLE_KEY.to_owned(), name.to_owned()),
        (VERSION_KEY.to_owned(), SCHEMA_VERSION.to_string()),
        (EPOCH_KEY.to_owned(), epoch.unix_ns().to_string()),
    ]);
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

/// A table's schema as `uncia-engine schema` prints it.
#[derive(Debug, Serialize)]
pub struct TableSchema {
    /// The table's name.
    pub name: &'static str,
    /// The version of all tables' schemas.
    pub version: u32,
    /// Its columns, in order.
    pub columns: Vec<ColumnSchema>,
}

/// A column's schema as `uncia-engine schema` prints it.
#[derive(Debug, Serialize)]
pub struct ColumnSchema {
    pub name: &'static str,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub nullable: bool,
    pub unit: &'static str,
    pub null_rule: &'static str,
    pub meaning: &'static str,
}

fn describe<T: Table>() -> TableSchema {
    let columns = T::COLUMNS
        .iter()
        .map(|column| ColumnSchema {
            name: column.name,
            kind: column.kind.name(),
            nullable: column.nullable,
            unit: column.unit,
            null_rule: column.null_rule,
            meaning: column.meaning,
        })
        .collect();
    TableSchema { name: T::NAME, version: SCHEMA_VERSION, columns }
}

/// The schemas of all tables, in the order of the documentation.
pub fn all_schemas() -> Vec<TableSchema> {
    vec![
        describe::<Invocation>(),
        describe::<Span>(),
        describe::<Instance>(),
        describe::<Machine>(),
        describe::<Bill>(),
        describe::<Arrivals>(),
        describe::<Profile>(),
        describe::<TraceFunction>(),
        describe::<Locality>(),
    ]
}

/// [`all_schemas`] as JSON text with a final newline; `python/uncia/record/tables.json` is a copy.
pub fn schema_json() -> String {
    let mut text =
        serde_json::to_string_pretty(&all_schemas()).expect("plain data always serializes");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_for_python_is_current() {
        let copy = include_str!("../../../python/uncia/record/tables.json");
        assert_eq!(
            copy,
            schema_json(),
            "run: uncia-engine schema > python/uncia/record/tables.json"
        );
    }

    #[test]
    fn every_nullable_column_says_when_it_is_null() {
        for table in all_schemas() {
            for column in table.columns {
                assert_eq!(
                    column.nullable,
                    !column.null_rule.is_empty(),
                    "{}.{}",
                    table.name,
                    column.name
                );
                assert!(!column.meaning.is_empty(), "{}.{}", table.name, column.name);
            }
        }
    }
}
