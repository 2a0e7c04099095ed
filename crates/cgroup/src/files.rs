//! Reading and writing control files.

use std::fs::{self, File};
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use std::str::FromStr;

use crate::Error;

/// Control files that are read through a kept descriptor are shorter. The longest is
/// `cpuacct.usage_all`, with about 30 bytes for each CPU.
const MAX_CONTROL_FILE: usize = 8 * 1024;

/// Writes a control file, which must exist: one that does not is not supported by this kernel.
pub(crate) fn write(path: &Path, value: &str) -> Result<(), Error> {
    File::options()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|source| Error::Write { path: path.to_owned(), value: value.to_owned(), source })
}

/// Writes a control file that depends on how the kernel was built, if it exists.
pub(crate) fn write_if_present(path: &Path, value: &str) -> Result<(), Error> {
    if path.exists() { write(path, value) } else { Ok(()) }
}

/// Reads a control file.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| Error::Read(path.to_owned(), error))
}

/// The words of a control file; none if it cannot be read.
pub(crate) fn words(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Reads a control file from its start through a kept descriptor, and parses its text; `None` if it
/// is too long to be read as a whole.
pub(crate) fn pread<T>(file: &File, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    // Not zeroed beforehand, which takes as long as a quarter of the call.
    let mut buffer = [MaybeUninit::uninit(); MAX_CONTROL_FILE];
    let (text, rest) = rustix::io::pread(file, &mut buffer, 0).ok()?;
    if rest.is_empty() {
        return None;
    }
    parse(std::str::from_utf8(text).ok()?)
}

/// Parses a file that holds one number.
pub(crate) fn number<T: FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

/// The number after `key` in a file of lines "key number".
pub(crate) fn keyed<T: FromStr>(text: &str, key: &str) -> Option<T> {
    text.lines().find_map(|line| number(line.strip_prefix(key)?.strip_prefix(' ')?))
}

/// The numbers after some keys in a file of lines "key number", in one pass that ends with the last of them.
pub(crate) fn keyed_together<const N: usize>(text: &str, keys: [&str; N]) -> [Option<i64>; N] {
    let (mut numbers, mut missing) = ([None; N], N);
    for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        if missing == 0 {
            break;
        }
        if let Some(index) = keys.iter().position(|it| *it == key) {
            // The first of several with one key counts, as in `keyed`.
            if numbers[index].is_none() {
                numbers[index] = number(value);
                missing -= usize::from(numbers[index].is_some());
            }
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_control_file_is_written_if_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cpu.max");
        let error = write(&path, "1000 20000").unwrap_err().to_string();
        assert!(error.contains("\"1000 20000\"") && error.contains("cpu.max"), "{error}");
        assert!(error.contains("No such file"), "{error}");
        write_if_present(&path, "1000 20000").unwrap();
        assert!(!path.exists(), "it is not made");
        fs::write(&path, "max 100000\n").unwrap();
        write(&path, "1000 20000").unwrap();
        assert_eq!(read(&path).unwrap(), "1000 20000");
        let error = read(&folder.path().join("absent")).unwrap_err().to_string();
        assert!(error.contains("absent") && error.contains("No such file"), "{error}");
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

    proptest! {
        /// As in `memory.stat`, where one key begins with another ("file", "file_mapped").
        #[test]
        fn every_key_of_a_file_has_its_own_number(
            pairs in proptest::collection::btree_map("[a-z][a-z_]{0,12}", any::<u64>(), 0..40),
        ) {
            let text: String = pairs.iter().map(|(key, number)| format!("{key} {number}\n")).collect();
            for (key, number) in &pairs {
                prop_assert_eq!(keyed(&text, key), Some(*number));
            }
            prop_assert_eq!(keyed::<u64>(&text, "A"), None);
            let keys: Vec<_> = pairs.keys().map(String::as_str).chain(["A", "B", "C"]).collect();
            for three in keys.windows(3).filter_map(|keys| keys.first_chunk::<3>()) {
                let one_by_one = three.map(|key| keyed::<i64>(&text, key));
                prop_assert_eq!(keyed_together(&text, *three), one_by_one);
            }
        }

        #[test]
        fn no_text_breaks_the_parser(text in "(?s).{0,200}", key in "[a-z_]{0,5}") {
            let _ = keyed::<u64>(&text, &key);
            let _ = keyed_together(&text, [key.as_str(), "other"]);
            let _ = number::<i64>(&text);
        }
    }
}
