"""Bills of instances, and the rate at which an instance is cheaper, against plain Python."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cost_rows import GB, MB, MS, S, instance, instances, row, table
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from uncia.cli import build
from uncia.costs.breakeven import break_even
from uncia.costs.instances import instances as price
from uncia.errors import UnciaError
from uncia.tariffs import Tariff, get

few = settings(max_examples=3, deadline=None)

HOUR = 3600 * S

lives = st.builds(
    lambda life, **values: instance(
        **values, ended=None if life is None else values["started"] + life
    ),
    life=st.none() | st.integers(-1, 3 * HOUR) | st.sampled_from([0, 1, 60 * S, 100 * MS]),
    run=st.sampled_from(["r", "s", None]),
    started=st.integers(0, HOUR),
    initialized=st.none() | st.integers(0, 2 * HOUR),
    allocated_cpu=st.none() | st.sampled_from([0, 80_000, 10**6, 3_000_000, 9_000_000]),
    allocated_memory=st.none() | st.sampled_from([128 * MB, 512 * MB, 3 * GB, 33 * GB]),
)


def ceil_to(value: int, step: int) -> int:
    return -(-value // step) * step


def google(cpu: int | None, memory: int | None) -> tuple[int, int] | None:
    """Cloud Run by instance: whole vCPUs, at least those that the memory needs."""
    if cpu is None or memory is None or memory > 32 * GB:
        return None
    least = next((n for gb, n in ((24, 8), (16, 6), (8, 4), (4, 2)) if memory > gb * GB), 0)
    sizes = [n * 10**6 for n in (1, 2, 4, 6, 8) if n * 10**6 >= max(cpu, least * 10**6)]
    return (sizes[0], memory) if sizes else None


FARGATE = [(512, 250), (1024, 250), (1024, 500), (2048, 250), (2048, 500), (2048, 1000)]
FARGATE += [(3072, 500), (3072, 1000), (4096, 500), (4096, 1000), (4096, 2000), (8192, 1000)]
FARGATE += [(8192, 2000), (8192, 4000), (16384, 2000), (16384, 4000), (30720, 4000)]


def fargate(cpu: int | None, memory: int | None) -> tuple[int, int] | None:
    if memory is None:
        return None
    for mb, milli in FARGATE:
        if memory <= mb * MB and (cpu is None or cpu <= milli * 1000):
            return milli * 1000, mb * MB
    return None


@few
@given(
    st.lists(lives, min_size=20, max_size=60),
    st.lists(st.integers(0, 4 * HOUR), min_size=1, max_size=4),
)
def test_instances_are_billed_as_plain_python_does(
    some: list[dict[str, Any]], asked: list[int]
) -> None:
    """The invocations, which are of no run, may know a later time than the instances do."""
    frame = price(
        instances(some),
        ["gcp-run-instance", "aws-fargate-arm", "aws-ec2-c6g-medium"],
        invocations=table([row(started=time, ended=time + 1) for time in asked]),
    )
    until: dict[str | None, int] = {None: max(asked) + 1}
    for entry in some:
        known = [
            entry[name] for name in ("started", "initialized", "ended") if entry[name] is not None
        ]
        until[entry["run"]] = max(until.get(entry["run"], 0), *known)
    expected = {name: Fraction(0) for name in frame["tariff"]}
    priced = dict.fromkeys(expected, 0)
    for entry in some:
        end = until[entry["run"]] if entry["ended"] is None else entry["ended"]
        life = end - entry["started"]
        if life < 0:
            continue
        cpu, memory = entry["allocated_cpu"], entry["allocated_memory"]
        second = max(ceil_to(life, S), 60 * S)
        if (size := google(cpu, memory)) is not None:
            priced["gcp-run-instance"] += 1
            rate = Fraction("0.000018") * size[0] / 10**6 + Fraction("0.000002") * size[1] / GB
            expected["gcp-run-instance"] += rate * ceil_to(life, 100 * MS) / S
        if (size := fargate(cpu, memory)) is not None:
            priced["aws-fargate-arm"] += 1
            rate = Fraction("0.03238") * size[0] / 10**6 + Fraction("0.00356") * size[1] / GB
            expected["aws-fargate-arm"] += (rate + Fraction("0.000111")) * second / HOUR
        priced["aws-ec2-c6g-medium"] += 1
        rate = Fraction("0.034") + Fraction("0.08") / 720
        expected["aws-ec2-c6g-medium"] += rate * second / HOUR
    for _, item in frame.iterrows():
        name = item["tariff"]
        assert item["priced"] == priced[name], name
        assert item["priced"] + sum(item["unpriced"].values()) == item["instances"] == len(some)
        if priced[name]:
            assert abs(Fraction(item["cost_usd"]) - expected[name]) <= Fraction(1, 2 * 10**18)


def test_an_hour_of_the_papers_machines() -> None:
    """1 vCPU and 2 GB for an hour, and half a second more: seconds are rounded up."""
    life = instance(ended=HOUR + S // 2, allocated_memory=2 * GB)
    frame = price(instances([life]), ["aws-ec2-c6g-medium", "aws-fargate-arm"])
    machine, task = (frame.iloc[index] for index in (0, 1))
    per_second = (Fraction("0.034") + Fraction("0.08") / 720) / 3600
    assert abs(Fraction(machine["cost_usd"]) - per_second * 3601) < Fraction(1, 10**18)
    assert abs(Fraction(machine["rounding_usd"]) - per_second / 2) < Fraction(1, 10**18)
    per_second = (Fraction("0.03238") + 2 * Fraction("0.00356") + Fraction("0.000111")) / 3600
    assert abs(Fraction(task["cost_usd"]) - per_second * 3601) < Fraction(1, 10**18)
    assert task["billable_micro_vcpu_ns"] == 3601 * S * 10**6
    assert task["storage_byte_ns"] == 3601 * S * GB
    assert machine["billable_byte_ns"] is None


def test_without_a_price_there_is_no_number() -> None:
    frame = price(instances([instance(ended=HOUR)]))
    by_name = {item["tariff"]: item for _, item in frame.iterrows()}
    unknown = by_name["azure-premium"]
    assert unknown["cost_usd"] is unknown["usd_per_instance_hour"] is None
    assert "no public price is known for cpu allocated and memory allocated" in unknown["note"]
    (mine,) = price(instances([instance(ended=HOUR)]), [premium()]).to_dict("records")
    assert Fraction(mine["cost_usd"]) == 720 * (Fraction("0.2") + Fraction("0.01") * 7 / 2)


def test_what_cannot_be_billed_is_counted_or_refused() -> None:
    some = [
        instance(started=5, ended=4),
        instance(started=0, ended=2 * 366 * 24 * HOUR),
        instance(ended=S, allocated_cpu=-1),
        instance(ended=S, allocated_memory=4 * GB, run="r"),
        instance(allocated_memory=None, started=2 * S, initialized=3 * S, run="s"),
    ]
    frame = price(instances(some), ["gcp-run-instance", "aws-ec2-c6g-medium"])
    first, second = frame.iloc[0], frame.iloc[1]
    assert first["unpriced"] == {
        "it ended before it started": 1,
        "its life is absurd: longer than a year": 1,
        "its allocation is negative or absurd": 1,
        "allocated_memory is null": 1,
    }
    assert (second["priced"], second["beyond_size"], second["running"]) == (2, 1, 1)
    with pytest.raises(UnciaError, match="bills requests"):
        price(instances(some), ["aws-lambda-x86"])
    with pytest.raises(UnciaError, match="no column ended"):
        price(instances(some).drop_columns(["ended"]))


def premium() -> Tariff:
    """Azure's Premium plan with prices of our own."""
    document = get("azure-premium").model_dump()
    for charge, amount in zip(document["charges"], ("0.2", "0.01"), strict=True):
        charge["price"] = amount
    return Tariff.model_validate(document)


