"""Words in messages."""

import pytest

from uncia.text import did_you_mean, nearest, plural


def test_one_is_singular() -> None:
    assert [plural(n, "row") for n in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]


@pytest.mark.parametrize(
    ("word", "close"),
    [("burts", "burst"), ("pmuu", "pmu"), ("awz", "aws"), ("gpu", None), ("x", None), ("", None)],
)
def test_a_slip_is_told_from_another_word(word: str, close: str | None) -> None:
    known = ("burst", "constant", "pmu", "aws")
    assert nearest(word, known) == close
    assert did_you_mean(word, iter(known)) == (f", did you mean {close}?" if close else "")
