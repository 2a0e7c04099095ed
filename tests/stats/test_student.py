import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncia.stats import student

FREEDOM = st.floats(1, 1e5)


@pytest.mark.parametrize(
    ("p", "freedom", "value"),
    # NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2.
    [
        (0.975, 1, 12.706),
        (0.975, 4, 2.776),
        (0.95, 9, 1.833),
        (0.999, 3, 10.215),
        (0.975, 100, 1.984),
        (0.9, 30, 1.310),
    ],
)
def test_quantiles_are_those_of_the_tables(p: float, freedom: float, value: float) -> None:
    assert student.quantile(p, freedom) == pytest.approx(value, abs=6e-4)
    assert student.quantile(1 - p, freedom) == pytest.approx(-value, abs=6e-4)


@given(st.floats(-30, 30), st.sampled_from([1, 2]))
def test_probabilities_of_one_and_two_degrees_are_the_closed_forms(t: float, freedom: int) -> None:
    closed = {
        1: 0.5 + math.atan(t) / math.pi,
        2: 0.5 + t / (2 * math.sqrt(2 + t * t)),
    }
    assert student.cdf(t, freedom) == pytest.approx(closed[freedom], abs=1e-12)


@given(st.floats(0.001, 0.999), FREEDOM)
def test_the_quantile_is_the_inverse_of_the_probability(p: float, freedom: float) -> None:
    assert student.cdf(student.quantile(p, freedom), freedom) == pytest.approx(p, abs=1e-9)


@given(FREEDOM, st.floats(-50, 50), st.floats(0, 10))
def test_probabilities_rise(freedom: float, t: float, step: float) -> None:
    low, high = student.cdf(t, freedom), student.cdf(t + step, freedom)
    assert 0 <= low <= 1
    assert low <= high + 1e-10


@pytest.mark.parametrize(("p", "freedom"), [(0.0, 3), (1.0, 3), (0.5, 0.5), (0.5, math.nan)])
def test_what_has_no_quantile_is_refused(p: float, freedom: float) -> None:
    with pytest.raises(ValueError, match=r"Student|order"):
        student.quantile(p, freedom)
