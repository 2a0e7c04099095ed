//! Hits of the kernel's tracepoints on a CPU, as they wait in a ring of memory that the kernel fills.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::events::{Attributes, open_with};

const CLASS_TRACEPOINT: u32 = 2;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;
const SAMPLE_CGROUP: u64 = 1 << 21;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
/// Of the first page, where the kernel says how far it wrote, and it is told how far was read.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
/// Pages of hits: a power of two. 1 MiB, some 10,000 hits.
const DATA_PAGES: usize = 256;
const PAGE_BYTES: usize = 4096;
const FSCONFIG_CMD_CREATE: u32 = 6;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;

/// The kernel's file system of tracepoints.
#[derive(Debug)]
pub struct TraceFiles {
    folder: PathBuf,
    /// Of one that is mounted nowhere, which ends with this.
    _mount: Option<OwnedFd>,
}

/// A tracepoint as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its number, with which each of its hits begins, in two bytes.
    pub id: u16,
    format: String,
}

/// A hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// When, in ns of a clock that all CPUs share.
    pub time: u64,
    /// The version 2 group of what ran there, by its inode.
    pub group: u64,
    /// Its fields, as its format says.
    pub fields: Vec<u8>,
}

impl TraceFiles {
    /// Finds it where it is mounted, or has one that is mounted nowhere.
    ///
    /// # Errors
    /// The kernel has none, or this user may not see it.
    pub fn find() -> io::Result<Self> {
        for folder in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            if Path::new(folder).join("events").is_dir() {
                return Ok(Self { folder: folder.into(), _mount: None });
            }
        }
        let mount = mounted_nowhere()?;
        let folder = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Self { folder, _mount: Some(mount) })
    }

    /// A tracepoint by its path, such as `block/block_rq_issue`.
    ///
    /// # Errors
    /// There is none, or this user may not see it.
    pub fn tracepoint(&self, path: &str) -> io::Result<Tracepoint> {
        let folder = self.folder.join("events").join(path);
        let id = fs::read_to_string(folder.join("id"))?;
        let id = id.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Tracepoint { id, format: fs::read_to_string(folder.join("format"))? })
    }
}

impl Tracepoint {
    /// Where a field is in a hit, and its size, in bytes.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<(usize, usize)> {
        self.format.lines().find_map(|line| {
            let mut parts = line.trim().split(';');
            let declared = parts.next()?.strip_prefix("field:")?.rsplit(' ').next()?;
            (declared.split('[').next() == Some(name)).then_some(())?;
            let mut number = |key| parts.next()?.trim().strip_prefix(key)?.parse().ok();
            Some((number("offset:")?, number("size:")?))
        })
    }
}

/// tracefs without a place in any tree of files.
fn mounted_nowhere() -> io::Result<OwnedFd> {
    let opened = |fd: libc::c_long| {
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    };
    // SAFETY: the name ends with a zero; the rest are numbers.
    let context =
        opened(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), FSOPEN_CLOEXEC) })?;
    let nothing = ptr::null::<libc::c_char>();
    // SAFETY: this command takes neither key nor value.
    let made = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            nothing,
            nothing,
            0,
        )
    };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: numbers alone.
    opened(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })
}

/// The hits of some tracepoints on one CPU, in their order.
#[derive(Debug)]
pub struct TraceRing {
    /// Their order is the ring's: the first has the memory, into which the others write.
    events: Vec<File>,
    memory: *mut u8,
    lost: u64,
}

// SAFETY: the memory belongs to this value alone, and the kernel does not care which thread reads it.
unsafe impl Send for TraceRing {}

impl TraceRing {
    /// Listens to tracepoints on a CPU.
    ///
    /// # Errors
    /// This user may not, or there is no such CPU or memory; none of no tracepoints.
    pub fn open(tracepoints: &[&Tracepoint], cpu: i32) -> io::Result<Self> {
        let mut events: Vec<File> = Vec::new();
        for tracepoint in tracepoints {
            let mut attributes = Attributes::new(CLASS_TRACEPOINT, u64::from(tracepoint.id), 0);
            attributes.sample_every(1, SAMPLE_TIME | SAMPLE_RAW | SAMPLE_CGROUP);
            let event = open_with(&attributes, cpu, None, None)?;
            events.push(event);
        }
        let first = events.first().ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping, of which nothing else knows; its result is checked.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE_BYTES * (1 + DATA_PAGES),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                first.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let leader = first.as_raw_fd();
        let ring = Self { memory: memory.cast(), lost: 0, events };
        for event in ring.events.iter().skip(1) {
            // SAFETY: both are descriptors of events that are open.
            if unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_OUTPUT, leader) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(ring)
    }

    /// The hits since the last call, in order.
    pub fn read(&mut self) -> Vec<Hit> {
        // SAFETY: the first page has these numbers at multiples of 8, and lives as long as this.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(self.memory.add(HEAD_AT).cast()),
                AtomicU64::from_ptr(self.memory.add(TAIL_AT).cast()),
            )
        };
        let (end, mut at) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        let mut hits = Vec::new();
        while at < end {
            let [kind, size] = [self.number(at, 4) as u32, self.number(at + 6, 2) as u32];
            if size < 8 {
                break; // it is none of the kernel's
            }
            match kind {
                RECORD_SAMPLE => hits.extend(self.hit(at + 8, at + u64::from(size))),
                RECORD_LOST => self.lost += self.number(at + 16, 8),
                _ => {}
            }
            at += u64::from(size);
        }
        tail.store(end, Ordering::Release);
        hits
    }

    /// How many were lost since this was asked last.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn hit(&self, at: u64, end: u64) -> Option<Hit> {
        let size = self.number(at + 8, 4);
        let fields_at = at + 12;
        (fields_at + size + 8 <= end).then(|| Hit {
            time: self.number(at, 8),
            fields: (0..size).map(|index| self.byte(fields_at + index)).collect(),
            group: self.number(fields_at + size, 8),
        })
    }

    fn number(&self, at: u64, size: u64) -> u64 {
        (0..size).rev().fold(0, |number, index| number << 8 | u64::from(self.byte(at + index)))
    }

    fn byte(&self, at: u64) -> u8 {
        let offset = usize::try_from(at).unwrap_or_default() % (DATA_PAGES * PAGE_BYTES);
        // SAFETY: within the pages of data; the kernel writes what was read already alone.
        unsafe { self.memory.add(PAGE_BYTES + offset).read_volatile() }
    }
}

impl Drop for TraceRing {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `open`, with this length, and nothing points there any more.
        unsafe { libc::munmap(self.memory.cast(), PAGE_BYTES * (1 + DATA_PAGES)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_format_says() {
        let format = "name: x\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                      \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
                      \tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n";
        let tracepoint = Tracepoint { id: 1, format: format.to_owned() };
        assert_eq!(tracepoint.field("dev"), Some((8, 4)));
        assert_eq!(tracepoint.field("rwbs"), Some((34, 10)));
        assert_eq!(tracepoint.field("comm"), None);
    }
}
