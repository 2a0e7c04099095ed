"""What the rows of a run cost, in groups small enough to tell how costs vary between rows."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from uncia.stats import bootstrap, columns
from uncia.stats.comparison import GroupedCost

GROUPS: Final = 150
"""Rows of an experiment are billed one by one, or in so many groups chosen at random if there are
more: the spread of a mean over 150 random groups is known to some 6 % of itself, and the time that
billing takes does not grow with the run."""

_NAME: Final = "name"
_GROUP: Final = "group"


def grouped(
    table: pa.Table, tariffs: Sequence[str] | None = None, seed: int = bootstrap.SEED
) -> dict[str, dict[str, GroupedCost]]:
    """Bill a run's rows in random groups.

    Args:
        table: invocations.
        tariffs: ids or files; by default every tariff that bills by request.
        seed: of the choice of groups.

    Returns:
        experiment -> tariff -> costs; rows without an experiment are under
        `uncia.stats.columns.NO_EXPERIMENT`. A tariff that can price none of an experiment's rows is
        there with no groups.

    Raises:
        UnciaError: there is no such tariff.
    """
    from uncia.tariffs import bill

    found: dict[str, dict[str, tuple[list[float], list[int]]]] = {}
    parts = []
    for name, own in columns.by_word(table, "experiment").items():
        order = bootstrap.generator(seed, "groups", name).permutation(own.num_rows)
        groups = pa.array([str(place) for place in order % GROUPS], pa.utf8())
        names = pa.array([name] * own.num_rows, pa.utf8())
        parts.append(own.append_column(_NAME, names).append_column(_GROUP, groups))
    for line in bill(pa.concat_tables(parts), tariffs, group_by=(_NAME, _GROUP)):
        own_costs = found.setdefault(str(line.group[_NAME]), {})
        costs, rows = own_costs.setdefault(line.tariff, ([], []))
        if line.rows and line.cost_usd is not None:
            costs.append(float(line.cost_usd))
            rows.append(line.rows)
    return {
        name: {
            tariff: GroupedCost(np.array(costs, np.float64), np.array(rows, np.int64))
            for tariff, (costs, rows) in by_tariff.items()
        }
        for name, by_tariff in found.items()
    }
