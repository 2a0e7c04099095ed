//! Reading and writing control files.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::str::FromStr;

use crate::{Error, Version};

/// Longest control file that is read through a kept descriptor; `memory.stat`, the longest, has
/// about 4 KiB.
const MAX_CONTROL_FILE: usize = 8 * 1024;

/// Writes a control file, which must be there: it is, or it is not supported.
///
/// # Errors
/// It is not there, or the kernel refuses the value.
pub fn write(path: &Path, value: &str) -> Result<(), Error> {
    File::options()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|source| Error::Write { path: path.to_owned(), value: value.to_owned(), source })
}

/// Reads a control file.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| Error::Read(path.to_owned(), error))
}

/// Reads a control file from its start through a kept descriptor, and hands its text over.
pub fn pread<T>(file: &File, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut buffer = [0_u8; MAX_CONTROL_FILE];
    let count = file.read_at(&mut buffer, 0).ok()?;
    parse(std::str::from_utf8(&buffer[..count]).ok()?)
}

/// The number after `key` in a file of lines "key number".
#[must_use]
pub fn keyed<T: FromStr>(text: &str, key: &str) -> Option<T> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The file by which a process joins a group. On version 1, moving by `cgroup.procs` waits for a
/// lock that every fork on the machine takes (tens of ms at worst); `tasks` moves one thread, which
/// is all that a process has before exec.
#[must_use]
pub fn join_file(version: Version) -> &'static str {
    match version {
        Version::V1 => "tasks",
        Version::V2 => "cgroup.procs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_file_is_written_if_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cpu.max");
        let error = write(&path, "1000 20000").unwrap_err().to_string();
        assert!(error.contains("\"1000 20000\"") && error.contains("cpu.max"), "{error}");
        assert!(error.contains("No such file"), "{error}");
        assert!(!path.exists(), "it is not made");
        fs::write(&path, "").unwrap();
        write(&path, "1000 20000").unwrap();
        assert_eq!(read(&path).unwrap(), "1000 20000");
        let error = read(&folder.path().join("absent")).unwrap_err().to_string();
        assert!(error.contains("absent") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn keyed_numbers_need_the_whole_key() {
        let text = "nr_periods 10\nnr_throttled 3\nthrottled_time 12345\n";
        assert_eq!(keyed(text, "nr_throttled"), Some(3_i64));
        assert_eq!(keyed(text, "throttled_time"), Some(12_345_u64));
        assert_eq!(keyed::<u64>(text, "nr"), None);
        assert_eq!(keyed::<u64>(text, "throttled"), None);
    }

    #[test]
    fn a_kept_descriptor_is_read_from_the_start_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cpu.stat");
        fs::write(&path, "usage_usec 1\n").unwrap();
        let file = File::open(&path).unwrap();
        assert_eq!(pread(&file, |text| keyed(text, "usage_usec")), Some(1_u64));
        fs::write(&path, "usage_usec 2\n").unwrap();
        assert_eq!(pread(&file, |text| keyed(text, "usage_usec")), Some(2_u64));
    }
}
