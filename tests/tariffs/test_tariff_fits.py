"""The fits ``used-peak`` and ``paper``, and the rows over which bills and use are compared."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet
import pytest
from tariff_oracle import ceil_to, price
from tariff_rows import GB, MB, MS, S, row, table
from test_tariff_golden import BILLED, requests
from typer.testing import CliRunner

from uncia.cli import build
from uncia.errors import UnciaError
from uncia.tariffs import Line, bill, billable, comparable, left_out, published, used_peak
from uncia.tariffs.exact import share_up

MICRO = 10**6
PUBLISHED = ("huawei-functiongraph", "aws-lambda-x86", "gcp-run-request", "azure-consumption")
PUBLISHED = (*PUBLISHED, "cloudflare-workers")


def with_platform(rows: list[dict[str, Any]], platforms: list[str | None]) -> pa.Table:
    return table(rows).append_column("platform", pa.array(platforms, pa.utf8()))


def some_rows(seed: int, count: int) -> list[dict[str, Any]]:
    """Rows with gaps, zeros and nonsense, of few functions and flavours."""
    chance = random.Random(seed)
    flavours = [(300, 128), (400, 256), (600, 512), (1000, 1024), (13000, 16384)]
    rows = []
    for number in range(count):
        milli, mb = chance.choice(flavours)
        execution = chance.choice([0, 1, MS, 2007 * MS, chance.randrange(5 * S)])
        values: dict[str, Any] = {
            "invocation": f"i{number}",
            "function": f"f{chance.randrange(6)}",
            "outcome": chance.choice(["ok"] * 9 + ["throttled", "timeout"]),
            "start": chance.choice(["cold", "warm"]),
            "initialization": chance.randrange(S),
            "execution": execution,
            "allocated_cpu": milli * 1000,
            "allocated_memory": mb * MB,
            "cpu_user": chance.choice([0, chance.randrange(1 + 2 * execution)]),
            "cpu_system": 0,
            "memory_avg": chance.randrange(2 * mb * MB),
            "memory_peak": chance.choice([None, chance.randrange(2 * mb * MB)]),
        }
        if chance.random() < 0.3:
            gap = ("execution", "allocated_cpu", "allocated_memory", "cpu_user", "memory_avg")
            values[chance.choice(gap)] = None
        if values["cpu_user"] is None:
            values["cpu_system"] = None
        if chance.random() < 0.03:
            values[chance.choice(["memory_avg", "execution", "allocated_cpu"])] = -1
        rows.append(row(**values))
    return rows


def priceable(row: dict[str, Any]) -> bool:
    """Whether a row ran, is billed by platforms, and holds no nonsense."""
    nonsense = any(isinstance(value, int) and value < 0 for value in row.values())
    return row["execution"] is not None and row["outcome"] != "throttled" and not nonsense


def peaks(rows: list[dict[str, Any]], keys: list[Any]) -> dict[Any, tuple[int | None, int | None]]:
    """What the most demanding row of each key needs, micro-vCPU and bytes, by plain arithmetic."""
    result: dict[Any, tuple[int | None, int | None]] = {}
    for item, key in zip(rows, keys, strict=True):
        cpu, memory = result.get(key, (None, None))
        if priceable(item):
            size = item["memory_avg"] if item["memory_peak"] is None else item["memory_peak"]
            memory = max((value for value in (memory, size) if value is not None), default=None)
            if item["execution"] and item["cpu_user"] is not None:
                time = item["cpu_user"] + (item["cpu_system"] or 0)
                share = -(-time * MICRO // item["execution"])
                share = min(share, item["allocated_cpu"] or 1000 * MICRO, 1000 * MICRO)
                cpu = share if cpu is None else max(cpu, share)
        result[key] = cpu, memory
    return result


def test_used_peak_bills_the_size_of_the_functions_most_demanding_row() -> None:
    rows = some_rows(1, 400)
    platforms = [["here", "there", None][number % 3] for number in range(len(rows))]
    keys = [(p, item["function"]) for p, item in zip(platforms, rows, strict=True)]
    need = peaks(rows, keys)
    sized = {}
    for item, key in zip(rows, keys, strict=True):
        cpu, memory = need[key]
        nonsense = {"allocated_cpu": -1} if item["allocated_cpu"] == -1 else {}
        sized[item["invocation"]] = item | {"allocated_cpu": cpu, "allocated_memory": memory}
        sized[item["invocation"]] |= nonsense
    tariffs = ["aws-lambda-x86", "gcp-run-request", "huawei-functiongraph", "sim", "spfu"]
    lines = bill(with_platform(rows, platforms), tariffs, ["invocation"], fit="used-peak")
    assert len(lines) == len(tariffs) * len(rows)
    priced = 0
    for line in lines:
        expected = price(line.tariff, sized[str(line.group["invocation"])])
        assert line.rows == (expected is not None), line
        if expected is not None:
            priced += 1
            assert line.billable_micro_vcpu_ns == expected.vcpu
            assert line.billable_byte_ns == expected.memory
            assert line.exact_cost == expected.cost
            assert line.fit.startswith("used-peak: ")
    assert priced > 1000


def test_used_peak_keeps_functions_and_platforms_apart_and_counts_what_it_cannot_size() -> None:
    rows = [
        row(memory_peak=100 * MB, cpu_user=S // 10, cpu_system=0),
        row(memory_peak=None, memory_avg=200 * MB, cpu_user=2 * S, allocated_cpu=500_000),
        row(function="g", memory_peak=None, memory_avg=None, cpu_user=None, cpu_system=None),
        row(memory_peak=300 * MB, cpu_user=S // 5, cpu_system=0),
    ]
    data = with_platform(rows, ["a", "a", "a", "b"])
    result = used_peak(ibis.memtable(data)).to_pyarrow().to_pylist()
    sizes = {
        (item["platform"], item["function"]): (item["allocated_cpu"], item["allocated_memory"])
        for item in result
    }
    assert len(result) == 4
    assert sizes == {
        ("a", "f"): (500_000, 200 * MB),
        ("a", "g"): (None, None),
        ("b", "f"): (200_000, 300 * MB),
    }
    (line,) = bill(data, ["sim"], fit="used-peak")
    assert line.unpriced == {
        "CPU time over execution is not known in any row of the function": 1,
    }
    (slim,) = bill(data, ["slim"], fit="used-peak")
    assert slim.unpriced == {"memory_peak and memory_avg are null in every row of the function": 1}


def test_shares_are_exact_for_every_size_of_numerator_and_denominator() -> None:
    chance = random.Random(7)
    pairs = [(0, 1), (1, 3), (10**16, 10**16), (1, 3 * 10**16), (10**16 - 1, 10**16), (5, 0)]
    for _ in range(5000):
        whole = chance.randrange(1, 10 ** chance.randrange(1, 17))
        pairs.append((chance.randrange(1 + 999 * whole) if whole < 10**13 else whole // 3, whole))
        pairs.append((whole * chance.randrange(100) if whole < 10**14 else whole, whole))
    data = pa.table(
        {name: pa.array([pair[at] for pair in pairs], pa.int64()) for at, name in enumerate("ab")}
        | {"n": pa.array(range(len(pairs)))}
    )
    rows = ibis.memtable(data)
    answer = rows.select("n", r=share_up(rows["a"], rows["b"])).order_by("n").to_pyarrow()["r"]
    for (part, whole), item in zip(pairs, answer.to_pylist(), strict=True):
        exact = -(-part * MICRO // whole) if whole else None
        assert item == exact, (part, whole)
    huge = pa.table({"a": pa.array([6 * 10**16], pa.int64()), "b": pa.array([1], pa.int64())})
    many = ibis.memtable(huge)
    assert many.select(r=share_up(many["a"], many["b"])).to_pyarrow()["r"][0].as_py() >= 10**9


def test_paper_bills_the_notebooks_first_requests_as_it_did() -> None:
    lines = bill(table(requests()), list(PUBLISHED), ["invocation"], fit="paper")
    by_tariff: dict[str, list[Line]] = {}
    for line in lines:
        by_tariff.setdefault(line.tariff, []).append(line)
    # The plan's vCPU, in the notebook, is that of the flavour of the trace.
    vcpu = {"azure-consumption": ("60", "100.5", "184", "60", "55.5")}
    for tariff, expected in BILLED.items():
        for index, (line, (vcpu_ms, mb_ms)) in enumerate(
            zip(by_tariff[tariff], expected, strict=True)
        ):
            message = vcpu[tariff][index] if tariff in vcpu else vcpu_ms
            assert line.billable_micro_vcpu_ns == Fraction(message) * MICRO * MS
            assert line.billable_byte_ns == mb_ms * MB * MS
    flavours = [(600, 512), (300, 128), (1000, 1024)]
    ratio = sum((Fraction(milli, mb) for milli, mb in flavours), Fraction(0)) / 3
    for line, item in zip(by_tariff["aws-lambda-x86"], requests(), strict=True):
        time = ceil_to(item["execution"], MS)
        milli, mb = item["allocated_cpu"] // 1000, item["allocated_memory"] // MB
        assert line.billable_micro_vcpu_ns is not None
        assert line.billable_byte_ns is not None
        exact_cpu = max(ratio * mb, Fraction(milli)) * 1000 * time
        exact_memory = max(Fraction(milli) / ratio, Fraction(mb)) * MB * time
        assert abs(line.billable_micro_vcpu_ns - exact_cpu) <= exact_cpu / 10**11
        assert abs(line.billable_byte_ns - exact_memory) <= exact_memory / 10**11


def as_published(tariff: str, row: dict[str, Any], ratio: Fraction) -> tuple[Any, Any] | None:
    """Micro-vCPU x ns and bytes x ns by the notebook's formulas; None where it cannot be priced."""
    cpu, memory, execution = row["allocated_cpu"], row["allocated_memory"], row["execution"]
    if not priceable(row):
        return None
    time = ceil_to(execution, MS)
    if tariff == "cloudflare-workers":
        used = row["cpu_user"]
        return None if used is None else (ceil_to(used, MS) * MICRO, 0)
    if tariff == "azure-consumption":
        used, time = row["memory_avg"], max(time, 100 * MS)
        share = None if cpu is None else cpu * time
        return None if used is None else (share, ceil_to(used, 128 * MB) * time)
    if memory is None:
        return None
    if tariff == "aws-lambda-x86":
        if cpu is None:
            return None
        return max(ratio * memory, Fraction(cpu)) * time, max(cpu / ratio, Fraction(memory)) * time
    if tariff == "gcp-run-request":
        time = ceil_to(execution, 100 * MS)
        return None if cpu is None else (cpu * time, memory * time)
    return (None if cpu is None else cpu * time), memory * time


