//! What the file system is asked for.

use std::fmt::Debug;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The kernel; in tests, what stands for it.
pub(crate) trait Kernel: Debug + Send + Sync {
    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    /// Writes to a file that is there.
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
    }

    /// The names of the folders in one.
    fn folders(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            // Names that are no text are nobody's here.
            if entry.file_type()?.is_dir()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes a group: the kernel makes its files with the folder.
    fn make(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    /// Removes a group: its files go with the folder, and its tasks to the group above.
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }
}

/// The file system as it is mounted.
#[derive(Debug)]
pub(crate) struct Mounted;

impl Kernel for Mounted {}
