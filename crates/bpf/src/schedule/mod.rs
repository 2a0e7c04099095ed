//! What the scheduler does, by control group: the programs of `kernel/schedule.bpf.c`, and looks at what
//! they have counted.

mod integral;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use aya::maps::{Map, MapType};
use aya::programs::{BtfTracePoint, ProgramFd, RawTracePoint};
use aya::{Btf, Ebpf, EbpfLoader};
use nix::sys::resource::{Resource, setrlimit};
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::kernel::{self, Costs, Plain};
use crate::names::{Names, Place};
use crate::support;
use integral::{Clock, Integral};

/// Bins of a histogram, and how many there are in each doubling, as a power of 2 (`BINS` and `BINS_LOG2` of
/// the programs).
const BINS: usize = 320;
const BINS_LOG2: usize = 3;
/// Looks after which groups that are gone are forgotten.
const LOOKS: u64 = 50;
/// Of so many looks, one measures what a run of the programs takes.
const MEASURED_LOOKS: u64 = 16;
/// Programs by their names, and the tracepoints that they are attached to.
const PROGRAMS: [(&str, &str); 3] =
    [("switched", "sched_switch"), ("woke", "sched_wakeup"), ("began", "sched_wakeup_new")];
const REFRESH: &str = "refresh";
/// What is added between two looks has to be less than a sum can tell: so often there is one, asked for or not.
pub(crate) const LONGEST: Duration = Duration::from_millis(500);
/// Threads of which the programs know at once, but for those on a CPU.
const MOST_THREADS: u64 = 65_536;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../kernel/schedule.bpf.o");

/// Programs that count while this lives.
pub(crate) struct Schedule {
    programs: Ebpf,
    names: Names,
    clock: Clock,
    /// When it was looked at last, in ns of the kernel's clock.
    looked: u64,
    cpus: Vec<u32>,
    states: HashMap<u64, State>,
    reported: Totals,
    looks: u64,
    /// What a run of the programs takes in ns, as it was measured last.
    run_ns: f64,
    /// The kernel measures that while this is open, and what it had measured before.
    measuring: Option<(OwnedFd, Costs)>,
}

/// A group's counts in the kernel (`struct group`).
#[repr(C)]
#[derive(Clone)]
struct Counts {
    on_cpu: u64,
    queued: u64,
    waits: u64,
    waited: u64,
    involuntary: u64,
    bins: [u32; BINS],
}

// SAFETY: it has no padding, as five numbers of eight bytes are followed by an even number of four.
unsafe impl Plain for Counts {}

impl Default for Counts {
    fn default() -> Self {
        Self { on_cpu: 0, queued: 0, waits: 0, waited: 0, involuntary: 0, bins: [0; BINS] }
    }
}

/// What a CPU does (`struct cpu`).
#[repr(C)]
#[derive(Clone, Default)]
struct Cpu {
    group: u64,
    thread: u64,
    since: u64,
    known: u64,
    events: u64,
}

// SAFETY: it has no padding.
unsafe impl Plain for Cpu {}

/// A group as it was looked at last.
#[derive(Default)]
struct State {
    counts: Counts,
    on_cpu: Integral,
    queued: Integral,
    /// Threads of it that run or wait.
    threads: u64,
}

/// Numbers that only grow, as they were reported.
#[derive(Default, Clone, Copy)]
struct Totals {
    own_ns: u64,
    lost: u64,
    events: u64,
}

/// What was counted between two looks.
#[derive(Debug, Serialize)]
pub(crate) struct Look {
    /// When, in ns of the monotonic clock.
    now: u64,
    /// What this process and the programs in the kernel used.
    cpu_ns: u64,
    /// Events that were not counted.
    lost: u64,
    /// Runs of the programs.
    events: u64,
    /// Groups of which something was.
    groups: Vec<Growth>,
}

impl Look {
    /// Adds what a later look has counted.
    pub(crate) fn add(&mut self, later: Self) {
        self.now = later.now;
        self.cpu_ns += later.cpu_ns;
        self.lost += later.lost;
        self.events += later.events;
        let mut groups: HashMap<_, _> = self.groups.drain(..).map(|it| (it.id, it)).collect();
        for growth in later.groups {
            match groups.entry(growth.id) {
                Entry::Occupied(mut earlier) => earlier.get_mut().add(growth),
                Entry::Vacant(place) => drop(place.insert(growth)),
            }
        }
        self.groups = groups.into_values().collect();
    }
}

