"""Tables of measured durations by size: a CSV file, or the invocations of a run."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.bandwidth.presets import Preset
from uncia.errors import UnciaError
from uncia.stats.quantiles import quantiles_of
from uncia.units import MIB, MICRO_PER_VCPU, NS_PER_MS

if TYPE_CHECKING:
    import pyarrow as pa

_QUANTILE: Final = re.compile(r"p(\d{1,2}(?:\.\d+)?)_ms")
_MIN_MB: Final = 64
_MAX_VCPU: Final = 64
_MAX_NAMES: Final = 10
_COLUMNS: Final = (
    "The columns are memory_mb or vcpu, mean_ms, and if known samples and p5_ms, p50_ms and so on."
)
_SHARES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Row:
    """The measurements at one size.

    Attributes:
        size: MB or micro-vCPU.
        samples: number of invocations; None if unknown.
        mean_ns: mean of the reported durations.
        quantiles: share and ns, ascending; empty if unknown.
    """

    size: int
    samples: int | None
    mean_ns: float
    quantiles: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Table:
    """Measured rows, ascending by size, and their file."""

    path: Path
    rows: tuple[Row, ...]


def read(path: Path, preset: Preset, function: str | None = None) -> Table:
    """Read a measured table: a CSV file, a run folder, or a file of invocations.

    Args:
        path: of the table.
        preset: the platform.
        function: the one of a run whose invocations count; needed if there are several.

    Raises:
        UnciaError: it cannot be read, is no such table, or its sizes are not the platform's.
    """
    is_file = path.suffix == ".csv"
    rows = _of_file(path, preset) if is_file else _of_run(path, preset, function)
    rows.sort(key=lambda row: row.size)
    return Table(path, tuple(rows))


def _of_file(path: Path, preset: Preset) -> list[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            names = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = names
            key = _key(path, names, preset)
            rows = [_row(path, number, line, key) for number, line in enumerate(reader, 2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UnciaError(f"cannot read {path}: {reason}", _COLUMNS) from error
    if not rows:
        raise UnciaError(f"{path} has no row", _COLUMNS)
    lines: dict[int, int] = {}
    for number, row in enumerate(rows, 2):
        if row.size in lines:
            raise UnciaError(
                f"{path}, line {number}: the size of line {lines[row.size]} stands here again",
                "Give each size one row.",
            )
        lines[row.size] = number
    return rows


def _key(path: Path, names: list[str], preset: Preset) -> str:
    key, wrong_key = ("memory_mb", "vcpu") if preset.by_memory else ("vcpu", "memory_mb")
    if key not in names:
        if wrong_key in names:
            raise UnciaError(
                f"{path} has the column {wrong_key}, but {preset.title} is sized by {key}",
                "Name the platform where the table was measured with --like.",
            )
        raise UnciaError(
            f"{path} has no column {key}; it has {', '.join(names) or 'none'}", _COLUMNS
        )
    if "mean_ms" not in names:
        similar = [name for name in names if name.startswith("mean")]
        hint = f"It has {similar[0]}: give the mean in ms, as mean_ms." if similar else _COLUMNS
        raise UnciaError(f"{path} has no column mean_ms", hint)
    return key


def _row(path: Path, number: int, line: Mapping[str | Any, Any], key: str) -> Row:
    location = f"{path}, line {number}"
    if None in line or None in line.values():
        raise UnciaError(f"{location} has more or fewer values than the header", _COLUMNS)
    size = _size(location, key, line[key])
    mean = _number(location, "mean_ms", line["mean_ms"])
    samples = None
    if (line.get("samples") or "").strip():
        samples = int(_number(location, "samples", line["samples"]))
    quantiles = sorted(
        (float(match[1]) / 100, _number(location, name, text))
        for name, text in line.items()
        if (match := _QUANTILE.fullmatch(name)) and text.strip()
    )
    for (low, below), (high, above) in pairwise(quantiles):
        if above < below:
            raise UnciaError(
                f"{location}: p{high * 100:g}_ms is {above:g}, below p{low * 100:g}_ms, {below:g}",
                "Quantiles rise; check the columns.",
            )
    if quantiles and not quantiles[0][1] * 0.2 <= mean <= quantiles[-1][1] * 20:
        raise UnciaError(
            f"{location}: mean_ms is {mean:g}, but the quantiles are from {quantiles[0][1]:g} to"
            f" {quantiles[-1][1]:g}",
            "Give all durations in ms.",
        )
    return Row(
        size,
        samples,
        mean * NS_PER_MS,
        tuple((share, value * NS_PER_MS) for share, value in quantiles),
    )


def _size(location: str, key: str, text: str) -> int:
    value = _number(location, key, text)
    if key == "memory_mb":
        if value != int(value) or value < _MIN_MB:
            raise UnciaError(
                f"{location}: memory_mb is {text.strip()}, which is no memory size in MB",
                "Sizes are whole MB, from 128 on.",
            )
        return int(value)
    if value > _MAX_VCPU:
        raise UnciaError(
            f"{location}: vcpu is {text.strip()}, more than {_MAX_VCPU}",
            "Give the share of a CPU, such as 0.25; 250 mvCPU are 0.25 vCPU.",
        )
    return round(Decimal(text.strip()) * MICRO_PER_VCPU)


def _number(location: str, key: str, text: str) -> float:
    try:
        value = float(Decimal(text.strip()))
    except InvalidOperation:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise UnciaError(
            f"{location}: {key} is {text.strip()!r}, which is no number above 0",
            "Give numbers without units; durations in ms.",
        )
    return value


def rows_of(path: Path, function: str | None) -> pa.Table:
    """Read a run's invocations of one function.

    Raises:
        UnciaError: they are of several functions and none is named, or it has none of that name.
    """
    import pyarrow.compute as pc

    from uncia import record

    rows = record.read(path)
    names = sorted(name for name in pc.unique(rows["function"]).to_pylist() if name is not None)
    if function is None and len(names) > 1:
        raise UnciaError(
            f"{path} has invocations of {len(names)} functions, whose CPU times are different:"
            f" {_listed(names)}",
            f"Name one: --function {names[0]}.",
        )
    if function is not None and function not in names:
        raise UnciaError(
            f"--function: {path} has no invocation of {function!r}", f"It has {_listed(names)}."
        )
    return rows if function is None else rows.filter(pc.equal(rows["function"], function))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")


def _of_run(path: Path, preset: Preset, function: str | None) -> list[Row]:
    """Group executions of a run's invocations that ended ok by allocation."""
    import numpy as np

    rows = rows_of(path, function)
    column, unit = ("allocated_memory", MIB) if preset.by_memory else ("allocated_cpu", 1)
    times: dict[int, list[int]] = {}
    for size, execution, outcome in zip(
        rows[column].to_pylist(),
        rows["execution"].to_pylist(),
        rows["outcome"].to_pylist(),
        strict=True,
    ):
        if size is not None and execution is not None and outcome == "ok":
            times.setdefault(round(size / unit), []).append(execution)
    if not times:
        raise UnciaError(
            f"{path} has no invocation that ended ok and says its execution and {column}",
            f"{preset.title} is sized by {column}; run the function on a platform that reports it.",
        )
    return [
        Row(
            size,
            len(executions),
            float(np.mean(executions)),
            tuple(zip(_SHARES, quantiles_of(executions, _SHARES), strict=True)),
        )
        for size, executions in times.items()
    ]
