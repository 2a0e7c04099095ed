use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter as IpcWriter;
use arrow_schema::SchemaRef;

use crate::column::Column;
use crate::error::RecordError;
use crate::schema::{SCHEMA_VERSION, VERSION_KEY, arrow_schema};

/// Rows wait in memory no longer than this before they are on disk, so that a crash loses at most
/// the last second.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// Rows wait in memory in no greater number than this; bounds the writer's memory.
const FLUSH_ROWS: usize = 8_192;

/// The Unix time that a table's times are counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch(i64);

impl Epoch {
    /// Times are Unix times: the form of a platform's own log.
    pub const UNIX: Self = Self(0);

    /// Times are counted from this Unix time, in ns.
    pub fn from_unix_ns(unix_ns: i64) -> Self {
        Self(unix_ns)
    }

    /// Unix time in ns.
    pub fn unix_ns(self) -> i64 {
        self.0
    }
}

/// A row type of one of the tables.
pub trait Table: Sized {
    /// Collects rows, column by column.
    type Builder;
    /// The table's name.
    const NAME: &'static str;
    /// Its columns, in order.
    const COLUMNS: &'static [Column];

    /// A builder without rows.
    fn builder() -> Self::Builder;
    /// Sets the columns of the builder's next row.
    fn set(&self, builder: &mut Self::Builder);
    /// Counts the row whose columns were set.
    fn end_row(builder: &mut Self::Builder);
    /// Rows that were counted; the number of the next row.
    fn pending(builder: &Self::Builder) -> usize;
    /// Takes the rows out of the builder.
    fn finish(builder: &mut Self::Builder, schema: &SchemaRef) -> RecordBatch;

    /// Adds this row to the builder.
    fn append(&self, builder: &mut Self::Builder) {
        self.set(builder);
        Self::end_row(builder);
    }

    /// The Arrow schema, with the table's name, version and epoch in its metadata.
    fn schema(epoch: Epoch) -> SchemaRef {
        arrow_schema(Self::NAME, Self::COLUMNS, epoch)
    }

    /// A record batch of these rows.
    fn batch(rows: &[Self], epoch: Epoch) -> RecordBatch {
        let mut builder = Self::builder();
        for row in rows {
            row.append(&mut builder);
        }
        Self::finish(&mut builder, &Self::schema(epoch))
    }

    /// These rows as a whole Arrow IPC stream, for the wire.
    fn ipc(rows: &[Self], epoch: Epoch) -> Vec<u8> {
        let mut bytes = Vec::new();
        let written =
            IpcWriter::try_new(&mut bytes, &Self::schema(epoch)).and_then(|mut writer| {
                writer.write(&Self::batch(rows, epoch))?;
                writer.finish()
            });
        written.expect("writing to memory does not fail");
        bytes
    }
}

/// Appends rows of one table to an Arrow IPC stream file, flushed often enough that a crash loses
/// at most the last second.
///
/// Rows are encoded when [`StreamWriter::push`] or [`StreamWriter::tick`] finds them old or
/// numerous enough; call `tick` at least twice a second while no rows come.
pub struct StreamWriter<T: Table> {
    path: PathBuf,
    schema: SchemaRef,
    builder: T::Builder,
    ipc: IpcWriter<BufWriter<File>>,
    flushed: Instant,
    rows: u64,
}

impl<T: Table> StreamWriter<T> {
    /// Creates the file at `path`, which must not exist yet, and writes the schema to it.
    pub fn create(path: &Path, epoch: Epoch) -> Result<Self, RecordError> {
        let file = File::create_new(path).map_err(|source| RecordError::Io {
            action: "cannot create",
            path: path.to_owned(),
            source,
        })?;
        Self::new(file, path, epoch)
    }

    /// Writes the schema to a file that is open, such as a pipe; `path` names it in errors.
    pub fn new(file: File, path: &Path, epoch: Epoch) -> Result<Self, RecordError> {
        let schema = T::schema(epoch);
        let ipc = IpcWriter::try_new(BufWriter::new(file), &schema)
            .map_err(|source| RecordError::Arrow { path: path.to_owned(), source })?;
        let mut writer = Self {
            path: path.to_owned(),
            schema,
            builder: T::builder(),
            ipc,
            flushed: Instant::now(),
            rows: 0,
        };
        writer.sync()?;
        Ok(writer)
    }

    /// Adds a row; writes what has gathered when it is due.
    pub fn push(&mut self, row: &T) -> Result<(), RecordError> {
        if self.gather(row) { self.flush() } else { Ok(()) }
    }

    /// Adds a row and writes nothing; says whether what has gathered is due to be written. For rows
    /// that must not be seen before others are, which are flushed first then.
    pub fn gather(&mut self, row: &T) -> bool {
        row.append(&mut self.builder);
        self.rows += 1;
        T::pending(&self.builder) >= FLUSH_ROWS || self.flushed.elapsed() >= FLUSH_INTERVAL
    }

