//! The tables that every measurement lands in.
//!
//! Each table is declared once, in [`tables`], with every column's Arrow type, unit and null rule;
//! from that declaration come the Rust row, the builder, the Arrow schema and the documentation
//! (`uncia-engine schema`). While a run goes on a table is an Arrow IPC stream ([`StreamWriter`]);
//! after a clean close it is Parquet ([`to_parquet`]); what a crash left is finished by
//! [`recover`].

mod column;
mod error;
mod parquet_file;
mod schema;
mod stream;
pub mod tables;

pub use column::{
    BoolColumn, Column, ColumnKind, Float64Column, IdColumn, Int64Column, IntervalsColumn,
    MoneyColumn, QuantityColumn, Text, TextColumn,
};
pub use error::RecordError;
pub use parquet_file::{Recovered, recover, to_parquet};
pub use schema::{
    EPOCH_KEY, SCHEMA_VERSION, TABLE_KEY, TableSchema, VERSION_KEY, all_schemas, schema_json,
};
pub use stream::{Epoch, StreamWriter, Table, read_stream};
pub use tables::{Arrivals, Bill, Instance, Invocation, InvocationBuilder, Machine, Profile, Span};
