"""Samples of each configuration's rows in memory, for estimates.

A digest of their identifier selects rows, so that every engine selects the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
"""Rows of a configuration in a sample; of more, about as many are drawn."""

_MAX_LINES: Final = 3_000
"""Lines of a bill up to which all tariffs are billed together; each takes half a millisecond."""

NONE: Final = -1
"""Instead of a value that is unknown."""

_DIGITS: Final = 12
_ALL: Final = "g"  # above every hexadecimal digit
_MEASURES: Final = (
    "v_execution",
    "v_initialization",
    "v_cpu_time",
    "v_memory_peak",
    "v_memory_avg",
    "throttled",
)


@dataclass(frozen=True)
class Sample:
    """Rows of a configuration, columns of shape (n,); -1 where a value is unknown.

    Attributes:
        total: number of rows from which these were drawn.
        execution, initialization, cpu_time: ns.
        peak, average: memory, bytes.
        unknown_start: cold starts with unknown initialization.
        throttled: ns that the platform held back the threads of a row, added up; None: unknown of
            every row.
    """

    total: int
    execution: Ints
    initialization: Ints
    cpu_time: Ints
    peak: Ints
    average: Ints
    unknown_start: Any
    throttled: Ints | None = None

    @property
    def rows(self) -> int:
        """The number of rows in the sample."""
        return int(self.execution.size)

    @property
    def has_cpu(self) -> bool:
        """Whether the CPU time of every row is known."""
        return self.rows > 0 and bool((self.cpu_time >= 0).all())

    @property
    def has_peak(self) -> bool:
        """Whether the peak of memory of every row is known."""
        return self.rows > 0 and bool((self.peak >= 0).all())

    def take(self, positions: Ints) -> Sample:
        """The rows at these positions, as often as each is named."""
        return replace(
            self,
            execution=self.execution[positions],
            initialization=self.initialization[positions],
            cpu_time=self.cpu_time[positions],
            peak=self.peak[positions],
            average=self.average[positions],
            unknown_start=self.unknown_start[positions],
            throttled=None if self.throttled is None else self.throttled[positions],
        )

    def describe(self) -> str:
        """Describe the size of the sample, in words."""
        if self.rows == self.total:
            return "the only row" if self.total == 1 else f"all {self.total:,} rows"
        return f"{self.rows:,} of {self.total:,} rows, drawn at random"


def draw(
    backend: Backend, rows: ir.Table, facts: Mapping[Configuration, Facts], *, identified: bool
) -> dict[Configuration, Sample]:
    """Draw samples of configurations.

    Args:
        backend: where the rows are.
        rows: of `billable_rows`.
        found: the configurations, with their facts.
        identified: whether rows have identifiers; without, configurations of more than `MAX_ROWS`
            rows have no sample.
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
        name: table.column(name).fill_null(NONE).to_numpy().astype(np.int64) for name in _MEASURES
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
            throttled=measures["throttled"][selection],
        )
    return samples


def _limit(rows: int) -> str:
    if rows <= MAX_ROWS:
        return _ALL
    return format(16**_DIGITS * MAX_ROWS // rows, f"0{_DIGITS}x")


@dataclass(frozen=True)
class Rows:
    """Rows of a sample with other times and size, to be billed.

    Attributes:
        execution: ns, shape (n,).
        size: the allocation of each row.
        sample: has the other columns, row by row.
        cpu_time: ns, if it differs from the sample's.
        picked: mask of the sample's rows; by default all.
    """

    execution: Ints
    size: Size
    sample: Sample
    cpu_time: Ints | None = None
    picked: Any = None


def bill_rows(backend: Backend, tariff: Tariff, groups: Mapping[Any, Rows]) -> dict[Any, Price]:
    """Bill groups of rows under a tariff.

    Args:
        backend: computes it; must accept tables in memory.
        tariff: which bills by request.
        groups: by any name.
    """
    named = {(tariff.id, name): rows for name, rows in groups.items()}
    return {name: price for (_, name), price in bill_each(backend, [tariff], named).items()}


def bill_each(
    backend: Backend, tariffs: Sequence[Tariff], groups: Mapping[tuple[str, Any], Rows]
) -> dict[tuple[str, Any], Price]:
    """Bill groups of rows, each under its tariff.

    Making a query takes longer than computing it, so all tariffs are billed in one while they are
    few: it bills every group under every tariff.

    Args:
        backend: computes it; must accept tables in memory.
        tariffs: which bill by request.
        groups: by id of a tariff and any name.
    """
    used = [tariff for tariff in tariffs if any(name == tariff.id for name, _ in groups)]
    if len(used) > 1 and len(used) * len(groups) > _MAX_LINES:
        result: dict[tuple[str, Any], Price] = {}
        for tariff in used:
            of_tariff = {key: rows for key, rows in groups.items() if key[0] == tariff.id}
            result |= bill_each(backend, [tariff], of_tariff)
        return result
    keys = list(groups)
    prices = {key: Price() for key in keys}
    if not keys:
        return prices
    table = pa.concat_tables([_table(str(index), groups[key]) for index, key in enumerate(keys)])
    for line in bill(table, used, ("function",), backend):
        key = keys[int(str(line.group["function"]))]
        if key[0] == line.tariff:
            prices[key].add(line, None)
    return prices


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

    The busy time is ``cpu_time / min(share, threads)``; the rest of the execution is idle and does
    not change. Where a row tells how long it was throttled, that and its CPU time were its busy
    time. More vCPU never slows a row down, and less never speeds it up. This is the
    reciprocal model, which overestimates by 25.8 % on average on AWS Lambda, where short CPU bursts
    end before the quota throttles them (cost paper, section 4).

    Args:
        sample: with known CPU time.
        measured: the share at which it was measured, micro-vCPU.
        wanted: the other share, micro-vCPU.
        threads: the most that run at the same time.

    Returns:
        ns, rounded up, shape (n,).
    """
    if wanted == measured:
        return sample.execution
    execution = sample.execution.astype(np.float64)
    busy = sample.cpu_time.astype(np.float64)
    busy_then = busy / _speed(measured, threads)
    if sample.throttled is not None:
        known = sample.throttled >= 0
        busy_then = np.where(known, (busy + sample.throttled) / threads, busy_then)
    idle = np.maximum(execution - busy_then, 0.0)
    estimate = np.ceil(idle + busy / _speed(wanted, threads)).astype(np.int64)
    bound = np.minimum if wanted > measured else np.maximum
    result: Ints = bound(estimate, sample.execution)
    return result


def _speed(share: int, threads: int) -> float:
    return float(min(share / 1e6, threads))


def threads_of(sample: Sample) -> int:
    """The most threads that ran at the same time: CPU time over execution, rounded up.

    An excess of a tenth counts as measurement error, not as a thread.
    """
    ran = sample.execution > 0
    if not ran.any():
        return 1
    rates: Floats = sample.cpu_time[ran] / sample.execution[ran]
    return max(1, int(np.ceil(np.quantile(rates, 0.95) - 0.1)))
