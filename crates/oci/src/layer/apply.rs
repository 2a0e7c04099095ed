//! Makes what an archive holds in a folder, and touches nothing else.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT,
    XattrFlags, fchmod, fchown, fsetxattr, futimens, linkat, mkdirat, mknodat, open, openat,
    openat2, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::archive::{Archive, Entry, Kind};
use super::{Contents, Problem, Rules};

/// What file systems here take for one component of a path.
const MAX_NAME_BYTES: usize = 255;
/// What `open` takes for a path, with room left for the folder that it lies in.
const MAX_PATH_BYTES: usize = 3_072;

/// Folders in folders. Whatever removes them, or walks through them, descends a step for each, with a descriptor and a
/// part of its stack: by links, a layer could have them as deep as it has entries.
const MAX_DEPTH: usize = 512;

/// How the names of whiteouts begin.
const WHITEOUT: &[u8] = b".wh.";
/// The whiteout of all that lower layers have in a folder.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// How the names of things begin that are one file system's own, and no file of the layer.
const WHITEOUT_INTERNAL: &[u8] = b".wh..wh.";

/// What tells overlayfs that it hides a folder of lower layers, if root has mounted it, or a user.
const OPAQUE_OF_ROOT: &str = "trusted.overlay.opaque";
const OPAQUE_OF_USER: &str = "user.overlay.opaque";

/// Rights that the unpacking process needs, to fill and to remove what it makes.
const FOLDER_RIGHTS: u32 = 0o700;
const FILE_RIGHTS: u32 = 0o400;

const BUFFER_BYTES: usize = 256 * 1024;

/// Applies an archive to a folder.
pub(super) struct Applier {
    root: Rc<OwnedFd>,
    /// How deep that is itself.
    root_depth: usize,
    rules: Rules,
    contents: Contents,
    /// The folder of the last entry, which is often that of the next.
    parent: Option<(Vec<u8>, Rc<OwnedFd>)>,
    /// What folders are to be once nothing is put into them any more.
    folders: Vec<(Vec<u8>, u32, i64)>,
    buffer: Vec<u8>,
}

fn refused(path: &[u8], why: &str) -> Problem {
    Problem::Archive(format!("{:?} {why}", String::from_utf8_lossy(path)))
}

