//! The kernel's performance events on a CPU: of a group and all below it, or of all that runs there.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, RawFd};

/// The first version of the kernel's `perf_event_attr`, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    class: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    address: u64,
}

/// Reads also tell how long an event was asked for, and how long it was really counted.
const READ_TIMES: u64 = 0b11;
const FLAG_GROUP: u64 = 1 << 2;
const FLAG_CLOSE_ON_EXEC: u64 = 1 << 3;

/// An event that is counted on one CPU.
#[derive(Debug)]
pub struct PerfEvent(File);

/// What an event came to since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PerfReading {
    /// The count.
    pub count: u64,
    /// For how many ns it was asked for.
    pub enabled: u64,
    /// For how many ns of these it was really counted: other events may have had the CPU's counter.
    pub running: u64,
}

impl PerfEvent {
    /// Opens an event by its type and number (`linux/perf_event.h`), of a group by its open folder: in the tree
    /// of version 2, or of version 1's `perf_event`, where that is mounted.
    ///
    /// # Errors
    /// There is no such event or CPU, or this user may count none.
    pub fn open(
        class: u32,
        number: u64,
        cpu: i32,
        group: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        let size = u32::try_from(size_of::<Attributes>()).unwrap_or_default();
        let attributes = Attributes {
            class,
            size,
            config: number,
            read_format: READ_TIMES,
            ..Attributes::default()
        };
        let flags = FLAG_CLOSE_ON_EXEC | group.map_or(0, |_| FLAG_GROUP);
        // SAFETY: the attributes live during the call and say their size; the rest are numbers.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                group.map_or(-1, |folder| folder.as_raw_fd()),
                cpu,
                -1,
                flags,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to nobody else.
        Ok(Self(unsafe { File::from_raw_fd(fd as RawFd) }))
    }

    /// Reads it; None if its CPU is offline.
    #[must_use]
    pub fn read(&self) -> Option<PerfReading> {
        let mut bytes = [0; 24];
        if (&self.0).read(&mut bytes).ok()? != bytes.len() {
            return None;
        }
        let number = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        Some(PerfReading { count: number(0), enabled: number(8), running: number(16) })
    }
}
