//! The entries of a tar archive, with every length bounded before it is believed.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::Problem;

/// An archive consists of blocks of so many bytes, at least one for each entry.
pub(super) const BLOCK_BYTES: u64 = 512;

/// Longest extension of a header: a long name, or a list of attributes.
const MAX_EXTENSION_BYTES: u64 = 1024 * 1024;

/// Extensions before one header.
const MAX_EXTENSIONS: u32 = 8;

/// A tar archive that is read from its beginning to its end.
pub(super) struct Archive<R> {
    reader: R,
    /// What is left of the current entry's bytes, and of the padding behind them.
    body: u64,
    padding: u64,
}

/// What an entry of an archive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Symlink,
    HardLink,
    /// A device or a pipe.
    Special,
}

/// An entry of an archive.
#[derive(Debug)]
pub(super) struct Entry {
    pub path: Vec<u8>,
    pub kind: Kind,
    /// The bytes that follow.
    pub bytes: u64,
    pub mode: u32,
    /// Seconds since 1970.
    pub modified: i64,
    /// Where a link leads.
    pub target: Vec<u8>,
}

/// What stands before a header because it has no room for it.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    bytes: Option<u64>,
    modified: Option<i64>,
}

fn unreadable(error: &io::Error) -> Problem {
    Problem::Archive(format!("its archive cannot be read: {error}"))
}

fn broken(what: &str) -> Problem {
    Problem::Archive(format!("its archive is broken: {what}"))
}

