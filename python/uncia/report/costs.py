"""Costs of a run's rows in random groups, from which the variation between rows is estimated."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from uncia.stats import bootstrap, columns
from uncia.stats.comparison import GroupedCost

GROUPS: Final = 150
"""Number of random groups that the rows of an experiment are billed in (fewer rows are billed one
by one). 150 groups give the spread of a mean to about 6 %, in a time that does not grow with the
run."""

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
        `uncia.stats.columns.NO_EXPERIMENT`. A tariff that can price none of an experiment's rows
        has no groups.

    Raises:
        UnciaError: there is no such tariff.
    """
    from uncia.tariffs import bill

    result: dict[str, dict[str, tuple[list[float], list[int]]]] = {}
    parts = []
    for name, part in columns.by_word(table, "experiment").items():
        order = bootstrap.generator(seed, "groups", name).permutation(part.num_rows)
        groups = pa.array([str(group) for group in order % GROUPS], pa.utf8())
        names = pa.array([name] * part.num_rows, pa.utf8())
        parts.append(part.append_column(_NAME, names).append_column(_GROUP, groups))
    for line in bill(pa.concat_tables(parts), tariffs, group_by=(_NAME, _GROUP)):
        by_tariff = result.setdefault(str(line.group[_NAME]), {})
        costs, rows = by_tariff.setdefault(line.tariff, ([], []))
        if line.rows and line.cost_usd is not None:
            costs.append(float(line.cost_usd))
            rows.append(line.rows)
    return {
        name: {
            tariff: GroupedCost(np.array(costs, np.float64), np.array(rows, np.int64))
            for tariff, (costs, rows) in by_tariff.items()
        }
        for name, by_tariff in result.items()
    }
