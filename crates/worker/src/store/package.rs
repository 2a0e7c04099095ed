//! Deployment packages: what is wrong with a zip is found out before anything of it is kept.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Permissions};
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use uncia_oci::ImageError;
use uncia_oci::layer::Contents;
use zip::CompressionMethod;
use zip::result::ZipError;

use super::{folders, links};
use crate::instance::Runtime;

/// Largest package that Lambda takes in a request.
pub(crate) const MAX_ZIPPED_BYTES: usize = 50 * 1024 * 1024;
/// Most that Lambda lets a package unpack to.
pub(crate) const MAX_UNZIPPED_BYTES: u64 = 250 * 1024 * 1024;
/// Most entries that a zip file without the zip64 extension holds. Bounds the inodes that a
/// package can use up.
const MAX_ENTRIES: usize = 65_535;
/// What the file systems here take for one component of a path.
const MAX_NAME_BYTES: usize = 255;
/// What `open` takes for a path, with room left for the folder that it lies in.
const MAX_PATH_BYTES: usize = 3_072;

const FILE_TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;

/// Why a package is refused. `Io` is the machine's fault, all else the package's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackageError {
    #[error("Uploaded file must be a non-empty zip")]
    Empty,
    #[error(
        "Could not unzip uploaded file. Please check your file, then try to upload again. ({0})"
    )]
    NotAZip(String),
    #[error("Zipped size must be smaller than {MAX_ZIPPED_BYTES} bytes; the file has {0}")]
    Zipped(usize),
    #[error("Unzipped size must be smaller than {MAX_UNZIPPED_BYTES} bytes")]
    Unzipped,
    #[error("The zip file has {0} entries; at most {MAX_ENTRIES} are allowed")]
    Entries(u64),
    #[error("The zip file holds an entry whose name is not UTF-8: {0:?}")]
    NotUtf8(String),
    #[error("The zip file holds an entry that would leave its folder: {0:?}")]
    Escapes(String),
    #[error("The zip file holds an entry with a name that no file can have: {0:?}")]
    BadName(String),
    #[error("The zip file holds the entry {0:?} more than once")]
    Duplicate(String),
    #[error("The zip file holds {0:?} both as a file and as a folder")]
    FileAndFolder(String),
    #[error(
        "The zip file holds a symbolic link that leads out of it or in a circle: {0:?}; links must be \
         relative, to what is in the same zip file"
    )]
    Symlink(String),
    #[error("The zip file holds something that is neither a file nor a folder: {0:?}")]
    Special(String),
    #[error("The zip file holds an encrypted entry: {0:?}")]
    Encrypted(String),
    #[error("The zip file compresses {name:?} by {method}; only stored and deflate are supported")]
    Method { name: String, method: String },
    #[error("{0}")]
    NoHandler(String),
    #[error("The zip file is not the one that was uploaded")]
    Changed,
    #[error("The image cannot be used: {0}")]
    Image(ImageError),
    #[error("The image cannot be used: its layers unpack to more than {0} bytes")]
    ImageBytes(u64),
    /// It could not be fetched: a sentence.
    #[error("{0}")]
    Remote(String),
    #[error("The package could not be unpacked: {0}")]
    Io(#[from] io::Error),
}

impl From<ImageError> for PackageError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Io(error) => Self::Io(error),
            error => Self::Image(error),
        }
    }
}

impl From<ZipError> for PackageError {
    fn from(error: ZipError) -> Self {
        // Everything is read from memory, so that even an I/O error is about the file's contents.
        Self::NotAZip(error.to_string())
    }
}

/// An entry that passed all checks that need no unpacking.
struct Entry {
    path: PathBuf,
    kind: Kind,
    mode: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    Link,
}

/// Unpacks `zip` into the new folder `into`, or says why not. The caller removes `into` after an
/// error, and gives it its final place after success.
pub(super) fn unpack(zip: &[u8], into: &Path) -> Result<(), PackageError> {
    if zip.is_empty() {
        return Err(PackageError::Empty);
    }
    if zip.len() > MAX_ZIPPED_BYTES {
        return Err(PackageError::Zipped(zip.len()));
    }
    unpack_archive(Cursor::new(zip), into).map(|_| ())
}

