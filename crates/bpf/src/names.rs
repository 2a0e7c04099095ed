//! The paths of control groups in version 2's tree, by the ids that programs in the kernel see.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The kind of handle that kernfs has: its group's id (`exportfs.h`).
const KERNFS: i32 = 0xfe;

/// Groups by their ids, as far as they were looked up.
pub(crate) struct Names {
    tree: Option<(File, PathBuf)>,
    known: HashMap<u64, Place>,
}

/// Where a group is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this path in the tree, such as `/a/b`.
    At(String),
    /// In a part of the tree that is not mounted there, or no tree was named.
    Outside,
    /// It was gone before it was looked up.
    Gone,
}

/// A handle of a file, as name_to_handle_at(2) makes them.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    id: u64,
}

impl Names {
    /// Names in the tree that is mounted there. Fails with a sentence where groups cannot be looked up.
    pub(crate) fn new(tree: Option<&Path>) -> Result<Self, String> {
        let Some(path) = tree else { return Ok(Self { tree: None, known: HashMap::new() }) };
        let open = || Ok((File::open(path)?, fs::metadata(path)?.ino()));
        let (file, top) = open().map_err(|error: io::Error| {
            format!("the tree of control groups at {} cannot be read: {error}", path.display())
        })?;
        open_group(&file, top).map_err(|error| {
            format!(
                "control groups cannot be looked up by their ids, which takes \
                 CAP_DAC_READ_SEARCH: {error}"
            )
        })?;
        Ok(Self { tree: Some((file, path.to_owned())), known: HashMap::new() })
    }

    /// Where it is, or was when it was seen first. Fails where the kernel does not say so.
    pub(crate) fn place(&mut self, id: u64) -> io::Result<Place> {
        let Some(tree) = &self.tree else { return Ok(Place::Outside) };
        if let Some(place) = self.known.get(&id) {
            return Ok(place.clone());
        }
        let place = look_up(tree, id)?;
        self.known.insert(id, place.clone());
        Ok(place)
    }

    /// Whether the group is gone.
    pub(crate) fn is_gone(&self, id: u64) -> bool {
        let tree = self.tree.as_ref();
        tree.is_some_and(|tree| matches!(look_up(tree, id), Ok(Place::Gone)))
    }

    /// Forgets a group that is gone.
    pub(crate) fn forget(&mut self, id: u64) {
        self.known.remove(&id);
    }
}

fn look_up((file, path): &(File, PathBuf), id: u64) -> io::Result<Place> {
    let group = match open_group(file, id) {
        Ok(group) => group,
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return Ok(Place::Gone),
        Err(error) => return Err(error),
    };
    let place = fs::read_link(format!("/proc/self/fd/{}", group.as_raw_fd()))?;
    // One that is gone is still to be had for a while, by a name that says so.
    let is_there = place.is_dir();
    if !is_there && place.as_os_str().as_bytes().ends_with(b" (deleted)") {
        return Ok(Place::Gone);
    }
    let inner = place.strip_prefix(path).ok().filter(|_| is_there).and_then(Path::to_str);
    Ok(inner.map_or(Place::Outside, |inner| Place::At(format!("/{inner}"))))
}

fn open_group(tree: &File, id: u64) -> io::Result<OwnedFd> {
    let mut handle = Handle { bytes: 8, kind: KERNFS, id };
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the handle lives during the call, and has as many bytes as it says.
    let result = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, tree.as_raw_fd(), &raw mut handle, flags)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}
