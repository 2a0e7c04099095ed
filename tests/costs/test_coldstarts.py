"""Cold starts matched to the requests that their instances served, against plain Python."""

from __future__ import annotations

import gc
import json
from decimal import Decimal
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
from uncia.costs.coldstarts import ColdStarts, analysed, coldstart_cdf, coldstarts
from uncia.errors import UnciaError
from uncia.tariffs import bill

# A table that outlives its backend fails to be dropped, which Python would print.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")

few = settings(max_examples=3, deadline=None)

starts = st.builds(
    lambda init, **values: instance(
        **values, initialized=None if init is None else values["started"] + init
    ),
    init=st.none() | st.integers(-1, 5),
    platform=st.sampled_from(["R1", "R2", None]),
    instance=st.sampled_from(["a", "b", "c"]),
    started=st.integers(0, 20),
    allocated_cpu=st.sampled_from([None, 300_000, 10**6]),
    allocated_memory=st.sampled_from([None, 128 * MB]),
)
requests = st.builds(
    row,
    platform=st.sampled_from(["R1", "R2", None]),
    instance=st.sampled_from(["a", "b", "c", "d", None]),
    started=st.none() | st.integers(0, 30),
    execution=st.none() | st.integers(0, 4),
)


def served(row: dict[str, Any], others: list[dict[str, Any]], asked: list[dict[str, Any]]) -> Any:
    """The executions that belong to a start: in order of time, and as published."""
    later = [
        other["started"]
        for other in others
        if (other["platform"], other["instance"]) == (row["platform"], row["instance"])
        and other["started"] > row["started"]
    ]
    named = [a for a in asked if a["execution"] is not None and a["instance"] == row["instance"]]
    mine = [a for a in named if a["platform"] == row["platform"]]
    inside = [
        a
        for a in mine
        if a["started"] is not None and row["started"] <= a["started"] < min(later, default=10**9)
    ]
    return named, mine, inside


