"""The command `uncia cost advice`, as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from advice_rows import MB, MS, rows, table
from typer.testing import CliRunner

import uncia
from uncia.cli import build
from uncia.costs.advice.frames import CHOICE_COLUMNS, HINT_COLUMNS


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A function at two sizes, one too slow for 200 ms; and another with few rows."""
    usual: dict[str, Any] = {"cpu_user": 40 * MS, "memory_avg": 60 * MB, "memory_peak": 80 * MB}
    data = table(
        rows("f", [600 * MS + 1000 * k for k in range(100)], memory=128, **usual),
        rows("f", [140 * MS + 1000 * k for k in range(120)], memory=512, **usual),
        rows("g", [10 * MS] * 5, memory=256, **usual),
    )
    path = tmp_path_factory.mktemp("advice") / "table.parquet"
    pq.write_table(data, path)
    return path


def test_the_command_prints_choices_hints_and_writes_a_page(measured: Path) -> None:
    page = measured.parent / "advice.html"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "uncia", "cost", "advice", str(measured), "--p95", "200ms"),
            *("--tariff", "aws-lambda-x86", "--top", "2", "--html", str(page)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(uncia.__file__).parents[1]), "TERM": "dumb"},
    )
    assert done.returncode == 0, done.stderr
    first = next(line for line in done.stdout.splitlines() if line.startswith("1*"))
    assert first.split()[1:3] == ["aws-lambda-x86", "512"]
    assert "yes" in first
    assert "5 rows are too few for a claim, it needs 59" in done.stdout
    assert "other architecture: run it on arm64" in done.stdout
    text = page.read_text(encoding="utf-8")
    assert "USD a million less than at present (*)." in done.stdout
    assert "What to choose" in text
    assert "vega-lite" in text


def test_hints_that_say_the_same_of_several_tariffs_are_printed_once(measured: Path) -> None:
    command = ["cost", "advice", str(measured), "--function", "f"]
    for tariff in ("aws-lambda-x86", "gcp-run-request", "ibm-code-engine", "azure-flex"):
        command += ["--tariff", tariff]
    printed = CliRunner().invoke(build(), [*command, "--top", "50"])
    assert printed.exit_code == 0, printed.output
    hints = [line for line in printed.stdout.splitlines() if "merge requests: handle" in line]
    assert len(hints) == 1
    result = json.loads(CliRunner().invoke(build(), [*command, "--json"]).stdout)
    others = [item["tariff"] for item in result if item.get("hint") == "merge requests"][1:]
    assert len(others) >= 1
    likewise = hints[0].split("; likewise ")[1]
    assert [part.split("(")[1].rstrip(")") for part in likewise.split(", ")] == others


def test_without_a_tariff_in_use_savings_are_those_under_the_same_tariff(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pq.write_table(table(rows("f", [10 * MS] * 8, memory=512, platform="embedded")), path)
    done = CliRunner().invoke(build(), ["cost", "advice", str(path), "-t", "aws-lambda-x86"])
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "USD a million less than at the present size under the same tariff." in text
    assert "(*)" not in text


def test_json_is_a_flat_list_of_choices_and_hints(measured: Path) -> None:
    done = CliRunner().invoke(
        build(),
        ["cost", "advice", str(measured), "--p95", "200ms", "-t", "aws-lambda-x86", "--json"],
    )
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert {item["kind"] for item in result} == {"choice", "hint"}
    choices = [item for item in result if item["kind"] == "choice" and item["function"] == "f"]
    assert set(choices[0]) == {"kind", *CHOICE_COLUMNS}
    assert (choices[0]["memory_mb"], choices[0]["basis"], choices[0]["rank"]) == (
        512,
        "measured",
        1,
    )
    assert choices[0]["meets_bound"] is True
    assert isinstance(choices[0]["cost_usd_per_million"], str)
    slow = next(choice for choice in choices if choice["memory_mb"] == 128)
    assert slow["meets_bound"] is False
    hint = next(item for item in result if item["kind"] == "hint")
    assert set(hint) == {"kind", *HINT_COLUMNS}


def test_json_has_the_best_of_each_basis_if_top_is_given(measured: Path) -> None:
    done = CliRunner().invoke(
        build(),
        [
            *("cost", "advice", str(measured), "-t", "aws-lambda-x86", "--json"),
            *("--top", "1", "--function", "f"),
        ],
    )
    assert done.exit_code == 0, done.output
    choices = [item for item in json.loads(done.stdout) if item["kind"] == "choice"]
    assert [choice["basis"] for choice in choices if not choice["present"]].count("measured") <= 1
    assert [choice["basis"] for choice in choices].count("estimated") == 1


def test_a_bound_without_a_unit_is_refused(measured: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "uncia", "cost", "advice", str(measured), "--p95", "200"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(uncia.__file__).parents[1]), "TERM": "dumb"},
    )
    assert done.returncode == 2
    assert "the bound of the p95" in done.stderr


def test_savings_are_those_under_the_tariff_in_use_that_is_no_choice(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pq.write_table(table(rows("f", [10 * MS] * 8, memory=512)), path)
    done = CliRunner().invoke(build(), ["cost", "advice", str(path), "-t", "gcp-run-request"])
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "billed by aws-lambda-x86" in text
    assert "USD a million less than at present, as billed now." in text