/// The same of a file, which may be as large as what it holds.
pub(super) fn unpack_file(zip: &Path, into: &Path) -> Result<Contents, PackageError> {
    let file = File::open(zip)?;
    if file.metadata()?.len() == 0 {
        return Err(PackageError::Empty);
    }
    unpack_archive(BufReader::new(file), into)
}

fn unpack_archive(mut zip: impl Read + Seek, into: &Path) -> Result<Contents, PackageError> {
    let start = zip::ZipArchive::new(&mut zip)?.central_directory_start();
    let listed = count_entries(&mut zip, start);
    let mut archive = zip::ZipArchive::new(zip)?;
    if listed > MAX_ENTRIES as u64 {
        return Err(PackageError::Entries(listed));
    }
    if archive.is_empty() {
        return Err(PackageError::Empty);
    }
    let entries = check_entries(&mut archive)?;
    // The library keeps the last of several entries with one name.
    if listed != archive.len() as u64 {
        return Err(PackageError::NotAZip(format!(
            "{listed} entries are listed under {} different names",
            archive.len()
        )));
    }
    folders::make(into, folders::READABLE)?;
    let mut left = MAX_UNZIPPED_BYTES;
    let mut targets = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let path = into.join(&entry.path);
        let folder = if entry.kind == Kind::Folder { Some(path.as_path()) } else { path.parent() };
        if let Some(folder) = folder {
            folders::make(folder, folders::READABLE)?;
        }
        match entry.kind {
            Kind::File => left = extract(&mut archive, index, &path, entry.mode, left)?,
            Kind::Link => {
                targets.insert(entry.path.clone(), target(&mut archive, index, &entry.path)?);
            }
            Kind::Folder => {}
        }
    }
    // Last: nothing is written through a link.
    for (link, target) in &targets {
        if links::escapes(link, &targets) {
            return Err(PackageError::Symlink(link.to_string_lossy().into_owned()));
        }
        symlink(target, into.join(link))?;
    }
    Ok(Contents { entries: entries.len() as u64, bytes: MAX_UNZIPPED_BYTES - left })
}

/// Where the link that an entry holds leads.
fn target(
    archive: &mut zip::ZipArchive<impl Read + Seek>,
    index: usize,
    link: &Path,
) -> Result<PathBuf, PackageError> {
    let mut target = Vec::new();
    let packed = archive.by_index(index)?;
    packed
        .take(MAX_PATH_BYTES as u64 + 1)
        .read_to_end(&mut target)
        .map_err(|error| PackageError::NotAZip(error.to_string()))?;
    if target.is_empty() || target.len() > MAX_PATH_BYTES || target.contains(&0) {
        return Err(PackageError::Symlink(link.to_string_lossy().into_owned()));
    }
    Ok(PathBuf::from(std::ffi::OsString::from_vec(target)))
}

/// Writes one file, and returns how many bytes may still follow. The sizes that the zip declares
/// count for nothing here.
fn extract(
    archive: &mut zip::ZipArchive<impl Read + Seek>,
    index: usize,
    path: &Path,
    mode: u32,
    mut left: u64,
) -> Result<u64, PackageError> {
    let mut packed = archive.by_index(index)?;
    let mut file = File::create_new(path)?;
    // Of the file that is open, so that the umask does not matter.
    file.set_permissions(Permissions::from_mode(mode))?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // Errors of the decoder and of the disk must not be taken for each other.
        let count = packed.read(&mut buffer).map_err(|e| PackageError::NotAZip(e.to_string()))?;
        if count == 0 {
            return Ok(left);
        }
        left = left.checked_sub(count as u64).ok_or(PackageError::Unzipped)?;
        file.write_all(&buffer[..count])?;
    }
}

/// The number of entries in the central directory, whatever their names.
fn count_entries(zip: &mut (impl Read + Seek), start: u64) -> u64 {
    const SIGNATURE: &[u8] = b"PK\x01\x02";
    const FIXED_BYTES: usize = 46;
    let mut head = [0; FIXED_BYTES];
    let mut count = 0;
    if zip.seek(SeekFrom::Start(start)).is_err() {
        return 0;
    }
    while zip.read_exact(&mut head).is_ok() && head.starts_with(SIGNATURE) {
        let length = |at: usize| i64::from(u16::from_le_bytes([head[at], head[at + 1]]));
        count += 1;
        if zip.seek_relative(length(28) + length(30) + length(32)).is_err() {
            break;
        }
    }
    count
}

