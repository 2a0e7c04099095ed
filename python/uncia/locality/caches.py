"""Simulates last-level caches of several sizes for functions that start cold, by cachegrind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from uncia import record
from uncia.errors import RunFailedError, UnciaError
from uncia.locality import tools
from uncia.locality.targets import Target
from uncia.locality.work import Work
from uncia.units import MIB, format_size

SIZES: Final = tuple(size * MIB for size in (1, 2, 4, 8, 16, 20))
"""Of the paper's Figure 9, from the whole cache of its processor down."""

_LINE: Final = 64
_FIRST_LEVEL: Final = f"32768,8,{_LINE}"
_LEAST_WAYS, _MOST_WAYS = 16, 32


@dataclass(frozen=True)
class Cache:
    """A last-level cache, behind first levels of 32 KB, 8 ways.

    Attributes:
        size: in bytes.
    """

    size: int

    @property
    def ways(self) -> int:
        """The fewest, of 16 to 32, with which the number of sets is a power of 2.

        Raises:
            UnciaError: there is none.
        """
        for ways in range(_LEAST_WAYS, _MOST_WAYS):
            sets, rest = divmod(self.size, ways * _LINE)
            if rest == 0 and sets > 0 and sets & (sets - 1) == 0:
                return ways
        raise UnciaError(
            f"a cache of {format_size(self.size)} cannot be simulated",
            hint="Sizes are powers of 2 times 16 to 31, such as 1MB, 20MB or 24MB.",
        )


@dataclass(frozen=True)
class _Counted:
    """What cachegrind counted of a process."""

    instructions: int
    accesses: int
    misses: int


def simulate(targets: Sequence[Target], work: Work, sizes: Sequence[int] = SIZES) -> pa.Table:
    """Run each function cold under cachegrind, once for each size of the last level.

    The start is what a process without an invocation takes, with its end; the invocation is what
    one with an invocation takes more.

    Args:
        targets: the functions.
        work: where their processes run, as many at once as there are CPUs.
        sizes: of the last level, in bytes.

    Returns:
        Rows of the table ``locality``, by function and size: the start, and the invocation.

    Raises:
        UnciaError: valgrind is missing, a size is impossible, or a function failed.
    """
    valgrind = tools.VALGRIND.find()
    caches = [Cache(size) for size in sizes]
    for cache in caches:
        cache.ways  # noqa: B018  # raises where there is none
    jobs = [(target, cache, count) for target in targets for cache in caches for count in (0, 1)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        try:
            futures = [pool.submit(_count, valgrind, *job, work) for job in jobs]
            counted = [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            work.stop()
            raise
    of_job = dict(zip(((job[0].label, job[1], job[2]) for job in jobs), counted, strict=True))
    rows = [
        row
        for target in targets
        for cache in caches
        for row in _rows(target, cache, *(of_job[target.label, cache, count] for count in (0, 1)))
    ]
    names = list(rows[0]) if rows else []
    return record.conform(pa.table({it: [row[it] for row in rows] for it in names}), "locality")


def _count(valgrind: Path, target: Target, cache: Cache, invocations: int, work: Work) -> _Counted:
    file = work.folder / f"counts-{target.folder.name}-{cache.size}-{invocations}"
    command = [
        *(str(valgrind), "--tool=cachegrind", "--cache-sim=yes", "--quiet"),
        # Else what follows a branch that is hardly taken may be counted though it is not executed.
        "--vex-guest-chase=no",
        *(f"--I1={_FIRST_LEVEL}", f"--D1={_FIRST_LEVEL}"),
        *(f"--LL={cache.size},{cache.ways},{_LINE}", f"--cachegrind-out-file={file}"),
        *target.command,
    ]
    work.invoke(target, command, invocations)()
    try:
        return read_counts(file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, KeyError) as error:
        raise RunFailedError(f"{target.label}: cachegrind has left no counts: {error}") from error


def read_counts(text: str) -> _Counted:
    """The totals of a file of cachegrind.

    Raises:
        KeyError, ValueError: it has none.
    """
    lines = dict(
        line.split(":", 1) for line in text.splitlines() if line.startswith(("events:", "summary:"))
    )
    values = map(int, lines["summary"].split())
    event = dict(zip(lines["events"].split(), values, strict=True))
    return _Counted(
        event["Ir"],
        event["I1mr"] + event["D1mr"] + event["D1mw"],
        event["ILmr"] + event["DLmr"] + event["DLmw"],
    )


def _rows(
    target: Target, cache: Cache, start: _Counted, whole: _Counted
) -> Iterator[dict[str, Any]]:
    invocation = _Counted(
        *(max(0, all_of - before) for all_of, before in zip(_of(whole), _of(start), strict=True))
    )
    until = 0
    for part, counted in enumerate((start, invocation)):
        until += counted.instructions
        yield {
            "function": target.label,
            "structure": "last_level_cache",
            "model": f"cachegrind-{format_size(cache.size)}",
            "bytes": cache.size,
            "simulated": True,
            "sharers": 1,
            "part": part,
            "until": until,
            "instructions": counted.instructions,
            "accesses": counted.accesses,
            "misses": counted.misses,
        }


def _of(counted: _Counted) -> tuple[int, int, int]:
    return counted.instructions, counted.accesses, counted.misses
