//! Programs of bpftrace: what their maps mean, and what bpftrace prints of them, as samples.

mod maps;
mod program;

pub(crate) use maps::{Maps, Read};
pub(crate) use program::Program;