impl Applier {
    pub(super) fn new(folder: &Path, rules: Rules) -> Result<Self, Problem> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = open(folder, flags, Mode::empty())?;
        Ok(Self {
            root_depth: depth(&root)?,
            root: Rc::new(root),
            rules,
            contents: Contents { entries: 0, bytes: 0 },
            parent: None,
            folders: vec![(Vec::new(), 0o755, 0)],
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// Applies all of it.
    pub(super) fn apply(
        mut self,
        archive: &mut Archive<impl io::Read>,
    ) -> Result<Contents, Problem> {
        while let Some(entry) = archive.next()? {
            self.contents.add(entry.bytes, &self.rules).map_err(Problem::Archive)?;
            let path = clean(&entry.path)?;
            if !path.is_empty() {
                self.make(archive, &entry, path)?;
            }
        }
        for (path, mode, modified) in std::mem::take(&mut self.folders) {
            let folder = self.open_folder(&path)?;
            self.finish(folder.as_fd(), mode | FOLDER_RIGHTS, modified)?;
        }
        Ok(self.contents)
    }

    fn make(
        &mut self,
        archive: &mut Archive<impl io::Read>,
        entry: &Entry,
        path: Vec<u8>,
    ) -> Result<(), Problem> {
        let (parent, name) = split(&path);
        let folder = self.folder(parent)?;
        if name == OPAQUE {
            return self.hide_below(&folder);
        }
        if name.starts_with(WHITEOUT_INTERNAL) {
            return Ok(());
        }
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            return self.hide(&path, &folder, hidden);
        }
        match entry.kind {
            Kind::Special => {}
            Kind::Folder => {
                self.make_folder(&path, &folder, name)?;
                self.folders.push((path, entry.mode, entry.modified));
            }
            Kind::File => {
                self.make_way(&path, &folder, name)?;
                self.make_file(archive, entry, &folder, name)?;
            }
            Kind::Symlink => {
                if entry.target.is_empty() || entry.target.len() > MAX_PATH_BYTES {
                    return Err(refused(&path, "is a link that leads nowhere, or too far"));
                }
                self.make_way(&path, &folder, name)?;
                symlinkat(&*entry.target, &*folder, name)?;
            }
            Kind::HardLink => {
                let target = clean(&entry.target)?;
                let (target_parent, target_name) = split(&target);
                let missing = || {
                    let target = String::from_utf8_lossy(&entry.target);
                    refused(
                        &path,
                        &format!("is a link to {target:?}, which the layer does not have"),
                    )
                };
                if target_name.is_empty() || target_name.starts_with(WHITEOUT) {
                    return Err(missing());
                }
                let target_folder = self.open_folder(target_parent).map_err(|_| missing())?;
                if target == path {
                    return Ok(());
                }
                self.make_way(&path, &folder, name)?;
                linkat(&target_folder, target_name, &*folder, name, AtFlags::empty()).map_err(
                    |error| match error {
                        Errno::NOENT => missing(),
                        // Of a folder.
                        Errno::PERM => {
                            refused(&path, "is a hard link to something that is no file")
                        }
                        other => other.into(),
                    },
                )?;
            }
        }
        Ok(())
    }

    fn make_file(
        &mut self,
        archive: &mut Archive<impl io::Read>,
        entry: &Entry,
        folder: &OwnedFd,
        name: &[u8],
    ) -> Result<(), Problem> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?);
        loop {
            let count = archive.read(&mut self.buffer)?;
            if count == 0 {
                break;
            }
            file.write_all(&self.buffer[..count]).map_err(Problem::Machine)?;
        }
        self.finish(file.as_fd(), entry.mode | FILE_RIGHTS, entry.modified)
    }

    /// Makes a folder unless there is one.
    fn make_folder(&mut self, path: &[u8], folder: &OwnedFd, name: &[u8]) -> Result<(), Problem> {
        self.check_depth(path, folder)?;
        match mkdirat(folder, name, Mode::RWXU) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let existing = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(existing.st_mode);
        if kind == FileType::Directory {
            return Ok(());
        }
        self.make_way(path, folder, name)?;
        mkdirat(folder, name, Mode::RWXU)?;
        // What lower layers have is hidden all the same.
        if kind == FileType::CharacterDevice {
            let made = self.open_folder(path)?;
            self.hide_below(&made)?;
        }
        Ok(())
    }

    /// Removes what is in the way: the last of several entries with one name counts.
    fn make_way(&mut self, path: &[u8], folder: &OwnedFd, name: &[u8]) -> Result<(), Problem> {
        match unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) => {
                // It may have been a link on the way to it.
                self.parent = None;
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR) => Err(refused(path, "is in the archive both as a folder and not")),
            Err(error) => Err(error.into()),
        }
    }

    /// Hides what lower layers have by this name.
    fn hide(&mut self, path: &[u8], folder: &OwnedFd, name: &[u8]) -> Result<(), Problem> {
        if name.is_empty() || name == b"." || name == b".." {
            return Err(refused(path, "is a whiteout of nothing"));
        }
        match mknodat(folder, name, FileType::CharacterDevice, Mode::empty(), 0) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                // The layer has something by this name itself, of which only a folder lets see through.
                let existing = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(existing.st_mode) != FileType::Directory {
                    return Ok(());
                }
                let (parent, _) = split(path);
                let hidden = [parent, name].join(&b'/');
                let opened = self.open_folder(&hidden)?;
                self.hide_below(&opened)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Hides what lower layers have in a folder.
    fn hide_below(&self, folder: &OwnedFd) -> Result<(), Problem> {
        let name = if self.rules.is_root { OPAQUE_OF_ROOT } else { OPAQUE_OF_USER };
        fsetxattr(folder, name, b"y", XattrFlags::empty()).map_err(|error| {
            let why = format!("the state folder's file system keeps no attribute {name}: {error}");
            Problem::Machine(io::Error::other(why))
        })
    }

    /// Gives what was made its owner, rights and time.
    fn finish(&self, file: impl AsFd + Copy, mode: u32, modified: i64) -> Result<(), Problem> {
        if let Some(group) = self.rules.group {
            fchown(file, None, Some(Gid::from_raw(group)))?;
        }
        fchmod(file, Mode::from_raw_mode(rights(mode)))?;
        let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps {
            last_access: unchanged,
            last_modification: Timespec { tv_sec: modified, tv_nsec: 0 },
        };
        futimens(file, &times)?;
        Ok(())
    }

    /// The folder at a path, made with those above it if it is missing.
    fn folder(&mut self, path: &[u8]) -> Result<Rc<OwnedFd>, Problem> {
        if let Some((known, folder)) = &self.parent
            && known == path
        {
            return Ok(folder.clone());
        }
        let folder = match self.open_folder(path) {
            Err(Problem::Machine(error)) if error.kind() == io::ErrorKind::NotFound => {
                self.make_folders(path)?
            }
            other => other?,
        };
        let folder = Rc::new(folder);
        self.parent = Some((path.to_owned(), folder.clone()));
        Ok(folder)
    }

    fn make_folders(&mut self, path: &[u8]) -> Result<OwnedFd, Problem> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let ends: Vec<_> = ends.map(|(index, _)| index).chain([path.len()]).collect();
        let mut folder = self.open_folder(b"")?;
        for end in ends {
            let path = &path[..end];
            folder = match self.open_folder(path) {
                Err(Problem::Machine(error)) if error.kind() == io::ErrorKind::NotFound => {
                    let (_, name) = split(path);
                    self.check_depth(path, &folder)?;
                    // It has no entry of its own.
                    self.contents.add(0, &self.rules).map_err(Problem::Archive)?;
                    match mkdirat(&folder, name, Mode::RWXU) {
                        Ok(()) => {}
                        Err(Errno::EXIST) => {
                            return Err(refused(path, "is a folder on the way, and leads nowhere"));
                        }
                        Err(error) => return Err(error.into()),
                    }
                    self.folders.push((path.to_owned(), 0o755, 0));
                    self.open_folder(path)?
                }
                other => other?,
            };
        }
        Ok(folder)
    }

    /// Refuses to make a folder in one that is too deep, by whatever way it was reached.
    fn check_depth(&self, path: &[u8], parent: &OwnedFd) -> Result<(), Problem> {
        if depth(parent)? - self.root_depth < MAX_DEPTH {
            return Ok(());
        }
        Err(refused(path, &format!("would be more than {MAX_DEPTH} folders deep")))
    }

    /// Opens a folder as if the layer's were the root.
    fn open_folder(&self, path: &[u8]) -> Result<OwnedFd, Problem> {
        let path = if path.is_empty() { b".".as_slice() } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&*self.root, path, flags, Mode::empty(), resolve).map_err(|error| match error {
            Errno::NOTDIR => refused(path, "is a folder on the way, and a file"),
            Errno::LOOP => refused(path, "is on the way, and a link that leads in a circle"),
            other => other.into(),
        })
    }
}

