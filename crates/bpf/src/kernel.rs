//! Calls of bpf(2) that the loader has none for: maps read as a whole, programs run on a CPU, what they cost.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Commands of linux/bpf.h.
const TEST_RUN: libc::c_long = 10;
const MAP_LOOKUP: libc::c_long = 1;
const MAP_TAKE: libc::c_long = 21;
const MAP_BATCH: libc::c_long = 24;
const ENABLE_STATS: libc::c_long = 32;
/// The program runs on the CPU that is named.
const ON_CPU: u32 = 1;
/// Entries of a map that are read at once.
const BATCH: usize = 512;

/// What a program without memory of a call is run with.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data_sizes: [u32; 2],
    data: [u64; 2],
    repeat: u32,
    duration: u32,
    context_sizes: [u32; 2],
    context: [u64; 2],
    flags: u32,
    cpu: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapEntry {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct MapBatch {
    after: u64,
    next: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    entry_flags: u64,
    flags: u64,
}

/// One of the structures that the kernel takes, of which what is not given is 0.
///
/// # Safety
/// Addresses in it are of places that live, and are as large as the command takes them to be.
unsafe fn call<T>(command: libc::c_long, attributes: &mut T) -> io::Result<libc::c_long> {
    let (place, size) = (std::ptr::from_mut(attributes), size_of::<T>());
    // SAFETY: the structure lives during the call, and the caller answers for what it names.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, place, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Runs a program on a CPU. Fails where that is offline.
pub(crate) fn run_on(program: BorrowedFd<'_>, cpu: u32) -> io::Result<()> {
    // Its context holds nothing that it reads.
    let mut run = TestRun { program: number(program), flags: ON_CPU, cpu, ..TestRun::default() };
    // SAFETY: it has no addresses.
    unsafe { call(TEST_RUN, &mut run) }.map(drop)
}

/// The value of a key of four bytes, of 8 bytes.
pub(crate) fn read_number(map: BorrowedFd<'_>, key: u32) -> io::Result<u64> {
    let mut value = 0_u64;
    let mut entry = MapEntry {
        map: number(map),
        key: &raw const key as u64,
        value: &raw mut value as u64,
        ..MapEntry::default()
    };
    // SAFETY: both live during the call, and are of the map's sizes.
    unsafe { call(MAP_LOOKUP, &mut entry) }?;
    Ok(value)
}

/// The values of the only entry of a map that has one for each CPU.
pub(crate) fn read_cpus<T: Plain>(map: BorrowedFd<'_>) -> io::Result<Vec<T>> {
    let cpus = aya::util::nr_cpus().map_err(|(_, error)| error)?;
    let mut values = vec![T::default(); cpus];
    let key = 0_u32;
    let mut entry = MapEntry {
        map: number(map),
        key: &raw const key as u64,
        value: values.as_mut_ptr() as u64,
        ..MapEntry::default()
    };
    // SAFETY: both live during the call; there is room for as many CPUs as the machine may have, and a
    // value's size is a multiple of 8, as the kernel lays them out.
    unsafe { call(MAP_LOOKUP, &mut entry) }?;
    Ok(values)
}

/// Removes an entry of a map of numbers to `T`; gives what it was.
pub(crate) fn take<T: Plain>(map: BorrowedFd<'_>, key: u64) -> io::Result<T> {
    let mut value = T::default();
    let mut entry = MapEntry {
        map: number(map),
        key: &raw const key as u64,
        value: &raw mut value as u64,
        ..MapEntry::default()
    };
    // SAFETY: both live during the call; the map's values are `T`, which any bytes are one of.
    unsafe { call(MAP_TAKE, &mut entry) }?;
    Ok(value)
}

/// Calls `each` with every entry of a map of numbers to `T`. `before` is called ahead of each part of it that is
/// read.
pub(crate) fn read_all<T: Plain>(
    map: BorrowedFd<'_>,
    mut before: impl FnMut(),
    mut each: impl FnMut(u64, &T),
) -> io::Result<()> {
    let mut keys = vec![0_u64; BATCH];
    let mut values = vec![T::default(); BATCH];
    let (mut after, mut next) = (0_u64, 0_u64);
    let mut is_first = true;
    loop {
        let mut batch = MapBatch {
            after: if is_first { 0 } else { &raw const after as u64 },
            next: &raw mut next as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: BATCH as u32,
            map: number(map),
            ..MapBatch::default()
        };
        before();
        // SAFETY: the places live during the call, have room for as many as are asked for, and are of the
        // map's sizes; any bytes are a `T`.
        let result = unsafe { call(MAP_BATCH, &mut batch) };
        let is_last = match result {
            Ok(_) => false,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            Err(error) => return Err(error),
        };
        for (key, value) in keys.iter().zip(&values).take(batch.count as usize) {
            each(*key, value);
        }
        if is_last {
            return Ok(());
        }
        (after, is_first) = (next, false);
    }
}

/// A type that any bytes are one of.
///
/// # Safety
/// It has no padding, and its layout is that of C.
pub(crate) unsafe trait Plain: Clone + Default {}

/// Makes the kernel count what programs take, until what this gives is closed.
pub(crate) fn count_costs() -> io::Result<OwnedFd> {
    let mut of_runs = [0_u32; 2];
    // SAFETY: it has no addresses.
    let descriptor = unsafe { call(ENABLE_STATS, &mut of_runs) }?;
    // SAFETY: the kernel has just given this descriptor to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// What a program has taken.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Costs {
    /// Runs, and their time in ns.
    pub runs: u64,
    pub ns: u64,
    /// Events for which it could not run.
    pub missed: u64,
}

/// What a program has taken so far, as far as that is counted.
pub(crate) fn costs(program: BorrowedFd<'_>) -> Costs {
    let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| *name == key)?.1.trim().parse::<u64>().ok()
    };
    Costs {
        runs: value("run_cnt").unwrap_or_default(),
        ns: value("run_time_ns").unwrap_or_default(),
        missed: value("recursion_misses").unwrap_or_default(),
    }
}
