import os
import subprocess
import sys
from pathlib import Path

import altair
import numpy as np
import pyarrow as pa
import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st
from page_reader import marks

from uncia.report import checks, plots, runtime, theme, vega
from uncia.report.numbers import change, figure, general
from uncia.report.sections.distributions import families
from uncia.report.sections.instances import steps
from uncia.report.sections.lag import histogram


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=2000), st.integers(10, 300))
def test_curves_run_through_order_statistics(values: list[int], points: int) -> None:
    ordered = np.sort(np.array(values, dtype=np.int64))
    curve = plots.ecdf(ordered, points)
    assert len(curve) <= points
    assert curve[0] == (ordered[0], 1 / len(values))
    assert curve[-1] == (ordered[-1], 1.0)
    assert curve == sorted(curve)
    for value, share in curve:
        assert ordered[round(share * len(values)) - 1] == value


@given(st.floats(1e-6, 1e9), st.floats(1, 1e6))
def test_ticks_lie_on_the_axis_and_are_few(low: float, factor: float) -> None:
    ticks = vega.log_ticks(low, low * factor)
    assert len(ticks) <= 12
    assert ticks == sorted(set(ticks))
    assert all(low * 0.99 <= tick <= low * factor * 1.01 for tick in ticks)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.8, 700, [1, 10, 100]),
        (3, 40, [5, 10, 20]),
        (0.9, 1.4, [1.0, 1.2, 1.4]),
        (-1, 4, []),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, ticks: list[float]) -> None:
    assert vega.log_ticks(low, high) == ticks


def test_the_bins_of_a_histogram_hold_every_value() -> None:
    values = np.concatenate((np.zeros(5), np.random.default_rng(1).integers(1, 10**7, 995)))
    spec = histogram(values.astype(np.int64), 1e3, "lag", 1000.0)
    bars = marks(spec)[0][1]
    assert sum(row["share"] for row in bars) == pytest.approx(1.0)
    assert all(row["low"] < row["high"] for row in bars)


def test_many_instances_are_drawn_by_their_peaks_and_what_is_left_of_them() -> None:
    # A hundred live together for a moment, then none for long, then five, of which one is left.
    times = [(i, 1_000 - i) for i in range(100)] + [(99_000 + i, 99_500 + i) for i in range(4)]
    table = pa.table(
        {
            "started": pa.array([start for start, _ in times] + [99_004], pa.int64()),
            "ended": pa.array([end for _, end in times] + [None], pa.int64()),
        }
    )
    drawn = steps(table, 100_000, 20)
    assert len(drawn) <= 20
    assert (99, 100) in drawn, "the peak, when it was reached"
    assert (1_000, 0) in drawn, "none were left until the next began"
    assert max(alive for time, alive in drawn if time > 1_000) == 5
    assert drawn[-2:] == [(99_503, 1), (100_000, 1)]
    assert steps(table.slice(0, 0), 100_000, 20) == []


def test_every_curve_of_a_distribution_rises_from_zero() -> None:
    spec = plots.distribution({"one": np.array([5, 7])}, {}, 1.0, "ms", in_order=False)
    ((_, rows),) = marks(spec)
    assert [(row["value"], row["share"]) for row in rows] == [(5, 0), (5, 0.5), (7, 1)]
    many = plots.distribution({"one": np.arange(1, 9_000)}, {}, 1.0, "ms", in_order=False)
    ((_, rows),) = marks(many)
    assert rows[0]["share"] == 0
    assert len(rows) <= plots.POINTS_PER_CURVE


def test_what_is_not_finite_is_null() -> None:
    rows = [{"a": value} for value in (1.5, float("inf"), float("nan"), np.float64("inf"), "x")]
    ((_, drawn),) = marks(vega.layer("point", rows, x=vega.quantity("a")))
    assert [row["a"] for row in drawn] == [1.5, None, None, None, "x"]


def test_no_two_names_have_the_same_colour() -> None:
    assert theme.colours(9) == list(theme.CATEGORIES)
    assert theme.colours(6, in_order=True) == list(theme.RAMP)
    for count in (10, 30, 81):
        assert len(set(theme.colours(count))) == count
        assert len(set(theme.colours(count, in_order=True))) == count


def test_families_keep_what_belongs_together() -> None:
    names = ["warm", "cold", "burst-warm", "burst-cold", "pyaes-128", "pyaes-256", "resize"]
    assert families(names) == [
        ("warm, cold, resize", ["warm", "cold", "resize"]),
        ("burst", ["burst-warm", "burst-cold"]),
        ("pyaes", ["pyaes-128", "pyaes-256"]),
    ]
    many = [f"size-{i}" for i in range(17)]
    parts = families(many)
    assert [name for _, members in parts for name in members] == many
    assert len({label for label, _ in parts}) == len(parts) == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.078943, "0.0789"),
        (1.0, "1.00"),
        (99.96, "100"),
        (1001.06, "1,001"),
        (1234567.0, "1,234,567"),
        (-2.5, "-2.50"),
        (float("inf"), "∞"),
        (float("nan"), "–"),
    ],
)
def test_figures_have_three_digits(value: float | None, text: str) -> None:
    assert figure(value).replace("100.0", "100") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1.5, "1.5"),
        (30.0, "30"),
        (123456, "123,456"),
        (0.00001234, "0.00001234"),
        (float("inf"), "∞"),
    ],
)
def test_general_numbers_have_no_exponents(value: float | None, text: str) -> None:
    assert general(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(None, "–"), (1.0, "±0 %"), (1.1, "+10.0 %"), (0.5, "-50.0 %"), (3.5, "+250 %")],
)
def test_changes_are_percentages(ratio: float | None, text: str) -> None:
    assert change(ratio) == text


def test_the_examples_in_the_docstrings_are_true() -> None:
    import doctest

    from uncia.report import numbers
    from uncia.report.sections import distributions

    for module in (vega, numbers, distributions):
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0


def in_a_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(vega.__file__).parents[2])
    usual = {name: value for name, value in os.environ.items() if name != checks.CHECK}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**usual, "PYTHONPATH": source, **environment},
    )


def test_charts_are_drawn_without_altair() -> None:
    code = """
import sys
from uncia.report import vega
vega.chart(vega.layer("bar", [], x=vega.quantity("a")), height=9)
assert "altair" not in sys.modules
"""
    ended = in_a_process(code)
    assert ended.returncode == 0, ended.stderr


def test_processes_that_tests_start_check_their_charts() -> None:
    code = """
from uncia.report import vega
vega.chart(vega.layer("nonsense", [], x=vega.quantity("a")), height=9)
"""
    assert in_a_process(code).returncode == 0
    ended = in_a_process(code, **{checks.CHECK: "1"})
    assert ended.returncode == 1
    assert "in check" in ended.stderr


def test_charts_are_checked_against_the_version_that_draws_them() -> None:
    assert altair.SCHEMA_VERSION.startswith(f"v{runtime.VEGA_LITE}.")
    assert runtime.VEGA_LITE in vl_convert.get_vegalite_versions()