/// What was counted of a group between two looks; times in ns.
#[derive(Debug, Default, Serialize)]
struct Growth {
    #[serde(skip)]
    id: u64,
    /// Its path in the tree; `None`: that is not known, or it is outside of what is mounted.
    path: Option<String>,
    /// Whether it may have been anywhere in the tree: it was gone before its path was looked up.
    is_gone: bool,
    /// The time of threads on a CPU, summed.
    on_cpu_ns: u64,
    /// The time of threads that waited for one, summed.
    queued_ns: u64,
    /// Waits that have ended.
    waits: u64,
    waited_ns: u64,
    /// How often threads lost their CPU though they could go on.
    involuntary: u64,
    /// Of waits that have ended, how many were up to so long, and longer than the next shorter bin.
    bins: Vec<(u64, u64)>,
}

impl Growth {
    fn add(&mut self, later: Self) {
        self.on_cpu_ns += later.on_cpu_ns;
        self.queued_ns += later.queued_ns;
        self.waits += later.waits;
        self.waited_ns += later.waited_ns;
        self.involuntary += later.involuntary;
        let mut bins: BTreeMap<u64, u64> = self.bins.drain(..).collect();
        for (upper, count) in later.bins {
            *bins.entry(upper).or_default() += count;
        }
        self.bins = bins.into_iter().collect();
    }
}

impl Schedule {
    /// Loads the programs, and attaches them. Fails with a sentence where that cannot be.
    pub(crate) fn start(object: Option<&[u8]>, tree: Option<&Path>) -> Result<Self, String> {
        // Kernels before 5.11 count maps as locked memory.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, libc::RLIM_INFINITY, libc::RLIM_INFINITY);
        let names = Names::new(tree);
        let btf = support::types()?;
        let loaded = monotonic_ns();
        let clock = Clock::new(loaded);
        let mut programs = EbpfLoader::new()
            .btf(Some(&btf))
            .set_global("offset_ns", &clock.offset, true)
            .load(object.unwrap_or(OBJECT))
            .map_err(|error| support::refused("its maps", &error))?;
        check_maps(&programs)?;
        // Without it there is a sentence of the programs first: rights are missing for more than names.
        load(&mut programs, &btf)?;
        let cpus = online()?;
        let mut schedule = Self {
            programs,
            names: names?,
            clock,
            looked: loaded,
            cpus,
            states: HashMap::new(),
            reported: Totals::default(),
            looks: 0,
            run_ns: 0.0,
            measuring: None,
        };
        schedule.look().map_err(|error| format!("the kernel runs no program: {error}"))?;
        schedule.measure().map_err(|error| format!("costs cannot be measured: {error}"))?;
        Ok(schedule)
    }

    /// What was counted since the last look.
    pub(crate) fn look(&mut self) -> io::Result<Look> {
        let threads = threads()?.min(MOST_THREADS + self.cpus.len() as u64);
        self.clock.check(threads, self.looked, monotonic_ns()).map_err(io::Error::other)?;
        let program = self.program(REFRESH)?;
        for cpu in &self.cpus {
            match kernel::run_on(program, *cpu) {
                // It went offline.
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {}
                result => result?,
            }
        }
        let mut groups = Vec::new();
        let mut now = monotonic_ns();
        let clock = std::cell::Cell::new(now);
        let map = map(&self.programs, "groups")?;
        kernel::read_all(
            map,
            || clock.set(monotonic_ns()),
            |id, counts: &Counts| {
                now = clock.get();
                let at = self.clock.at(now);
                groups.extend(add(&mut self.states, &mut self.names, id, counts, at));
            },
        )?;
        self.looked = now;
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS) {
            let at = self.clock.at(now);
            groups.extend(forget(&mut self.states, &mut self.names, map, at));
        }
        if self.measuring.is_some() || self.looks.is_multiple_of(MEASURED_LOOKS) {
            self.measure()?;
        }
        let totals = self.totals()?;
        let before = std::mem::replace(&mut self.reported, totals);
        let events = totals.events.saturating_sub(before.events);
        let own_ns = totals.own_ns.saturating_sub(before.own_ns);
        Ok(Look {
            now,
            cpu_ns: own_ns + (events as f64 * self.run_ns) as u64,
            lost: totals.lost.saturating_sub(before.lost),
            events,
            groups,
        })
    }

    /// Begins to measure what a run of the programs takes, or ends that. It takes longer while it is measured,
    /// so that is not all the time.
    fn measure(&mut self) -> io::Result<()> {
        let now = self.costs()?;
        let Some((_, before)) = self.measuring.take() else {
            self.measuring = kernel::count_costs().ok().map(|it| (it, now));
            return Ok(());
        };
        let runs = now.runs.saturating_sub(before.runs);
        if runs > 0 {
            self.run_ns = now.ns.saturating_sub(before.ns) as f64 / runs as f64;
        }
        Ok(())
    }

    fn costs(&self) -> io::Result<Costs> {
        let mut sum = Costs::default();
        for (name, _) in PROGRAMS {
            let costs = kernel::costs(self.program(name)?);
            sum.runs += costs.runs;
            sum.ns += costs.ns;
            sum.missed += costs.missed;
        }
        Ok(sum)
    }

    fn totals(&self) -> io::Result<Totals> {
        let own = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
        let cpus = kernel::read_cpus::<Cpu>(map(&self.programs, "cpus")?)?;
        Ok(Totals {
            own_ns: own.tv_sec() as u64 * 1_000_000_000 + own.tv_nsec() as u64,
            lost: kernel::read_number(map(&self.programs, "lost")?, 0)? + self.costs()?.missed,
            events: cpus.iter().map(|cpu| cpu.events).sum(),
        })
    }

    fn program(&self, name: &str) -> io::Result<BorrowedFd<'_>> {
        let program = self.programs.program(name);
        let descriptor: Option<&ProgramFd> = program.and_then(|it| it.fd().ok());
        descriptor.map(ProgramFd::as_fd).ok_or_else(|| absent(name))
    }
}