def kept(row: dict[str, Any], fit: str) -> bool:
    """Whether a row is comparable, written out once more."""
    if not priceable(row) or not row["cpu_user"] or row["memory_avg"] is None:
        return False
    sizes = row["allocated_cpu"], row["allocated_memory"]
    if fit == "allocated":
        return sizes[1] is not None
    if fit == "used-peak":
        return True
    return None not in sizes and sizes[1] <= 10_240 * MB


def test_paper_agrees_with_the_formulas_row_by_row() -> None:
    rows = {str(item["invocation"]): item for item in some_rows(2, 400)}
    flavours = {
        (item["allocated_cpu"], item["allocated_memory"])
        for item in rows.values()
        if kept(item, "paper")
    }
    ratio = sum((Fraction(*flavour) for flavour in flavours), Fraction(0)) / len(flavours)
    assert len(flavours) == 4
    lines = bill(table(list(rows.values())), list(PUBLISHED), ["invocation"], fit="paper")
    priced = dict.fromkeys(PUBLISHED, 0)
    for line in lines:
        result = rows[str(line.group["invocation"])]
        expected = as_published(line.tariff, result, ratio)
        assert line.rows == (expected is not None), (line, result)
        if expected is None:
            continue
        priced[line.tariff] += 1
        pairs = zip(expected, (line.billable_micro_vcpu_ns, line.billable_byte_ns), strict=True)
        for wanted, item in pairs:
            if line.tariff == "aws-lambda-x86":
                assert abs(item - wanted) <= wanted / 10**11, (line, result)
            else:
                assert item == wanted, (line, result)
    assert min(priced.values()) > 150


