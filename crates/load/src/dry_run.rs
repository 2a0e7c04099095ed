//! The schedule as a table, without a single request.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::builder::{Int64Builder, StringBuilder, StringDictionaryBuilder};
use arrow_array::types::Int32Type;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use arrow_schema::{DataType, Field, Schema};
use uncia_record::{EPOCH_KEY, RecordError, SCHEMA_VERSION, TABLE_KEY, VERSION_KEY};

use crate::plan::Plan;

/// Rows in a record batch; bounds the memory.
const BATCH_ROWS: usize = 65_536;

/// `function`, `target`, `invocation`, `scheduled` (ns after the start of the schedule), `burst`.
fn schema(start_unix_ns: i64) -> Arc<Schema> {
    let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let fields = vec![
        Field::new("function", text.clone(), false),
        Field::new("target", text, false),
        Field::new("invocation", DataType::Utf8, false),
        Field::new("scheduled", DataType::Int64, false),
        Field::new("burst", DataType::Int64, true),
    ];
    let metadata = [
        (TABLE_KEY, "schedule".to_owned()),
        (VERSION_KEY, SCHEMA_VERSION.to_string()),
        (EPOCH_KEY, start_unix_ns.to_string()),
    ];
    let metadata: HashMap<_, _> =
        metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Arc::new(Schema::new(fields).with_metadata(metadata))
}

/// Writes the schedule to a new file as an Arrow IPC stream; returns the number of rows. Half a
/// schedule is none, and is removed.
pub(crate) fn write(plan: &Plan, start_unix_ns: i64, out: &Path) -> Result<u64, RecordError> {
    let file = File::create_new(out).map_err(|source| RecordError::Io {
        action: "cannot create",
        path: out.to_owned(),
        source,
    })?;
    fill(plan, start_unix_ns, file)
        .map_err(|source| RecordError::Arrow { path: out.to_owned(), source })
        .inspect_err(|_| {
            // The error at hand says what is wrong.
            let _ = std::fs::remove_file(out);
        })
}

fn fill(plan: &Plan, start_unix_ns: i64, file: File) -> Result<u64, ArrowError> {
    let schema = schema(start_unix_ns);
    let mut writer = StreamWriter::try_new(BufWriter::new(file), &schema)?;
    let mut entries = plan.schedule().peekable();
    let mut rows = 0;
    while entries.peek().is_some() {
        let mut functions = StringDictionaryBuilder::<Int32Type>::new();
        let mut targets = StringDictionaryBuilder::<Int32Type>::new();
        let mut invocations = StringBuilder::new();
        let mut scheduled = Int64Builder::new();
        let mut bursts = Int64Builder::new();
        for entry in entries.by_ref().take(BATCH_ROWS) {
            functions.append_value(&*plan.streams[entry.stream].function);
            targets.append_value(&*plan.target(&entry).function);
            invocations.append_value(plan.invocation(&entry));
            scheduled.append_value(entry.at);
            bursts.append_option(entry.burst);
            rows += 1;
        }
        let batch = RecordBatch::try_new(
            schema.clone(),
            vec![
                Arc::new(functions.finish()),
                Arc::new(targets.finish()),
                Arc::new(invocations.finish()),
                Arc::new(scheduled.finish()),
                Arc::new(bursts.finish()),
            ],
        );
        writer.write(&batch?)?;
    }
    writer.finish()?;
    writer.get_mut().flush()?;
    Ok(rows)
}
