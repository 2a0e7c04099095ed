"""How much of a running group's time is throttling, and which limit would have ended it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Final

from uncia.bandwidth.limits import Limit
from uncia.doctor.host import CgroupMount, Host, quota_of
from uncia.errors import UnciaError

_NS_PER_US: Final = 1_000
_MILLI: Final = 1_000
# An nth CPU counts if it ran or waited for more than a tenth of the time.
_PARALLEL: Final = Fraction(1, 10)


class EndedError(UnciaError):
    """The group that was watched is gone."""


@dataclass(frozen=True)
class Reading:
    """The counters of a group, at a time.

    Attributes:
        time_ns: CLOCK_MONOTONIC.
        usage_ns: CPU time used.
        periods: periods in which it ran.
        throttled: periods in which its quota was used up.
        throttled_ns: time for which its CPUs were kept from running, the sum of all CPUs.
    """

    time_ns: int
    usage_ns: int
    periods: int
    throttled: int
    throttled_ns: int


@dataclass(frozen=True)
class Span:
    """What happened between two readings: differences of all counters."""

    elapsed_ns: int
    usage_ns: int
    periods: int
    throttled: int
    throttled_ns: int

    @property
    def lost(self) -> Fraction:
        """The share of its running time that the group was throttled: 0 to 1."""
        busy = self.usage_ns + self.throttled_ns
        return Fraction(self.throttled_ns, busy) if busy else Fraction(0)


@dataclass(frozen=True)
class Group:
    """A control group with a quota.

    Attributes:
        cpu: its folder with ``cpu.stat``.
        usage: the file with its CPU time.
        version: of control groups.
        name: its path in the hierarchy.
        limit: its quota and period.
    """

    cpu: Path
    usage: Path
    version: int
    name: str
    limit: Limit

    def read(self) -> Reading:
        """Read the counters.

        Raises:
            EndedError: the group is gone.
        """
        try:
            stat = _pairs((self.cpu / "cpu.stat").read_text())
            usage = (
                stat["usage_usec"] * _NS_PER_US
                if self.version == 2
                else int(self.usage.read_text())
            )
        except OSError as error:
            raise EndedError(f"the group {self.name} is gone: {error.strerror}") from error
        throttled_ns = (
            stat["throttled_usec"] * _NS_PER_US if self.version == 2 else stat["throttled_time"]
        )
        return Reading(
            time.monotonic_ns(), usage, stat["nr_periods"], stat["nr_throttled"], throttled_ns
        )


@dataclass(frozen=True)
class Episode:
    """A stretch of time in which the group was throttled again and again.

    Attributes:
        usage_ns: CPU time that it used from the span before to the span after.
        cpus: how many CPUs it ran on, or was kept from running on, at the same time.
        ended: it ended while watched.
    """

    usage_ns: int
    cpus: int
    ended: bool


def between(first: Reading, last: Reading) -> Span:
    """Compute what happened between two readings."""
    return Span(
        last.time_ns - first.time_ns,
        last.usage_ns - first.usage_ns,
        last.periods - first.periods,
        last.throttled - first.throttled,
        last.throttled_ns - first.throttled_ns,
    )


def find(text: str, host: Host | None = None) -> Group:
    """Find the control group that limits a process or a group.

    Args:
        text: a process id, or the group's folder or its path in the hierarchy. Of a group without
            a limit, the nearest one above that has one counts.

    Raises:
        UnciaError: there is no such process or group, or nothing limits it.
    """
    host = host or Host()
    mounts = [mount for mount in host.cgroup_mounts() if mount.version == 1 or mount.controllers]
    cpu = [mount for mount in mounts if "cpu" in mount.controllers]
    if not cpu:
        raise UnciaError(
            "no control groups with the cpu controller are mounted", "See `uncia doctor`."
        )
    mount = cpu[0]
    name = _group_of_process(host, int(text), mount) if text.isdigit() else _inside(mount, text)
    folder = mount.path / name.lstrip("/")
    if not folder.is_dir():
        raise UnciaError(
            f"{text}: there is no group {folder}",
            "Give a folder with a file cpu.stat, a group's path, or a process id"
            " (for a container: docker inspect -f '{{.State.Pid}}' NAME, or crictl inspect).",
        )
    for above in (folder, *folder.parents):
        limit = _limit(above, mount.version)
        if limit is not None:
            inner = above.relative_to(mount.path)
            return Group(
                above, _usage_file(mounts, above, inner), mount.version, f"/{inner}", limit
            )
        if above == mount.path:
            break
    raise UnciaError(
        f"{text}: neither the group {name} nor one above it has a CPU limit",
        "Nothing throttles it.",
    )


def watch(group: Group, interval_ns: int) -> Iterator[Reading]:
    """Yield a reading at once, and another after each interval; never ends by itself.

    Raises:
        EndedError: the group is gone.
    """
    due = time.monotonic_ns()
    while True:
        yield group.read()
        due = max(due + interval_ns, time.monotonic_ns())
        time.sleep((due - time.monotonic_ns()) / 1e9 if due > time.monotonic_ns() else 0)


def episodes(readings: Sequence[Reading]) -> list[Episode]:
    """Find the stretches of spans in which the group was throttled.

    The kernel counts a period as throttled when the quota is used up, and the time when the group
    may run again: a span with either belongs to the episode. What a request used before its first
    and after its last throttled period is in the spans around it, and so may be others' work: the
    CPU time of an episode is at least that of the requests that were throttled.
    """
    spans = [between(first, last) for first, last in pairwise(readings)]
    held = [_is_held(span) for span in spans]
    result = []
    start = 0
    while start < len(spans):
        if not held[start]:
            start += 1
            continue
        end = start
        while end < len(spans) and held[end]:
            end += 1
        around = spans[max(0, start - 1) : end + 1]
        result.append(
            Episode(
                sum(span.usage_ns for span in around),
                max(_cpus(span) for span in spans[start:end]),
                end < len(spans),
            )
        )
        start = end
    return result


def judged(episodes: Sequence[Episode]) -> list[Episode]:
    """Leave out a last episode that the end cut off, unless it used more than each one before."""
    ended = [episode for episode in episodes if episode.ended]
    limit = max((episode.usage_ns for episode in ended), default=0)
    return [episode for episode in episodes if episode.ended or episode.usage_ns > limit]


def thin(readings: list[Reading]) -> None:
    """Remove a reading that `episodes` does not need, so that days of watching fit into memory.

    Of four spans at the end that are all throttled, or all not, the two in the middle become one.
    """
    spans = [between(first, last) for first, last in pairwise(readings[-5:])]
    if len(spans) == 4 and len({_is_held(span) for span in spans}) == 1:
        del readings[-3]


def needed(episode: Episode, period_ns: int) -> int:
    """Compute the limit in thousandths of a CPU without which this episode had been throttled.

    In one period it could have used all its CPU time, or its CPUs for the whole period.
    """
    most = episode.cpus * period_ns
    demand = min(episode.usage_ns, most) if episode.ended else most
    return max(1, -(-demand * _MILLI // period_ns))


def _is_held(span: Span) -> bool:
    """Whether the group was throttled in a span, or until it began."""
    return span.throttled > 0 or span.throttled_ns > 0


def _cpus(span: Span) -> int:
    """How many CPUs the group ran on, or was kept from running on, at the same time."""
    parallel = Fraction(span.usage_ns + span.throttled_ns, span.elapsed_ns)
    return min(os.cpu_count() or 1, max(1, -int(-(parallel - _PARALLEL) // 1)))


def _pairs(text: str) -> dict[str, int]:
    """Parse lines of a name and a number."""
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


def _limit(folder: Path, version: int) -> Limit | None:
    """Read a group's quota, period and burst; None if it has none."""
    quota = quota_of(folder, version)
    if quota is None:
        return None
    try:
        burst = int(
            (folder / ("cpu.max.burst" if version == 2 else "cpu.cfs_burst_us")).read_text()
        )
    except OSError:
        burst = 0  # Kernels before 5.14 have none.
    quota_us, period_us = quota
    return Limit(quota_us * _NS_PER_US, period_us * _NS_PER_US, burst * _NS_PER_US)