def test_paper_bills_nothing_for_no_time_but_azures_least() -> None:
    idle = row(execution=0, cpu_user=0, cpu_system=0, start="cold", initialization=S)
    used = row()  # for the mean ratio, which is over comparable rows
    for line in bill(table([idle, used]), [*PUBLISHED, "slim"], ["execution"], fit="paper"):
        if line.group["execution"] or line.tariff == "azure-consumption":
            assert line.billable_micro_vcpu_ns
        else:
            assert (line.billable_micro_vcpu_ns, line.billable_byte_ns) == (0, 0), line.tariff


def test_the_fit_is_named_in_every_line() -> None:
    for fit in ("used-peak", "paper"):
        for line in bill(table([row()]), fit=fit):  # type: ignore[arg-type]
            assert line.fit.startswith(f"{fit}: "), line.tariff
            assert line.rows == 1, line.tariff
    rules = {line.tariff: line.fit for line in bill(table([row()]), fit="paper")}
    assert set(rules) == set(billable())
    assert "565.291 millicores per MB" not in rules["aws-lambda-x86"]
    assert "0.565291 millicores per MB" in rules["aws-lambda-x86"]
    assert "not in the publication" in rules["slim"]
    assert not any("not in the publication" in rules[name] for name in PUBLISHED)
    with pytest.raises(UnciaError, match="there is no fit 'peak'"):
        bill(table([row()]), ["slim"], fit="peak")  # type: ignore[arg-type]
    with pytest.raises(UnciaError, match="no column function"):
        bill(table([row()]).drop(["function"]), ["slim"], fit="used-peak")