fn check_entries(
    archive: &mut zip::ZipArchive<impl Read + Seek>,
) -> Result<Vec<Entry>, PackageError> {
    let mut entries = Vec::with_capacity(archive.len());
    let mut files: HashSet<PathBuf> = HashSet::new();
    let mut folders: HashSet<PathBuf> = HashSet::new();
    let mut declared: u64 = 0;
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index)?;
        let name = std::str::from_utf8(entry.name_raw())
            .map_err(|_| {
                PackageError::NotUtf8(String::from_utf8_lossy(entry.name_raw()).into_owned())
            })?
            .to_owned();
        let path = check_name(&name)?;
        let mode = entry.unix_mode().unwrap_or(REGULAR | 0o644);
        let kind = match mode & FILE_TYPE {
            DIRECTORY => Kind::Folder,
            _ if name.ends_with('/') => Kind::Folder,
            SYMLINK => Kind::Link,
            // Tools that know no Unix leave the type out.
            0 | REGULAR => Kind::File,
            _ => return Err(PackageError::Special(name)),
        };
        if entry.encrypted() {
            return Err(PackageError::Encrypted(name));
        }
        if !matches!(entry.compression(), CompressionMethod::Stored | CompressionMethod::Deflated) {
            return Err(PackageError::Method { name, method: entry.compression().to_string() });
        }
        declared = declared.saturating_add(entry.size());
        if declared > MAX_UNZIPPED_BYTES {
            return Err(PackageError::Unzipped);
        }
        if kind == Kind::Folder {
            folders.insert(path.clone());
        } else if !files.insert(path.clone()) {
            return Err(PackageError::Duplicate(name));
        }
        let parents = path.ancestors().skip(1).filter(|parent| *parent != Path::new(""));
        folders.extend(parents.map(Path::to_owned));
        // Readable for whoever the function runs as, writable for nobody but the owner, and
        // without the set-user-id and set-group-id bits.
        entries.push(Entry { path, kind, mode: (mode & 0o755) | 0o644 });
    }
    if let Some(both) = files.iter().find(|path| folders.contains(*path)) {
        return Err(PackageError::FileAndFolder(both.to_string_lossy().into_owned()));
    }
    if files.is_empty() {
        return Err(PackageError::Empty);
    }
    Ok(entries)
}

/// The path below the package's folder that a name means.
fn check_name(name: &str) -> Result<PathBuf, PackageError> {
    let windows_drive = name.as_bytes().get(1) == Some(&b':')
        && name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
    if name.starts_with('/') || name.starts_with('\\') || windows_drive {
        return Err(PackageError::Escapes(name.to_owned()));
    }
    // To Windows a backslash separates folders, to Linux it is a character like others; whoever
    // writes one means the former and would get the latter.
    let mut path = PathBuf::new();
    for part in name.split(['/', '\\']) {
        match Path::new(part).components().next() {
            Some(Component::ParentDir) => return Err(PackageError::Escapes(name.to_owned())),
            Some(Component::Normal(_)) if part.len() <= MAX_NAME_BYTES => path.push(part),
            None | Some(Component::CurDir) => {}
            Some(_) => return Err(PackageError::BadName(name.to_owned())),
        }
    }
    let unusable = name.contains('\\') || name.chars().any(char::is_control);
    let nameless = path.as_os_str().is_empty() && !name.ends_with('/');
    if unusable || nameless || name.len() > MAX_PATH_BYTES {
        return Err(PackageError::BadName(name.to_owned()));
    }
    Ok(path)
}

/// Whether the unpacked package at `code`, or what the layers in the folder `layers` hold, has what the
/// runtime will look for.
pub(crate) fn check_handler(
    code: &Path,
    layers: Option<&Path>,
    runtime: Runtime,
    identifier: &str,
    handler: &str,
) -> Result<(), PackageError> {
    let has = |path: &str| {
        let in_layers = || {
            let path = runtime.definition().place_in_layers(path);
            layers.zip(path).is_some_and(|(folder, path)| folder.join(path).is_file())
        };
        Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
            && if path.ends_with('/') {
                code.join(path).is_dir()
            } else {
                code.join(path).is_file() || in_layers()
            }
    };
    let definition = runtime.definition();
    let checked = definition.check_package(&has, identifier, handler);
    checked.and_then(|()| definition.check_files(code)).map_err(PackageError::NoHandler)
}

