"""Figures of the chapter that reproduces the cost paper are those of its commands."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reproduce" / "cost-paper-section-2.md"
SCRIPT = ROOT / "benches" / "bills" / "reproduce.py"
RESULT = re.compile(r"^\| (.+?) \| (\S+) \| (\S+) \| \S+ % \| `uncia", re.MULTILINE)
NUMBER = re.compile(r"-?[0-9][0-9,]*(?:\.[0-9]+)?(?:e-?[0-9]+)?")


def numbers(cell: str) -> list[tuple[float, float]]:
    """The numbers of a cell, each with how far a value that is rounded to it may be off."""
    read = []
    for match in NUMBER.finditer(cell):
        text = match[0].rstrip(",").replace(",", "")
        scale = 0.01 if "%" in cell else 1.0
        mantissa, _, exponent = text.partition("e")
        step = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        read.append((float(text) * scale, step * scale))
    return read


def is_in(page: str, published: float, computed: float) -> bool:
    """Whether a row of a table has the published number, and the computed one in the next cell."""
    for line in page.splitlines():
        cells = [numbers(cell) for cell in line.strip("| ").split("|")[1:]]
        for before, after in itertools.pairwise(cells):
            if any(abs(a - published) <= max(step, 1e-4 * a) for a, step in before) and any(
                # The script prints six digits.
                abs(b - computed) <= max(0.51 * step, 1e-5 * b)
                for b, step in after
            ):
                return True
    return False


def results(*arguments: str) -> list[tuple[str, float, float]]:
    """The script's rows: what, published, computed."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(what, float(a), float(b)) for what, a, b in RESULT.findall(done.stdout)]


def test_numbers_that_need_no_trace_stand_in_the_page() -> None:
    rows = results("--prices")
    assert len(rows) >= 15
    page = PAGE.read_text(encoding="utf-8")
    assert [row for row in rows if not is_in(page, *row[1:])] == []


@pytest.mark.skipif("DOCS_WHOLE" not in os.environ, reason="the long form: make docs")
def test_numbers_of_the_synthetic_trace_stand_in_the_page() -> None:
    rows = results("--rows", "1000000")
    assert len(rows) >= 35
    page = PAGE.read_text(encoding="utf-8")
    assert [row for row in rows if not is_in(page, *row[1:])] == []


def test_another_number_is_found() -> None:
    page = "| | published | synthetic |\n| vCPU | 42.1 % | 71.4 % |\n| fees | 1, 2 | 1.04, 2.01 |\n"
    assert is_in(page, 0.421, 0.7141)
    assert not is_in(page, 0.421, 0.456)
    assert is_in(page, 2.0, 2.0083)
    assert not is_in(page, 2.0, 1.0)
