//! The root of a function that brings its own: an image's layers, read-only, under what the instance writes.
//!
//! What an image holds is the function's, and until the root has been entered, a link in it would lead into
//! the host's files. So nothing here follows one: what the platform needs is in a layer of its own above the
//! image's, and all else is looked up as if the image were the root.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::MsFlags;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, open, openat, openat2, unlinkat};

use super::{Doing, Failure, mounts};
use crate::sandbox::wire::{ImageMounts, InitConfig};

/// What the instance writes: what it has changed of the root, what overlayfs needs for that, and `/tmp`.
const UPPER: (&str, u32) = ("upper", 0o775);
const WORK: (&str, u32) = ("work", 0o700);
const TEMPORARY: (&str, u32) = ("tmp", 0o1777);

const FLAGS: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// The most of an image's `/etc/passwd` that is read.
const MAX_USERS_BYTES: u64 = 64 * 1024;

/// Mounts the root. What the instance may write, `/tmp` included, has one bound, and counts as its memory.
pub(super) fn mount(config: &InitConfig, image: &ImageMounts) -> Result<(), Failure> {
    mounts::memory_files(config, &image.scratch, "755")?;
    for (name, mode) in [UPPER, WORK, TEMPORARY] {
        std::fs::DirBuilder::new()
            .mode(mode)
            .create(image.scratch.join(name))
            .doing("make a folder for what is written")?;
    }
    let upper = image.scratch.join(UPPER.0);
    if !config.user_namespace {
        chown(&upper, None, Some(config.gid)).doing("give the root to the function")?;
    }
    // By descriptors: a mount's options are a page at most, and some characters mean something in them.
    let folder = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(path, flags, Mode::empty())
            .map_err(|error| Failure::Call(format!("open {}", path.display()), errno(error)))
    };
    let layers = image.layers.iter().map(|layer| folder(layer)).collect::<Result<Vec<_>, _>>()?;
    let (upper, work) = (folder(&upper)?, folder(&image.scratch.join(WORK.0))?);
    let lower: Vec<_> = layers.iter().map(name).collect();
    let mut options =
        format!("lowerdir={},upperdir={},workdir={}", lower.join(":"), name(&upper), name(&work));
    if config.user_namespace {
        options += ",userxattr";
    }
    let kind = Some("overlay");
    mounts::attach(kind.map(Path::new), &config.root, kind, FLAGS, Some(&options)).map_err(
        |error| match error {
            Failure::Mount(_, Errno::ENODEV) => Failure::Image(
                "this kernel has no overlayfs (CONFIG_OVERLAY_FS, or `modprobe overlay`)",
            ),
            Failure::Mount(_, Errno::EPERM) if config.user_namespace => Failure::Image(
                "this kernel lets only root mount overlayfs; Linux 5.11 and later let users, too",
            ),
            other => other,
        },
    )
}

/// What the instance sees at `/tmp`.
pub(in crate::sandbox) fn temporary(image: &ImageMounts) -> PathBuf {
    image.scratch.join(TEMPORARY.0)
}

/// Shows the instance its `/tmp`.
pub(super) fn bind_temporary(image: &ImageMounts, root: &Path) -> Result<(), Failure> {
    let (from, to) = (temporary(image), root.join("tmp"));
    mounts::attach(Some(&from), &to, None, MsFlags::MS_BIND, None)?;
    mounts::attach(None, &to, None, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | FLAGS, None)
}

/// Adds the user to the image's `/etc/passwd`.
pub(super) fn name_user(config: &InitConfig) -> Result<(), Failure> {
    const STEP: &str = "name the user";
    let system = |error: rustix::io::Errno| Failure::Step(STEP, errno(error));
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let root = open(&config.root, folder, Mode::empty()).map_err(system)?;
    let mut users = Vec::new();
    let readable = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // An image need not have one.
    if let Ok(file) = openat2(&root, "etc/passwd", readable, Mode::empty(), resolve) {
        let file = File::from(file);
        if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            file.take(MAX_USERS_BYTES).read_to_end(&mut users).doing(STEP)?;
        }
    }
    if users.last().is_some_and(|byte| *byte != b'\n') {
        users.push(b'\n');
    }
    users.extend(mounts::user_line(config).bytes());
    let etc = openat(&root, "etc", folder, Mode::empty()).map_err(system)?;
    match unlinkat(&etc, "passwd", AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(system(error)),
    }
    let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&etc, "passwd", new, Mode::from_raw_mode(0o644)).map_err(system)?;
    File::from(file).write_all(&users).doing(STEP)
}

/// A path that means what is open.
fn name(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// One library's error as the other's.
fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}