def test_a_month_is_billed_to_one_instance_and_not_to_each() -> None:
    def billed(some: list[dict[str, Any]]) -> dict[Any, Any]:
        (result,) = price(instances(some), [premium()]).to_dict("records")
        return result

    small = Fraction("0.2") + Fraction("0.01") * 7 / 2
    result = billed([instance(ended=HOUR)] * 100)
    assert result["billed_ns"] == 720 * HOUR
    assert result["instance_ns"] == 100 * HOUR
    assert Fraction(result["cost_usd"]) == 720 * small
    assert Fraction(result["rounding_usd"]) == 620 * small
    # What is missing is of the cheapest size; beyond the month there is no minimum.
    large = instance(ended=20 * HOUR, allocated_memory=14 * GB)
    twenty = 20 * (4 * Fraction("0.2") + 14 * Fraction("0.01"))
    result = billed([large, instance(ended=HOUR)])
    assert Fraction(result["cost_usd"]) == twenty + 700 * small
    assert Fraction(billed([instance(ended=400 * HOUR)] * 2)["cost_usd"]) == 800 * small


@pytest.mark.parametrize(
    "absurd",
    [
        {"started": 0, "ended": 4 * 10**18},
        {"started": 0, "ended": 2**63 - 1},
        {"started": -(2**63), "ended": 2**63 - 1},
        {"started": 2**63 - 1, "ended": -(2**63)},
        {"started": 0, "initialized": 2**63 - 1, "ended": S},
        {"started": None, "ended": 200 * 24 * HOUR},
        {"started": None, "initialized": 2**63 - 1},
        {"ended": S, "allocated_memory": 2**63 - 1},
        {"ended": S, "allocated_cpu": -(2**63), "allocated_memory": -(2**63)},
    ],
)
def test_an_absurd_instance_leaves_the_bills_of_others_alone(absurd: dict[str, Any]) -> None:
    names = ["gcp-run-instance", "aws-fargate-arm", "aws-ec2-c6g-medium"]
    sane = [instance(ended=HOUR, run="r"), instance(started=HOUR, initialized=2 * HOUR, run="r")]
    some = price(instances([*sane, instance(run="r", **absurd)]), [*names, premium()])
    alone = price(instances(sane), [*names, premium()])
    kept = ["instance_ns", "billed_ns", "cost_usd"]
    if some["unpriced"].map(bool).all():
        assert (some["priced"] == 2).all()
        assert some[kept].equals(alone[kept])
    else:
        assert absurd["ended"] == S
        assert (some["running"] == 1).all()
        assert (some["instance_ns"] == 2 * HOUR + S).all()


