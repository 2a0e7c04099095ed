"""Utilization and its correlations, against exact ranks and plain Python."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_rows import MB, MICRO, MS, is_comparable, request, requests, table
from typer.testing import CliRunner

from uncia.cli import build
from uncia.costs.ranks import Binned, spearman
from uncia.costs.utilization import CELLS, PROBABILITIES, WIDTH, Utilization, measure, utilization
from uncia.report.cost.utilization import section
from uncia.report.page import Note


def mid_ranks(values: list[Any]) -> list[Fraction]:
    """Ranks from 1; those of equal values are their mean."""
    ordered = sorted(values)
    first = {value: index for index, value in reversed(list(enumerate(ordered)))}
    last = {value: index for index, value in enumerate(ordered)}
    return [Fraction(first[value] + last[value], 2) + 1 for value in values]


def correlation(x: list[Fraction], y: list[Fraction]) -> float:
    n = len(x)
    mean_x, mean_y = sum(x) / n, sum(y) / n
    both = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    spread = sum((a - mean_x) ** 2 for a in x) * sum((b - mean_y) ** 2 for b in y)
    return float(both) / math.sqrt(spread)


ROWS = requests(500, 3)
GOOD = [
    row
    for row in ROWS
    if is_comparable(row) and row["allocated_cpu"] and row["allocated_memory"] and row["execution"]
]
RATIOS = {
    "cpu": [
        Fraction(row["cpu_user"] * MICRO, row["allocated_cpu"] * row["execution"]) for row in GOOD
    ],
    "memory": [Fraction(row["memory_avg"], row["allocated_memory"]) for row in GOOD],
}


@pytest.fixture(scope="module")
def result() -> Utilization:
    return measure(table(ROWS))


def test_shares_means_and_extremes(result: Utilization) -> None:
    for _, row in result.frame.iterrows():
        exact = RATIOS[row["resource"]]
        assert row["rows"] == len(exact)
        assert row["mean"] == pytest.approx(float(sum(exact) / len(exact)), rel=1e-12)
        for quarter in (1, 2, 3):
            below = sum(ratio < Fraction(quarter, 4) for ratio in exact)
            assert row[f"below_{25 * quarter}"] == below / len(exact)
        assert row["most"] == pytest.approx(float(max(exact)))


def test_quantiles_are_at_most_a_bin_too_high(result: Utilization) -> None:
    for _, row in result.frame.iterrows():
        ordered = sorted(RATIOS[row["resource"]])
        for probability in PROBABILITIES:
            rank = math.ceil(Fraction(probability).limit_denominator(100) * len(ordered))
            exact = float(ordered[rank - 1])
            assert exact * (1 - 1e-12) <= row[f"p{probability * 100:g}"] <= exact * (1 + WIDTH)


def test_rows_without_a_ratio_are_counted(result: Utilization) -> None:
    assert result.rows + sum(result.left_out.values()) == len(ROWS)
    kept = [row for row in ROWS if is_comparable(row)]
    assert result.left_out["execution is zero"] == sum(row["execution"] == 0 for row in kept)
    unsized = sum(row["allocated_cpu"] is None for row in kept)
    assert result.left_out["allocated_cpu is null or zero"] == unsized


def test_correlations_against_exact_ones(result: Utilization) -> None:
    cpu, memory = RATIOS["cpu"], RATIOS["memory"]
    assert result.pearson == pytest.approx(correlation(cpu, memory), rel=1e-9)
    exact = correlation(mid_ranks(cpu), mid_ranks(memory))
    assert result.spearman.value is not None
    assert result.spearman.error is not None
    assert abs(result.spearman.value - exact) <= result.spearman.error < 0.06


def test_the_density_holds_every_row_once(result: Utilization) -> None:
    density = result.density
    assert density["rows"].sum() == result.rows
    assert len(density) <= 2000
    assert density["share"].sum() == pytest.approx(1)
    for _, cell in density.iterrows():
        counted = sum(
            min(CELLS - 1, math.floor(cpu * CELLS)) == round(cell["cpu"] * CELLS)
            and min(CELLS - 1, math.floor(memory * CELLS)) == round(cell["memory"] * CELLS)
            for cpu, memory in zip(RATIOS["cpu"], RATIOS["memory"], strict=True)
        )
        assert counted == cell["rows"]


def test_a_bound_that_is_met_exactly_is_not_below() -> None:
    """A quarter, a half and three quarters of 10 ms at 0.3 vCPU and of 128 MB."""
    rows = [
        request(cpu_user=3 * MS * quarter // 4, memory_avg=32 * MB * quarter)
        for quarter in (1, 2, 3)
    ]
    frame = utilization(table(rows))
    for _, row in frame.iterrows():
        below = [row[name] for name in ("below_25", "below_50", "below_75")]
        assert below == [0, 1 / 3, 2 / 3]
    assert list(frame["spearman"]) == [1.0, 1.0]
    assert frame["spearman_error"][0] == pytest.approx(0, abs=1e-12)


def test_what_does_not_vary_has_no_correlation() -> None:
    frame = utilization(table([request(), request()]))
    assert list(frame["pearson"]) == list(frame["spearman"]) == [None, None]


def test_use_above_the_allocation_is_said_to_be_cut() -> None:
    def notes(memory_avg: int) -> list[str]:
        rows = [request(), request(memory_avg=memory_avg)]
        blocks = section(measure(table(rows))).blocks
        return [str(it.text) for it in blocks if isinstance(it, Note)]

    assert any(
        text.startswith("Of memory some requests use more than 100 %") for text in notes(200 * MB)
    )
    assert not any("more than 100 %" in text for text in notes(MB))


def test_nothing_measured() -> None:
    result = measure(table([request(cpu_user=None)]))
    assert result.rows == 0
    assert result.frame["mean"][0] is None
    assert result.frame["p50"][0] is None
    assert result.density.empty


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=2, max_size=60),
    st.integers(1, 15),
    st.integers(1, 15),
)
def test_binned_ranks_are_within_their_bound(
    pairs: list[tuple[int, int]], width_x: int, width_y: int
) -> None:
    """Whatever the bins, the exact rank correlation is within the error that is stated."""
    values = np.array(pairs, np.int64)
    counts = np.ones(len(pairs), np.int64)

    def binned(column: int, width: int) -> Binned:
        selected = values[:, column]
        return Binned(selected // width, selected.astype(np.float64), selected.astype(np.float64))

    got = spearman(binned(0, width_x), binned(1, width_y), counts)
    x, y = ([Fraction(int(pair[side])) for pair in pairs] for side in (0, 1))
    if got.value is None or got.error is None:
        return  # one bin holds everything
    exact = correlation(mid_ranks(x), mid_ranks(y))
    assert abs(got.value - exact) <= got.error + 1e-12


def test_the_command(tmp_path: Path) -> None:
    path, page = tmp_path / "requests.parquet", tmp_path / "page.html"
    pq.write_table(table(ROWS), path)
    arguments = ["cost", "utilization", str(path)]
    done = CliRunner().invoke(build(), [*arguments, "--json", "--html", str(page)])
    assert done.exit_code == 0, done.output
    cpu, memory = json.loads(done.stdout)
    assert (cpu["resource"], memory["resource"]) == ("cpu", "memory")
    assert cpu["rows"] == len(GOOD)
    text = page.read_text(encoding="utf-8")
    assert '"utilization-density"' in text
    shown = CliRunner().invoke(build(), arguments)
    assert "Spearman" in shown.output
    assert "Left out" in shown.output
