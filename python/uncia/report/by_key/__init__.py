"""Many runs side by side, grouped by what their descriptions say: `uncia compare --by`.

Every module of this package with a function ``chart`` is a chart of the page; so is a file of one's
own (``--chart FILE``): ``chart(lines, runs)`` takes what `lines` gives and the runs, and returns an
`uncia.report.page.Chart`, or None where it has nothing to show.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import runpy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from uncia.errors import UnciaError
from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Chart, Page, Section
from uncia.report.sections.latency import FEW
from uncia.report.table import Column, Table
from uncia.runs.capacity import KnownCapacity
from uncia.stats import columns, summary
from uncia.stats.columns import pc
from uncia.stats.quantiles import Ints, quantile
from uncia.units import NS_PER_MS, NS_PER_S, UnitError, parse_duration, parse_size

Line: TypeAlias = dict[str, Any]
Maker: TypeAlias = Callable[[Sequence[Line], Sequence[RunData]], Chart | None]

NOT_SAID: Final = "–"
"""The group of what does not have the key, beside others that do."""

_PARTS: Final = {
    "execution_ms": "execution",
    "queued_ms": "queued",
    "initialization_ms": "initialization",
    "user_ms": "cpu_user",
    "system_ms": "cpu_system",
    "wait_ms": "cpu_wait",
}
_MOST_NAMED: Final = 6
"""Keys in a hint."""

_WORDS: Final = ("group", "run", "path", "experiment", "requests", "unsupported_quantiles")
"""What is in no column of numbers of its own."""

_COUNTERS: Final = (
    "page_faults",
    "context_switches",
    "cycles",
    "instructions",
    "branch_misses",
    "llc_misses",
)


def lines(runs: Sequence[RunData], key: str) -> list[Line]:
    """A line for each experiment of each run, in the order of the groups.

    Args:
        runs: with their descriptions (``run.yaml``).
        key: of the experiment in the description, or else of the run: keys and positions between
            dots, such as ``platform.kind`` or ``streams.0.settings.memory``.

    Returns:
        ``group`` (the value as text, or `NOT_SAID`), ``run`` (its folder's name, or the path where
        names are the same), ``path``, ``experiment``, ``requests``, ``failed`` (neither ok nor as
        the experiment declares); the rates ``offered_per_s``, of open loops alone, and
        ``throughput_per_s``; ``p50_ms`` and ``p99_ms`` of latency, and ``unsupported_quantiles``,
        those for which rows are too few; means ``execution_ms``, ``queued_ms``,
        ``initialization_ms``, ``user_ms``, ``system_ms`` and ``wait_ms``; counters by invocation
        (``page_faults``) and by CPU-second (``page_faults_per_cpu_s``); misses in a thousand
        instructions, ``branch_mpki`` and ``llc_mpki``; and the run's ``capacity_per_s``, which lies
        between ``capacity_low_per_s`` and ``capacity_high_per_s``. None for what was not measured.

    Raises:
        UnciaError: no run's description has the key, or it has several values below it; or what is
            known of a capacity is damaged.
    """
    made = []
    is_known = False
    named = Counter(run.title for run in runs)
    for run in runs:
        capacity = _capacity(run)
        for name in run.summaries:
            described = run.experiment_meta.get(name, {})
            found, value = _look(described, key)
            if not found:
                found, value = _look(run.meta, key)
            is_known = is_known or found
            if isinstance(value, Mapping | list):
                raise _several(key, value)
            title = run.title if named[run.title] == 1 else str(run.path)
            group = str(value) if found else NOT_SAID
            made.append({"group": group, "run": title, **_line(run, name), **capacity})
    if not is_known:
        raise _absent(key, runs)
    return sorted(made, key=lambda line: _order(line["group"]))


def page(made: Sequence[Line], runs: Sequence[RunData], key: str, files: Sequence[Path]) -> Page:
    """The page of many runs.

    Raises:
        UnciaError: a file of ``files`` is no chart, or raises an exception.
    """
    charts = [chart for maker in _makers(files) if (chart := maker(made, runs)) is not None]
    sections = [Section(chart.name, chart.label, [chart]) for chart in charts]
    table = Table(
        [
            Column(key, lambda line: line["group"]),
            Column("run", lambda line: line["run"]),
            Column("experiment", lambda line: line["experiment"]),
            Column("requests", lambda line: line["requests"], count),
            *(
                Column(
                    name,
                    name,
                    count if name == "failed" else figure,
                    align="number",
                    mark=_few(name),
                )
                for name in made[0]
                if name not in _WORDS and any(line[name] is not None for line in made)
            ),
        ],
        made,
        f"Experiments by {key}. {FEW}",
    )
    return Page(
        title=f"{len(runs)} runs by {key}",
        kicker="Uncia comparison",
        sections=[*sections, Section("lines", "In numbers", [table])],
        summary=f"Experiments of {len(runs)} runs, grouped by what their descriptions say.",
    )


def _few(name: str) -> Callable[[Line], str]:
    """The mark of a quantile of too few rows; of other figures none."""
    return lambda line: "few" if name.removesuffix("_ms") in line["unsupported_quantiles"] else ""


def _makers(files: Sequence[Path]) -> Iterator[Maker]:
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        yield importlib.import_module(f"{__name__}.{info.name}").chart
    for path in files:
        try:
            content = runpy.run_path(str(path))
        except Exception as error:  # whatever a file of one's own raises
            raise UnciaError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
        if not callable(content.get("chart")):
            raise UnciaError(f"{path} has no function chart(lines, runs)")
        yield _guarded(path, content["chart"])


def _guarded(path: Path, maker: Maker) -> Maker:
    """A chart of one's own, whose exceptions are sentences."""

    def chart(lines: Sequence[Line], runs: Sequence[RunData]) -> Chart | None:
        try:
            made = maker(lines, runs)
        except Exception as error:  # whatever a function of one's own raises
            raise UnciaError(
                f"{path}: chart(lines, runs) raises {type(error).__name__}: {error}"
            ) from error
        if not isinstance(made, Chart | None):
            raise UnciaError(
                f"{path}: chart(lines, runs) returns {type(made).__name__}",
                hint="It returns an uncia.report.page.Chart, or None where it has nothing to show.",
            )
        return made

    return chart