def test_times_without_a_sign_may_be_beyond_reach() -> None:
    some = instances([instance(ended=S), instance(ended=2 * S)])
    huge = some.set_column(
        some.column_names.index("ended"), "ended", pa.array([S, 2**64 - 1], pa.uint64())
    )
    (result,) = price(huge, ["aws-ec2-c6g-medium"]).to_dict("records")
    assert (result["priced"], result["unpriced"]) == (
        1,
        {"its life is absurd: longer than a year": 1},
    )


def even(**options: Any) -> dict[str, Any]:
    rows = [
        row(execution=200 * MS, allocated_memory=GB),
        row(execution=400 * MS),
        row(function="g"),
    ]
    frame = break_even(
        table(rows), ["gcp-run-request"], ["gcp-run-instance"], function="f", **options
    )
    (result,) = frame.to_dict("records")
    return dict(result)


def test_the_rate_is_where_the_instance_costs_as_much() -> None:
    result = even(concurrency=2)
    by_request = Fraction("0.0000265") * Fraction(3, 10) + Fraction("0.0000004")
    by_hour = Fraction("0.00002") * 3600
    assert Fraction(result["usd_per_request"]) == by_request
    assert Fraction(result["usd_per_hour"]) == by_hour
    assert result["rate_per_s"] == float(by_hour / 3600 / by_request)
    assert result["capacity_per_s"] == float(2 / Fraction(3, 10))
    assert (result["feasible"], result["requests"], result["note"]) == (True, 2, None)


def test_a_rate_that_one_instance_cannot_hold_is_not_feasible() -> None:
    """At 40 ms a request and 1 vCPU, Cloudflare's CPU time costs less than any machine does."""
    rows = [row(execution=900 * MS, cpu_user=MS, cpu_system=0)]
    frame = break_even(table(rows), ["cloudflare-workers"], ["aws-ec2-c6g-medium"])
    result = frame.iloc[0]
    assert result["rate_per_s"] > result["capacity_per_s"]
    assert result["feasible"] is False
    assert "never" in result["note"] or "none is ever cheaper" in result["note"]


def test_a_machine_that_is_too_small_is_not_feasible() -> None:
    rows = [row(execution=0, allocated_memory=4 * GB)]
    frame = break_even(table(rows), ["aws-lambda-arm"], ["aws-ec2-c6g-medium", "azure-premium"])
    small, unknown = frame.iloc[0], frame.iloc[1]
    assert small["capacity_per_s"] == math.inf
    assert (small["feasible"], small["note"]) == (
        False,
        "the allocation is larger than the instance",
    )
    assert unknown["usd_per_hour"] is unknown["feasible"] is None
    with pytest.raises(UnciaError, match="no row of the function h ran"):
        break_even(table(rows), function="h")
    with pytest.raises(UnciaError, match="at least 1"):
        break_even(table(rows), concurrency=0)


def test_the_commands_print_json_pages_and_tables(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    pq.write_table(table([row(started=S, ended=2 * S)]), folder / "invocations.parquet")
    pq.write_table(instances([instance()]), folder / "instances.parquet")
    page = tmp_path / "page.html"
    command = ["cost", "instances", str(folder)]
    done = CliRunner().invoke(build(), [*command, "--json", "--html", str(page)])
    assert done.exit_code == 0, done.output
    result = {item["tariff"]: item for item in json.loads(done.stdout)}
    assert result["gcp-run-instance"]["cost_usd"] == "0.00004"  # until the request ended, 2 s
    assert result["azure-premium"]["cost_usd"] is None
    assert "no public price" in page.read_text(encoding="utf-8")
    shown = CliRunner().invoke(build(), command)
    assert "Still alive: 1;" in shown.output
    assert "azure-premium: no public price is known" in shown.output
    command = ["cost", "break-even", str(folder), "-t", "aws-lambda-x86", "-t", "gcp-run-instance"]
    done = CliRunner().invoke(build(), [*command, "--json", "--html", str(page)])
    assert done.exit_code == 0, done.output
    (case,) = json.loads(done.stdout)
    assert (case["request_tariff"], case["instance_tariff"]) == (
        "aws-lambda-x86",
        "gcp-run-instance",
    )
    assert "Requests or instances" in page.read_text(encoding="utf-8")
    shown = CliRunner().invoke(build(), ["cost", "break-even", str(folder), "-t", "spfu"])
    assert shown.exit_code == 0, shown.output
    assert "azure-premium: no public price is known" in shown.output