impl<R: Read> Archive<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, body: 0, padding: 0 }
    }

    /// The next entry; the rest of the last one is passed over.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Problem> {
        let mut extensions = Extensions::default();
        for _ in 0..=MAX_EXTENSIONS {
            let Some(header) = self.header()? else { return Ok(None) };
            let size = header.entry_size().map_err(|_| broken("a size is no number"))?;
            match header.entry_type() {
                EntryType::XHeader => extensions.read_pax(&self.extension(size)?)?,
                EntryType::GNULongName => extensions.path = Some(self.long_name(size)?),
                EntryType::GNULongLink => extensions.target = Some(self.long_name(size)?),
                // Of the archive as a whole: a comment, usually.
                EntryType::XGlobalHeader => drop(self.extension(size)?),
                kind => return self.entry(&header, kind, size, extensions).map(Some),
            }
        }
        Err(broken("an entry has too many extensions"))
    }

    /// Reads of the current entry's bytes; 0 at their end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Problem> {
        let most = usize::try_from(self.body).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.reader.read(&mut buffer[..most]).map_err(|error| unreadable(&error))?;
        if count == 0 {
            return Err(broken("it ends within an entry"));
        }
        self.body -= count as u64;
        Ok(count)
    }

    fn entry(
        &mut self,
        header: &Header,
        kind: EntryType,
        size: u64,
        extensions: Extensions,
    ) -> Result<Entry, Problem> {
        let path = extensions.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let shown = || String::from_utf8_lossy(&path).into_owned();
        let kind = match kind {
            // As before there was a type for folders.
            EntryType::Regular if path.ends_with(b"/") => Kind::Folder,
            EntryType::Regular | EntryType::Continuous => Kind::File,
            EntryType::Directory => Kind::Folder,
            EntryType::Symlink => Kind::Symlink,
            EntryType::Link => Kind::HardLink,
            EntryType::Char | EntryType::Block | EntryType::Fifo => Kind::Special,
            EntryType::GNUSparse => {
                let sentence = format!("{:?} is a sparse file, which is not supported", shown());
                return Err(Problem::Archive(sentence));
            }
            other => {
                let letter = char::from(other.as_byte());
                let sentence =
                    format!("{:?} is of type {letter:?}, which is not supported", shown());
                return Err(Problem::Archive(sentence));
            }
        };
        // Only files have bytes, whatever a header says.
        let bytes = match kind {
            Kind::File => extensions.bytes.unwrap_or(size),
            _ => 0,
        };
        let skipped = if kind == Kind::File { 0 } else { size };
        if skipped > MAX_EXTENSION_BYTES {
            return Err(broken("something that is no file has bytes"));
        }
        self.skip(skipped + padding(skipped))?;
        (self.body, self.padding) = (bytes, padding(bytes));
        let target = extensions.target.or_else(|| header.link_name_bytes().map(Into::into));
        Ok(Entry {
            kind,
            bytes,
            mode: header.mode().map_err(|_| broken("a mode is no number"))?,
            modified: extensions
                .modified
                .or_else(|| header.mtime().ok()?.try_into().ok())
                .unwrap_or(0),
            target: target.unwrap_or_default(),
            path,
        })
    }

    /// The next header; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>, Problem> {
        self.skip(self.body + self.padding)?;
        (self.body, self.padding) = (0, 0);
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut count = 0;
        while count < block.len() {
            match self.reader.read(&mut block[count..]) {
                // Some leave the empty blocks at the end out.
                Ok(0) if count == 0 => return Ok(None),
                Ok(0) => return Err(broken("it ends within a header")),
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(&error)),
            }
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // The sum is of the header with blanks in its own field.
        let sum: u32 = block[..148].iter().chain(&block[156..]).map(|byte| u32::from(*byte)).sum();
        match header.cksum() {
            Ok(expected) if expected == sum + 8 * u32::from(b' ') => Ok(Some(header)),
            _ => Err(broken("a header's checksum is wrong")),
        }
    }

    fn extension(&mut self, size: u64) -> Result<Vec<u8>, Problem> {
        if size > MAX_EXTENSION_BYTES {
            return Err(broken("a name or an attribute is too long"));
        }
        let mut bytes = vec![0; size as usize];
        self.reader.read_exact(&mut bytes).map_err(|error| unreadable(&error))?;
        self.skip(padding(size))?;
        Ok(bytes)
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>, Problem> {
        let mut name = self.extension(size)?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Problem> {
        let skipped = io::copy(&mut self.reader.by_ref().take(bytes), &mut io::sink());
        match skipped {
            Ok(skipped) if skipped == bytes => Ok(()),
            Ok(_) => Err(broken("it ends within an entry")),
            Err(error) => Err(unreadable(&error)),
        }
    }
}

impl Extensions {
    fn read_pax(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        for record in Records(bytes) {
            let (key, value) = record.ok_or_else(|| broken("an extended header is no list"))?;
            let number = || std::str::from_utf8(value).ok()?.split('.').next()?.parse::<i64>().ok();
            match key {
                b"path" => self.path = Some(value.to_owned()),
                b"linkpath" => self.target = Some(value.to_owned()),
                b"size" => {
                    let size = number().and_then(|size| u64::try_from(size).ok());
                    self.bytes = Some(size.ok_or_else(|| broken("a size is no number"))?);
                }
                b"mtime" => self.modified = number(),
                key if key.starts_with(b"GNU.sparse.") => {
                    let sentence = "it holds a sparse file, which is not supported".to_owned();
                    return Err(Problem::Archive(sentence));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The records of an extended header, each "LENGTH KEY=VALUE\n" with the length of all of it; None for what is
/// none. Values are bytes of any kind, new lines too, as in the attributes of files.
///
/// Source: POSIX.1-2017, `pax`, "pax Extended Header".
struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    fn record(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let blank = self.0.iter().position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&self.0[..blank]).ok()?.parse().ok()?;
        let (record, rest) = self.0.split_at_checked(length)?;
        let text = record.get(blank + 1..)?.strip_suffix(b"\n")?;
        let equals = text.iter().position(|byte| *byte == b'=')?;
        self.0 = rest;
        Some((&text[..equals], &text[equals + 1..]))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Option<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.record())
    }
}

/// What follows so many bytes up to the next block.
fn padding(bytes: u64) -> u64 {
    bytes.wrapping_neg() % BLOCK_BYTES
}