def _look(value: Any, key: str) -> tuple[bool, Any]:
    for part in key.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return False, None
    return True, value


def _several(key: str, value: Mapping[str, Any] | list[Any]) -> UnciaError:
    """What is said of a key that has others below it."""
    below = list(value) if isinstance(value, Mapping) else range(len(value))
    names = ", ".join(f"{key}.{name}" for name in list(below)[:_MOST_NAMED])
    return UnciaError(
        f"--by {key}: it is not a value, but has several below it",
        hint=f"Name a value: there are {names}." if names else "It is empty here.",
    )


def _absent(key: str, runs: Sequence[RunData]) -> UnciaError:
    """What is said of a key that is nowhere, with those that end as it does."""
    paths = dict.fromkeys(path for run in runs for path in _paths(run.meta))
    near = [path for path in paths if f".{path}".endswith(f".{key}")]
    if not near:
        last = key.rpartition(".")[2]
        near = [path for path in paths if f".{path}".endswith(f".{last}")]
    known = sorted({str(it) for run in runs for it in run.meta})
    named = f"Perhaps {' or '.join(near[:_MOST_NAMED])}. " if near else ""
    return UnciaError(
        f"--by {key}: no run's description has it",
        hint=f"{named}Keys of run.yaml are {', '.join(known)}; those below them stand behind dots.",
    )


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """The keys of all values in a description."""
    if isinstance(value, Mapping):
        below = [(str(name), it) for name, it in value.items()]
    elif isinstance(value, list):
        below = [(str(index), it) for index, it in enumerate(value)]
    else:
        yield path
        return
    for name, it in below:
        yield from _paths(it, f"{path}.{name}" if path else name)


