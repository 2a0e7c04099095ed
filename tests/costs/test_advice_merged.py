"""The hint `merge requests`, against bills of merged requests worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from advice_rows import MB, MS, S, rows, sample, table

from uncia.backends import Backend, connect
from uncia.costs.advice import hints
from uncia.costs.advice.merged import is_changed_by_merging, merged_rows
from uncia.tariffs.catalogue import read

HINT = "merge requests"
FEE = Fraction("0.005")
FREE_TIME = """
id: own
provider: Us
product: Functions
region: null
architecture: any
currency: USD
as_of: 2026-11-01
summary: "Memory over turnaround time, of which a second is free"
sources: {prices: {citation: "A price list"}}
time: {kind: turnaround, free: 1000 ms, source: prices}
charges:
  - {resource: memory, basis: used, price: "1", per: GB-second, source: prices}
fee: {price: "0.005", source: prices}
sizes: {kind: observed, source: prices}
"""
BY_CPU = """
  - {resource: cpu, basis: used, price: "0.001", per: vCPU-second, source: prices}
fee:"""


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with connect() as opened:
        yield opened


def merging(
    backend: Backend, folder: Path, executions: list[int], text: str = FREE_TIME, **more: Any
) -> pd.DataFrame:
    """The hints on merging for rows of these executions, ns, under a tariff."""
    tariff = folder / "own.yaml"
    tariff.write_text(text, encoding="utf-8")
    names = [f"{index:04}" for index in range(len(executions))]
    data = table(rows("f", executions, memory=1024, invocation=names, **more))
    result = hints(data, tariffs=[tariff], backend=backend)
    return result[result["hint"] == HINT]


def test_memory_counts_by_how_long_it_was_used(backend: Backend, tmp_path: Path) -> None:
    # One by one all of their time is free. Merged, 90 ms of 1.09 s are billed, at nearly 1 GB.
    executions, memory = ([S] + [10 * MS] * 9) * 10, ([1024 * MB] + [100 * MB] * 9) * 10
    merged = Fraction(1024 * 1000 + 100 * 90, 1024 * 1090) * Fraction(90, 1000) + FEE
    assert merged > 10 * FEE
    assert merging(backend, tmp_path, executions, memory_avg=memory).empty
    # At a tenth of the memory it pays.
    memory = [it // 10 for it in memory]
    hint = merging(backend, tmp_path, executions, memory_avg=memory).iloc[0]
    saved = 10 * (10 * FEE - (merged - FEE) / 10 - FEE)
    assert float(hint["saving_usd"]) == pytest.approx(float(saved), rel=1e-6)


def test_averages_of_merged_rows() -> None:
    year, most = 366 * 24 * 3600 * S, 1 << 42
    cases = [
        ((1, 3), (100, 200), 175),
        ((0, 3), (100, 200), 200),
        ((0, 0), (100, 200), 150),
        ((1, 1), (1, 2), 2),  # a part of a byte is rounded up
        ((1, 0), (100, -1), -1),
        ((year, year), (most, most - 2), most - 1),  # beyond 64 bits
    ]
    executions = [it for case, _, _ in cases for it in case]
    averages = [it for _, case, _ in cases for it in case]
    merged = merged_rows(sample(executions, average=averages), 2)
    assert merged.average.tolist() == [expected for _, _, expected in cases]


def test_rows_that_cannot_be_priced_are_not_merged(backend: Backend, tmp_path: Path) -> None:
    text = FREE_TIME.replace("\nfee:", BY_CPU)
    starts: list[Any] = ["warm"] * 60
    cpu: list[Any] = [0] * 60
    starts[7] = "cold"  # of unknown initialization
    cpu[23] = None
    memory = {"memory_avg": 40 * MB}
    hint = merging(
        backend, tmp_path, [30 * MS] * 60, text, start=starts, cpu_user=cpu, **memory
    ).iloc[0]
    # 58 are priced, and all of their time is free, merged or not: a fee is left of ten.
    assert Fraction(hint["saving_usd"]) == 58 * FEE * Fraction(9, 10)
    assert merging(backend, tmp_path, [30 * MS] * 60, text, cpu_user=[None] * 60, **memory).empty


def test_fewer_requests_than_are_merged_count_as_if_they_came_again(
    backend: Backend, tmp_path: Path
) -> None:
    hint = merging(backend, tmp_path, [30 * MS] * 4, memory_avg=40 * MB).iloc[0]
    assert Fraction(hint["saving_usd"]) == 4 * FEE * Fraction(9, 10)
    # 10 of 300 ms exceed by 2 s what is free of each.
    dear = merging(backend, tmp_path, [300 * MS] * 4, memory_avg=1024 * MB)
    assert dear.empty


@pytest.mark.parametrize(
    ("charge", "changed"),
    [
        ("resource: memory, basis: allocated, maximum: 512 MB", False),
        ("resource: memory, basis: allocated, free: 128 MB", False),
        ("resource: memory, basis: used, maximum: 512 MB", True),
        ("resource: memory, basis: used, granularity: 128 MB", False),
    ],
)
def test_rules_of_what_is_allocated_hold_for_merged_requests(
    charge: str, changed: bool, tmp_path: Path
) -> None:
    text = FREE_TIME.replace("free: 1000 ms, ", "").replace("resource: memory, basis: used", charge)
    file = tmp_path / "own.yaml"
    file.write_text(text, encoding="utf-8")
    assert is_changed_by_merging(read(file)) is changed
    file.write_text(FREE_TIME, encoding="utf-8")
    assert is_changed_by_merging(read(file))
