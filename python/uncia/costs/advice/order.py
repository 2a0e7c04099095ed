"""Order statistics of each configuration, exactly, of any number of rows.

Sorting half a billion values to read off three of them would be waste. Two aggregations do instead:
the first counts values in bins of whole numbers, at most 1/128 of the value wide; it tells in which
bin a rank lies, and the second counts the single values of these bins. Only the values that were
asked for are brought back.
"""

from __future__ import annotations

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
    values_by_rank: dict[Configuration, dict[int, int]] = {config: {} for config in ranks}
    pairs = [
        (config, rank)
        for config, config_ranks in ranks.items()
        for rank in dict.fromkeys(config_ranks)
    ]
    if not pairs:
        return values_by_rank
    wanted = ibis.memtable(
        key_table(
            [config for config, _ in pairs], rank=pa.array([rank for _, rank in pairs], pa.int64())
        )
    )
    values = rows.filter(rows[column].notnull()).select(*KEYS, value=rows[column])
    values = values.mutate(bin=bin_of(values["value"]))
    bin_keys = [*KEYS, "bin"]
    bins = _up_to(values.aggregate(n=_count(values), by=bin_keys), KEYS, "bin")
    with_ranks = bins.inner_join(wanted, list(KEYS))
    with_ranks = with_ranks.filter(_contains(with_ranks)).mutate(
        before=with_ranks["up_to"] - with_ranks["n"]
    )
    bins_wanted = with_ranks.select(*bin_keys, "before").distinct()
    in_bins = values.inner_join(bins_wanted, bin_keys)
    single = in_bins.aggregate(
        n=_count(in_bins), before=in_bins["before"].max(), by=[*bin_keys, "value"]
    )
    single = _up_to(single, bin_keys, "value")
    single = single.mutate(up_to=single["up_to"] + single["before"])
    matches = single.inner_join(with_ranks.select(*bin_keys, "rank"), bin_keys)
    matches = matches.filter(_contains(matches)).select(*KEYS, "rank", "value")
    for row in backend.collect(matches).to_pylist():
        values_by_rank[configuration(row)][int(row["rank"])] = int(row["value"])
    return values_by_rank


def _count(table: ir.Table) -> Any:
    return table.count().cast("int64")


def _up_to(counts: ir.Table, group: Sequence[str], order: str) -> ir.Table:
    """Counts with ``up_to``: how many there are up to each, in an order within groups."""
    window = ibis.window(group_by=list(group), order_by=order, rows=(None, 0))
    return counts.mutate(up_to=counts["n"].sum().over(window).cast("int64"))


def _contains(table: ir.Table) -> Any:
    """Whether a rank lies among the ``n`` that end at ``up_to``."""
    return (table["rank"] <= table["up_to"]) & (table["rank"] > table["up_to"] - table["n"])