def _order(text: str) -> tuple[int, float, str]:
    """Numbers first, by size: also those before a unit, so 256MB before 1GB."""
    for parse in (parse_size, parse_duration):
        with suppress(UnitError):
            return 0, float(parse(text)), text
    digits = text.rstrip("".join(set(text) - set("0123456789.-")))
    try:
        return 0, float(digits), text
    except ValueError:
        return 1, 0.0, text


def requests(run: RunData, name: str) -> tuple[pa.Table, pa.Table]:
    """The requests of an experiment of this name, and those of them that ended ok."""
    rows = run.invocations.filter(columns.is_word(run.invocations, "experiment", name))
    rows = rows.filter(columns.is_request(rows))
    return rows, rows.filter(columns.is_word(rows, "outcome", "ok"))


def latencies(ok: pa.Table) -> tuple[Ints, Ints]:
    """When each of these was due, and its latency from then; ns, both of shape (n,).

    Where none has both, as in closed loops, they are from when it was sent.
    """
    for begin in ("scheduled", "sent"):
        begun, took = columns.integers(ok, begin), columns.latency(ok, begin)
        known = pc.is_valid(took)
        if pc.any(known).as_py():
            break
    return begun.filter(known).to_numpy(), took.filter(known).to_numpy()


def _line(run: RunData, name: str) -> Line:
    rows, ok = requests(run, name)
    latency = np.sort(latencies(ok)[1])
    median, p99 = (quantile(latency, order) for order in (Fraction(1, 2), Fraction(99, 100)))
    is_open = columns.column(rows, "open_loop", pa.bool_())
    due = columns.integers(rows.filter(is_open), "scheduled")
    line: Line = {
        "path": str(run.path),
        "experiment": name,
        "requests": rows.num_rows,
        "failed": run.all_summaries[name]["failed"],
        # Beside closed loops it is no rate of all that was sent.
        "offered_per_s": _rate(columns.ordered(due)) if len(due) == rows.num_rows else None,
        "throughput_per_s": _rate(columns.ordered(columns.integers(ok, "received"))),
        "p50_ms": None if median is None else median / NS_PER_MS,
        "p99_ms": None if p99 is None else p99 / NS_PER_MS,
        "unsupported_quantiles": summary.unsupported(latency.size) if latency.size else [],
    }
    line |= {key: _mean(ok, column, NS_PER_MS) for key, column in _PARTS.items()}
    for counter in _COUNTERS:
        line[counter] = _mean(ok, counter, 1.0)
        line[f"{counter}_per_cpu_s"] = _per_cpu_s(ok, counter)
    for name, misses in (("branch_mpki", "branch_misses"), ("llc_mpki", "llc_misses")):
        line[name] = _ratio(ok, misses, ["instructions"], 1000)
    return line


def _capacity(run: RunData) -> Line:
    """What a run's folder says of the capacity that was searched for it, or in it."""
    known = KnownCapacity.read(run.path)
    names = ("per_s", "low_per_s", "high_per_s")
    return {f"capacity_{name}": getattr(known, name, None) for name in names}


def _per_cpu_s(rows: pa.Table, counter: str) -> float | None:
    """A counter over CPU time."""
    return _ratio(rows, counter, ["cpu_user", "cpu_system"], NS_PER_S)


def _ratio(rows: pa.Table, over: str, under: Sequence[str], scale: int) -> float | None:
    """A column over others, all summed over the rows in which each of them is known."""
    parts = [columns.integers(rows, name) for name in (over, *under)]
    known = functools.reduce(pc.and_, map(pc.is_valid, parts))
    count, *rest = (int(pc.sum(part.filter(known)).as_py() or 0) for part in parts)
    return count * scale / sum(rest) if sum(rest) else None


def _rate(times: Any) -> float | None:
    span = int(times[-1] - times[0]) if times.size > 1 else 0
    return (times.size - 1) * NS_PER_S / span if span > 0 else None


def _mean(rows: pa.Table, column: str, scale: float) -> float | None:
    values = columns.ordered(columns.integers(rows, column))
    return float(values.mean()) / scale if values.size else None
