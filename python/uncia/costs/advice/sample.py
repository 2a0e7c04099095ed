"""A sample of each configuration's rows in memory, for what is only an estimate anyway.

Rows are chosen by a digest of their identifier, so that every engine chooses the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import ibis
import numpy as np
import pyarrow as pa
from ibis.expr import types as ir

from uncia.backends import Backend
from uncia.costs.advice.bills import Price, digest_of
from uncia.costs.advice.rows import KEYS, Configuration, Facts, configuration, key_table
from uncia.costs.advice.sizes import Size
from uncia.stats.quantiles import Floats, Ints
from uncia.tariffs import bill
from uncia.tariffs.model import Tariff

MAX_ROWS: Final = 2_000
"""Rows of a configuration that an estimate rests on; of more, about so many are drawn."""

_NONE: Final = -1
_DIGITS: Final = 12
_ALL: Final = "g"  # above every hexadecimal digit
_MEASURES: Final = (
    "v_execution",
    "v_initialization",
    "v_cpu_time",
    "v_memory_peak",
    "v_memory_avg",
)


@dataclass(frozen=True)
class Sample:
    """Rows of a configuration, columns of shape (n,); -1 where a value is not known.

    Attributes:
        total: how many rows there are of which these were drawn.
        execution, initialization, cpu_time: ns.
        peak, average: memory, bytes.
        unknown_start: cold starts whose initialization is not known.
    """

    total: int
    execution: Ints
    initialization: Ints
    cpu_time: Ints
    peak: Ints
    average: Ints
    unknown_start: Any

    @property
    def rows(self) -> int:
        """How many were drawn."""
        return int(self.execution.size)

    @property
    def has_cpu(self) -> bool:
        """Whether the CPU time of every row is known."""
        return self.rows > 0 and bool((self.cpu_time >= 0).all())

    @property
    def has_peak(self) -> bool:
        """Whether the peak of memory of every row is known."""
        return self.rows > 0 and bool((self.peak >= 0).all())

    def describe(self) -> str:
        """How many rows an estimate rests on, in words."""
        if self.rows == self.total:
            return f"all {self.total:,} rows"
        return f"{self.rows:,} of {self.total:,} rows, drawn at random"


def draw(
    backend: Backend, rows: ir.Table, facts: Mapping[Configuration, Facts], *, identified: bool
) -> dict[Configuration, Sample]:
    """Samples of configurations.

    Args:
        backend: where the rows are.
        rows: of `billable_rows`.
        found: the configurations, with their facts.
        identified: whether rows have identifiers; without, there is no sample of a configuration
            of more than `MAX_ROWS` rows.
    """
    chosen = [
        config for config, positions in facts.items() if identified or positions.rows <= MAX_ROWS
    ]
    if not chosen:
        return {}
    limits = [_limit(facts[config].rows) for config in chosen]
    thresholds = ibis.memtable(key_table(chosen, limit=pa.array(limits, pa.utf8())))
    selected = rows.select(*KEYS, *_MEASURES, "unknown_start", "invocation").inner_join(
        thresholds, KEYS
    )
    if any(limit != _ALL for limit in limits):
        head = digest_of(selected["invocation"]).substr(0, _DIGITS)
        selected = selected.filter((selected["limit"] == _ALL) | (head < selected["limit"]))
    table = backend.collect(selected.select(*KEYS, *_MEASURES, "unknown_start", "invocation"))
    table = table.sort_by([("invocation", "ascending"), ("v_execution", "ascending")])
    measures = {
        name: table.column(name).fill_null(_NONE).to_numpy().astype(np.int64) for name in _MEASURES
    }
    unknown = table.column("unknown_start").to_numpy(zero_copy_only=False).astype(bool)
    places_of: dict[Configuration, list[int]] = defaultdict(list)
    for position, row in enumerate(table.select(list(KEYS)).to_pylist()):
        places_of[configuration(row)].append(position)
    samples = {}
    for config, positions in places_of.items():
        selection = np.array(positions, np.int64)
        samples[config] = Sample(
            total=facts[config].rows,
            execution=measures["v_execution"][selection],
            initialization=measures["v_initialization"][selection],
            cpu_time=measures["v_cpu_time"][selection],
            peak=measures["v_memory_peak"][selection],
            average=measures["v_memory_avg"][selection],
            unknown_start=unknown[selection],
        )
    return samples


def _limit(rows: int) -> str:
    if rows <= MAX_ROWS:
        return _ALL
    return format(16**_DIGITS * MAX_ROWS // rows, f"0{_DIGITS}x")


@dataclass(frozen=True)
class Rows:
    """Rows to be billed, as they would be elsewhere.

    Attributes:
        execution: ns, shape (n,).
        size: what each is allocated.
        sample: where the rest comes from, row by row.
        cpu_time: ns, where it is not that of the sample.
        picked: which rows of the sample they are; by default all.
    """

    execution: Ints
    size: Size
    sample: Sample
    cpu_time: Ints | None = None
    picked: Any = None


def bill_rows(backend: Backend, tariff: Tariff, groups: Mapping[Any, Rows]) -> dict[Any, Price]:
    """Bill groups of rows under a tariff.

    Args:
        backend: where it is computed; one that takes tables in memory.
        tariff: which bills by request.
        groups: by any name.
    """
    names = list(groups)
    parts = []
    for index, name in enumerate(names):
        rows_of_group = groups[name]
        parts.append(_table(str(index), rows_of_group))
    if not parts:
        return {}
    result: dict[Any, Price] = {name: Price() for name in names}
    for line in bill(pa.concat_tables(parts), [tariff], ("function",), backend):
        result[names[int(str(line.group["function"]))]].add(line, None)
    return result


def _table(name: str, rows: Rows) -> pa.Table:
    sample, n = rows.sample, int(rows.execution.size)
    picked = slice(None) if rows.picked is None else rows.picked
    cpu_time = sample.cpu_time[picked] if rows.cpu_time is None else rows.cpu_time
    unknown = sample.unknown_start[picked]
    return pa.table(
        {
            "function": pa.repeat(pa.scalar(name), n),
            "start": pa.array(np.where(unknown, "cold", "warm").astype(object), pa.utf8()),
            "execution": pa.array(rows.execution, pa.int64()),
            "initialization": _known(sample.initialization[picked]),
            "cpu_user": _known(cpu_time),
            "memory_peak": _known(sample.peak[picked]),
            "memory_avg": _known(sample.average[picked]),
            "allocated_memory": pa.array([rows.size.memory] * n, pa.int64()),
            "allocated_cpu": pa.array([rows.size.cpu] * n, pa.int64()),
        }
    )


def _known(values: Ints) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values < 0)


def stretched(sample: Sample, measured: int, wanted: int, threads: int) -> Ints:
    """Executions at another vCPU share, by the CPU-bound model.

    The CPU time takes ``cpu_time / min(share, threads)``; what is left of the execution is idle,
    and stays. More vCPU never slows a row down, and less never speeds it up. The model is the
    reciprocal one, which is known to be too slow by 25.8 % on average on AWS Lambda, where short
    CPU bursts pass before the quota holds them back (cost paper, section 4).

    Args:
        sample: whose CPU time is known.
        measured: the share at which it was measured, micro-vCPU.
        wanted: the other.
        threads: how many run at a time, at most.

    Returns:
        ns, rounded up, shape (n,).
    """
    if wanted == measured:
        return sample.execution
    execution = sample.execution.astype(np.float64)
    busy = sample.cpu_time.astype(np.float64)
    idle = np.maximum(execution - busy / _speed(measured, threads), 0.0)
    estimate = np.ceil(idle + busy / _speed(wanted, threads)).astype(np.int64)
    bound = np.minimum if wanted > measured else np.maximum
    result: Ints = bound(estimate, sample.execution)
    return result


def _speed(share: int, threads: int) -> float:
    return float(min(share / 1e6, threads))


def threads_of(sample: Sample) -> int:
    """How many threads ran at a time, at most: the CPU time over the execution, rounded up.

    A tenth more is taken for the error of measuring, not for a thread.
    """
    ran = sample.execution > 0
    if not ran.any():
        return 1
    rates: Floats = sample.cpu_time[ran] / sample.execution[ran]
    return max(1, int(np.ceil(np.quantile(rates, 0.95) - 0.1)))
