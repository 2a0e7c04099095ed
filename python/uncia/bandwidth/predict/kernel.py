"""The kernel's bandwidth control for one thread on one CPU, many tasks at once, in whole ns.

What bandwidth control does (kernel/sched/fair.c, Linux 5.4 to 6.17) as far as one thread sees it:

* A group's pool is refilled to its quota at every multiple of the period
  (``sched_cfs_period_timer``).
* The CPU's own pool is charged at every tick with what ran since the last one
  (``account_cfs_rq_runtime``). Once it is used up it takes what it owes and a slice from the
  group's pool, as far as that goes (``assign_cfs_rq_runtime``); if it still owes, the thread is
  throttled.
* A refill pays debts first (``distribute_cfs_runtime``); the thread runs on when none are left,
  after several refills if need be.
* A task that arrives after an idle time finds the group's pool full, and a timer that has kept its
  grid. Debts have been paid, which leaves the CPU 1 ns (``distribute_cfs_runtime``); without debts
  the CPU keeps what it has, 1 ms at most (``return_cfs_rq_runtime``). A CPU that has nothing, as in
  a new group, takes a slice at once (``check_enqueue_throttle``).

Both timers stand on multiples of their interval on the monotonic clock. Where both expire at once
the refill comes first: of two timers with the same expiry, the one that was armed earlier runs
first, and that is the one with the longer interval. So what ran since the last tick is charged to
the *new* quota, even if all of it ran before the refill.

The simulator (`uncia.bandwidth.simulate`) knows far more: other threads, CPUs, schedulers, bursts.
This module knows what a prediction needs, for hundreds of thousands of tasks within seconds. Of a
single thread both say the same, to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

PAID: Final = 1
"""What a CPU has once its debts are paid, in ns."""

KEPT_NS: Final = 1_000_000
"""What a CPU keeps at most when its thread sleeps: ``min_cfs_rq_runtime``."""


@dataclass(frozen=True)
class Kernel:
    """Intervals in ns.

    Attributes:
        period_ns: between refills.
        tick_ns: between ticks.
        slice_ns: what a CPU takes from the pool at once, beyond what it owes.
    """

    period_ns: int
    tick_ns: int
    slice_ns: int

    @property
    def grid_ns(self) -> int:
        """After so long ticks and refills are as they were: the range of phases."""
        return int(np.lcm(self.period_ns, self.tick_ns))


def durations(kernel: Kernel, begin: Ints, work: Ints, quota: Ints) -> Ints:
    """Wall-clock time from a task's arrival until it has had its CPU time, if the CPU has no more
    than debts leave it (`PAID`).

    Args:
        kernel: the intervals.
        begin: when it arrives, ns on a clock that has a refill and a tick at 0; shape (n,).
        work: CPU time that it needs, ns, above 0; shape (n,).
        quota: CPU time in each period, ns, above 0; shape (n,). A whole period or more: no limit.

    Returns:
        ns, shape (n,).
    """
    return followed(kernel, begin, work, quota, np.full(work.shape, PAID, dtype=np.int64))[0]


def followed(kernel: Kernel, begin: Ints, work: Ints, quota: Ints, has: Ints) -> tuple[Ints, Ints]:
    """As `durations`, from what a CPU has to what it has left.

    Args:
        kernel: the intervals.
        begin: as there.
        work: as there.
        quota: as there.
        has: what the CPU has of earlier slices when the task arrives, ns; 0 in a new group.

    Returns:
        Durations, and what the CPU has left for a task that comes after an idle time, long enough
        to pay all debts; ns, shape (n,) each.
    """
    period, tick = kernel.period_ns, kernel.tick_ns
    result, kept = work.astype(np.int64, copy=True), has.astype(np.int64, copy=True)
    place = np.flatnonzero(quota < period)
    quota = quota[place].astype(np.int64)
    start = begin[place].astype(np.int64)
    now, left = start.copy(), result[place]
    own, unpaid = kept[place], np.zeros_like(now)
    taken = np.minimum(quota, kernel.slice_ns) * (own <= 0)
    pool, own = quota - taken, own + taken
    refill, next_tick = (now // period + 1) * period, (now // tick + 1) * tick
    while place.size:
        event = np.minimum(refill, next_tick)
        done = left <= event - now
        if done.any():
            result[place[done]] = (now + left - start)[done]
            kept[place[done]] = _kept(kernel, (own - unpaid - left)[done], pool[done])
            going = ~done
            place, quota, start, now, left, pool, own, unpaid, refill, next_tick, event = (
                one[going]
                for one in (
                    place,
                    quota,
                    start,
                    now,
                    left,
                    pool,
                    own,
                    unpaid,
                    refill,
                    next_tick,
                    event,
                )
            )
        ran = event - now
        left, unpaid, now = left - ran, unpaid + ran, event
        refilled = refill == now
        pool = np.where(refilled, quota, pool)
        refill = refill + refilled * period
        ticked = next_tick == now
        next_tick = next_tick + ticked * tick
        own, unpaid = own - ticked * unpaid, unpaid * ~ticked
        short = ticked & (own <= 0)
        taken = np.minimum(pool, kernel.slice_ns - own) * short
        pool, own = pool - taken, own + taken
        held = np.flatnonzero(short & (own <= 0))
        if held.size:
            # Each refill goes to the debt, and 1 ns more has to be left.
            owed = 1 - own[held]
            refills = -(-owed // quota[held])
            pool[held] = refills * quota[held] - owed
            own[held] = 1
            now[held] = refill[held] + (refills - 1) * period
            refill[held] = now[held] + period
            next_tick[held] = (now[held] // tick + 1) * tick
    return result, kept


def _kept(kernel: Kernel, own: Ints, pool: Ints) -> Ints:
    """What a CPU has after an idle time, of what it had when its thread fell asleep."""
    own = own + np.minimum(pool, kernel.slice_ns - own) * (own <= 0)
    return np.where(own <= 0, PAID, np.minimum(own, KEPT_NS))
