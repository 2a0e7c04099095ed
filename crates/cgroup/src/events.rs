//! The kernel's performance events on a CPU: of a group and all below it, or of all that runs there.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::ptr;

/// The first version of the kernel's `perf_event_attr`, which every kernel takes.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Attributes {
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
/// The leader's reading tells what the others have counted, too.
const READ_TOGETHER: u64 = 1 << 3;
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
        open((class, number), READ_TIMES, cpu, group, None).map(Self)
    }

    /// Reads it; None if its CPU is offline.
    #[must_use]
    pub fn read(&self) -> Option<PerfReading> {
        let mut bytes = [0; 24];
        if (&self.0).read(&mut bytes).ok()? != bytes.len() {
            return None;
        }
        let [count, enabled, running] = words(&bytes);
        Some(PerfReading { count, enabled, running })
    }
}

/// Several events that are counted on one CPU, at the same times, and read with one access.
#[derive(Debug)]
pub struct PerfEvents {
    leader: File,
    /// Their counts are read with the leader's.
    others: Vec<File>,
}

impl PerfEvents {
    /// Most events that are read together.
    pub const MOST: usize = 5;

    /// [`PerfEvent::open`] of each, by type and number.
    ///
    /// # Errors
    /// There is none of them, or one is refused; or there are too many.
    pub fn open(
        events: &[(u32, u64)],
        cpu: i32,
        group: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        let (first, rest) = events.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        if events.len() > Self::MOST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let format = READ_TIMES | READ_TOGETHER;
        let leader = open(*first, format, cpu, group, None)?;
        let others = rest.iter().map(|it| open(*it, format, cpu, group, Some(&leader)));
        Ok(Self { others: others.collect::<io::Result<_>>()?, leader })
    }

    /// Reads them in their order; None if the CPU is offline.
    #[must_use]
    pub fn read(&self) -> Option<[PerfReading; Self::MOST]> {
        let mut bytes = [0; 8 * (3 + Self::MOST)];
        let length = (&self.leader).read(&mut bytes).ok()?;
        if length != 8 * (3 + 1 + self.others.len()) {
            return None;
        }
        let [_, enabled, running, counts @ ..]: [u64; 3 + Self::MOST] = words(&bytes);
        Some(counts.map(|count| PerfReading { count, enabled, running }))
    }
}

/// What was read, as numbers.
fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut word_bytes = [0; 8];
        word_bytes.copy_from_slice(bytes);
        *word = u64::from_ne_bytes(word_bytes);
    }
    words
}

impl Attributes {
    /// Of an event by its type and number.
    pub(crate) fn new(class: u32, number: u64, read_format: u64) -> Self {
        let size = u32::try_from(size_of::<Self>()).unwrap_or_default();
        Self { class, size, config: number, read_format, ..Self::default() }
    }

    /// Has each `period`th hit written into memory, with what `kinds` says of it.
    pub(crate) fn sample_every(&mut self, period: u64, kinds: u64) {
        (self.sample_period, self.sample_type) = (period, kinds);
    }
}

/// Opens an event, by type and number, that is counted when its leader is.
fn open(
    (class, number): (u32, u64),
    read_format: u64,
    cpu: i32,
    group: Option<BorrowedFd<'_>>,
    leader: Option<&File>,
) -> io::Result<File> {
    open_with(&Attributes::new(class, number, read_format), cpu, group, leader)
}

/// Opens an event by its attributes.
pub(crate) fn open_with(
    attributes: &Attributes,
    cpu: i32,
    group: Option<BorrowedFd<'_>>,
    leader: Option<&File>,
) -> io::Result<File> {
    let flags = FLAG_CLOSE_ON_EXEC | group.map_or(0, |_| FLAG_GROUP);
    // SAFETY: the attributes live during the call and say their size; the rest are numbers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            ptr::from_ref(attributes),
            group.map_or(-1, |folder| folder.as_raw_fd()),
            cpu,
            leader.map_or(-1, AsRawFd::as_raw_fd),
            flags,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to nobody else.
    Ok(unsafe { File::from_raw_fd(fd as RawFd) })
}
