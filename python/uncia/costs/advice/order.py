"""Order statistics of each configuration, exactly, of any number of rows.

Sorting half a billion values to read off three of them would be waste. Two aggregations do instead:
the first counts values in bins of whole numbers, at most 1/128 of the value wide; it tells in which
bin a rank lies, and the second counts the single values of these bins. Only counts are brought
back.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ibis
import pyarrow as pa
from ibis.expr import types as ir

from uncia.backends import Backend
from uncia.costs.advice.rows import KEYS, Configuration, configuration, key_table
from uncia.tariffs.exact import integer

_LOWEST: Final = 8
_STEP: Final = 4
_HIGHEST: Final = 60
_PRECISION: Final = 7  # a bin is at most 2^-7 of its values wide


def bin_of(value: Any) -> Any:
    """The least value of the bin that holds ``value`` >= 0; it rises with the value.

    Bins are widest, in proportion, at the lower end of each four octaves.
    """
    widths = [
        (value < integer(1 << (low + _STEP)), integer(1 << (low - _PRECISION)))
        for low in range(_LOWEST, _HIGHEST, _STEP)
    ]
    first = (value < integer(1 << _LOWEST), integer(1))
    width = ibis.cases(first, *widths, else_=integer(1 << (_HIGHEST - _PRECISION)))
    return value - value % width


def order_statistics(
    backend: Backend,
    rows: ir.Table,
    column: str,
    ranks: Mapping[Configuration, Sequence[int]],
) -> dict[Configuration, dict[int, int]]:
    """The values of given ranks among a column's values that are not null.

    Args:
        backend: where it is computed.
        rows: of `billable_rows`.
        column: of whole numbers >= 0, such as ``v_execution``.
        ranks: of each configuration, from 1; none above the number of its values.

    Returns:
        Configuration -> rank -> value.
    """
    values = rows.filter(rows[column].notnull()).select(*KEYS, value=rows[column])
    values = values.mutate(bin=bin_of(values["value"]))
    counted = backend.collect(values.aggregate(n=values.count(), by=[*KEYS, "bin"]))
    bins: dict[Configuration, list[tuple[int, int]]] = defaultdict(list)
    for row in counted.to_pylist():
        bins[configuration(row)].append((int(row["bin"]), int(row["n"])))
    wanted: list[tuple[Configuration, int]] = []
    offsets: dict[tuple[Configuration, int], int] = {}
    for one, own in ranks.items():
        held = sorted(bins[one])
        ends = list(itertools.accumulate(n for _, n in held))
        for (low, n), end in zip(held, ends, strict=True):
            if any(end - n < rank <= end for rank in own):
                wanted.append((one, low))
                offsets[one, low] = end - n
    if not wanted:
        return {one: {} for one in ranks}
    places = ibis.memtable(
        key_table([one for one, _ in wanted], bin=pa.array([low for _, low in wanted], pa.int64()))
    )
    held_values = values.inner_join(places, [*KEYS, "bin"])
    single = backend.collect(
        held_values.aggregate(n=held_values.count(), by=[*KEYS, "bin", "value"])
    )
    inside: dict[tuple[Configuration, int], list[tuple[int, int]]] = defaultdict(list)
    for row in single.to_pylist():
        inside[configuration(row), int(row["bin"])].append((int(row["value"]), int(row["n"])))
    found: dict[Configuration, dict[int, int]] = {one: {} for one in ranks}
    for (one, low), counts in inside.items():
        before = offsets[one, low]
        for value, n in sorted(counts):
            for rank in ranks[one]:
                if before < rank <= before + n:
                    found[one][rank] = value
            before += n
    return found
