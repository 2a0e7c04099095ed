"""What a bill refuses, and why: the same of a table, of its analyses and of one request."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tariff_rows import GB, MB, MS, S, row, table
from typer.testing import CliRunner

from uncia.cli import build
from uncia.costs.decompose import decompositions
from uncia.costs.instances import no_price
from uncia.errors import UnciaError
from uncia.tariffs import billable, get, read, yaml_text
from uncia.tariffs.bill import bill
from uncia.tariffs.request import cost, why_not

DATA = Path(__file__).parents[1] / "data" / "tariffs"
TARIFFS = [
    *(get(name) for name in billable()),
    read(DATA / "every-basis.yaml"),
    read(DATA / "first-free.yaml"),
]
ABSURD = "a value is negative or absurd"

# What is changed of a good row, and why every tariff refuses it; None: only some do, or none.
ROWS: dict[str, tuple[dict[str, Any], str | None]] = {
    "good": ({}, None),
    "throttled": ({"outcome": "throttled"}, "throttled"),
    "preempted": ({"outcome": "preempted"}, "preempted"),
    "late": ({"outcome": "timeout", "execution": None}, "timeout before it ran"),
    "lost": ({"outcome": "transport_error", "execution": None}, "transport error before it ran"),
    "failed": ({"outcome": "function_error"}, None),
    "late after it ran": ({"outcome": "timeout"}, None),
    "no outcome": ({"outcome": None}, None),
    "no execution": ({"execution": None}, "execution is null"),
    "negative execution": ({"execution": -1}, ABSURD),
    "a year and more": ({"execution": 366 * 24 * 3600 * S + 1}, ABSURD),
    "a year": ({"execution": 366 * 24 * 3600 * S}, None),
    "negative initialization": ({"initialization": -1}, ABSURD),
    "absurd memory": ({"allocated_memory": (1 << 42) + 1}, ABSURD),
    "absurd peak": ({"memory_peak": -1}, ABSURD),
    "absurd CPU time": ({"cpu_system": -1}, ABSURD),
    "throttled and absurd": ({"outcome": "throttled", "execution": -1}, "throttled"),
    "no initialization": ({"start": "cold"}, None),
    "no memory": ({"allocated_memory": None}, None),
    "no vCPU": ({"allocated_cpu": None}, None),
    "no allocation": ({"allocated_cpu": None, "allocated_memory": None}, None),
    "no use": ({"cpu_user": None, "cpu_system": None, "memory_avg": None}, None),
    "half of the CPU time": ({"cpu_system": None}, None),
    "large": ({"allocated_memory": 1 << 40}, None),
    "wide": ({"allocated_cpu": 999 * 10**6}, None),
    "preemptible unknown": ({"preemptible": None}, None),
}


def rows() -> list[dict[str, Any]]:
    usual: dict[str, Any] = {
        "execution": 130 * MS,
        "allocated_cpu": 500_000,
        "allocated_memory": GB,
        "cpu_user": 40 * MS,
        "memory_avg": 100 * MB,
        "reserved_cpu": 100_000,
        "borrowed_cpu_time": MS,
        "lent_cpu_time": MS,
        "lent_memory_avg": MB,
        "preemptible": False,
    }
    return [row(**usual | change, invocation=name) for name, (change, _) in ROWS.items()]


def as_request(values: dict[str, Any]) -> dict[str, Any]:
    parts = [item for item in (values["cpu_user"], values["cpu_system"]) if item is not None]
    return values | {"cpu_time": sum(parts) if parts else None}


@pytest.mark.parametrize("tariff", TARIFFS, ids=lambda tariff: tariff.id)
def test_a_request_is_refused_for_the_reason_that_a_bill_gives(tariff: Any) -> None:
    by_name = {item["invocation"]: as_request(item) for item in rows()}
    lines = bill(table(rows()), [tariff], ["invocation"])
    assert len(lines) == len(ROWS)
    refused = set()
    for line in lines:
        name = str(line.group["invocation"])
        reason = why_not(tariff, by_name[name])
        assert {**line.not_billable, **line.unpriced} == ({} if reason is None else {reason: 1})
        assert cost(tariff, by_name[name]) == line.exact_cost, name
        everywhere = ROWS[name][1]
        assert everywhere in (None, reason), name
        if reason is not None:
            refused.add(name)
    assert {"good", "failed", "a year"}.isdisjoint(refused)


@pytest.mark.parametrize("tariff", TARIFFS, ids=lambda tariff: tariff.id)
def test_the_analysis_of_a_bill_leaves_out_what_the_bill_does(tariff: Any) -> None:
    (line,) = bill(table(rows()), [tariff])
    (parts,) = decompositions(table(rows()), [tariff])
    assert dict(parts.left_out) == {**line.not_billable, **line.unpriced}
    assert parts.rows == line.rows
    assert parts.total == (line.exact_cost or Fraction(0))


@pytest.mark.parametrize("stored", [False, True])
def test_a_number_without_a_sign_that_fits_nothing_is_one_absurd_row(
    tmp_path: Path, stored: bool
) -> None:
    whole = table([row(execution=130 * MS), row()])
    index = whole.column_names.index("execution")
    huge = pa.array([130 * MS, 2**63 + 5], pa.uint64())
    data: Any = whole.set_column(index, "execution", huge)
    if stored:
        pq.write_table(data, tmp_path / "rows.parquet")
        data = tmp_path / "rows.parquet"
    (line,) = bill(data, ["aws-lambda-x86"])
    (alone,) = bill(table([row(execution=130 * MS)]), ["aws-lambda-x86"])
    assert (line.rows, line.unpriced) == (1, {ABSURD: 1})
    assert line.exact_cost == alone.exact_cost
    (parts,) = decompositions(data, ["aws-lambda-x86"])
    assert dict(parts.left_out) == {ABSURD: 1}


def own(name: str, folder: Path, price: str | None) -> Path:
    """A tariff of the catalogue under another id, with one price left out if it is given."""
    text = yaml_text(name).replace(f"id: {name}", "id: mine", 1)
    assert price is None or price in text
    path = folder / "own.yaml"
    path.write_text(text if price is None else text.replace(price, "price: null", 1), "utf-8")
    return path


def test_a_price_is_filled_in_where_the_tariff_is(tmp_path: Path) -> None:
    """There is nothing to copy of one that is a file already."""
    path = own("aws-lambda-x86", tmp_path, 'price: "0.0000002"')
    rows = table([row()])
    with pytest.raises(UnciaError, match="no public price is known for fee") as caught:
        bill(rows, [path])
    assert caught.value.hint == f"Fill in your prices in {path}."
    with pytest.raises(UnciaError) as caught:
        bill(rows, [read(path)])
    assert caught.value.hint == "Fill in your prices in its file."
    with pytest.raises(UnciaError) as caught:
        bill(rows, ["npfu"])
    assert (caught.value.hint or "").startswith("Copy the tariff (uncia tariffs show npfu --yaml)")
    instances = read(own("aws-ec2-c6g-medium", tmp_path, 'price: "0.034"'))
    assert (no_price(instances) or "").endswith(": fill in your prices in its file")
    assert "copy the tariff (uncia tariffs show azure-premium" in str(
        no_price(get("azure-premium"))
    )


def test_a_check_names_the_command_that_bills_instances(tmp_path: Path) -> None:
    def check(path: Path) -> str:
        return CliRunner().invoke(build(), ["tariffs", "check", str(path)]).output

    instances = own("aws-ec2-c6g-medium", tmp_path, None)
    assert "it bills the time of instances, as `uncia cost instances` prices it" in check(instances)
    without = own("aws-ec2-c6g-medium", tmp_path, 'price: "0.034"')
    assert "it cannot bill yet: no price for instance allocated" in check(without)