    /// Adds a row whose columns `fill` sets, given the builder and the row's number in it; columns
    /// that it leaves alone are null. `fill` must set the columns that are never null. Writes what
    /// has gathered when it is numerous enough, but does not look at the clock as
    /// [`StreamWriter::push`] does: call [`StreamWriter::tick`] now and then.
    #[inline]
    pub fn push_with(
        &mut self,
        fill: impl FnOnce(&mut T::Builder, usize),
    ) -> Result<(), RecordError> {
        let row = T::pending(&self.builder);
        fill(&mut self.builder, row);
        T::end_row(&mut self.builder);
        self.rows += 1;
        if row + 1 >= FLUSH_ROWS { self.flush() } else { Ok(()) }
    }

    /// Writes what has gathered if it has waited long enough.
    pub fn tick(&mut self) -> Result<(), RecordError> {
        if self.flushed.elapsed() >= FLUSH_INTERVAL { self.flush() } else { Ok(()) }
    }

    /// Hands all rows to the operating system.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        if T::pending(&self.builder) > 0 {
            let batch = T::finish(&mut self.builder, &self.schema);
            self.ipc.write(&batch).map_err(|source| self.arrow_error(source))?;
        }
        self.flushed = Instant::now();
        self.sync()
    }

    /// Rows pushed so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes what remains and the end of the stream; returns the number of rows.
    pub fn close(mut self) -> Result<u64, RecordError> {
        self.flush()?;
        self.ipc.finish().map_err(|source| self.arrow_error(source))?;
        self.sync()?;
        Ok(self.rows)
    }

    fn sync(&mut self) -> Result<(), RecordError> {
        self.ipc.get_mut().flush().map_err(|source| RecordError::Io {
            action: "cannot write",
            path: self.path.clone(),
            source,
        })
    }

    fn arrow_error(&self, source: arrow_schema::ArrowError) -> RecordError {
        RecordError::Arrow { path: self.path.clone(), source }
    }
}

/// Reads the batches of an Arrow IPC stream file one at a time, up to where a crash cut it off.
///
/// Returns the schema and whether the stream had its proper end. `each` is called for every whole
/// batch, so memory holds one batch at a time.
pub fn read_stream(
    path: &Path,
    mut each: impl FnMut(RecordBatch) -> Result<(), RecordError>,
) -> Result<(SchemaRef, bool), RecordError> {
    let file = File::open(path).map_err(|source| RecordError::Io {
        action: "cannot open",
        path: path.to_owned(),
        source,
    })?;
    let length = file
        .metadata()
        .map_err(|source| RecordError::Io {
            action: "cannot examine",
            path: path.to_owned(),
            source,
        })?
        .len();
    let mut counted = CountingReader { inner: BufReader::new(file), read: 0 };
    let mut reader = StreamReader::try_new(&mut counted, None)
        .map_err(|source| RecordError::NotAStream { path: path.to_owned(), source })?;
    let schema = reader.schema();
    check_version(path, &schema)?;
    let mut whole = true;
    loop {
        match reader.next() {
            None => break,
            Some(Ok(batch)) => each(batch)?,
            // A crash cuts the stream anywhere, and what the reader meets there is one of many
            // errors; every batch before it is whole.
            Some(Err(_)) => {
                whole = false;
                break;
            }
        }
    }
    // The reader takes an end of file between two messages for the end of the stream.
    let ended = whole && counted.read == length && ends_with_marker(path, length)?;
    Ok((schema, ended))
}

/// The eight bytes that end an Arrow IPC stream: continuation marker and a length of zero.
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

fn ends_with_marker(path: &Path, length: u64) -> Result<bool, RecordError> {
    use std::io::{Read, Seek, SeekFrom};
    let io = |source| RecordError::Io { action: "cannot read", path: path.to_owned(), source };
    if length < END_OF_STREAM.len() as u64 {
        return Ok(false);
    }
    let mut file = File::open(path).map_err(io)?;
    file.seek(SeekFrom::End(-(END_OF_STREAM.len() as i64))).map_err(io)?;
    let mut tail = [0; END_OF_STREAM.len()];
    file.read_exact(&mut tail).map_err(io)?;
    Ok(tail == END_OF_STREAM)
}

struct CountingReader<R> {
    inner: R,
    read: u64,
}

impl<R: std::io::Read> std::io::Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read += count as u64;
        Ok(count)
    }
}

fn check_version(path: &Path, schema: &SchemaRef) -> Result<(), RecordError> {
    match schema.metadata().get(VERSION_KEY) {
        Some(found) if found != &SCHEMA_VERSION.to_string() => Err(RecordError::Version {
            path: path.to_owned(),
            found: found.clone(),
            expected: SCHEMA_VERSION,
        }),
        _ => Ok(()),
    }
}