def _usage_file(mounts: Sequence[CgroupMount], cpu: Path, inner: Path) -> Path:
    """The file with the CPU time of a group, which version 1 may have in another hierarchy.

    Raises:
        UnciaError: there is none.
    """
    folders = [mount.path for mount in mounts if "cpuacct" in mount.controllers]
    for file in [cpu / "cpu.stat", *(folder / inner / "cpuacct.usage" for folder in folders)]:
        if file.is_file() and (file.name != "cpu.stat" or "usage_usec" in file.read_text()):
            return file
    raise UnciaError(f"the group /{inner} has no counter of its CPU time (cpuacct.usage)")


def _inside(mount: CgroupMount, text: str) -> str:
    """The path in the hierarchy of a group that is given by its folder or by that path."""
    folder = Path(text)
    if folder.is_absolute() and folder.is_relative_to(mount.path):
        return f"/{folder.relative_to(mount.path)}"
    if (folder / "cpu.stat").is_file() and folder.is_absolute():
        raise UnciaError(f"{text}: this is not below {mount.path}, where groups are mounted")
    return text


def _group_of_process(host: Host, pid: int, mount: CgroupMount) -> str:
    """The group of a process in the hierarchy that limits CPU time.

    Raises:
        UnciaError: there is no such process, or its group is not visible here.
    """
    lines = host.read(f"/proc/{pid}/cgroup")
    if lines is None:
        raise UnciaError(f"there is no process {pid}")
    for line in lines.splitlines():
        _, controllers, path = line.split(":", 2)
        if (mount.version == 2 and not controllers) or (
            mount.version == 1 and "cpu" in controllers.split(",")
        ):
            if path.startswith("/.."):
                raise UnciaError(
                    f"the group of process {pid} is outside of what is visible in this container",
                    "Run this on the host.",
                )
            return path
    raise UnciaError(f"process {pid} is in no group with the cpu controller")
