//! What the instance sees of the file system.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, makedev, mknod, umask};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{chdir, pivot_root};
use uncia_clock::monotonic_ns;

use super::{Doing, Failure, overlay};
use crate::sandbox::rootfs::{ETC_PASSWD, LAYERS, TASK};
use crate::sandbox::wire::{Container, InitConfig};

/// The devices of an instance: name, major and minor number. All of mode 666, as everywhere.
const DEVICES: [(&str, u64, u64); 5] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9)];

/// Room for the entries of `/dev`, in bytes; it holds no data but the user's name.
pub(in crate::sandbox) const DEV_BYTES: u32 = 64 * 1024;

/// One inode of `/tmp` for every so many bytes, as in a file system of 4 KiB blocks; each inode is
/// also charged to the function's memory.
const BYTES_PER_INODE: u64 = 4096;

/// Makes the sandbox's file system and moves into it. Nothing of this is seen outside of the mount
/// namespace, and it vanishes with it. Returns when an image's root was mounted, if there is one.
pub(super) fn build(config: &InitConfig) -> Result<Option<i64>, Failure> {
    let rooted = common(config, MsFlags::MS_PRIVATE)?;
    own(config, Path::new("/"), &config.root)?;
    temporary(config, &config.root)?;
    enter(&config.root)?;
    Ok(rooted)
}

/// [`build`], but for what differs between instances: the host's files stay below `/tmp`. What the host
/// unmounts meanwhile goes from there, too.
pub(super) fn build_common(config: &InitConfig) -> Result<(), Failure> {
    // What it has left out of an image is another start's.
    let _ = common(config, MsFlags::MS_SLAVE)?;
    chdir(&config.root).doing("enter the new root")?;
    pivot_root(".", "tmp").doing("change the root")?;
    chdir("/").doing("enter the new root")
}

/// What [`build_common`] has left out. The host's files are gone afterwards.
pub(super) fn build_own(config: &InitConfig) -> Result<(), Failure> {
    let (host, root) = (Path::new("/tmp"), Path::new("/"));
    own(config, host, root)?;
    umount2(host, MntFlags::MNT_DETACH).doing("detach the host's root")?;
    cut_off(MsFlags::MS_PRIVATE)?;
    temporary(config, root)
}

/// What an OCI runtime needs to make the rest of it: this pid namespace's own `/proc`, an image's root, and what the
/// instance sees at `/tmp`. From one that makes no control groups, those of the machine are hidden: some refuse machines
/// with both versions.
pub(super) fn build_around(
    config: &InitConfig,
    container: &Container,
) -> Result<Option<i64>, Failure> {
    let mut rooted = None;
    umask(Mode::empty());
    cut_off(MsFlags::MS_PRIVATE)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    attach(Some(Path::new("proc")), Path::new("/proc"), Some("proc"), flags, None)?;
    let groups = Path::new("/sys/fs/cgroup");
    if !container.makes_groups && groups.is_dir() {
        attach(Some(Path::new("tmpfs")), groups, Some("tmpfs"), flags, None)?;
    }
    match &config.image {
        None => memory_files(config, &container.temporary(), "1777")?,
        Some(image) => {
            overlay::mount(config, image)?;
            rooted = Some(monotonic_ns());
            overlay::name_user(config)?;
        }
    }
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    Ok(rooted)
}

/// What all instances of the runtime have. Sets the umask that they start with. Returns when an image's root was
/// mounted.
fn common(config: &InitConfig, propagation: MsFlags) -> Result<Option<i64>, Failure> {
    umask(Mode::empty());
    let root = &config.root;
    let mut rooted = None;
    match &config.image {
        None => begin(root, propagation)?,
        Some(image) => {
            cut_off(propagation)?;
            overlay::mount(config, image)?;
            rooted = Some(monotonic_ns());
        }
    }
    devices(root)?;
    match &config.image {
        None => name_user(config)?,
        Some(_) => overlay::name_user(config)?,
    }
    seal_devices(root)?;
    processes(config)?;
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    Ok(rooted)
}

/// The function's code, and what else it may read, from the root of the host at `host`.
fn own(config: &InitConfig, host: &Path, root: &Path) -> Result<(), Failure> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    if config.image.is_none() {
        bind_read_only(&inside(host, &config.code), &inside(root, Path::new(TASK)), flags)?;
    }
    if let Some(layers) = &config.layers {
        bind_read_only(&inside(host, layers), &inside(root, Path::new(LAYERS)), flags)?;
    }
    for (from, to) in &config.mounts {
        let flags = flags | MsFlags::MS_NOEXEC;
        bind_read_only(&inside(host, from), &inside(root, to), flags)?;
    }
    Ok(())
}

/// `/tmp`.
fn temporary(config: &InitConfig, root: &Path) -> Result<(), Failure> {
    match &config.image {
        None => memory_files(config, &root.join("tmp"), "1777"),
        Some(image) => overlay::bind_temporary(image, root),
    }
}

