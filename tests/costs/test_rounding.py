"""Fees as time, and what rounding adds, against the published numbers and plain Python."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from request_rows import GB, MB, MICRO, MS, US, S, request, requests, table, up
from typer.testing import CliRunner

from uncia.cli import build
from uncia.costs.fees import fee_equivalents
from uncia.costs.rounding import PROBABILITIES, Rounding, measure, rounding
from uncia.costs.sizes import Size, parse_allocation
from uncia.errors import UnciaError
from uncia.report.cost.rounding import section
from uncia.report.page import Note

# Computed from the public prices, as the cost paper's Figure 5 does.
FEES = {
    ("aws-lambda-x86", 128): 95.9998,
    ("aws-lambda-x86", 1769): 6.946,
    ("azure-consumption", 1024): 12.5,
    ("azure-consumption", 1536): 8.333,
    ("cloudflare-workers", 128): 15.0,
    ("huawei-functiongraph", 128): 95.981,
    ("huawei-functiongraph", 256): 47.990,
    ("huawei-functiongraph", 512): 23.995,
    ("huawei-functiongraph", 768): 15.997,
    ("huawei-functiongraph", 1024): 11.998,
    ("ibm-code-engine", 1024): 44.325,
    ("ibm-code-engine", 2048): 22.163,
    ("ibm-code-engine", 4096): 11.081,
    ("oracle-functions", 128): 112.915,
    ("vercel-functions", 1769): 6.946,
}
GCP = {80_000: 126.183, 333_000: 43.281, 500_000: 30.189, MICRO: 15.842}


def test_fees_as_published() -> None:
    frame = fee_equivalents()
    result = {(row["tariff"], row["memory"] // MB): row["fee_ms"] for _, row in frame.iterrows()}
    for key, expected in FEES.items():
        assert float(result[key]) == pytest.approx(expected, abs=6e-4), key
    google = frame[frame["tariff"] == "gcp-run-request"]
    assert dict(zip(google["cpu"], map(float, google["fee_ms"]), strict=True)) == pytest.approx(
        GCP, abs=6e-4
    )
    assert not set(frame["tariff"]) & {"slim", "sim", "spfu"}  # they charge no fee


def test_fees_that_are_not_drawn_are_said_to_be_in_the_table() -> None:
    sizes = [parse_allocation(f"{memory}MB") for memory in range(128, 128 + 61)]
    fees = fee_equivalents(["aws-lambda-x86"], sizes)
    notes = [it.text for it in section(fees).blocks if isinstance(it, Note)]
    assert notes == ["Drawn: the first 60 of 61 fees; all are in the table."]
    assert not any(isinstance(it, Note) for it in section(fees[:60]).blocks)


def test_sizes_asked_for_are_fitted() -> None:
    sizes = [parse_allocation("512MB/0.5vCPU"), parse_allocation("0.5 vCPU/20 GB")]
    frame = fee_equivalents(["aws-lambda-x86", "gcp-run-request"], sizes)
    assert list(frame["memory"]) == [885 * MB, None, 512 * MB, 20 * GB]
    assert list(frame["cpu"])[2:] == [500_000, 6 * MICRO]
    assert frame["fee_ms"][1] is None
    assert frame["size"][1] == "0.5vCPU/20GB"
    assert float(frame["fee_ms"][2]) == pytest.approx(30.189, abs=6e-4)


@pytest.mark.parametrize("text", ["", "half", "512", "1GB/lots vCPU"])
def test_a_size_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UnciaError, match="cannot be read"):
        parse_allocation(text)


def test_a_size_may_be_of_one_resource() -> None:
    assert parse_allocation("1vCPU") == Size(MICRO, None)
    assert parse_allocation("2 GB") == Size(None, 2 * GB)


ROWS = requests(400, 11)
RAN = [
    row
    for row in ROWS
    if row["outcome"] != "throttled" and row["execution"] is not None and row["execution"] >= 0
]


@pytest.fixture(scope="module")
def result() -> Rounding:
    return measure(table(ROWS))


def adds(rows: list[dict[str, Any]]) -> dict[tuple[str, str], list[int]]:
    """What each rule adds to each row: ns, and bytes x ns."""
    times = [row["execution"] for row in rows]

    def azure(time: int) -> int:
        return max(up(time, MS), 100 * MS)

    known = [row for row in rows if row["memory_avg"] is not None]
    held = []
    for row in known:
        size = min(max(up(row["memory_avg"], 128 * MB), 128 * MB), 1536 * MB)
        plain = min(row["memory_avg"], 1536 * MB)
        held.append(size * azure(row["execution"]) - plain * row["execution"])
    return {
        ("1ms", "time"): [up(time, MS) - time for time in times],
        ("100ms", "time"): [up(time, 100 * MS) - time for time in times],
        ("1ms, at least 100ms", "time"): [azure(time) - time for time in times],
        ("100ms, at least 1s", "time"): [max(up(time, 100 * MS), S) - time for time in times],
        ("128MB, at most 1536MB; 1ms, at least 100ms", "memory"): held,
    }


def test_sums_means_and_quantiles_against_plain_python(result: Rounding) -> None:
    long_enough = [row for row in RAN if row["execution"] >= MS]
    expected = adds(long_enough)
    got = {(row["rule"], row["resource"]): row for _, row in result.frame.iterrows()}
    assert set(got) == set(expected)
    for key, amounts in expected.items():
        row, unit = got[key], MS if key[1] == "time" else GB * S
        assert row["rows"] == len(amounts)
        assert row["added"] == sum(amounts)
        assert row["mean"] == float(Fraction(sum(amounts), len(amounts) * unit))
        ordered = sorted(amounts)
        # A bin of time is a 1,024th of what the rule can add at most; one of memory 1.09 %.
        for probability in PROBABILITIES:
            rank = math.ceil(Fraction(probability).limit_denominator(100) * len(ordered))
            exact = ordered[rank - 1] / unit
            slack = S / 1000 / unit if key[1] == "time" else exact * 0.011
            assert exact - 1e-9 <= row[f"p{probability * 100:g}"] <= exact + slack, (key, rank)
        assert row["most"] == pytest.approx(ordered[-1] / unit)
        assert row["rows"] + sum(row["left_out"].values()) == len(ROWS)
    assert set(got["100ms", "time"]["tariffs"]) == {"gcp-run-request", "ibm-code-engine"}


def test_distributions_are_exact_where_they_stand(result: Rounding) -> None:
    added = sorted(adds([row for row in RAN if row["execution"] >= MS])["100ms", "time"])
    selected = result.cdf[(result.cdf["rule"] == "100ms") & (result.cdf["resource"] == "time")]
    for value, share in zip(selected["value"], selected["share"], strict=True):
        assert share == sum(item <= round(value * MS) for item in added) / len(added)


def test_short_requests_count_if_asked_for_and_memory_as_published() -> None:
    rows = [
        request(execution=0, memory_avg=0),
        request(execution=300 * US, memory_avg=2000 * MB),
        request(execution=None, outcome="throttled"),
        request(execution=-5),
    ]
    every = rounding(table(rows), ["azure-consumption"], at_least=0, fit="paper")
    assert list(every["rows"]) == [2, 2]
    time = 100 * MS
    assert every["added"][0] == time + time - 300 * US
    assert every["added"][1] == 2048 * MB * time - 2000 * MB * 300 * US
    assert every["left_out"][0] == {"not billable": 1, "a value is negative or absurd": 1}
    # By default the plan's least of 128 MB and most of 1536 MB hold.
    selected = rounding(table(rows), ["azure-consumption"], at_least=0)
    assert selected["added"][1] == 128 * MB * time + 1536 * MB * (time - 300 * US)
    short = rounding(table(rows), ["azure-consumption"])
    assert list(short["rows"]) == [0, 0]
    assert short["mean"][0] is short["added"][0] is short["p50"][0] is None


def test_the_command(tmp_path: Path) -> None:
    path, page = tmp_path / "requests.parquet", tmp_path / "page.html"
    pq.write_table(table(ROWS), path)
    arguments = ["cost", "rounding", str(path), "-t", "gcp-run-request", "--at-least", "0ms"]
    done = CliRunner().invoke(build(), [*arguments, "--json", "--html", str(page)])
    assert done.exit_code == 0, done.output
    entries = json.loads(done.stdout)
    assert [entry["resource"] for entry in entries] == ["fee"] * 4 + ["time"]
    assert entries[0]["fee_ms"].startswith("126.18")
    assert entries[0]["rule"] is None
    assert entries[-1]["added"] == str(sum(adds(RAN)["100ms", "time"]))
    assert '"rounding-time"' in page.read_text(encoding="utf-8")
    shown = CliRunner().invoke(build(), arguments)
    assert "100ms" in shown.output
    alone = CliRunner().invoke(build(), ["cost", "rounding", "-t", "cloudflare-workers"])
    assert alone.exit_code == 0, alone.output
    assert "15" in alone.output
    wrong = CliRunner().invoke(build(), ["cost", "rounding", "--at-least", "soon"])
    assert isinstance(wrong.exception, UnciaError)
