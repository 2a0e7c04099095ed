"""The guide to tariffs, followed to the letter: a tariff, a bill, and a rule in one new file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tariff_rows import GB, MS, S, row, table

import uncia
from uncia import yamlio
from uncia.tariffs import Tariff
from uncia.tariffs.request import cost

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "add-a-tariff.md").read_text(encoding="utf-8")
FEE = Fraction("0.0000002")
PRICE = Fraction("0.0000166667")
BILL = "bill requests.parquet --tariff ./my-cloud.yaml"

COMMANDS = """
import json, shlex, sys
from typer.testing import CliRunner
from uncia.cli import build
printed = []
for line in sys.argv[1:]:
    result = CliRunner().invoke(build(), shlex.split(line))
    assert result.exit_code == 0, (line, result.output, result.exception)
    printed.append(result.stdout)
print(json.dumps(printed))
"""


def blocks(language: str) -> list[str]:
    """The guide's blocks of code in a language."""
    return [part.split("```")[0] for part in GUIDE.split(f"```{language}\n")[1:]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A copy of the package as if checked out, and the guide's tariff and table beside it."""
    shutil.copytree(
        Path(uncia.__file__).parent,
        tmp_path / "python" / "uncia",
        ignore=shutil.ignore_patterns("__pycache__", "*.so"),
    )
    tariff = blocks("yaml")[0]
    (tmp_path / "my-cloud.yaml").write_text(tariff, encoding="utf-8")
    run(tmp_path, "-c", blocks("python")[0])
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    """What Python prints, with the package's copy in the folder."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / "python"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands(folder: Path, *lines: str) -> list[str]:
    """What commands of Uncia print, all in one process of the package's copy."""
    return cast(list[str], json.loads(run(folder, "-c", COMMANDS, *lines)))


def shown(text: str) -> list[str]:
    """Lines of a console without spaces at their ends."""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def usd(printed: str) -> Fraction:
    """The exact amount of a bill of one line, printed as JSON."""
    (line,) = json.loads(printed)
    return Fraction(line["cost_usd"])


def test_the_tariff_of_the_guide_bills_as_computed_by_hand(work: Path) -> None:
    checked, table_of_it, as_json, in_a_month = commands(
        work, "tariffs check my-cloud.yaml", BILL, f"{BILL} --json", f"{BILL} --json --free-tier"
    )
    _, check, bill, _ = blocks("console")
    assert shown(checked) == shown(check)[1:]
    assert shown(table_of_it)[:2] == shown(bill)[1:]
    by_hand = PRICE * Fraction(5, 2) + 3 * FEE
    assert usd(as_json) == by_hand == Fraction("0.00004226675")
    assert usd(in_a_month) == by_hand - 2 * FEE == Fraction("0.00004186675")
    for figure in ("0.00004226675", "0.00004186675"):
        assert figure in GUIDE


def test_a_new_rule_is_one_file_and_shows_in_bills_analyses_and_reports(work: Path) -> None:
    rule, test = blocks("python")[1:]
    (work / "python/uncia/tariffs/rules/half_beyond.py").write_text(rule, encoding="utf-8")
    file = work / "my-cloud.yaml"
    text = file.read_text(encoding="utf-8")
    text = text.replace("  free: 100 ms\n", "  free: 100 ms\n" + blocks("yaml")[1])
    file.write_text(text, encoding="utf-8")
    used = [
        row(execution=n * MS, allocated_cpu=None, allocated_memory=GB, cpu_user=10 * MS)
        for n in (40, 130, 2500)
    ]
    rows = table(used).append_column("started", pa.array([0, S, 2 * S], pa.int64()))
    rows = rows.append_column("instance", pa.array(["a", "a", "a"]))
    pq.write_table(rows, work / "used.parquet")

    rules, schema, show, bill, as_json, parts, rounding, _ = commands(
        work,
        "tariffs rules",
        "schema tariff",
        "tariffs show ./my-cloud.yaml",
        BILL,
        f"{BILL} --json",
        "cost decompose used.parquet -t ./my-cloud.yaml --json",
        "cost rounding used.parquet -t ./my-cloud.yaml --json",
        "cost report used.parquet -t ./my-cloud.yaml --html page.html",
    )
    assert "half_beyond" in rules
    assert '"half_beyond"' in schema
    assert "half price beyond 1s" in show
    assert shown(bill)[:2] == shown(blocks("console")[3])[1:]
    by_hand = PRICE * (Fraction(1, 10) + 1 + Fraction(7, 10)) + 3 * FEE
    assert usd(as_json) == by_hand
    (line,) = json.loads(parts)
    assert Fraction(line["cost_usd"]) == by_hand
    assert Fraction(line["minimum_usd"]) == -PRICE * (Fraction(3, 10) + Fraction(7, 10))
    message = "100ms, the first 100ms free, half price beyond 1s"
    assert message in rounding
    assert message in (work / "page.html").read_text(encoding="utf-8")

    (work / "test_half_beyond.py").write_text(test, encoding="utf-8")
    rules_of_all = ROOT / "tests" / "tariffs" / "test_tariff_rules.py"
    options = ("-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"))
    printed = run(
        *(work, "-m", "pytest", *options, "test_half_beyond.py"),
        f"{rules_of_all}::test_columns_numbers_and_integers_agree",
    )
    assert "6 passed" in printed


def test_two_rules_of_one_key_are_refused(work: Path) -> None:
    rules = work / "python/uncia/tariffs/rules"
    shutil.copy(rules / "free.py", rules / "again.py")
    done = subprocess.run(
        [sys.executable, "-m", "uncia", "tariffs", "rules"],
        env=os.environ | {"PYTHONPATH": str(work / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "error: two rules of tariffs have the key free" in done.stderr
    assert "again.py and " in done.stderr
    assert "Traceback" not in done.stderr


def test_the_worked_number_of_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "tariffs.md").read_text(encoding="utf-8")
    document = yamlio.load(ROOT / "tests" / "data" / "tariffs" / "first-free.yaml")
    tariff = yamlio.validate(Tariff, document).model_dump()
    tariff["time"] |= {
        "kind": "execution",
        "granularity": "100 ms",
        "minimum": "200 ms",
        "free": "50 ms",
    }
    tariff["charges"] = tariff["charges"][:1]
    usd_of_it = cost(Tariff.model_validate(tariff), {"execution": 130 * MS, "allocated_memory": GB})
    assert usd_of_it == Fraction("0.000002700005")
    assert "0.000002700005 USD" in page


@pytest.mark.parametrize("key", ["price", "when"])
def test_a_rule_with_the_key_of_a_part_of_a_tariff_is_refused(work: Path, key: str) -> None:
    rule = blocks("python")[1]
    folder = work / "python/uncia/tariffs/rules"
    (folder / "half_beyond.py").write_text(rule, encoding="utf-8")
    (folder / "another.py").write_text(rule.replace('"half_beyond"', f'"{key}"'), encoding="utf-8")
    read = (
        "from uncia.errors import UnciaError\n"
        "try:\n    import uncia.tariffs.model\nexcept UnciaError as error:\n    print(error)"
    )
    message = run(work, "-c", read)
    assert f"the key {key} of a rule is a part of every Charge already" in message