/// A file system in memory of the size that the function may fill.
pub(super) fn memory_files(config: &InitConfig, to: &Path, mode: &str) -> Result<(), Failure> {
    let inodes = config.tmp_bytes / BYTES_PER_INODE + 1;
    attach(
        Some(Path::new("tmpfs")),
        to,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some(&format!("size={},nr_inodes={inodes},mode={mode}", config.tmp_bytes)),
    )
}

/// A file system of the root and devices alone, and moves into it.
pub(super) fn build_bare(root: &Path) -> Result<(), Failure> {
    umask(Mode::empty());
    begin(root, MsFlags::MS_PRIVATE)?;
    devices(root)?;
    seal_devices(root)?;
    enter(root)?;
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    Ok(())
}

/// Keeps all mounts from being seen by the host, and with `MS_PRIVATE` the host's from being seen here.
fn cut_off(propagation: MsFlags) -> Result<(), Failure> {
    attach(None, Path::new("/"), None, MsFlags::MS_REC | propagation, None)
}

/// Cuts the mount namespace off from the host's, and makes the root one that can be entered.
fn begin(root: &Path, propagation: MsFlags) -> Result<(), Failure> {
    cut_off(propagation)?;
    bind_read_only(root, root, MsFlags::MS_NOSUID | MsFlags::MS_NODEV)
}

/// How `/dev` is mounted: nobody runs anything from it.
const DEV_FLAGS: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NOEXEC);

/// `/dev`: a few devices and links, which can be added to until it is sealed.
fn devices(root: &Path) -> Result<(), Failure> {
    let dev = root.join("dev");
    let options = format!("size={DEV_BYTES},mode=755");
    attach(Some(Path::new("tmpfs")), &dev, Some("tmpfs"), DEV_FLAGS, Some(&options))?;
    for (name, major, minor) in DEVICES {
        let path = dev.join(name);
        let mode = Mode::from_bits_truncate(0o666);
        match mknod(&path, SFlag::S_IFCHR, mode, makedev(major, minor)) {
            Ok(()) => {}
            // Without the right to make devices, the host's are shown instead.
            Err(Errno::EPERM | Errno::EACCES) => {
                fs::write(&path, b"").doing("make a place for a device")?;
                let device = Path::new("/dev").join(name);
                attach(Some(&device), &path, None, MsFlags::MS_BIND, None)?;
            }
            Err(error) => return Err(Failure::Step("make a device", error)),
        }
    }
    for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
    {
        symlink(Path::new("/proc/self").join(target), dev.join(name)).doing("link the streams")?;
    }
    Ok(())
}

/// The user's line of `/etc/passwd`: every instance is another user to the kernel, and every user needs
/// a name.
fn name_user(config: &InitConfig) -> Result<(), Failure> {
    let user = config.root.join("dev/.passwd");
    fs::write(&user, user_line(config)).doing("name the user")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    bind_read_only(&user, &inside(&config.root, Path::new(ETC_PASSWD)), flags)
}

/// The user's line of `/etc/passwd`.
pub(in crate::sandbox) fn user_line(config: &InitConfig) -> String {
    let user = crate::sandbox::rootfs::USER;
    format!("{user}:x:{}:{}::/tmp:/bin/false\n", config.uid, config.gid)
}

/// Makes `/dev` read-only.
fn seal_devices(root: &Path) -> Result<(), Failure> {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | DEV_FLAGS;
    attach(None, &root.join("dev"), None, flags, None)
}

/// `/proc` of the new pid namespace; other users' processes, that is process 1, are not shown.
fn processes(config: &InitConfig) -> Result<(), Failure> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let proc = config.root.join("proc");
    match attach(Some(Path::new("proc")), &proc, Some("proc"), flags, Some("hidepid=2")) {
        // A container often masks parts of /proc, and then the kernel refuses a whole one to a user
        // namespace inside. The runtimes live without.
        Err(Failure::Mount(_, Errno::EPERM)) if config.user_namespace => Ok(()),
        other => other,
    }
}

/// Makes `root` the root and forgets the old one.
fn enter(root: &Path) -> Result<(), Failure> {
    chdir(root).doing("enter the new root")?;
    pivot_root(".", ".").doing("change the root")?;
    umount2(".", MntFlags::MNT_DETACH).doing("detach the host's root")?;
    chdir("/").doing("enter the new root")
}

/// Mounts `from` on `to` for reading only.
fn bind_read_only(from: &Path, to: &Path, restrictions: MsFlags) -> Result<(), Failure> {
    attach(Some(from), to, None, MsFlags::MS_BIND, None)?;
    // A user namespace may not take off what the host put on; the only such restriction that
    // remounting would drop by not naming it and that is not in `restrictions` is noexec.
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | restrictions;
    if statvfs(to).is_ok_and(|found| found.flags().contains(FsFlags::ST_NOEXEC)) {
        flags |= MsFlags::MS_NOEXEC;
    }
    attach(None, to, None, flags, None)
}

/// `mount`, with an error that says where.
pub(super) fn attach(
    from: Option<&Path>,
    to: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    options: Option<&str>,
) -> Result<(), Failure> {
    mount(from, to, kind, flags, options)
        .map_err(|error| Failure::Mount(to.display().to_string(), error))
}

/// The place on the host of an absolute path in the sandbox.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
