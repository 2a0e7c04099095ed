"""The machine's noise: CPU time stolen or used by others, pressure, and late timers."""

from __future__ import annotations

import os
import re
import time
from dataclasses import asdict, dataclass
from typing import Final

from uncia.doctor.host import Host
from uncia.doctor.report import Check

STEAL_PERCENT: Final = 1.0
"""More than this is a warning: at 1 % a hundredth of all requests may wait for a whole time slice
of the host, and that is where a p99 is read."""

BACKGROUND_PERCENT: Final = 10.0
"""More than this, of all CPUs, is a warning: on two cores it is a fifth of one of them."""

PRESSURE_PERCENT: Final = 10.0
"""More than this is a warning: some task waited for the resource in a tenth of the time or more."""

LATE_US: Final = 1_000.0
"""A 99th percentile above this is a warning: the load generator must keep its schedule to 1 ms."""

_SLEEP_S: Final = 0.001
_RESOURCES: Final = ("cpu", "memory", "io")


@dataclass(frozen=True)
class Reading:
    """Counters at one moment; CPU times in clock ticks over all CPUs, pressure totals in us.

    Attributes:
        time_s: monotonic time.
        busy: user, nice, system, irq and softirq (guest time is within user).
        idle, iowait, steal: as in ``/proc/stat``.
        ours: CPU time of Uncia's own processes, with their children that ended.
        pressure: per resource, the time in which some task waited for it.
    """

    time_s: float
    busy: int
    idle: int
    iowait: int
    steal: int
    ours: int
    pressure: dict[str, int]


@dataclass(frozen=True)
class Shares:
    """Shares between two readings, in per cent of all CPU time (pressure: of the time)."""

    busy_percent: float | None
    background_percent: float | None
    steal_percent: float | None
    iowait_percent: float | None
    pressure_percent: dict[str, float]


@dataclass(frozen=True)
class Noise:
    """The noise in a period of time; None for what the machine does not report.

    Attributes:
        duration_s: how long it was measured.
        steal_percent: CPU time that the host kept for others.
        background_percent: CPU time that processes other than this one used.
        iowait_percent: idle CPU time with input or output outstanding.
        cpu_pressure_percent, memory_pressure_percent, io_pressure_percent: time in which some task
            waited for the resource.
        load_1m: the load average of a minute.
        timer_late_p50_us, timer_late_p99_us: how late a sleep of 1 ms woke up.
    """

    duration_s: float
    steal_percent: float | None
    background_percent: float | None
    iowait_percent: float | None
    cpu_pressure_percent: float | None
    memory_pressure_percent: float | None
    io_pressure_percent: float | None
    load_1m: float | None
    timer_late_p50_us: float | None
    timer_late_p99_us: float | None

    def as_dict(self) -> dict[str, float | None]:
        """Return the noise as plain data."""
        return asdict(self)


def read(host: Host, ours: set[int]) -> Reading | None:
    """Return the counters of this moment; None where there is no ``/proc/stat``.

    Args:
        host: the machine.
        ours: processes that, with all their descendants, are not background.
    """
    match = re.search(r"^cpu +(.*)$", host.read("/proc/stat") or "", re.MULTILINE)
    if match is None:
        return None
    times = [int(field) for field in match.group(1).split()]
    user, nice, system, idle, iowait, irq, softirq, steal = (*times, *[0] * 8)[:8]
    # Beside the clock: to look at all processes takes long where the CPU is busy.
    time_s = time.monotonic()
    pressure = {name: total for name in _RESOURCES if (total := _pressure(host, name)) is not None}
    return Reading(
        time_s=time_s,
        busy=user + nice + system + irq + softirq,
        idle=idle,
        iowait=iowait,
        steal=steal,
        ours=tree_ticks(host, ours),
        pressure=pressure,
    )


def shares(before: Reading, after: Reading) -> Shares:
    """Return the shares of the time between two readings."""
    busy = after.busy - before.busy
    steal = after.steal - before.steal
    iowait = after.iowait - before.iowait
    total = busy + steal + iowait + after.idle - before.idle
    seconds = after.time_s - before.time_s

    def percent(ticks: int) -> float | None:
        return 100 * ticks / total if total > 0 else None

    # The kernel samples the busy time of CPUs at ticks and counts that of processes exactly, so the
    # difference of the two may come out slightly below zero.
    others = max(0, busy - max(0, after.ours - before.ours))
    return Shares(
        busy_percent=percent(busy),
        background_percent=percent(others),
        steal_percent=percent(steal),
        iowait_percent=percent(max(0, iowait)),
        pressure_percent={
            # What was read later than the clock may be of a longer time.
            name: min(100.0, (after.pressure[name] - before.pressure[name]) / (seconds * 1e6) * 100)
            for name in before.pressure.keys() & after.pressure.keys()
            if seconds > 0
        },
    )


