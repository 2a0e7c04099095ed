"""Azure Functions, two weeks of 2019: counts a minute, and profiles a day.

One file of each kind a day, whose number is in its name (``...anon.d01.csv``):

* ``invocations_per_function_md`` becomes arrivals. Some functions have several rows in a day; their
  counts are summed.
* ``function_durations_percentiles`` becomes profiles of functions, in ms. Mean, minimum and
  maximum are over invocations, but the percentiles are over the averages of 30 s, as the trace
  holds them; cold starts are not included. Where minimum or maximum were not recorded there is no
  row, nor where a duration is negative (an error of collection that the publishers know of).
* ``app_memory_percentiles`` becomes profiles of applications, because Azure allocates memory to
  them; in MB, taken as 2^20 bytes. The mean is over samples every 5 s, the percentiles over
  averages of a minute.

A function is named ``owner/app/function``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from uncia.errors import UnciaError
from uncia.text import plural
from uncia.traces import files
from uncia.traces.arrivals import MINUTES_PER_DAY, Arrivals
from uncia.traces.base import Imported, Issues
from uncia.traces.cells import Bools, Checks, Ints
from uncia.traces.csv import blocks
from uncia.traces.output import Names, Output, output
from uncia.units import MIB, NS_PER_MS

NAME: Final = "azure2019"
DESCRIPTION: Final = (
    "Azure Functions Trace 2019: invocations a minute of some 80,000 functions in two weeks, with"
    " durations of functions and memory of applications. License CC BY;"
    " https://github.com/Azure/AzurePublicDataset/blob/master/AzureFunctionsDataset2019.md;"
    " cite Shahrad et al., Serverless in the Wild, USENIX ATC 2020."
)
TABLES: Final = ("arrivals", "profiles")
OPTIONS: Final = ("keep_cut",)

_OWNER_APP: Final = ("HashOwner", "HashApp")
_FUNCTION: Final = (*_OWNER_APP, "HashFunction")
_MINUTES: Final = tuple(str(minute) for minute in range(1, MINUTES_PER_DAY + 1))
_DURATION_PERCENTILES: Final = (0, 1, 25, 50, 75, 99, 100)
_MEMORY_PERCENTILES: Final = (1, 5, 25, 50, 75, 95, 99, 100)
_DAY: Final = re.compile(r"\.d([0-9]{2,3})\.")


@dataclass(frozen=True)
class _Statistic:
    column: str
    name: str
    basis: str
    percentile: int | None = None
    optional: bool = False


_DURATIONS: Final = (
    _Statistic("Average", "mean", "invocations"),
    _Statistic("Minimum", "minimum", "invocations", optional=True),
    _Statistic("Maximum", "maximum", "invocations", optional=True),
    *(
        _Statistic(f"percentile_Average_{p}", "quantile", "averages over 30s", p)
        for p in _DURATION_PERCENTILES
    ),
)
_MEMORIES: Final = (
    _Statistic("AverageAllocatedMb", "mean", "samples every 5s"),
    *(
        _Statistic(f"AverageAllocatedMb_pct{p}", "quantile", "averages over 1min", p)
        for p in _MEMORY_PERCENTILES
    ),
)

FILES: Final = (
    files.Kind("invocations", (*_FUNCTION, "Trigger", *_MINUTES), signature=("HashApp", "1")),
    files.Kind(
        "durations",
        (*_FUNCTION, "Count", *(statistic.column for statistic in _DURATIONS)),
        signature=("HashApp", "Average"),
    ),
    files.Kind(
        "memory",
        (*_OWNER_APP, "SampleCount", *(statistic.column for statistic in _MEMORIES)),
        signature=("HashApp", "AverageAllocatedMb"),
    ),
)


def detect(paths: Iterable[Path]) -> bool:
    """Whether every file is of this trace, by its header."""
    return files.detect(paths, FILES)


@dataclass
class _Summary:
    """What the warnings count."""

    summed: int = 0
    repeated: int = 0
    negative: int = 0
    days: dict[str, list[int]] = field(default_factory=dict)

    def warnings(self) -> list[str]:
        sentences = []
        if self.summed:
            sentences.append(
                f"{plural(self.summed, 'row')} repeated a function within a day;"
                " their counts were summed"
            )
        if self.repeated:
            sentences.append(
                f"{plural(self.repeated, 'row')} repeated a function or application within a day;"
                " all are in the profiles, each with its count"
            )
        if self.negative:
            sentences.append(
                f"{plural(self.negative, 'duration')} below 0, an error of the trace, left out"
            )
        for kind, days in self.days.items():
            if missing := sorted(set(range(1, max(days) + 1)) - set(days)):
                listed = ", ".join(map(str, missing))
                sentences.append(f"no {kind} of day {listed}: nothing is known of them, not 0")
        return sentences


def convert(
    paths: Iterable[Path | str], out: Path | str, *, strict: bool = False, keep_cut: bool = False
) -> Imported:
    """Write arrivals, sorted by function and minute, and profiles.

    Args:
        paths: files of the trace, of any kinds and days, or folders of them.
        out: a folder, or a file ``*.parquet`` if only one table results.
        strict: whether a bad row is an error; otherwise it is kept aside and counted.
        keep_cut: whether the whole rows of a file that is cut off are taken.

    Raises:
        UnciaError: a file is not of this trace or damaged, two are of the same kind and day, a
            cell is bad, or nothing can be written.
    """
    sources = files.sort(paths, FILES, NAME)
    kinds = {kind.name: _by_day(sources.of(kind.name), kind.name) for kind in FILES}
    tables = [
        *(["arrivals"] if kinds["invocations"] else []),
        *(["profiles"] if kinds["durations"] or kinds["memory"] else []),
    ]
    issues, summary = Issues(strict, keep_cut), _Summary()
    summary.days = {kind: list(days) for kind, days in kinds.items() if days}
    with output(Path(out), tables, issues) as result:
        if kinds["invocations"]:
            _arrivals(kinds["invocations"], result, issues, summary)
        for day, path in kinds["durations"].items():
            _profiles(path, day, result, issues, summary, memory=False)
        for day, path in kinds["memory"].items():
            _profiles(path, day, result, issues, summary, memory=True)
        return result.finish(sources.warnings + summary.warnings())


def _by_day(paths: Iterable[Path], kind: str) -> dict[int, Path]:
    days: dict[int, Path] = {}
    for path in paths:
        match = _DAY.search(path.name)
        day = int(match.group(1)) if match else 0
        if day < 1:
            raise UnciaError(
                f"{path}: the name does not say which day it is of",
                hint="The files of the trace are called ...anon.d01.csv to ...anon.d14.csv.",
            )
        if day in days:
            raise UnciaError(f"{days[day]} and {path} are both of day {day}, {kind}")
        days[day] = path
    return dict(sorted(days.items()))


def _arrivals(days: dict[int, Path], result: Output, issues: Issues, summary: _Summary) -> None:
    arrivals = Arrivals(result)
    owners: list[str] = []
    apps: list[str] = []
    for day, path in days.items():
        minutes = (day - 1) * MINUTES_PER_DAY + np.arange(MINUTES_PER_DAY, dtype=np.int64)
        seen: list[npt.NDArray[np.int32]] = []
        for block in blocks(path, FILES[0].columns, issues):
            checks = Checks(block)
            names = _joined(checks, _FUNCTION)
            counts, _ = checks.grid(_MINUTES, "a whole number of invocations, 0 or more")
            trigger = checks.identifier("Trigger", optional=True)
            good = checks.good(issues)
            kept = pa.array(good)
            known = len(arrivals.functions)
            functions = arrivals.functions.ids(names.filter(kept))
            new = np.flatnonzero(functions >= known)
            first = new[np.unique(functions[new], return_index=True)[1]]
            owners += block.cells["HashOwner"].filter(kept).take(pa.array(first)).to_pylist()
            apps += block.cells["HashApp"].filter(kept).take(pa.array(first)).to_pylist()
            triggers = arrivals.triggers.ids(trigger.filter(kept))
            seen.append(functions)
            shape = (len(functions), MINUTES_PER_DAY)
            arrivals.add(
                np.broadcast_to(functions[:, None], shape),
                np.broadcast_to(minutes, shape),
                counts[good],
                np.broadcast_to(triggers[:, None], shape),
            )
        summary.summed += _repeated(seen)
    arrivals.finish({"owner": owners, "app": apps}, merge=summary.summed > 0)


def _repeated(seen: list[npt.NDArray[np.int32]]) -> int:
    """How many of the numbers were there before."""
    numbers = np.concatenate(seen) if seen else np.zeros(0, dtype=np.int32)
    return len(numbers) - len(np.unique(numbers))


def _joined(checks: Checks, columns: Iterable[str]) -> pa.StringArray:
    return pc.binary_join_element_wise(*(checks.identifier(column) for column in columns), "/")


def _profiles(
    path: Path, day: int, result: Output, issues: Issues, summary: _Summary, *, memory: bool
) -> None:
    kind = FILES[2] if memory else FILES[1]
    names, seen = Names(), []
    for block in blocks(path, kind.columns, issues):
        checks = Checks(block)
        name = _joined(checks, _OWNER_APP if memory else _FUNCTION)
        weight, _ = checks.whole(
            "SampleCount" if memory else "Count", "a whole number of samples, 0 or more"
        )
        values = [
            (statistic, *_value(checks, statistic, memory=memory))
            for statistic in (_MEMORIES if memory else _DURATIONS)
        ]
        good = checks.good(issues)
        seen.append(names.ids(name.filter(pa.array(good))))
        for statistic, numbers, present in values:
            plausible = numbers >= 0
            summary.negative += int((good & present & ~plausible).sum())
            rows = good & present & plausible
            result.write(
                "profiles",
                {
                    "function": pa.nulls(int(rows.sum()), pa.utf8())
                    if memory
                    else name.filter(pa.array(rows)),
                    "owner": block.cells["HashOwner"].filter(pa.array(rows)),
                    "app": block.cells["HashApp"].filter(pa.array(rows)),
                    "memory" if memory else "duration": pa.array(numbers[rows]),
                    "count": pa.array(weight[rows]),
                    **_constants(statistic, day, int(rows.sum())),
                },
            )
    summary.repeated += _repeated(seen)


def _value(checks: Checks, statistic: _Statistic, *, memory: bool) -> tuple[Ints, Bools]:
    if memory:
        return checks.quantity(statistic.column, MIB, "megabytes, 0 or more")
    return checks.quantity(
        statistic.column, NS_PER_MS, "milliseconds", negative=True, optional=statistic.optional
    )


def _constants(statistic: _Statistic, day: int, rows: int) -> dict[str, pa.Array]:
    percentile = statistic.percentile
    quantile = None if percentile is None else percentile / 100
    return {
        "minute": pa.repeat(pa.scalar((day - 1) * MINUTES_PER_DAY, pa.int64()), rows),
        "minutes": pa.repeat(pa.scalar(MINUTES_PER_DAY, pa.int64()), rows),
        "statistic": pa.repeat(pa.scalar(statistic.name, pa.utf8()), rows),
        "quantile": pa.repeat(pa.scalar(quantile, pa.float64()), rows),
        "basis": pa.repeat(pa.scalar(statistic.basis, pa.utf8()), rows),
    }
