"""CPU limits of containers, in Kubernetes' words: what a limit does to requests.

A limit is a quota in a period of 100 ms, unless the kubelet is configured otherwise; what a
container requests is its weight when CPUs are short (kubelet, ``pkg/kubelet/cm/helpers_linux.go``:
`MilliCPUToQuota`, `MilliCPUToShares`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from uncia.bandwidth import closed_form
from uncia.bandwidth.closed_form import MIN_QUOTA, Control
from uncia.bandwidth.cpu_time import CpuTime, weighted
from uncia.errors import UnciaError
from uncia.units import NS_PER_MS, format_duration

PERIOD: Final = 100 * NS_PER_MS
"""The kubelet's `cpuCFSQuotaPeriod` in ns, unless configured otherwise."""

QUANTILES: Final = (Fraction(1, 2), Fraction(95, 100), Fraction(99, 100))
"""Quantiles of durations: all CPU times, begun at any time in a period."""

_MILLI: Final = 1_000
_CASES: Final = 2_000
"""Cases (CPU times and phases) that durations with a burst are computed from."""

_MIN_SHARES: Final = 2
_MAX_SHARES: Final = 262_144
_MAX_WEIGHT: Final = 10_000


@dataclass(frozen=True)
class Limit:
    """A limit of CPU time: a quota in a period.

    Attributes:
        quota_ns: CPU time in each period.
        period_ns: the period.
        burst_ns: unused quota that the group may save for later (``cpu.max.burst``).
    """

    quota_ns: int
    period_ns: int = PERIOD
    burst_ns: int = 0

    def __post_init__(self) -> None:
        closed_form.check_period(self.period_ns)
        if self.burst_ns > self.quota_ns:
            raise UnciaError(
                f"a burst of {format_duration(self.burst_ns)} is more than the quota of"
                f" {format_duration(self.quota_ns)}, which the kernel refuses",
                "Give at most the quota.",
            )

    @property
    def milli_cpu(self) -> int:
        """The limit in thousandths of a CPU, rounded up."""
        return -(-self.quota_ns * _MILLI // self.period_ns)

    @property
    def cpu_max(self) -> str:
        """What stands in the group's ``cpu.max``, in us."""
        return f"{self.quota_ns // 1_000} {self.period_ns // 1_000}"


def limit_of(milli_cpu: int, period_ns: int = PERIOD, burst_ns: int = 0) -> Limit:
    """Make the limit of so many thousandths of a CPU; its quota is at least 1 ms, as the kubelet's.

    Raises:
        UnciaError: the kernel does not take the period or the burst.
    """
    return Limit(max(MIN_QUOTA, milli_cpu * period_ns // _MILLI), period_ns, burst_ns)


@dataclass(frozen=True)
class Effect:
    """What a limit does to a request that comes alone, at any time in a period.

    Attributes:
        limit: the limit.
        free_ns: mean duration without a limit.
        mean_ns: mean duration.
        quantiles_ns: by the shares of `QUANTILES`.
        throttled: the share of requests that wait for quota.
    """

    limit: Limit
    free_ns: Fraction
    mean_ns: Fraction
    quantiles_ns: dict[Fraction, int]
    throttled: Fraction


def parse_cpu(text: str, option: str = "--cpu") -> int:
    """Parse CPUs as Kubernetes writes them, ``250m``, ``0.25`` or ``2``, in thousandths.

    Raises:
        UnciaError: the text is no such quantity, is 0, or finer than a thousandth.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(m?)", text.strip())
    if match is None:
        raise UnciaError(
            f"{option}: {text!r} is no amount of CPUs", "Write 250m, 0.25 or 2, as in Kubernetes."
        )
    milli = Fraction(match.group(1)) * (1 if match.group(2) else _MILLI)
    if milli.denominator != 1:
        raise UnciaError(f"{option}: {text!r} is finer than 1m, which Kubernetes refuses")
    if not milli:
        raise UnciaError(f"{option}: 0 CPUs let nothing run")
    return milli.numerator


def cpu_text(milli: int) -> str:
    """Write thousandths of a CPU as Kubernetes does: ``250m``, ``2``."""
    return str(milli // _MILLI) if milli % _MILLI == 0 else f"{milli}m"


def shares(milli_cpu: int) -> int:
    """Compute the weight of a request for CPUs in version 1 of control groups (``cpu.shares``)."""
    return min(_MAX_SHARES, max(_MIN_SHARES, milli_cpu * 1024 // _MILLI))


def weight(milli_cpu: int) -> int:
    """Compute the weight in version 2 (``cpu.weight``) by the linear formula of KEP-2254.

    Container runtimes of 2025 and later use another formula, which gives more to small requests.
    """
    return 1 + (shares(milli_cpu) - _MIN_SHARES) * (_MAX_WEIGHT - 1) // (_MAX_SHARES - _MIN_SHARES)


def least_limit(cpu: CpuTime, threads: int, period_ns: int = PERIOD) -> int:
    """Compute the least limit, in thousandths of a CPU, that never throttles a lone request.

    Its quota is the largest CPU time, or what all threads can use in a period if that is less.
    """
    most = min(cpu.points[-1][0], threads * period_ns)
    return max(1, -(-most * _MILLI // period_ns))


def effect(limit: Limit, cpu: CpuTime, threads: int = 1) -> Effect:
    """Compute how long requests take under a limit, and how many are throttled.

    Each request finds the group idle, and its threads share the CPU time and the quota evenly: n
    threads are like one with an nth of both (exact but for rounding to ns). Without a burst this is
    Equation (2) of the cost paper over all phases, exactly. With one, the request finds quota and
    burst, and each period adds the quota up to their sum (kernel/sched/fair.c,
    `__refill_cfs_bandwidth_runtime`); this is computed at evenly spaced phases.

    Args:
        limit: the limit.
        cpu: the CPU time of a request, of all threads together.
        threads: how many threads compute at the same time.

    Raises:
        UnciaError: there is no thread.
    """
    if threads < 1:
        raise UnciaError("--threads: at least one thread computes")
    each = weighted((-(-value // threads), count) for value, count in cpu.points)
    # Rounded up as the CPU time is, so that what fits the quota fits a thread's part of it.
    quota, period = -(-limit.quota_ns // threads), limit.period_ns
    burst = -(-limit.burst_ns // threads)
    if quota >= period:
        return Effect(
            limit, each.mean, each.mean, {q: each.quantile(q) for q in QUANTILES}, Fraction(0)
        )
    if burst:
        return _with_burst(limit, each, quota, burst)
    (expected,) = closed_form.sweep([Control(period, quota)], each, "random", QUANTILES)
    waiting = sum(count * throttled_share(period, quota, value) for value, count in each.points)
    return Effect(
        limit, each.mean, expected.mean_ns, expected.quantiles_ns, Fraction(waiting) / each.weight
    )


def throttled_share(period_ns: int, quota_ns: int, cpu_ns: int) -> Fraction:
    """Compute the share of phases at which a lone task is throttled.

    A task of up to one quota never is, one of more than two always. Between them it escapes if the
    next period begins while it runs, and brings what is missing.
    """
    if cpu_ns <= quota_ns:
        return Fraction(0)
    if cpu_ns > 2 * quota_ns:
        return Fraction(1)
    return 1 - Fraction(2 * quota_ns - cpu_ns, period_ns)


def candidates(limit: Limit, cpu: CpuTime, threads: int) -> list[Limit]:
    """List limits to compare: the given one, its half and double, and those at which the median
    request needs a period less, up to the one that never throttles; ascending.
    """
    least = least_limit(cpu, threads, limit.period_ns)
    median = min(cpu.quantile(Fraction(1, 2)), threads * limit.period_ns)
    whole = [-(-median * _MILLI // (periods * limit.period_ns)) for periods in (1, 2, 3, 4)]
    milli = {limit.milli_cpu // 2, limit.milli_cpu * 2, least, *whole} - {limit.milli_cpu}
    # Small limits all have the least quota, and are the same limit.
    by_quota = {limit.quota_ns: limit}
    for value in milli:
        if 1 <= value <= max(least, limit.milli_cpu):
            other = limit_of(value, limit.period_ns)
            by_quota.setdefault(other.quota_ns, other)
    return [by_quota[quota] for quota in sorted(by_quota)]


def _with_burst(limit: Limit, cpu: CpuTime, quota: int, burst: int) -> Effect:
    """Compute the effect of a limit with a burst, from evenly spaced phases."""
    control = Control(limit.period_ns, quota)
    phases = max(50, _CASES // len(cpu.points))
    durations: list[tuple[int, int]] = []
    waiting = 0
    for value, count in cpu.points:
        for index in range(phases):
            phase = (2 * index + 1) * limit.period_ns // (2 * phases)
            *_, (_, end) = closed_form.timeline(control, value, phase, burst)
            durations.append((end, count))
            waiting += count * (end > value)
    every = weighted(durations)
    return Effect(
        limit,
        cpu.mean,
        every.mean,
        {share: every.quantile(share) for share in QUANTILES},
        Fraction(waiting, every.weight),
    )


def utilization(limit: Limit, cpu: CpuTime, rate: Fraction) -> Fraction:
    """Compute the share of the limit's CPU time that requests at `rate` a second need."""
    return cpu.mean * rate / 1_000_000_000 / Fraction(limit.quota_ns, limit.period_ns)