/// How many folders lead to this one from the root.
fn depth(folder: &OwnedFd) -> Result<usize, Problem> {
    let name = format!("/proc/self/fd/{}", folder.as_raw_fd());
    match std::fs::read_link(name) {
        Ok(path) => Ok(path.components().count()),
        // Of a path that is longer than the kernel writes.
        Err(error) if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => {
            Ok(usize::MAX)
        }
        Err(error) => Err(Problem::Machine(error)),
    }
}

/// A name in an archive, as the parts of a path below the folder.
fn clean(name: &[u8]) -> Result<Vec<u8>, Problem> {
    if name.len() > MAX_PATH_BYTES {
        return Err(refused(&name[..MAX_NAME_BYTES], "and so on is too long a name"));
    }
    if name.contains(&0) {
        return Err(refused(name, "is a name with a zero byte"));
    }
    let mut parts = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(refused(name, "would leave the layer's folder")),
            part if part.len() > MAX_NAME_BYTES => {
                return Err(refused(name, "has a part that is too long a name"));
            }
            part => parts.push(part),
        }
    }
    Ok(parts.join(&b'/'))
}

/// The folder and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(index) => (&path[..index], &path[index + 1..]),
        None => (b"", path),
    }
}

/// The owner's rights for the group, too, and nothing that changes who a program runs as.
fn rights(mode: u32) -> u32 {
    let owner = mode & 0o700;
    owner | (owner >> 3) | (mode & 0o007)
}