@few
@given(
    st.lists(
        starts,
        min_size=10,
        max_size=30,
        unique_by=lambda start: (start["platform"], start["instance"], start["started"]),
    ),
    st.lists(requests, min_size=20, max_size=80),
    st.sampled_from(["ordered", "paper"]),
)
def test_starts_are_matched_as_plain_python_does(
    some: list[dict[str, Any]], asked: list[dict[str, Any]], match: Any
) -> None:
    result = analysed(table(asked), ["sim"], instances=instances(some), match=match, points=1000)
    facts = result.frame.iloc[0]
    unmatched: dict[str, int] = {}
    differences: dict[str, list[int]] = {"cpu": [], "memory": []}
    sums = dict.fromkeys(("cpu", "memory"), (0, 0))
    matched = total = 0
    for start in some:
        named, mine, inside = served(start, some, asked)
        kept, seen = (named, named) if match == "paper" else (inside, mine)
        if start["initialized"] is None:
            reason = "its start or initialization is not known"
        elif start["initialized"] < start["started"]:
            reason = "its initialization is negative or absurd"
        elif not seen:
            reason = "no request of its instance"
        elif not kept:
            reason = "requests of its instance only before it or after the next start"
        else:
            matched += 1
            total += len(kept)
            initialization = start["initialized"] - start["started"]
            execution = sum(a["execution"] for a in kept)
            for name in differences:
                if (size := start[f"allocated_{name}"]) is not None:
                    differences[name].append(size * (execution - initialization))
                    before = sums[name]
                    sums[name] = before[0] + size * initialization, before[1] + size * execution
            continue
        unmatched[reason] = unmatched.get(reason, 0) + 1
    assert (facts["cold_starts"], facts["matched"], facts["requests"]) == (
        len(some),
        matched,
        total,
    )
    assert facts["unmatched"] == unmatched
    for name, suffix in (("cpu", "micro_vcpu_ns"), ("memory", "byte_ns")):
        ordered = sorted(differences[name])
        assert facts[f"{name}_starts"] == len(ordered)
        cdf = result.cdf[result.cdf["resource"] == name]
        if not ordered:
            assert cdf.empty
            continue
        zero = sum(value <= 0 for value in ordered)
        assert facts[f"{name}_not_repaid_share"] == zero / len(ordered)
        assert facts[f"{name}_initialization_{suffix}"] == sums[name][0]
        assert facts[f"{name}_execution_{suffix}"] == sums[name][1]
        for index, exact in enumerate(cdf["exact"]):
            rank = max(1, -(-index * len(ordered) // 999))
            assert exact == ordered[rank - 1]


def two_starts() -> tuple[Any, Any]:
    """One name in two regions, started twice in the first; a request before any start."""
    some = [
        instance(platform="R1", instance="a", started=10 * S, initialized=12 * S),
        instance(platform="R1", instance="a", started=100 * S, initialized=103 * S),
        instance(platform="R2", instance="a", started=10 * S, initialized=11 * S),
    ]
    asked = [
        row(platform="R1", instance="a", started=5 * S, execution=S),
        row(platform="R1", instance="a", started=12 * S, execution=S // 2),
        row(platform="R1", instance="a", started=50 * S, execution=S // 2),
        row(platform="R1", instance="a", started=200 * S, execution=4 * S),
        row(platform="R2", instance="a", started=9 * S, execution=S),
        row(platform="R3", instance="a", started=50 * S, execution=S),
    ]
    return table(asked), instances(some)


def analysis(match: Any) -> ColdStarts:
    asked, some = two_starts()
    return analysed(asked, ["aws-lambda-x86", "cloudflare-workers"], instances=some, match=match)


def test_regions_and_times_tell_requests_apart() -> None:
    facts = analysis("ordered").frame.iloc[0]
    assert (facts["matched"], facts["requests"]) == (2, 3)
    assert facts["unmatched"] == {
        "requests of its instance only before it or after the next start": 1
    }
    # 2 s of initialization for 1 s of execution; 3 s for 4 s.
    assert facts["cpu_not_repaid_share"] == 0.5
    assert facts["cpu_initialization_micro_vcpu_ns"] == 5 * S * 10**6
    assert facts["memory_execution_byte_ns"] == 5 * S * GB


def test_the_published_match_takes_every_request_of_the_name() -> None:
    facts = analysis("paper").frame.iloc[0]
    assert (facts["matched"], facts["requests"]) == (3, 18)
    assert facts["cpu_execution_micro_vcpu_ns"] == 3 * 8 * S * 10**6
    assert facts["cpu_not_repaid_share"] == 0


@pytest.mark.parametrize("match", ["ordered", "paper"])
def test_turnaround_adds_the_initialization_of_each_first_request(match: str) -> None:
    """Where requests do not say what they waited for, whichever match was asked for."""
    result = analysis(match)
    lambdas, workers = (result.frame.iloc[index] for index in (0, 1))
    asked, _ = two_starts()
    (line,) = bill(asked, ["aws-lambda-x86"])
    assert lambdas["execution_usd"] == line.cost_usd
    # 0.5 s after 2 s, 4 s after 3 s: 5 s more at 1 vCPU, which is 1769 MB.
    added = Fraction("0.0000166667") * 1769 / 1024 * 5
    assert abs(Fraction(lambdas["initialization_usd"]) - added) < Fraction(1, 10**18)
    assert (lambdas["waited_rows"], lambdas["bills_initialization"]) == (2, True)
    assert workers["initialization_usd"] is None
    assert any("first request" in note for note in result.notes)


def test_requests_stand_for_starts_where_there_is_no_table_of_them() -> None:
    some = [
        row(instance="a", start="cold", started=3 * S, initialization=2 * S, execution=150 * MS),
        row(instance="a", start="warm", started=9 * S, execution=S),
        row(instance="b", start="cold", started=3 * S, initialization=None),
        row(instance=None, start="cold", started=3 * S, initialization=S),
    ]
    frame = coldstarts(table(some), ["gcp-run-request"])
    facts = frame.iloc[0]
    assert (facts["cold_starts"], facts["matched"], facts["requests"]) == (3, 1, 2)
    assert facts["unmatched"] == {
        "the instance has no name": 1,
        "its start or initialization is not known": 1,
    }
    assert facts["cpu_not_repaid_share"] == 1
    # 150 ms alone are billed as 200 ms, with 2 s as 2.2 s; the other waited 1 s for 1 s.
    rate = Fraction("0.000024") + Fraction("0.0000025")
    assert facts["initialization_usd"] == Decimal("0.0000795")
    assert facts["initialization_usd"] == Decimal(str(float(3 * rate)))
    cdf = coldstart_cdf(table(some), points=3)
    assert list(cdf["share"]) == [0.0, 0.5, 1.0] * 2
    assert list(cdf["difference"]) == [-0.85] * 6


def test_what_cannot_be_matched_is_an_error() -> None:
    with pytest.raises(UnciaError, match="no match 'loose'"):
        coldstarts(table([row()]), match="loose")  # type: ignore[arg-type]
    with pytest.raises(UnciaError, match="no column instance"):
        coldstarts(table([row()]).drop_columns(["instance"]))


def test_the_command_finds_the_table_beside_the_invocations(tmp_path: Path) -> None:
    asked, some = two_starts()
    folder = tmp_path / "trace"
    folder.mkdir()
    pq.write_table(asked, folder / "invocations.parquet")
    pq.write_table(some, folder / "instances.parquet")
    page = tmp_path / "page.html"
    command = ["cost", "coldstarts", str(folder), "-t", "aws-lambda-x86"]
    done = CliRunner().invoke(build(), [*command, "--json", "--html", str(page)])
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)
    assert (result["cold_starts"], result["matched"], result["match"]) == (3, 2, "ordered")
    assert "Figure 4" in page.read_text(encoding="utf-8")
    shown = CliRunner().invoke(build(), [*command, "--match", "paper"])
    assert shown.exit_code == 0, shown.output
    assert "3 cold starts, 3 matched to 18 requests" in shown.output


def test_the_published_match_counts_deployment_alone(tmp_path: Path) -> None:
    asked = [row(platform="R1", instance="a", started=50, execution=4 * MS)]
    pq.write_table(table(asked), tmp_path / "invocations.parquet")
    some = [instance(platform="R1", instance="a", started=0, initialized=9 * MS)]
    pq.write_table(instances(some), tmp_path / "instances.parquet")
    phases = {"pod allocation": 3, "code": 2, "dependencies": 3, "scheduling": 1}
    begins = [0, 3, 5, 8]
    spans = pa.table(
        {
            "invocation": ["r"] * 4,
            "instance": ["a"] * 4,
            "name": list(phases),
            "start": [begin * MS for begin in begins],
            "end": [
                (begin + took) * MS for begin, took in zip(begins, phases.values(), strict=True)
            ],
        }
    )
    pq.write_table(spans, tmp_path / "spans.parquet")
    published = analysed(tmp_path, ["sim"], match="paper").frame.iloc[0]
    ordered = analysed(tmp_path, ["sim"]).frame.iloc[0]
    assert published["matched"] == ordered["matched"] == 1
    assert published["cpu_initialization_micro_vcpu_ns"] == 5 * MS * 10**6
    assert ordered["cpu_initialization_micro_vcpu_ns"] == 9 * MS * 10**6


def test_no_table_outlives_the_backend_of_an_error() -> None:
    rows = table([row(instance="a", started=5, start="cold", initialization=2)])
    index = rows.column_names.index("allocated_memory")
    sizes = rows.set_column(index, "allocated_memory", pa.array([1024.0]))
    with pytest.raises(UnciaError, match="the column allocated_memory is float64"):
        analysed(sizes, ["aws-lambda-x86"])
    gc.collect()
