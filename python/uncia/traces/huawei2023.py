"""Huawei, 2023: requests a minute of functions of the private and of the public cloud.

Both releases have a file a day, ``day,time,0,1,...``: a column a function, a row a minute or a
second, ``time`` in seconds from the start of the trace. All files look alike, whatever they hold,
so that the folder must say it: ``requests_minute`` and ``requests_second`` are taken and become
arrivals (seconds are summed to minutes); delays, usage, limits and instances are refused.

A cell that is empty or NaN says that there is no data. It gives no row, as 0 gives none, and is
counted in the warnings. A function is named by its column.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from uncia.errors import UnciaError
from uncia.traces import files
from uncia.traces.arrivals import MINUTES_PER_DAY, Arrivals
from uncia.traces.base import Imported, Issues, plural
from uncia.traces.cells import Bools, Checks, Ints
from uncia.traces.csv import blocks, header
from uncia.traces.output import output

NAME: Final = "huawei2023"
DESCRIPTION: Final = (
    "Huawei traces of 2023: requests a minute or second of 200 functions of its private cloud on"
    " 141 days, and a minute of 5,093 functions of its public cloud on 26 days. No license is"
    " stated beside the data; https://github.com/sir-lab/data-release/blob/main/README_data_release_2023.md;"
    " cite Joosen et al., How Does It Function?, SoCC 2023."
)
TABLES: Final = ("arrivals",)
OPTIONS: Final = ("keep_cut",)
FILES: Final = (files.Kind("requests", ("day", "time"), numbered=r"0|[1-9][0-9]{0,8}"),)

_SECONDS: Final = {"requests_minute": 60, "requests_second": 1}
_OTHERS: Final = (
    "function_delay",
    "platform_delay",
    "cpu_usage",
    "memory_usage",
    "cpu_limit",
    "memory_limit",
    "instances",
)
_SECONDS_PER_DAY: Final = 60 * MINUTES_PER_DAY
_MAX_DAY: Final = 36_500


def detect(paths: Iterable[Path]) -> bool:
    """Whether every file is of this trace, by its header."""
    return files.detect(paths, FILES)


def convert(
    paths: Iterable[Path | str], out: Path | str, *, strict: bool = False, keep_cut: bool = False
) -> Imported:
    """Write arrivals, sorted by function and minute.

    Args:
        paths: files of one release, in folders ``requests_minute`` or ``requests_second``.
        out: a folder, or a file ``*.parquet``.
        strict: whether a bad row is an error; otherwise it is kept aside and counted.
        keep_cut: whether the whole rows of a file that is cut off are taken.

    Raises:
        UnciaError: a file is not of this trace, damaged, or holds something else than requests;
            a time occurs twice; a cell is bad; or nothing can be written.
    """
    sources = files.sort(paths, FILES, NAME)
    step = _step(sources.of("requests"))
    issues = Issues(strict, keep_cut)
    without = 0
    with output(Path(out), TABLES, issues) as result:
        arrivals = Arrivals(result)
        seen = _Times(step)
        for path in sources.of("requests"):
            columns = header(path)
            functions = arrivals.functions.ids(pa.array(_functions(columns), pa.utf8()))
            for block in blocks(path, columns, issues):
                checks = Checks(block)
                minutes = seen.check(checks)
                counts, there = checks.grid(
                    _functions(columns), "a whole number of requests, 0 or more", optional=True
                )
                good = seen.keep(checks, issues)
                without += int((~there[good]).sum())
                whole, sums = _summed(minutes[good], np.where(there, counts, 0)[good])
                arrivals.add(
                    np.broadcast_to(functions, sums.shape),
                    np.broadcast_to(whole[:, None], sums.shape),
                    sums,
                )
        arrivals.finish({}, merge=step == 1)
        warnings = list(sources.warnings)
        if without:
            warnings.append(
                f"{plural(without, 'cell')} without data: no row, which is not a count of 0"
            )
        return result.finish(warnings)


def _functions(columns: Iterable[str]) -> list[str]:
    return [column for column in columns if column not in ("day", "time")]


def _step(paths: Iterable[Path]) -> int:
    """Seconds between rows, from the names of the files or their folders."""
    steps: dict[int, Path] = {}
    for path in paths:
        words = f"{path.resolve().parent.name}/{path.name}"
        if other := next((name for name in _OTHERS if name in words), None):
            raise UnciaError(
                f"{path} holds {other}, which is not imported",
                hint="Taken are the folders requests_minute and requests_second.",
            )
        found = [seconds for name, seconds in _SECONDS.items() if name in words]
        if len(found) != 1:
            raise UnciaError(
                f"{path}: nothing in the file says what it counts, and neither does its folder",
                hint="Put the files into a folder called requests_minute or requests_second,"
                " as the trace has them.",
            )
        steps.setdefault(found[0], path)
    if len(steps) > 1:
        first, second = steps.values()
        raise UnciaError(
            f"{first} and {second} tell of the same requests, by the minute and by the second",
            hint="Import one of the two.",
        )
    return next(iter(steps))


class _Times:
    """Checks the times of rows, each of which may occur once in the whole import."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._seen: set[int] = set()
        self._now: Ints = np.zeros(0, dtype=np.int64)

    def check(self, checks: Checks) -> Ints:
        """The minute of each row; rows of a wrong time are marked as bad."""
        day, _ = checks.whole("day", "a day from 0")
        checks.require("day", day <= _MAX_DAY, f"a day from 0 to {_MAX_DAY}")
        time, _ = checks.whole("time", "whole seconds from the start of the trace")
        checks.require("time", time // _SECONDS_PER_DAY == day, "a time of the row's day")
        checks.require("time", time % self._step == 0, f"a multiple of {self._step} s")
        self._now = time
        return time // 60

    def keep(self, checks: Checks, issues: Issues) -> Bools:
        """The good rows, of which those at a time that was there before are bad too."""
        known = checks.bad()
        for row in np.flatnonzero(~known):
            time = int(self._now[row])
            known[row] = time in self._seen
            self._seen.add(time)
        checks.require("time", ~(known & ~checks.bad()), "a time that occurs once only")
        return checks.good(issues)


def _summed(minutes: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Counts summed over rows of the same minute: the minutes, and sums of shape (minutes, n)."""
    if len(minutes) == 0:
        return minutes, counts
    order = np.argsort(minutes, kind="stable")
    whole, starts = np.unique(minutes[order], return_index=True)
    return whole, np.add.reduceat(counts[order], starts, axis=0)