def test_without_allocations_nothing_has_a_ratio() -> None:
    rows = [row(allocated_cpu=None), row(allocated_memory=None)]
    (line,) = bill(table(rows), ["aws-lambda-x86"], fit="paper")
    assert line.rows == 1  # memory alone is priced, as allocated
    assert line.billable_micro_vcpu_ns is None
    assert published.mean_ratio([(0, MB), (MICRO, 0)]) is None
    bare = table(rows).drop(["allocated_cpu", "allocated_memory"])
    (none,) = bill(bare, ["aws-lambda-x86"], fit="paper")
    assert none.unpriced == {"allocated_memory is null": 2}


@pytest.mark.parametrize("fit", ["allocated", "used-peak", "paper"])
def test_comparable_and_left_out_divide_the_table(fit: str) -> None:
    rows = some_rows(3, 500)
    whole = ibis.memtable(table(rows))
    stay = comparable(whole, fit)
    assert stay.columns == whole.columns
    names = set(stay["invocation"].to_pyarrow().to_pylist())
    assert names == {item["invocation"] for item in rows if kept(item, fit)}
    assert names
    counts = {
        item["reason"]: item["rows"] for item in left_out(whole, fit).to_pyarrow().to_pylist()
    }
    assert sum(counts.values()) + len(names) == len(rows)


def test_each_row_is_left_out_for_its_first_reason() -> None:
    cases = {
        "not billable": row(outcome="throttled", execution=None),
        "execution is null": row(execution=None, cpu_user=None, cpu_system=None),
        "a value is negative or absurd": row(memory_avg=-1),
        "CPU time is null": row(cpu_user=None, cpu_system=None, memory_avg=None),
        "CPU time is zero": row(cpu_user=0, cpu_system=0),
        "memory_avg is null": row(memory_avg=None, allocated_cpu=None),
        "allocation is null": row(allocated_cpu=None),
        "memory above 10,240 MB": row(allocated_memory=10_240 * MB + 1),
    }
    most = row(allocated_memory=10 * GB)
    data = table([*cases.values(), most])
    result = left_out(ibis.memtable(data), "paper").to_pyarrow()
    assert result["reason"].to_pylist() == list(cases)
    assert result["rows"].to_pylist() == [1] * len(cases)
    plain = left_out(ibis.memtable(data), "used-peak").to_pyarrow()["reason"].to_pylist()
    assert plain == list(cases)[:6]


def test_the_command_takes_a_fit(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(table(requests()), path)
    for fit in ("allocated", "used-peak", "paper"):
        arguments = ["bill", str(path), "-t", "aws-lambda-x86", "--fit", fit]
        done = CliRunner().invoke(build(), [*arguments, "--json"])
        assert done.exit_code == 0, done.output
        (entry,) = json.loads(done.stdout)
        (line,) = bill(path, ["aws-lambda-x86"], fit=fit)  # type: ignore[arg-type]
        assert entry["fit"] == line.fit
        assert int(entry["billable_byte_ns"]) == line.billable_byte_ns
        assert CliRunner().invoke(build(), arguments).exit_code == 0
