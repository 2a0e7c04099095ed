"""Quantities are parsed exactly, written back as they were, and refused with what is allowed."""

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncia import units

DURATIONS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
SIZES = {"B": 1, "KB": 2**10, "KiB": 2**10, "MB": 2**20, "MiB": 2**20, "GB": 2**30, "GiB": 2**30}
int64 = st.integers(min_value=0, max_value=2**63 - 1)


@given(int64)
def test_durations_are_written_and_read_back(ns: int) -> None:
    assert units.parse_duration(units.format_duration(ns)) == ns


@given(int64)
def test_sizes_are_written_and_read_back(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


@given(int64)
def test_cpu_is_written_and_read_back(micro: int) -> None:
    assert units.parse_cpu(units.format_cpu(micro)) == micro


@given(
    st.decimals(min_value=Decimal("0.001"), max_value=10**9, places=6),
    st.sampled_from(["s", "min", "h"]),
)
def test_rates_are_written_and_read_back(number: Decimal, per: str) -> None:
    rate = units.parse_rate(f"{number:f}/{per}")
    assert rate == Fraction(number) / {"s": 1, "min": 60, "h": 3600}[per]
    assert units.parse_rate(units.format_rate(rate)) == rate


@given(
    st.integers(min_value=0, max_value=10**9),
    st.integers(min_value=0, max_value=10**6 - 1),
    st.sampled_from(sorted(DURATIONS)),
)
def test_decimal_durations_are_exact(whole: int, micro: int, unit: str) -> None:
    text = f"{whole}.{micro:06d}{unit}"
    exact = Fraction(whole * 10**6 + micro, 10**6) * DURATIONS[unit]
    if exact.denominator != 1 or exact > units.INT64_MAX:
        with pytest.raises(units.UnitError, match=r"finer than one nanosecond|64-bit"):
            units.parse_duration(text)
    else:
        assert units.parse_duration(text) == exact


@given(st.lists(st.integers(0, 999), min_size=2, max_size=6))
def test_a_duration_of_several_units_is_their_sum(numbers: list[int]) -> None:
    parts = list(zip(numbers, ("h", "min", "s", "ms", "us", "ns"), strict=False))
    total = sum(number * DURATIONS[unit] for number, unit in parts)
    for space in ("", " "):
        assert units.parse_duration(space.join(f"{n}{unit}" for n, unit in parts)) == total


def test_units_of_a_duration_go_from_large_to_small() -> None:
    assert units.parse_duration("1h1.5min") == 3690 * 10**9
    for text in ("1min8h", "1h1h", "1us1µs"):
        with pytest.raises(units.UnitError, match="from the largest to the smallest"):
            units.parse_duration(text)
    for text in ("8h1", "8h-1min", "8h1potato", "1h0.5ns", "2000000h562047h1min"):
        with pytest.raises(units.UnitError):
            units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1769MB", 1769 * 2**20), ("1 GB", 2**30), ("1.5KiB", 1536), ("6_000B", 6000), ("0B", 0)],
)
def test_sizes_are_binary_as_on_lambda(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**7))
def test_the_engine_s_text_of_a_rate_is_exact(rate: Fraction) -> None:
    assert Fraction(units.rate_per_second_text(rate)) == rate


def test_a_rate_without_a_finite_decimal_keeps_its_unit() -> None:
    rate = units.parse_rate("10/h")
    assert rate == Fraction(1, 360)
    assert units.format_rate(rate) == "10/h"


@pytest.mark.parametrize("value", [5, 5.0, True, None, ["5s"]])
@pytest.mark.parametrize(
    ("parse", "allowed"),
    [
        (units.parse_duration, "ns, us, ms, s, min, h"),
        (units.parse_size, "B, KB, KiB, MB, MiB, GB, GiB"),
        (units.parse_rate, "/s, /min, /h"),
        (units.parse_cpu, "vCPU, mvCPU"),
    ],
)
def test_a_value_without_a_unit_is_refused_with_the_units(parse, allowed, value) -> None:
    with pytest.raises(units.UnitError, match=r"has no unit") as caught:
        parse(value)
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "5 ",
        "s",
        "-5s",
        "+5s",
        "5S",
        "5m",
        "5sec",
        "05s",
        "1e3s",
        "5s5",
        ".5s",
        "5.s",
        "٥s",
        "5,0s",
        "∞s",
        "",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(units.UnitError, match="is not a duration"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    "text", ["100", "100/m", "100/ms", "/s", "0/s", "-1/s", "100 per s", "1e2/s"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(units.UnitError, match=r"is not a rate|is no rate"):
        units.parse_rate(text)


def test_what_does_not_fit_the_tables_is_refused() -> None:
    with pytest.raises(units.UnitError, match="64-bit"):
        units.parse_size("8589934592GB")
    assert units.parse_duration("9223372036854775807ns") == units.INT64_MAX


@given(st.text(max_size=12))
def test_no_text_raises_anything_else(text: str) -> None:
    for parse in (units.parse_duration, units.parse_size, units.parse_cpu):
        with suppress(units.UnitError):
            assert 0 <= parse(text) <= units.INT64_MAX
    with suppress(units.UnitError):
        assert units.parse_rate(text) > 0
