"""Prices of resources, against the numbers that the cost paper prints or implies."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from request_rows import GB, MB, MICRO
from typer.testing import CliRunner

from uncia.backends import connect
from uncia.cli import build
from uncia.costs.prices import commonest, prices
from uncia.costs.sizes import decimal, parse_allocation
from uncia.errors import UnciaError
from uncia.tariffs import ids


@pytest.fixture(scope="module")
def result() -> dict[str, dict[str, Any]]:
    return {row["tariff"]: dict(row) for _, row in prices().iterrows()}


def test_every_tariff_is_there(result: dict[str, dict[str, Any]]) -> None:
    assert tuple(result) == ids()


def test_a_vcpu_with_1769_mb(result: dict[str, dict[str, Any]]) -> None:
    assert float(result["aws-lambda-x86"]["usd_per_s"]) == pytest.approx(2.87924e-5, rel=1e-5)
    assert float(result["gcp-run-request"]["usd_per_s"]) == pytest.approx(2.83188e-5, rel=1e-5)
    assert result["gcp-run-request"]["usd_per_s"] == Decimal("0.000024") + Decimal(
        "0.0000025"
    ) * Decimal(1769) / Decimal(1024)


def test_serverless_against_a_machine_and_a_container(result: dict[str, dict[str, Any]]) -> None:
    published = {
        "aws-lambda-arm": (2.303397e-5, 1.0),
        "aws-ec2-c6g-medium": (9.475309e-6, 0.41136),
        "aws-fargate-arm": (1.1003056e-5, 0.47769),
    }
    for name, (price, relative) in published.items():
        assert float(result[name]["sold_usd_per_s"]) == pytest.approx(price, rel=1e-6)
        assert result[name]["relative"] == pytest.approx(relative, abs=1e-5)
    assert result["aws-fargate-arm"]["sold_memory"] == 2 * GB


def test_the_ratio_of_cpu_to_memory_prices(result: dict[str, dict[str, Any]]) -> None:
    named = ("gcp-run-request", "gcp-run-instance", "aws-fargate-arm", "ibm-code-engine")
    ratios = [result[name]["cpu_memory_ratio"] for name in named]
    assert ratios == pytest.approx([9.6, 9.0, 9.0955, 9.6376], abs=1e-4)


def test_what_has_no_price_is_not_zero(result: dict[str, dict[str, Any]]) -> None:
    assert result["aws-lambda-x86"]["usd_per_vcpu_s"] is None
    assert result["cloudflare-workers"]["usd_per_gb_s"] is None
    for name in ("aws-ec2-t4g-small", "azure-premium"):
        row = result[name]
        assert row["sold_usd_per_s"] is row["usd_per_s"] is row["relative"] is None
    assert result["vercel-functions"]["usd_per_gb_s"] == Decimal("0.00005")


def test_another_size_and_another_reference() -> None:
    frame = prices(
        ["huawei-functiongraph", "gcp-run-request"],
        size=parse_allocation("600MB/0.5vCPU"),
        against="gcp-run-request",
    )
    assert list(frame["sold_memory"]) == [768 * MB, 600 * MB]
    assert list(frame["sold_cpu"]) == [800_000, MICRO // 2]
    assert frame["relative"][1] == 1.0
    expected = Fraction("0.00001667") * Fraction(768, 1024)
    assert frame["sold_usd_per_s"][0] == decimal(expected)


def test_a_size_that_nobody_sells_has_no_price() -> None:
    frame = prices(["ibm-code-engine"], size=parse_allocation("100GB/1vCPU"))
    assert frame["sold_cpu"][0] is frame["sold_memory"][0] is frame["sold_usd_per_s"][0] is None


def test_the_command(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = ["cost", "prices", "-t", "aws-lambda-arm", "-t", "aws-fargate-arm"]
    done = CliRunner().invoke(build(), [*arguments, "--json", "--html", str(page)])
    assert done.exit_code == 0, done.output
    entries = json.loads(done.stdout)
    assert [entry["relative"] for entry in entries] == [1.0, pytest.approx(0.47769, abs=1e-5)]
    assert entries[0]["usd_per_gb_s"] == "0.0000133334"
    assert '"prices"' in page.read_text(encoding="utf-8")
    shown = CliRunner().invoke(build(), arguments)
    assert "0.4777" in shown.output
    unknown = CliRunner().invoke(build(), ["cost", "prices", "-t", "nobody"])
    assert isinstance(unknown.exception, UnciaError)


def test_the_size_of_most_rows_is_compared(tmp_path: Path) -> None:
    sizes = [(400_000, 256 * MB)] * 3 + [(None, 512 * MB)] * 2 + [(None, None)] * 9
    data = pa.Table.from_pylist(
        [{"execution": 1, "allocated_cpu": cpu, "allocated_memory": size} for cpu, size in sizes]
    )
    with connect() as backend:
        assert commonest(data, backend=backend) == (400_000, 256 * MB)
        with pytest.raises(UnciaError, match="no row of the table has"):
            commonest(data.slice(5), backend=backend)
