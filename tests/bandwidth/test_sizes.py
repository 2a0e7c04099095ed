"""Lists and ranges of sizes as they are written on the command line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncia.bandwidth import sizes
from uncia.errors import UnciaError


def test_ranges_are_exact():
    assert sizes.memory("128..1769") == list(range(128, 1770))
    assert sizes.memory("128..1769/64")[-2:] == [1664, 1728]
    shares = sizes.vcpu("0.08..1/0.01")
    assert len(shares) == 93
    assert shares[0] == 80_000
    assert shares[21] == 290_000
    assert shares[-1] == 1_000_000
    assert sizes.vcpu("0.05..0.07") == [50_000, 60_000, 70_000]
    assert sizes.durations("5ms..20ms/5ms", "--period") == [5_000_000 * n for n in (1, 2, 3, 4)]


def test_lists_are_sorted_and_each_value_stands_once():
    assert sizes.memory("1769, 128,512MB,0.5GB, 510..513") == [128, 510, 511, 512, 513, 1769]
    assert sizes.vcpu("0.5,0.25vCPU,500mvCPU") == [250_000, 500_000]
    assert sizes.durations("100ms,20ms", "--period") == [20_000_000, 100_000_000]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a value is missing"),
        ("128,,256", "a value is missing"),
        ("128..", "no end"),
        ("..128", "no end"),
        ("128..256/", "no step"),
        ("256..128", "ends below its beginning"),
        ("128..256/0", "step of 0"),
        ("0..128", "0 is no size"),
        ("1..99999999", "more than 100,000 values"),
        ("1.5", "no whole number of MB"),
        ("512GHz", "is not a size"),
        ("-128", "is negative"),
        ("all", "is not a size"),
    ],
)
def test_what_is_no_list_is_told(text: str, words: str):
    with pytest.raises(UnciaError, match=words) as caught:
        sizes.memory(text)
    assert str(caught.value).startswith("--memory: ")
    assert caught.value.exit_code == 2


def test_a_range_of_durations_needs_a_step():
    with pytest.raises(UnciaError, match=r"--period: '5ms\.\.20ms' has no step"):
        sizes.durations("5ms..20ms", "--period")
    with pytest.raises(UnciaError, match=r"has no unit|is not a duration"):
        sizes.durations("20", "--period")


def test_the_text_of_a_share_is_exact():
    assert [sizes.vcpu_text(micro) for micro in (72_357, 500_000, 1_000_000, 1)] == [
        "0.072357",
        "0.5",
        "1",
        "0.000001",
    ]


@given(st.integers(1, 4_000), st.integers(0, 4_000), st.integers(1, 600))
def test_a_range_is_what_python_says(first: int, more: int, step: int):
    assert sizes.memory(f"{first}..{first + more}/{step}") == list(
        range(first, first + more + 1, step)
    )


@given(st.lists(st.integers(1, 2_000_000), min_size=1, max_size=30))
def test_shares_survive_being_written(shares: list[int]):
    assert sizes.vcpu(",".join(map(sizes.vcpu_text, shares))) == sorted(set(shares))
