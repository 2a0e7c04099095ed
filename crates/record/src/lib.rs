//! The tables that every measurement lands in.
//!
//! Each table is declared once, in [`tables`], with every column's Arrow type, unit and null rule;
//! from that declaration come the Rust row, the builder, the Arrow schema and the documentation
//! (`uncia-engine schema`). A table is written as an Arrow IPC stream ([`StreamWriter`]), which
//! [`read_stream`] reads up to where a crash cut it off; Python makes Parquet of it.

mod column;
mod error;
mod schema;
mod stream;
pub mod tables;

pub use column::{
    BoolColumn, Column, ColumnKind, Float64Column, IdColumn, Int64Column, IntervalsColumn,
    MoneyColumn, Phase, PhasesColumn, QuantityColumn, Text, TextColumn, Traffic, TrafficColumn,
};
pub use error::RecordError;
pub use schema::{
    EPOCH_KEY, SCHEMA_VERSION, TABLE_KEY, TableSchema, VERSION_KEY, all_schemas, schema_json,
};
pub use stream::{Epoch, StreamWriter, Table, read_stream};
pub use tables::{
    Arrivals, Bill, Instance, Invocation, InvocationBuilder, Locality, Machine, Profile, Span,
    TraceFunction,
};
