//! How components are compiled and run: the same for both, or the compiled ones would not be taken.

use std::hash::{DefaultHasher, Hash, Hasher};

use wasmtime::component::Linker;
use wasmtime::{Config, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

use crate::isolate::State;

/// Requests that are served at a time. Each has an instance, of which the room is kept.
pub(crate) const INSTANCES: u32 = 1_000;

/// Of an instance: core modules, and their memories and tables. Interpreters that are linked from
/// several modules have a dozen.
const CORE_INSTANCES: u32 = 40;
const MEMORIES: u32 = 4;
const TABLES: u32 = 20;

/// The most memory that an instance can have, which is all that 32 bits address: what it may have is a
/// function's own limit.
const MAX_MEMORY_BYTES: usize = 1 << 32;

/// Entries of a table: interpreters have tens of thousands of functions.
const TABLE_ELEMENTS: usize = 100_000;

/// Memory that stays with an instance's room when it is emptied for the next: writing zeros to so much is
/// quicker than giving it back to the kernel.
const KEPT_BYTES: usize = 256 * 1024;

/// The engine that compiles and runs.
pub(crate) fn engine() -> wasmtime::Result<Engine> {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(INSTANCES)
        .total_core_instances(INSTANCES * 4)
        .total_memories(INSTANCES * 2)
        .total_tables(INSTANCES * 4)
        .total_stacks(INSTANCES)
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_memories_per_component(MEMORIES)
        .max_tables_per_component(TABLES)
        .max_memory_size(MAX_MEMORY_BYTES)
        .table_elements(TABLE_ELEMENTS)
        .linear_memory_keep_resident(KEPT_BYTES)
        .table_keep_resident(KEPT_BYTES)
        .async_stack_keep_resident(KEPT_BYTES);
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .concurrency_support(false)
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config)
}

/// The version of machine code: one of another is not run.
pub(crate) fn code_version() -> wasmtime::Result<String> {
    let mut hasher = DefaultHasher::new();
    engine()?.precompile_compatibility_hash().hash(&mut hasher);
    Ok(format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hasher.finish()))
}

/// What components may import: WASI 0.2, in which they find no files, no network and no arguments.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    Ok(linker)
}
