//! Control groups of either version, by the names that the sandbox uses.

pub(super) use uncia_cgroup::{
    Controller, Counters, Cpu, CpuShare, Error as CgroupError, Group, Layout, Limits,
    MemoryNotices, Obstacle, PERIODS_US, PerCpu, Running, Thread, Threads, Throttling, Version,
    clear_tree, discover, discover_to_pin, everywhere, hold, thaw_tree, worker_name,
};
