//! What a restored instance's first process finds of a checkpoint: the images, in which the user is the instance's.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Dumped;
use crate::ids;
use crate::sandbox::host::Host;
use crate::sandbox::kept::Kept;
use crate::sandbox::wire::Restore;

/// What the files are called that hold memory; they are as large as that, and no user is in them.
const MEMORY: &[u8] = b"pages-";

/// A number of a user of instances takes so many bytes in protocol buffers' coding of numbers, whichever it is.
const BYTES: usize = 5;

/// A folder of images for one instance, which is removed with this.
pub(in crate::sandbox) struct Staged {
    folder: PathBuf,
    kept: Arc<Kept>,
    linked: Vec<OsString>,
}

impl Staged {
    /// Makes it. Waits for the disk.
    pub(in crate::sandbox) fn new(
        host: &Host,
        kept: Arc<Kept>,
        user: u32,
    ) -> io::Result<(Self, Restore)> {
        let criu = host.criu().map_err(io::Error::other)?;
        let Some(Dumped { output, user: dumped }) = kept.dumped.clone() else {
            return Err(io::Error::other("it is no checkpoint"));
        };
        let folder = kept.folder.with_file_name(format!(".restoring-{}", ids::staging()));
        fs::create_dir(&folder)?;
        let mut staged = Self { folder, kept: kept.clone(), linked: Vec::new() };
        for name in kept.names() {
            let to = staged.folder.join(&name);
            if name.as_bytes().starts_with(MEMORY) {
                kept.touch(&name, |from| fs::hard_link(from, &to))?;
                staged.linked.push(name);
            } else {
                let images = fs::read(kept.folder.join(&name))?;
                fs::write(to, replace(images, dumped, user))?;
            }
        }
        let restore = Restore {
            loader: criu.loader.clone(),
            libraries: criu.libraries.clone(),
            program: criu.program.clone(),
            cache: criu.cache.clone(),
            images: staged.folder.clone(),
            output,
        };
        Ok((staged, restore))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        for name in &self.linked {
            let link = self.folder.join(name);
            let _ = self.kept.touch(name, |_: &Path| fs::remove_file(link));
        }
        // What stays is removed by the next worker.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Puts one user in the place of another wherever images name it. Nothing else that is in them has such a number.
fn replace(mut images: Vec<u8>, from: u32, to: u32) -> Vec<u8> {
    let (from, to) = (coded(from), coded(to));
    let mut at = 0;
    while at + BYTES <= images.len() {
        if images[at..at + BYTES] == from {
            images[at..at + BYTES].copy_from_slice(&to);
            at += BYTES;
        } else {
            at += 1;
        }
    }
    images
}

/// A number of more than 28 bits, as protocol buffers code it.
fn coded(number: u32) -> [u8; BYTES] {
    let digit = |index: u32| (number >> (7 * index) & 0x7f) as u8;
    [digit(0) | 0x80, digit(1) | 0x80, digit(2) | 0x80, digit(3) | 0x80, digit(4)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_replaced_and_nothing_else() {
        let (from, to) = (1_900_000_123, 1_900_000_124);
        let images = [b"ab".as_slice(), &coded(from), &[8], &coded(from), b"cd"].concat();
        let expected = [b"ab".as_slice(), &coded(to), &[8], &coded(to), b"cd"].concat();
        assert_eq!(replace(images, from, to), expected);
        let other = [b"x".as_slice(), &coded(to)].concat();
        assert_eq!(replace(other.clone(), from, to), other);
    }
}
