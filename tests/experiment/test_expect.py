"""What an experiment declares, and which rows break it."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_rows import table

from uncia.experiment import verdict
from uncia.experiment.expect import Expect, breaches, parse_bound
from uncia.stats.summary import failures

counts = st.integers(min_value=0, max_value=10_000)


def expect(**bounds: str) -> Expect:
    return Expect.model_validate(bounds)


def test_nothing_but_ok_may_happen_unless_declared() -> None:
    result = breaches(Expect(), {"ok": 9, "throttled": 1}, {})
    assert [breach.sentence() for breach in result] == ["1 of 10 throttled (declared: none)"]


@pytest.mark.parametrize(
    ("bound", "count", "holds"),
    [
        ("allowed", 100, True),
        ("none", 0, True),
        ("none", 1, False),
        ("all", 100, True),
        ("all", 99, False),
        ("at most 3", 3, True),
        ("at most 3", 4, False),
        ("at most 2.5%", 2, True),
        ("at most 2.5%", 3, False),
        ("at least 95%", 95, True),
        ("at least 95%", 94, False),
        ("at least 7", 6, False),
    ],
)
def test_bounds(bound: str, count: int, holds: bool) -> None:
    assert parse_bound(bound).holds(count, 100) is holds
    rows = {"ok": 100 - count, "throttled": count}
    assert (breaches(expect(throttled=bound), rows, {}) == []) is holds


def test_the_summary_counts_failures_by_the_same_bounds() -> None:
    for bound in ("allowed", "none", "all", "at most 5", "at most 5%", "at least 3"):
        for count in (0, 4, 5, 6, 100):
            outcomes = {"ok": 100 - count, "throttled": count}
            result = breaches(expect(throttled=bound), outcomes, {})
            too_many = [breach for breach in result if breach.bound.most is not None]
            counted = failures(outcomes, {"expect": {"throttled": bound}})
            assert sum(counted.values()) == sum(breach.count for breach in too_many)


def test_starts_are_bounded_over_all_rows() -> None:
    declared = expect(cold="at least 95%")
    assert breaches(declared, {"ok": 100}, {"cold": 95, "warm": 5}) == []
    result = breaches(declared, {"ok": 100}, {"cold": 94, "warm": 6})
    assert [breach.name for breach in result] == ["cold"]


@given(counts, counts)
def test_a_share_is_exact(count: int, others: int) -> None:
    rows = count + others
    assert parse_bound("at most 10%").holds(count, rows) is (10 * count <= rows)
    assert parse_bound("at least 10%").holds(count, rows) is (10 * count >= rows)


@pytest.mark.parametrize(
    "text",
    ["some", "at most", "at most x", "at most 1.5", "at most 101%", "at most -1", 5, None, "<= 5"],
)
def test_what_is_no_bound_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"bound|more than all|parts of a request"):
        parse_bound(text)


def test_an_unknown_outcome_is_refused() -> None:
    with pytest.raises(ValueError, match="throtled"):
        expect(throtled="allowed")


@pytest.mark.parametrize(
    ("bounds", "fails"),
    [
        ({}, False),
        ({"preempted": "allowed"}, False),
        ({"preempted": "at most 1"}, False),
        ({"preempted": "none"}, True),
        ({"preempted": "at least 2"}, True),
    ],
)
def test_an_attempt_that_was_preempted_breaks_only_what_is_declared_of_it(
    bounds: dict[str, str], fails: bool
) -> None:
    answered = {"experiment": "e", "function": "f", "invocation": "a", "attempt": 1}
    answered |= {"sent": 1, "received": 9, "outcome": "ok"}
    stopped = answered | {"received": None, "outcome": "preempted", "error": "stopped"}
    plan: Any = SimpleNamespace(name="e", expect=expect(**bounds), streams=[])
    failures = verdict.failures([plan], table([answered, stopped]), is_whole=True)
    assert bool(failures) is fails
    # A client that is told so has a request that failed.
    preempted = table([answered | {"outcome": "preempted", "error": "stopped"}])
    allowed = bounds.get("preempted") in ("allowed", "at most 1")
    assert bool(verdict.failures([plan], preempted, is_whole=True)) is not allowed