#[cfg(test)]
mod tests {
    use zip::write::SimpleFileOptions;

    use super::*;

    const MIB: usize = 1 << 20;

    fn zipped(entries: impl IntoIterator<Item = (String, usize)>) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        for (name, size) in entries {
            writer.start_file(name, options).unwrap();
            writer.write_all(&vec![0; size]).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    /// What unpacking says, and how many bytes it has written.
    fn attempt(zip: &[u8]) -> (Result<(), PackageError>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let result = unpack(zip, &folder.path().join("package"));
        assert_eq!(fs_entries(folder.path()), usize::from(folder.path().join("package").exists()));
        (result, bytes_below(folder.path()))
    }

    fn fs_entries(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    fn bytes_below(folder: &Path) -> u64 {
        let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        let size = |entry: std::fs::DirEntry| {
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() { bytes_below(&entry.path()) } else { metadata.len() }
        };
        entries.map(size).sum()
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let bomb = zipped((0..3).map(|number| (format!("{number}.py"), 100 * MIB)));
        assert!(bomb.len() < MIB);
        let (result, written) = attempt(&bomb);
        assert!(matches!(result, Err(PackageError::Unzipped)), "{result:?}");
        assert_eq!(written, 0);
    }

    #[test]
    fn a_bomb_that_lies_about_its_size_is_refused_too() {
        let mut bomb = zipped([("large.py".to_owned(), 300 * MIB)]);
        // Both the entry's head and the directory at the end of the file say that it has 10 bytes.
        for (signature, offset) in [(b"PK\x01\x02", 24), (b"PK\x03\x04", 22)] {
            let found = bomb.windows(4).rposition(|window| window == signature).unwrap() + offset;
            bomb[found..found + 4].copy_from_slice(&10_u32.to_le_bytes());
        }
        // By whoever sees it first.
        let (result, written) = attempt(&bomb);
        let refused = matches!(result, Err(PackageError::Unzipped | PackageError::NotAZip(_)));
        assert!(refused, "{result:?}");
        assert!(written <= MAX_UNZIPPED_BYTES);
    }

    #[test]
    fn more_files_than_a_package_may_have_are_refused() {
        let (result, written) = attempt(&zipped((0..70_000).map(|it| (it.to_string(), 0))));
        assert!(matches!(result, Err(PackageError::Entries(70_000))), "{result:?}");
        assert_eq!(written, 0);
    }

    #[test]
    fn entries_that_share_their_bytes_count_each_by_itself() {
        // 1,000 entries of the directory that all mean the one file of 1 MiB.
        let zip = zipped([("a0000".to_owned(), MIB)]);
        let start = zip.windows(4).rposition(|it| it == b"PK\x01\x02").unwrap();
        let end = zip.windows(4).rposition(|it| it == b"PK\x05\x06").unwrap();
        let mut bomb = zip[..start].to_vec();
        for number in 0..1_000 {
            let mut entry = zip[start..end].to_vec();
            entry[46..51].copy_from_slice(format!("a{number:04}").as_bytes());
            bomb.extend(entry);
        }
        let directory = u32::try_from(bomb.len() - start).unwrap();
        let mut last = zip[end..].to_vec();
        last[8..10].copy_from_slice(&1_000_u16.to_le_bytes());
        last[10..12].copy_from_slice(&1_000_u16.to_le_bytes());
        last[12..16].copy_from_slice(&directory.to_le_bytes());
        bomb.extend(last);
        let (result, written) = attempt(&bomb);
        assert!(matches!(result, Err(PackageError::Unzipped)), "{result:?}");
        assert_eq!(written, 0);
    }

    #[test]
    fn names_that_lead_out_are_refused_however_they_are_written() {
        for name in ["/etc/x", "../x", "a/../../x", "a/./../../x", "a//../../x", "C:/x", "a\\..\\x"]
        {
            let refused = matches!(
                check_name(name),
                Err(PackageError::Escapes(_) | PackageError::BadName(_))
            );
            assert!(refused, "{name}");
        }
        assert_eq!(check_name("a/./b//c.py").unwrap(), Path::new("a/b/c.py"));
    }
}
