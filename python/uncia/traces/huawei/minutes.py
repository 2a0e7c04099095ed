"""Huawei, 2023: requests a minute of functions of the private and of the public cloud.

Both releases have a file a day, ``day,time,0,1,...``: a column a function, a row a minute or a
second, ``time`` in seconds from the start of the trace. All files look alike, whatever they hold,
so that the folder must say it:

* ``requests_minute`` and ``requests_second`` become arrivals (seconds are summed to minutes). They
  describe the same requests; if both are there, those of minutes are taken.
* ``memory_limit_minute`` becomes profiles: memory allocated to all pods of the function, in MB,
  taken as 2^20 bytes.
* ``function_delay_minute`` becomes profiles: execution, averaged over the pods of the function. The
  release does not say in which unit; only if the caller does is it read.
* ``platform_delay``, ``cpu_usage``, ``memory_usage``, ``cpu_limit`` and ``instances`` have no place
  in the tables (usage is in per cent of what is allocated, the limit of CPU is normalized), and
  neither has ``function_delay_second``. They are not read, which the warnings say.

A cell that is empty or NaN says that there is no data. It gives no row, as 0 gives none, and is
counted in the warnings. A function is named by its column. The private and the public cloud number
their functions alike, so that they are imported one at a time.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from uncia.errors import UnciaError
from uncia.text import plural
from uncia.traces import files
from uncia.traces.arrivals import MINUTES_PER_DAY, Arrivals
from uncia.traces.base import Imported, Issues
from uncia.traces.cells import Bools, Checks, Ints
from uncia.traces.csv import blocks
from uncia.traces.lines import header
from uncia.traces.output import Output, output
from uncia.units import MIB, NS_PER_MS, NS_PER_S

NAME: Final = "huawei2023"
DESCRIPTION: Final = (
    "Huawei traces of 2023: requests a minute or second, delays and usage of 200 functions of its"
    " private cloud on 141 days, and requests a minute of 5,093 functions of its public cloud on"
    " 26 days. No license is stated beside the data; https://github.com/sir-lab/data-release/blob/main/README_data_release_2023.md;"
    " cite Joosen et al., How Does It Function?, SoCC 2023."
)
TABLES: Final = ("arrivals", "profiles")
OPTIONS: Final = ("keep_cut", "delay_unit")
FILES: Final = (files.Kind("requests", ("day", "time"), numbered=r"0|[1-9][0-9]{0,8}"),)

_MINUTES: Final = "requests_minute"
_SECONDS: Final = "requests_second"
_MEMORY: Final = "memory_limit"
_DELAY: Final = "function_delay"
_METRICS: Final = (
    _MINUTES,
    _SECONDS,
    _MEMORY,
    _DELAY,
    "platform_delay",
    "cpu_usage",
    "memory_usage",
    "cpu_limit",
    "instances",
)
_DELAY_UNITS: Final = {"s": NS_PER_S, "ms": NS_PER_MS}
_SECONDS_PER_DAY: Final = 60 * MINUTES_PER_DAY
_MAX_DAY: Final = 36_500


def detect(paths: Iterable[Path]) -> bool:
    """Whether every file is of this trace, by its header."""
    return files.detect(paths, FILES)


def convert(
    paths: Iterable[Path | str],
    out: Path | str,
    *,
    strict: bool = False,
    keep_cut: bool = False,
    delay_unit: str | None = None,
) -> Imported:
    """Write arrivals, sorted by function and minute, and profiles.

    Args:
        paths: files of one release, in folders that are named by what they hold.
        out: a folder; or a file ``*.parquet`` if one table results.
        strict: whether a bad row is an error; otherwise it is kept aside and counted.
        keep_cut: whether the whole rows of a file that is cut off are taken.
        delay_unit: of ``function_delay_minute``: ``s`` or ``ms``; None not to read it.

    Raises:
        UnciaError: a file is not of this trace, damaged, or nothing says what it holds; no row is
            good; one is bad and the import is strict; or nothing can be written.
    """
    if delay_unit is not None and delay_unit not in _DELAY_UNITS:
        raise UnciaError(f"--delay-unit is s or ms, not {delay_unit!r}")
    sources = files.sort(paths, FILES, NAME)
    metrics = _by_metric(sources.of("requests"))
    warnings = [*sources.warnings, *_left_out(metrics, delay_unit)]
    requests = metrics.get(_MINUTES) or metrics.get(_SECONDS, [])
    memory, delay = metrics.get(_MEMORY, []), metrics.get(_DELAY, [])
    tables = [*(["arrivals"] if requests else []), *(["profiles"] if memory or delay else [])]
    if not tables:
        raise UnciaError(
            "none of the files has a place in the tables: " + "; ".join(warnings),
            hint="Taken are the folders requests_minute, requests_second, memory_limit_minute, and"
            " with --delay-unit function_delay_minute.",
        )
    issues = Issues(strict, keep_cut)
    with output(Path(out), tables, issues) as result:
        without = 0
        if requests:
            without += _arrivals(requests, result, issues, 60 if metrics.get(_MINUTES) else 1)
        if memory:
            without += _profiles(memory, result, issues, "memory", MIB)
        if delay and delay_unit:
            without += _profiles(delay, result, issues, "duration", _DELAY_UNITS[delay_unit])
        if without:
            warnings.append(
                f"{plural(without, 'cell')} without data: no row, which is not a count of 0"
            )
        return result.finish(warnings)


def _arrivals(paths: Sequence[Path], result: Output, issues: Issues, step: int) -> int:
    """Write arrivals; returns how many cells are without data."""
    without = 0
    arrivals = Arrivals(result)
    seen = _Times(step)
    for path in paths:
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
    return without


def _profiles(
    paths: Sequence[Path], result: Output, issues: Issues, column: str, factor: int
) -> int:
    """Write the means of minutes; returns how many cells are without data."""
    without = 0
    seen = _Times(60)
    expected = "megabytes, 0 or more" if column == "memory" else "a time, 0 or more"
    for path in paths:
        columns = header(path)
        for block in blocks(path, columns, issues):
            checks = Checks(block)
            minutes = seen.check(checks)
            cells = {
                function: checks.quantity(function, factor, expected, optional=True)
                for function in _functions(columns)
            }
            good = seen.keep(checks, issues)
            for function, (numbers, there) in cells.items():
                rows = good & there
                without += int((good & ~there).sum())
                result.write("profiles", _means(function, minutes[rows], column, numbers[rows]))
    return without


def _means(function: str, minutes: Ints, column: str, values: Ints) -> dict[str, pa.Array]:
    def same(value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.utf8()), len(minutes))

    return {
        "function": same(function),
        "minute": pa.array(minutes),
        "minutes": pa.array(np.ones(len(minutes), dtype=np.int64)),
        "statistic": same("mean"),
        "basis": same("all pods together" if column == "memory" else "averages of pods"),
        column: pa.array(values),
    }


def _functions(columns: Iterable[str]) -> list[str]:
    return [column for column in columns if column not in ("day", "time")]


def _by_metric(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """What the files hold, by the names of the files or their folders.

    Raises:
        UnciaError: a name says nothing or several things, or the files are of both clouds.
    """
    by_metric: dict[str, list[Path]] = {}
    clouds: dict[str, Path] = {}
    for path in paths:
        words = f"{path.resolve().parent.name}/{path.name}"
        metrics = [metric for metric in _METRICS if metric in words]
        if len(metrics) != 1:
            raise UnciaError(
                f"{path}: nothing in the file says what it holds, and neither does its folder",
                hint=f"Put the files into folders as the trace has them: {', '.join(_METRICS)}.",
            )
        by_metric.setdefault(metrics[0], []).append(path)
        for cloud in ("private_dataset", "public_dataset"):
            if cloud in path.resolve().parts:
                clouds.setdefault(cloud, path)
    if len(clouds) > 1:
        listed = " and ".join(map(str, clouds.values()))
        raise UnciaError(
            f"{listed} are of two clouds, whose functions have the same numbers",
            hint="Import one at a time.",
        )
    return by_metric


def _left_out(metrics: dict[str, list[Path]], delay_unit: str | None) -> list[str]:
    """Which files are not read, and why; they leave ``metrics``."""
    sentences = []

    def leave(metric: str, paths: list[Path], why: str) -> None:
        sentences.append(f"{plural(len(paths), 'file')} of {metric} not read: {why}")
        left = [path for path in metrics[metric] if path not in paths]
        metrics[metric] = left

    if metrics.get(_MINUTES) and metrics.get(_SECONDS):
        leave(_SECONDS, metrics[_SECONDS], f"{_MINUTES} counts the same requests")
    if delays := metrics.get(_DELAY):
        seconds = [
            path for path in delays if "second" in f"{path.resolve().parent.name}/{path.name}"
        ]
        if seconds:
            leave(_DELAY, seconds, "profiles are of minutes")
        if metrics[_DELAY] and delay_unit is None:
            why = "the release does not say its unit; --delay-unit does"
            leave(_DELAY, metrics[_DELAY], why)
    for metric in _METRICS[4:]:
        if paths := metrics.get(metric):
            leave(metric, paths, "no table has a place for it")
    return sentences


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
