"""Bills of rows that come batch after batch are those of one table with all rows."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from tariff_rows import MB, MS, row, table

from uncia.errors import UnciaError
from uncia.tariffs import bill, get
from uncia.tariffs.line import Line
from uncia.tariffs.running import RunningBill

TARIFFS = [get(name) for name in ("aws-lambda-x86", "cloudflare-workers", "azure-consumption")]


def rows(count: int, functions: int) -> list[dict[str, Any]]:
    """Rows of which some failed, some lack a value, and some are absurd."""
    chance = random.Random(4)
    changes: tuple[dict[str, Any], ...] = (
        {"outcome": "throttled"},
        {"execution": None},
        {"execution": -1},
        {"memory_avg": None},
        {"start": "cold", "initialization": 250 * MS},
    )
    return [
        row(
            function=f"f{chance.randrange(functions)}",
            execution=chance.randrange(1, 300 * MS),
            allocated_memory=chance.choice((128, 512, 1769)) * MB,
            allocated_cpu=500_000,
            cpu_user=chance.randrange(40 * MS),
            memory_avg=chance.randrange(MB, 100 * MB),
        )
        | (chance.choice(changes) if chance.random() < 0.3 else {})
        for _ in range(count)
    ]


def figures(line: Line) -> tuple[Any, ...]:
    return (
        line.tariff,
        line.rows,
        line.exact_cost,
        dict(line.not_billable),
        dict(line.unpriced),
    )


def test_batches_add_up_to_the_bill_of_one_table() -> None:
    whole = table(rows(200, 3))
    with RunningBill(whole.schema, TARIFFS) as running:
        for start, end in ((0, 1), (1, 60), (60, 60), (60, 199), (199, 200)):
            running.add(whole.slice(start, end - start))
        assert running.rows == whole.num_rows
        total, by_function = running.lines()
    assert [figures(line) for line in total] == [figures(line) for line in bill(whole, TARIFFS)]
    grouped = bill(whole, TARIFFS, ["function"])
    assert {
        (function, *figures(line)[:3]) for function, lines in by_function.items() for line in lines
    } == {(line.group["function"], *figures(line)[:3]) for line in grouped}
    assert len(by_function) == 3


def test_functions_that_come_late_share_a_line() -> None:
    whole = table([row(function=f"f{index}") for index in range(5)])
    with RunningBill(whole.schema, TARIFFS[:1], max_functions=2) as running:
        running.add(whole)
        total, by_function = running.lines()
    assert set(by_function) == {"f0", "f1", None}
    assert by_function[None][0].rows == 3
    assert total[0].exact_cost == sum(lines[0].exact_cost or 0 for lines in by_function.values())


def test_without_rows_there_are_no_lines() -> None:
    with RunningBill(table([row()]).schema, TARIFFS) as running:
        assert running.lines() == ([], {})


def test_batches_that_cannot_be_billed_are_refused() -> None:
    schema = table([row()]).schema
    without = pa.schema([field for field in schema if field.name != "execution"])
    with pytest.raises(UnciaError, match="no column execution"):
        RunningBill(without, TARIFFS)
    texts = pa.schema(
        [field.with_type(pa.utf8()) if field.name == "execution" else field for field in schema]
    )
    with pytest.raises(UnciaError, match="execution"):
        RunningBill(texts, TARIFFS)