fn load(programs: &mut Ebpf, btf: &Btf) -> Result<(), String> {
    for (name, tracepoint) in PROGRAMS {
        let program = programs.program_mut(name);
        let program: Option<&mut BtfTracePoint> = program.and_then(|it| it.try_into().ok());
        let program = program.ok_or_else(|| absent(name).to_string())?;
        program
            .load(tracepoint, btf)
            .map_err(|error| support::refused(&format!("the program for {tracepoint}"), &error))?;
    }
    let program = programs.program_mut(REFRESH);
    let program: Option<&mut RawTracePoint> = program.and_then(|it| it.try_into().ok());
    let program = program.ok_or_else(|| absent(REFRESH).to_string())?;
    program.load().map_err(|error| support::refused("the program for looks", &error))?;
    for (name, tracepoint) in PROGRAMS {
        let program = programs.program_mut(name);
        let program: Option<&mut BtfTracePoint> = program.and_then(|it| it.try_into().ok());
        let program = program.ok_or_else(|| absent(name).to_string())?;
        program
            .attach()
            .map_err(|error| support::refused(&format!("to watch {tracepoint}"), &error))?;
    }
    Ok(())
}

fn absent(name: &str) -> io::Error {
    io::Error::other(format!("the object file has no {name}"))
}

fn map<'a>(programs: &'a Ebpf, name: &str) -> io::Result<BorrowedFd<'a>> {
    match programs.map(name) {
        Some(Map::HashMap(data) | Map::Array(data) | Map::PerCpuArray(data)) => {
            Ok(data.fd().as_fd())
        }
        _ => Err(absent(name)),
    }
}

/// Refuses maps of another form than what is read of them: those of another version's object file.
fn check_maps(programs: &Ebpf) -> Result<(), String> {
    let forms = [
        ("groups", MapType::Hash, size_of::<u64>(), size_of::<Counts>()),
        ("cpus", MapType::PerCpuArray, size_of::<u32>(), size_of::<Cpu>()),
        ("lost", MapType::Array, size_of::<u32>(), size_of::<u64>()),
    ];
    for (name, kind, key, value) in forms {
        let map = programs.map(name).ok_or_else(|| absent(name).to_string())?;
        let (Map::HashMap(data) | Map::Array(data) | Map::PerCpuArray(data)) = map else {
            return Err(absent(name).to_string());
        };
        let info = data.info().map_err(|error| support::refused("to describe a map", &error))?;
        let sizes = (info.key_size() as usize, info.value_size() as usize);
        if info.map_type().ok() != Some(kind) || sizes != (key, value) {
            return Err(format!(
                "the object file is of another version: its map {name} has keys of {} bytes and values of {}, \
                 not of {key} and {value}",
                sizes.0, sizes.1
            ));
        }
    }
    Ok(())
}