def tree_ticks(host: Host, roots: set[int]) -> int:
    """Return the CPU time in ticks of processes and all their descendants, ended ones included.

    A process that ended counts from when its parent has waited for it.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    proc = host.root / "proc"
    try:
        pids = [int(entry.name) for entry in os.scandir(proc) if entry.name.isdigit()]
    except OSError:
        return 0
    for pid in pids:
        stat = host.read(f"/proc/{pid}/stat")
        if stat is None:
            continue  # it ended meanwhile
        # The name, in parentheses, may itself hold spaces and parentheses.
        fields = stat[stat.rfind(")") + 2 :].split()
        parents[pid] = int(fields[1])
        ticks[pid] = sum(int(field) for field in fields[11:15])
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    total = 0
    visited: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in visited:
            continue
        visited.add(pid)
        total += ticks.get(pid, 0)
        waiting += children.get(pid, [])
    return total


def measure(host: Host, duration_s: float) -> Noise:
    """Measure the noise for ``duration_s`` seconds."""
    from uncia.stats.quantiles import quantiles_of

    ours = {os.getpid()}
    before = read(host, ours)
    delays_us = _timer_delays_us(duration_s)
    p50, p99 = quantiles_of(delays_us, [0.5, 0.99]) if delays_us else (None, None)
    after = read(host, ours)
    measured = shares(before, after) if before is not None and after is not None else None
    load = (host.read("/proc/loadavg") or "").split()
    pressure = measured.pressure_percent if measured else {}
    return Noise(
        duration_s=duration_s,
        steal_percent=measured.steal_percent if measured else None,
        background_percent=measured.background_percent if measured else None,
        iowait_percent=measured.iowait_percent if measured else None,
        cpu_pressure_percent=pressure.get("cpu"),
        memory_pressure_percent=pressure.get("memory"),
        io_pressure_percent=pressure.get("io"),
        load_1m=float(load[0]) if load else None,
        timer_late_p50_us=p50,
        timer_late_p99_us=p99,
    )


def noise_checks(noise: Noise) -> list[Check]:
    """Return checks of the noise, with what follows for results."""
    checks = []
    if noise.steal_percent is not None:
        noisy = noise.steal_percent > STEAL_PERCENT
        checks.append(
            Check(
                "steal",
                "warn" if noisy else "ok",
                f"The host kept {noise.steal_percent:.1f} % of the CPU time for others (steal).",
                "Tail latencies are longer than the platform's own." if noisy else "",
                "Measure on a dedicated machine, or repeat the run and compare." if noisy else "",
            )
        )
    if noise.background_percent is not None:
        noisy = noise.background_percent > BACKGROUND_PERCENT
        checks.append(
            Check(
                "background",
                "warn" if noisy else "ok",
                f"Other processes used {noise.background_percent:.1f} % of the CPU time.",
                "They compete with the functions and with the load generator." if noisy else "",
                "End what else runs, or wait until it is done." if noisy else "",
            )
        )
    pressures = {
        "the CPU": noise.cpu_pressure_percent,
        "memory": noise.memory_pressure_percent,
        "input and output": noise.io_pressure_percent,
    }
    reported = {name: value for name, value in pressures.items() if value is not None}
    if reported:
        high = [name for name, value in reported.items() if value > PRESSURE_PERCENT]
        times = ", ".join(f"for {name} {value:.1f} %" for name, value in reported.items())
        checks.append(
            Check(
                "pressure",
                "warn" if high else "ok",
                f"Tasks waited {times} of the time.",
                f"There is too little of {' and '.join(high)} for what runs here." if high else "",
                "End what else runs, or take a larger machine." if high else "",
            )
        )
    else:
        checks.append(
            Check(
                "pressure",
                "missing",
                "The kernel does not report pressure (PSI).",
                "Shortage of CPU, memory or input and output during a run goes unnoticed.",
                "Boot a kernel with CONFIG_PSI and psi=1.",
            )
        )
    if noise.timer_late_p99_us is not None and noise.timer_late_p50_us is not None:
        noisy = noise.timer_late_p99_us > LATE_US
        checks.append(
            Check(
                "timer",
                "warn" if noisy else "ok",
                f"A sleep of 1 ms wakes up {noise.timer_late_p50_us:.0f} us late (median), "
                f"{noise.timer_late_p99_us:.0f} us (p99).",
                "Requests are sent later than scheduled; look at the generator's lag in the report."
                if noisy
                else "",
                "End what else runs, or take a machine with more CPUs." if noisy else "",
            )
        )
    return checks


def _pressure(host: Host, resource: str) -> int | None:
    text = host.read(f"/proc/pressure/{resource}") or ""
    match = re.search(r"^some .*total=(\d+)", text, re.MULTILINE)
    return int(match.group(1)) if match else None


def _timer_delays_us(duration_s: float) -> list[float]:
    """Return how late, in us, sleeps of 1 ms woke up."""
    delays_us = []
    now = time.monotonic()
    end = now + duration_s
    while now < end:
        time.sleep(min(_SLEEP_S, end - now))
        woken = time.monotonic()
        delays_us.append((woken - now - min(_SLEEP_S, end - now)) * 1e6)
        now = woken
    return delays_us
