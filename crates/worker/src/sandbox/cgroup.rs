//! Control groups of either version, by the names that the sandbox uses.

pub(super) use uncia_cgroup::{
    Controller, Counters, Cpu, CpuShare, Error as CgroupError, Group, Layout, Limits,
    MemoryNotices, Mounts, Obstacle, PERIODS_US, PerCpu, PerfEvents, PerfReading, Running, Thread,
    Threads, Throttling, Version, Wait, Waits, clear_tree, discover, discover_to_pin, everywhere,
    hold, thaw_tree, worker_name,
};
