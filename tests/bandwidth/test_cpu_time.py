"""CPU times as they are written: one value, values with weights, quantiles, a file."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncia.bandwidth import cpu_time
from uncia.errors import UnciaError

MS = 1_000_000


def test_one_value_and_weighted_values():
    assert cpu_time.parse("51.8ms").points == ((51_800_000, 1),)
    result = cpu_time.parse("20ms*3, 10ms, 20ms")
    assert result.points == ((10 * MS, 1), (20 * MS, 4))
    assert result.mean == 18 * MS
    assert result.quantile(Fraction(1, 5)) == 10 * MS
    assert result.quantile(Fraction(21, 100)) == 20 * MS


def test_quantiles_rise_evenly_between_and_end_flat():
    result = cpu_time.parse("p25=10ms,p75=20ms")
    assert result.weight == cpu_time.PIECES
    assert result.points[0] == (10 * MS, 250)
    assert result.points[-1] == (20 * MS, 250)
    assert result.mean == 15 * MS
    assert result.quantile(Fraction(1, 2)) == pytest.approx(15 * MS, abs=20_000)


def test_a_file_has_a_value_on_each_line(tmp_path: Path):
    path = tmp_path / "times.csv"
    path.write_text("# cpu time, weight\n10ms\n\n30ms,2\n10ms\n")
    assert cpu_time.parse(str(path)).points == ((10 * MS, 2), (30 * MS, 2))
    path.write_text("10ms\n12\n")
    with pytest.raises(UnciaError, match=r"line 2: '12' has no unit|line 2"):
        cpu_time.parse(str(path))
    path.write_text("10ms,few\n")
    with pytest.raises(UnciaError, match="line 1: 'few' is no whole weight"):
        cpu_time.parse(str(path))
    path.write_text("# nothing\n")
    with pytest.raises(UnciaError, match="has no value"):
        cpu_time.parse(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnciaError, match="no text in UTF-8"):
        cpu_time.parse(str(path))
    with pytest.raises(UnciaError, match="No such file"):
        cpu_time.parse(str(tmp_path / "none.csv"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a duration|is no CPU time"),
        ("10", "is not a duration"),
        ("-10ms", "negative"),
        ("10ms*0", "no CPU time with a weight above 0"),
        ("10ms*-1", "is no CPU time|is not a duration"),
        ("p50=10ms,p50=11ms", "p50 is given twice"),
        ("p5=10ms,p95=9ms", "p95 is below its p5"),
        ("p101=10ms", "is no quantile"),
        ("p50=10ms,11ms", "is no quantile"),
        (f"1ms*{2**64},1ms", r"more than 2\^64"),
    ],
)
def test_what_is_no_cpu_time_is_told(text: str, words: str):
    with pytest.raises(UnciaError, match=words):
        cpu_time.parse(text)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**6)), max_size=30))
def test_weights_are_kept(points: list[tuple[int, int]]):
    total = sum(weight for _, weight in points)
    if not total:
        with pytest.raises(UnciaError):
            cpu_time.weighted(points)
        return
    result = cpu_time.weighted(points)
    assert result.weight == total
    assert result.mean == Fraction(sum(value * weight for value, weight in points), total)
    assert [value for value, _ in result.points] == sorted({v for v, w in points if w})
