"""The exact cost of a million requests, by experiment and tariff, from bill tables."""

from fractions import Fraction
from typing import Final

import pyarrow as pa

from uncia.stats import columns
from uncia.stats.columns import pc

MILLION: Final = 1_000_000


def cost_per_million(bill: pa.Table) -> dict[str, dict[str, Fraction]]:
    """USD per million priced requests, by experiment and tariff.

    Args:
        bill: rows of the bill table, each for one invocation or for a group. Rows without an
            experiment are totals of several and are ignored.

    Returns:
        experiment -> tariff -> amount. Rows without a cost are ignored; a tariff that priced no row
        of an experiment is missing there.
    """
    amounts = pa.table(
        {
            "experiment": columns.words(bill, "experiment"),
            "tariff": columns.words(bill, "tariff"),
            "rows": columns.integers(bill, "rows"),
            # The sum of many decimals of 38 digits may need more than 38.
            "cost": columns.column(bill, "cost_usd", pa.decimal256(76, 18)),
        }
    ).filter(pc.field("experiment").is_valid() & pc.field("cost").is_valid())
    summed = amounts.group_by(["experiment", "tariff"], use_threads=False).aggregate(
        [("rows", "sum"), ("cost", "sum")]
    )
    result: dict[str, dict[str, Fraction]] = {}
    for item in summed.to_pylist():
        if item["rows_sum"]:
            cost = Fraction(item["cost_sum"]) * MILLION / item["rows_sum"]
            result.setdefault(str(item["experiment"]), {})[str(item["tariff"])] = cost
    return result
