from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from uncia import record
from uncia.stats.money import cost_per_million


def bill(rows: list[tuple[str | None, str, int, str | None]]) -> pa.Table:
    data: dict[str, list[Any]] = {
        "experiment": [row[0] for row in rows],
        "tariff": [row[1] for row in rows],
        "rows": [row[2] for row in rows],
        "cost_usd": [None if row[3] is None else Decimal(row[3]) for row in rows],
    }
    return record.conform(pa.table(data), "bill")


def test_costs_are_summed_exactly_by_experiment_and_tariff() -> None:
    tiny, huge = "0.000000000000000001", "99999999999999999999"
    result = cost_per_million(
        bill(
            [
                ("a", "x", 2, "0.000004"),
                ("a", "x", 2, tiny),
                ("a", "y", 1, huge),
                ("a", "y", 1, huge),
                ("b", "x", 1, "0"),
                ("b", "y", 0, None),
                (None, "x", 9, "1"),
            ]
        )
    )
    assert result == {
        "a": {
            "x": Fraction(Decimal("0.000004000000000001")) * 10**6 / 4,
            "y": Fraction(huge) * 10**6,
        },
        "b": {"x": 0},
    }


def test_no_bill_no_costs() -> None:
    assert cost_per_million(record.empty("bill")) == {}
