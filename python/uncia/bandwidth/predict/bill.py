"""The bill of a million invocations at each size, by the expression that bills any table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from uncia.bandwidth.presets import Preset

if TYPE_CHECKING:
    from uncia.bandwidth.predict.model import Ints, Predicted
    from uncia.tariffs import Line
    from uncia.tariffs.model import Tariff

ROWS: Final = 300_000
"""Invocations that are billed at most; more are thinned, evenly by rank, at each size."""

_ALLOCATED: Final = ("memory", "allocated")


@dataclass(frozen=True)
class Billed:
    """The bill of one size; values are None if the tariff cannot price it.

    Attributes:
        usd_per_million: the bill of a million invocations, with fees.
        fee_usd_per_million: fees alone.
        time_ms: mean billed time: billed memory over the size sold, which may be larger than the
            one requested.
        why_not: why it could not be priced.
    """

    usd_per_million: float | None
    fee_usd_per_million: float | None
    time_ms: float | None
    why_not: str | None


def billed(preset: Preset, predicted: Sequence[Predicted], tariff: Tariff) -> list[Billed]:
    """Bill predicted durations at each size, rounding each one up.

    Raises:
        UnciaError: the tariff does not bill such rows.
    """
    if not predicted:
        return []
    budget = max(1, ROWS // len(predicted))
    lines = _lines(
        preset,
        [item.size for item in predicted],
        [_thinned(item.durations, budget) for item in predicted],
        tariff,
    )
    result = []
    for item, line in zip(predicted, lines, strict=True):
        per_million = line.cost_usd_per_million
        fee = None
        if line.fee_usd is not None and line.rows:
            fee = float(line.fee_usd) * 1e6 / line.rows
        time = None
        sold = _memory_sold(preset, item.size, tariff)
        if line.billable_byte_ns is not None and sold and line.rows:
            time = line.billable_byte_ns / line.rows / sold / 1e6
        result.append(
            Billed(
                None if per_million is None else float(per_million),
                fee,
                time,
                next(iter(line.unpriced), None),
            )
        )
    return result


def _lines(
    preset: Preset, sizes: Sequence[int], durations: Sequence[Ints], tariff: Tariff
) -> list[Line]:
    """Bill some durations, ns, at each size."""
    import pyarrow as pa

    from uncia.tariffs import bill

    names = [str(size) for size in sizes]
    sold = [preset.allocation(size) for size in sizes]
    index = np.repeat(np.arange(len(names), dtype=np.int32), [item.size for item in durations])
    memory = np.array([amount for _, amount in sold], dtype=np.int64)[index]
    # If the vCPU follows from the memory, rounding it must not lead to a larger size.
    cpu = pa.nulls(index.size, pa.int64())
    if not preset.by_memory:
        cpu = pa.array(np.array([amount for amount, _ in sold], dtype=np.int64)[index])
    rows = pa.table(
        {
            "function": pa.DictionaryArray.from_arrays(pa.array(index), pa.array(names)),
            "outcome": pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(index.size, dtype=np.int32)), pa.array(["ok"])
            ),
            "execution": pa.array(np.concatenate(durations)),
            "initialization": pa.nulls(index.size, pa.int64()),
            "allocated_cpu": cpu,
            "allocated_memory": pa.array(memory),
        }
    )
    lines = {line.group["function"]: line for line in bill(rows, [tariff], ["function"])}
    return [lines[name] for name in names]


def _memory_sold(preset: Preset, size: int, tariff: Tariff) -> int:
    """Bytes that are charged for at a size, whatever the time; 0 where none are."""
    from uncia.tariffs.fit import Size, fit_size

    cpu, memory = preset.allocation(size)
    sold = fit_size(tariff.sizes, Size(None if preset.by_memory else cpu, memory))
    if sold.memory is None:
        return 0
    charges = [item for item in tariff.charges if (item.resource, item.basis) == _ALLOCATED]
    return sum(int(charge.rules(sold.memory)) for charge in charges)


def _thinned(durations: Ints, budget: int) -> Ints:
    """At most so many of them: the middle one of each of `budget` parts in ascending order."""
    if durations.size <= budget:
        return durations
    positions = (np.arange(budget) + 0.5) / budget * durations.size
    return np.sort(durations)[positions.astype(np.int64)]
