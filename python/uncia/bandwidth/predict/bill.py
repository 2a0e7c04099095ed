"""What a million invocations cost at each size, by the one expression that bills any table."""

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
"""More invocations than this are thinned before they are billed: evenly by rank, at each size."""

_ALLOCATED: Final = ("memory", "allocated")


@dataclass(frozen=True)
class Billed:
    """Of one size; None where the tariff cannot price it.

    Attributes:
        usd_per_million: the bill of a million invocations, with fees.
        fee_usd_per_million: fees alone.
        time_ms: mean billed time: what is billed for memory over the size sold, which may be a
            larger one than was asked for.
        why_not: why it could not be priced.
    """

    usd_per_million: float | None
    fee_usd_per_million: float | None
    time_ms: float | None
    why_not: str | None


def billed(preset: Preset, predicted: Sequence[Predicted], tariff: Tariff) -> list[Billed]:
    """The bill at each size, of durations as they were predicted: rounded up one by one.

    Raises:
        UnciaError: the tariff is none that bills such rows.
    """
    if not predicted:
        return []
    most = max(1, ROWS // len(predicted))
    lines = _lines(
        preset,
        [one.size for one in predicted],
        [_thinned(one.durations, most) for one in predicted],
        tariff,
    )
    found = []
    for one, line in zip(predicted, lines, strict=True):
        per_million = line.cost_usd_per_million
        fee = None
        if line.fee_usd is not None and line.rows:
            fee = float(line.fee_usd) * 1e6 / line.rows
        time = None
        sold = _memory_sold(preset, one.size, tariff)
        if line.billable_byte_ns is not None and sold and line.rows:
            time = line.billable_byte_ns / line.rows / sold / 1e6
        found.append(
            Billed(
                None if per_million is None else float(per_million),
                fee,
                time,
                next(iter(line.unpriced), None),
            )
        )
    return found


def _lines(
    preset: Preset, sizes: Sequence[int], durations: Sequence[Ints], tariff: Tariff
) -> list[Line]:
    """The bill of some durations, ns, at each size."""
    import pyarrow as pa

    from uncia.tariffs import bill

    names = [str(size) for size in sizes]
    sold = [preset.allocation(size) for size in sizes]
    place = np.repeat(np.arange(len(names), dtype=np.int32), [one.size for one in durations])
    memory = np.array([amount for _, amount in sold], dtype=np.int64)[place]
    # Where the vCPU follows from the memory, rounding it must not ask for a larger size.
    cpu = pa.nulls(place.size, pa.int64())
    if not preset.by_memory:
        cpu = pa.array(np.array([amount for amount, _ in sold], dtype=np.int64)[place])
    rows = pa.table(
        {
            "function": pa.DictionaryArray.from_arrays(pa.array(place), pa.array(names)),
            "outcome": pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(place.size, dtype=np.int32)), pa.array(["ok"])
            ),
            "execution": pa.array(np.concatenate(durations)),
            "initialization": pa.nulls(place.size, pa.int64()),
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
    charges = [one for one in tariff.charges if (one.resource, one.basis) == _ALLOCATED]
    return sum(int(one.rules(sold.memory)) for one in charges if sold.memory is not None)


def _thinned(durations: Ints, most: int) -> Ints:
    """At most so many of them: the middle one of each of `most` parts in ascending order."""
    if durations.size <= most:
        return durations
    places = (np.arange(most) + 0.5) / most * durations.size
    return np.sort(durations)[places.astype(np.int64)]
