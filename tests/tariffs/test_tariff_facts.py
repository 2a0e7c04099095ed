"""What Parquet footers tell changes how a bill is computed, and never the bill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tariff_rows import GB, MB, MS, S, row, table
from test_tariff_fits import some_rows

from uncia.tariffs import Line, bill
from uncia.tariffs.allocation import ALLOCATIONS
from uncia.tariffs.facts import Fact, read_facts


def write(data: pa.Table, path: Path, **options: Any) -> Path:
    pq.write_table(data, path, **options)
    return path


def test_footers_tell_nulls_and_bounds_over_all_files_and_row_groups(tmp_path: Path) -> None:
    rows = [row(execution=number * MS, memory_avg=None) for number in range(1, 10)]
    first = write(table(rows), tmp_path / "a.parquet", row_group_size=4)
    second = write(
        table([row(execution=S, outcome="timeout", memory_avg=5)]), tmp_path / "b.parquet"
    )
    (only, both) = read_facts(first), read_facts([first, second])
    assert only["initialization"].rare
    assert not only["execution"].rare
    assert not both["memory_avg"].rare
    assert only["execution"] == Fact(complete=True, low=MS, high=9 * MS)
    assert only["memory_avg"].empty
    assert only["initialization"] == Fact(empty=True)
    assert only["outcome"].always("ok")
    assert not only["outcome"].always("timeout")
    assert both["execution"] == Fact(complete=True, low=MS, high=S)
    assert both["memory_avg"] == Fact(low=5, high=5)
    assert not both["outcome"].always("ok")
    assert only["execution"].within(0, 9 * MS)
    assert not only["execution"].within(0, 9 * MS - 1)
    assert only["memory_avg"].within(0, 0)


def test_what_footers_do_not_tell_is_not_known(tmp_path: Path) -> None:
    data = table([row()])
    bare = write(data, tmp_path / "bare.parquet", write_statistics=False)
    assert not read_facts(bare)["execution"].complete
    assert not read_facts(bare)["execution"].within(0, 10 * S)
    assert read_facts(data) == {}
    fewer = write(data.drop(["memory_avg"]), tmp_path / "fewer.parquet")
    assert "memory_avg" not in read_facts([bare, fewer])
    nothing = write(data.slice(0, 0), tmp_path / "nothing.parquet")
    assert not read_facts(nothing)["execution"].empty
    assert read_facts([nothing, fewer])["execution"].low == S
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"no")
    assert read_facts(broken) == {}


def cases() -> dict[str, list[dict[str, Any]]]:
    """Tables whose footers tell different things: all well, gaps, nonsense, limits, odd starts."""
    mixed = some_rows(9, 120)
    good = [
        item | {"outcome": "ok", "start": "warm", "initialization": None}
        for item in mixed
        if None not in (item["execution"], item["memory_avg"], item["cpu_user"])
        and min(item["memory_avg"], item["execution"], item["allocated_cpu"] or 0) >= 0
    ]
    cold = [item | {"start": "cold"} for item in good]
    waits = (7 * MS, 123_456_789, 2 * S, -1)
    waiting = [
        item | {"start": "cold", "initialization": wait}
        for item, wait in zip(good, waits, strict=False)
    ]
    few_wait = [*waiting, good[0] | {"execution": None, "initialization": MS}]
    return {
        "few wait": few_wait + good * (60 * len(few_wait) // len(good)),
        "mixed": mixed,
        "good": good,
        "cold, start not known": cold,
        "cold, start known": [item | {"initialization": 7 * MS} for item in cold],
        "no use": [
            item | {"memory_avg": None, "cpu_user": None, "cpu_system": None} for item in good
        ],
        "system only": [item | {"cpu_user": None, "cpu_system": item["cpu_user"]} for item in good],
        "all throttled": [item | {"outcome": "throttled"} for item in good],
        "never ran": [item | {"execution": None} for item in good],
        "beyond": [*good, row(execution=901 * S, memory_peak=33 * GB, memory_avg=2000 * MB)],
        "absurd": [*good, row(memory_avg=-1), row(execution=2**62), row(cpu_user=2**62)],
    }


def test_bills_are_the_same_whether_footers_tell_or_not(tmp_path: Path) -> None:
    tariffs = ["aws-lambda-x86", "azure-consumption", "cloudflare-workers", "spfu"]
    # In one table, of whose columns nothing is known.
    every = [item | {"experiment": name} for name, rows in cases().items() for item in rows]
    plain: dict[str | None, list[Line]] = {}
    for line in bill(table(every), tariffs, ["experiment"]):
        plain.setdefault(line.group["experiment"], []).append(replace(line, group={}))
    assert set(plain) == set(cases())
    for name, rows in cases().items():
        with_facts = bill(write(table(rows), tmp_path / f"{name}.parquet"), tariffs)
        assert with_facts == plain[name], name
        assert sum(line.total_rows for line in with_facts) == 4 * len(rows)
    assert read_facts(tmp_path / "few wait.parquet")["initialization"].rare
    paper = bill(tmp_path / "mixed.parquet", tariffs, fit="paper")
    assert paper == bill(table(cases()["mixed"]), tariffs, fit="paper")
    peak = bill(tmp_path / "good.parquet", tariffs, fit="used-peak")
    assert peak == bill(table(cases()["good"]), tariffs, fit="used-peak")


def test_facts_that_are_given_do_not_outlive_what_a_fit_replaces(tmp_path: Path) -> None:
    tariffs = ["aws-lambda-x86", "huawei-functiongraph"]
    # Nothing was allocated as far as the footers tell, but the fit allocates.
    rows = [row(**dict.fromkeys(ALLOCATIONS), function=name) for name in "ffg"]
    path = write(table(rows), tmp_path / "rows.parquet")
    assert read_facts(path)["allocated_memory"].empty
    expected = bill(table(rows), tariffs, fit="used-peak")
    assert expected[0].rows == len(rows)
    assert bill(path, tariffs, fit="used-peak", facts=read_facts(path)) == expected
    assert bill(table(rows), tariffs, fit="used-peak", facts=read_facts(path)) == expected
