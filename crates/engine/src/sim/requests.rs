//! Requests from a file: an Arrow IPC stream of what arrives when, and what it does.
//!
//! Its columns are `function` (int32: the position of the function in the configuration), `arrival`
//! (int64, ns) and `phases` (a list of `duration` in ns, `cpu` in micro-vCPU and `memory` in bytes, all
//! int64). Rows may come in any order; of those that arrive at the same time the first comes first.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch, StructArray};
use arrow_ipc::reader::StreamReader;
use uncia_sim::{Phase, Trace};

/// Reads the requests of so many functions, in the order of their arrivals.
///
/// # Errors
/// A sentence: the file cannot be read, or which value in it is wrong.
pub(super) fn read(path: &Path, functions: usize) -> Result<Trace, String> {
    let name = path.display();
    let file = File::open(path).map_err(|error| format!("cannot open {name}: {error}"))?;
    let cannot_read = |error| format!("cannot read {name}: {error}");
    let batches = StreamReader::try_new(BufReader::new(file), None).map_err(cannot_read)?;
    let mut trace = Trace::default();
    let mut rows = 0;
    for batch in batches {
        let batch = batch.map_err(cannot_read)?;
        add(&mut trace, &batch, functions, rows).map_err(|error| format!("{name}: {error}"))?;
        rows += batch.num_rows();
    }
    trace.invocations.sort_by_key(|invocation| invocation.arrival);
    Ok(trace)
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, String> {
    let column = batch.column_by_name(name).ok_or_else(|| format!("has no column {name}"))?;
    if column.null_count() > 0 {
        return Err(format!("{name}: a value is missing"));
    }
    Ok(column)
}

fn numbers(items: &StructArray, name: &str) -> Result<PrimitiveArray<Int64Type>, String> {
    let field = items.column_by_name(name).and_then(|it| it.as_primitive_opt::<Int64Type>());
    match field {
        Some(field) if field.null_count() == 0 => Ok(field.clone()),
        _ => Err(format!("phases: {name} is missing, or no int64")),
    }
}

fn add(
    trace: &mut Trace,
    batch: &RecordBatch,
    functions: usize,
    before: usize,
) -> Result<(), String> {
    let function = column(batch, "function")?.as_primitive_opt::<Int32Type>();
    let function = function.ok_or("function: no int32")?;
    let arrival = column(batch, "arrival")?.as_primitive_opt::<Int64Type>();
    let arrival = arrival.ok_or("arrival: no int64")?;
    let lists = column(batch, "phases")?.as_list_opt::<i32>().ok_or("phases: no list")?;
    let items = lists.values().as_struct_opt().ok_or("phases: no list of structures")?;
    let (duration, cpu, memory) =
        (numbers(items, "duration")?, numbers(items, "cpu")?, numbers(items, "memory")?);
    let mut phases = Vec::new();
    for row in 0..batch.num_rows() {
        let number = before + row;
        let unsigned = |what: &str, value: i64| {
            u64::try_from(value).map_err(|_| format!("row {number}: {what} is {value}, below 0"))
        };
        let index = usize::try_from(function.value(row)).ok().filter(|it| *it < functions);
        let Some(index) = index else {
            let function = function.value(row);
            return Err(format!("row {number}: function {function}, and there are {functions}"));
        };
        let (from, to) = (lists.value_offsets()[row], lists.value_offsets()[row + 1]);
        phases.clear();
        for item in from as usize..to as usize {
            phases.push(Phase {
                duration: unsigned("a duration", duration.value(item))?,
                cpu: unsigned("the CPU of a phase", cpu.value(item))?,
                memory: unsigned("the memory of a phase", memory.value(item))?,
            });
        }
        trace.push(index, unsigned("the arrival", arrival.value(row))?, &phases);
    }
    Ok(())
}
