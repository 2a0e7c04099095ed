use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow_schema::{DataType, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use crate::error::RecordError;
use crate::stream::read_stream;

/// Low, because the files are written once and read at once: size is within a few percent of
/// higher levels for these columns.
const ZSTD_LEVEL: i32 = 3;

/// What [`recover`] found in a stream and wrote to Parquet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    pub parquet: PathBuf,
    pub rows: u64,
    /// Whether the stream had its proper end; if not, the writer was cut off.
    pub whole: bool,
}

/// Writes the rows of the Arrow IPC stream at `stream` to a Parquet file at `parquet`, in constant
/// memory. The file appears under its name only when it is complete.
pub fn to_parquet(stream: &Path, parquet: &Path) -> Result<Recovered, RecordError> {
    let partial = partial_name(parquet);
    let result = convert(stream, &partial).and_then(|(rows, whole)| {
        fs::rename(&partial, parquet).map_err(|source| RecordError::Io {
            action: "cannot move into place",
            path: parquet.to_owned(),
            source,
        })?;
        Ok(Recovered { parquet: parquet.to_owned(), rows, whole })
    });
    if result.is_err() {
        // The error that matters is the one at hand; a partial file may not exist at all.
        let _ = fs::remove_file(&partial);
    }
    result
}

/// Finishes what a crash left: `name.arrows` becomes `name.parquet` beside it, and the stream is
/// removed once the Parquet file is complete. An existing Parquet file is replaced.
pub fn recover(stream: &Path) -> Result<Recovered, RecordError> {
    let recovered = to_parquet(stream, &stream.with_extension("parquet"))?;
    fs::remove_file(stream).map_err(|source| RecordError::Io {
        action: "cannot remove",
        path: stream.to_owned(),
        source,
    })?;
    Ok(recovered)
}

fn partial_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

fn convert(stream: &Path, parquet: &Path) -> Result<(u64, bool), RecordError> {
    let failed = |source| RecordError::Parquet { path: parquet.to_owned(), source };
    let level = ZstdLevel::try_new(ZSTD_LEVEL).map_err(failed)?;
    let mut writer: Option<ArrowWriter<File>> = None;
    let create = |schema: SchemaRef| {
        let properties = properties(&schema, level);
        let file = File::create(parquet).map_err(|source| RecordError::Io {
            action: "cannot create",
            path: parquet.to_owned(),
            source,
        })?;
        ArrowWriter::try_new(file, schema, Some(properties)).map_err(failed)
    };
    let mut rows = 0;
    let (schema, whole) = read_stream(stream, |batch| {
        rows += batch.num_rows() as u64;
        let writer = match &mut writer {
            Some(writer) => writer,
            None => writer.insert(create(batch.schema())?),
        };
        writer.write(&batch).map_err(failed)
    })?;
    let writer = match writer {
        Some(writer) => writer,
        None => create(schema)?,
    };
    writer.close().map_err(failed)?;
    Ok((rows, whole))
}

/// How columns are encoded. Times and ids hardly ever repeat, so looking for repetitions is in vain;
/// that each is a little more than the one before is what makes them small.
fn properties(schema: &Schema, level: ZstdLevel) -> WriterProperties {
    let mut builder = WriterProperties::builder().set_compression(Compression::ZSTD(level));
    for field in schema.fields() {
        let encoding = match field.data_type() {
            DataType::Int64 => Encoding::DELTA_BINARY_PACKED,
            DataType::Utf8 => Encoding::DELTA_BYTE_ARRAY,
            _ => continue,
        };
        let column = ColumnPath::from(field.name().as_str());
        builder = builder
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, encoding);
    }
    builder.build()
}