/// What a group's counts grew by, at `present` of the programs' clock; `None`: nothing.
fn add(
    states: &mut HashMap<u64, State>,
    names: &mut Names,
    id: u64,
    counts: &Counts,
    present: u64,
) -> Option<Growth> {
    let state = states.entry(id).or_default();
    let (on_cpu_ns, on_cpu) = state.on_cpu.look(counts.on_cpu, present);
    let (queued_ns, queued) = state.queued.look(counts.queued, present);
    state.threads = on_cpu + queued;
    let before = &mut state.counts;
    let waits = counts.waits.wrapping_sub(before.waits);
    let involuntary = counts.involuntary.wrapping_sub(before.involuntary);
    if on_cpu_ns == 0 && queued_ns == 0 && waits == 0 && involuntary == 0 {
        return None;
    }
    let bins = before.bins.iter().zip(&counts.bins).enumerate();
    let grown = bins.map(|(index, (before, now))| (upper(index), now.wrapping_sub(*before).into()));
    let (path, is_gone) = match names.place(id) {
        Ok(Place::At(path)) => (Some(path), false),
        Ok(Place::Outside) => (None, false),
        Ok(Place::Gone) | Err(_) => (None, true),
    };
    let growth = Growth {
        id,
        path,
        is_gone,
        on_cpu_ns,
        queued_ns,
        waits,
        waited_ns: counts.waited.wrapping_sub(before.waited),
        involuntary,
        bins: grown.filter(|(_, count)| *count > 0).collect(),
    };
    before.clone_from(counts);
    Some(growth)
}

/// Makes room of groups that are gone; gives what they still had.
fn forget(
    states: &mut HashMap<u64, State>,
    names: &mut Names,
    map: BorrowedFd<'_>,
    present: u64,
) -> Vec<Growth> {
    let idle = states.iter().filter(|(_, state)| state.threads == 0).map(|(id, _)| *id);
    let gone: Vec<_> = idle.filter(|id| names.is_gone(*id)).collect();
    let mut rest = Vec::new();
    for id in gone {
        // What the kernel still has is counted from where it was.
        if let Ok(counts) = kernel::take::<Counts>(map, id) {
            rest.extend(add(states, names, id, &counts, present));
            states.remove(&id);
            names.forget(id);
        }
    }
    rest
}

/// The longest wait of a bin: an eighth above its shortest at most.
fn upper(bin: usize) -> u64 {
    let bins = 1 << BINS_LOG2;
    if bin < 2 * bins {
        return bin as u64;
    }
    ((bins + bin % bins + 1) as u64) << (bin / bins - 1)
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |it| it.tv_sec() as u64 * 1_000_000_000 + it.tv_nsec() as u64)
}

/// How many threads the machine has.
fn threads() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let threads = text.split_whitespace().nth(3).and_then(|it| it.split_once('/')?.1.parse().ok());
    threads.ok_or_else(|| io::Error::other("/proc/loadavg does not say how many threads there are"))
}

/// The CPUs of a list such as "0-3,6".
fn online() -> Result<Vec<u32>, String> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let ranges = text.trim().split(',').map(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.parse::<u32>().ok()?..=to.parse().ok()?)
    });
    let cpus = ranges.collect::<Option<Vec<_>>>().map(|it| it.into_iter().flatten().collect());
    cpus.ok_or_else(|| "the kernel does not say which CPUs it has".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the programs choose a bin.
    fn bin(value: u64) -> usize {
        if value < 8 {
            return value as usize;
        }
        let shift = value.ilog2() as usize - BINS_LOG2;
        (((shift + 1) << BINS_LOG2) + (value >> shift) as usize % 8).min(BINS - 1)
    }

    #[test]
    fn looks_are_added_by_group() {
        let growth = |id, on_cpu_ns, bins: &[(u64, u64)]| Growth {
            id,
            path: Some(format!("/{id}")),
            on_cpu_ns,
            waits: 1,
            bins: bins.to_vec(),
            ..Growth::default()
        };
        let look = |now, groups| Look { now, cpu_ns: 1, lost: 2, events: 3, groups };
        let mut sum = look(10, vec![growth(1, 5, &[(8, 1)]), growth(2, 7, &[])]);
        sum.add(look(20, vec![growth(3, 1, &[]), growth(1, 6, &[(4, 1), (8, 2)])]));
        assert_eq!((sum.now, sum.cpu_ns, sum.lost, sum.events), (20, 2, 4, 6));
        sum.groups.sort_by_key(|it| it.id);
        let rows: Vec<_> = sum.groups.iter().map(|it| (it.id, it.on_cpu_ns, it.waits)).collect();
        assert_eq!(rows, [(1, 11, 2), (2, 7, 1), (3, 1, 1)]);
        assert_eq!(sum.groups[0].bins, [(4, 1), (8, 3)]);
    }

    #[test]
    fn bins_end_an_eighth_above_what_is_in_them_at_most() {
        for value in (0..5_000).chain([123_456_789, u64::from(u32::MAX), 4_000_000_000_000]) {
            let end = upper(bin(value));
            assert!(end >= value && (end - value) * 8 <= value.max(8), "{value} in {end}");
        }
    }
}
