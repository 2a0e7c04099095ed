"""Transfer times between clocks that differ, against hops whose true times are known."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncia.stats.clocks import Stamps, transfers

MS = 1_000_000
HOUR = 3_600_000 * MS


def hop(
    forth: int, work: int, back: int, *, offset: int = 0, at: int = 0, one_clock: bool = False
) -> Stamps:
    """A hop of a callee whose clock is ahead by ``offset``; times in ns."""
    return Stamps(
        ("caller", "callee"),
        sent=at,
        received=at + forth + work + back,
        started=at + forth + offset,
        ended=at + forth + work + offset,
        is_one_clock=one_clock,
    )


def test_one_clock_compares_directly() -> None:
    (transfer,) = transfers([hop(2 * MS, 5 * MS, MS, one_clock=True)])
    assert (transfer.time, transfer.bound, transfer.contradicts) == (2 * MS, 0, False)


def test_a_payload_is_on_its_way_from_before_it_was_sent_until_it_was_there() -> None:
    call = hop(2 * MS, 5 * MS, MS, at=10 * MS, one_clock=True)
    (transfer,) = transfers([replace(call, payload=(7 * MS, 13 * MS))])
    assert (transfer.time, transfer.bound) == (6 * MS, 0)
    # Nobody has it before the handler runs, or sends it after the call.
    for payload in ((7 * MS, 11 * MS), (11 * MS, 13 * MS), (7 * MS, 18 * MS)):
        (transfer,) = transfers([replace(call, payload=payload)])
        assert (transfer.time, transfer.contradicts) == (None, True)


def test_the_bound_of_a_payload_is_that_of_its_call() -> None:
    call = hop(MS, 9 * MS, MS, offset=HOUR)
    (transfer,) = transfers([replace(call, payload=(-20 * MS, 5 * MS + HOUR))])
    assert transfer.time is not None
    assert transfer.bound == MS
    assert abs(transfer.time - 25 * MS) <= transfer.bound


@pytest.mark.parametrize("offset", [0, HOUR, -HOUR])
def test_a_clock_that_is_off_by_an_hour_is_bounded_and_not_believed(offset: int) -> None:
    # The answer of one call is fast, the event of another: together they leave little room.
    first = hop(3 * MS, MS, MS // 10, offset=offset)
    second = hop(MS // 10, MS, 3 * MS, offset=offset, at=50 * MS)
    slow, fast = transfers([first, second])
    assert slow.time is not None
    assert slow.bound is not None
    assert abs(slow.time - 3 * MS) <= slow.bound <= MS // 5
    # Of the fast one no more is known than that it is fast.
    assert fast.time is None
    assert fast.bound is not None
    assert 2 * fast.bound >= MS // 10


def test_the_only_call_between_two_instances_is_withheld() -> None:
    (transfer,) = transfers([hop(MS, MS, 5 * MS, offset=HOUR)])
    assert (transfer.time, transfer.bound, transfer.contradicts) == (None, 3 * MS, False)


def test_a_clock_that_lies_contradicts_itself() -> None:
    # One kernel, and yet the handler started before it was called.
    (transfer,) = transfers([hop(MS, MS, MS, offset=-HOUR, one_clock=True)])
    assert (transfer.time, transfer.bound, transfer.contradicts) == (None, None, True)
    # It took longer than its call.
    longer = Stamps(("a", "b"), sent=0, received=5, started=0, ended=6, is_one_clock=False)
    (transfer,) = transfers([longer])
    assert transfer.contradicts
    # One that lies spoils no other.
    honest = hop(MS, MS, MS)
    assert transfers([longer, honest])[1] == transfers([honest])[0]


def test_a_clock_that_was_set_meanwhile_leaves_each_call_its_own_bound() -> None:
    both = transfers([hop(MS, MS, MS), hop(MS, MS, MS, offset=HOUR, at=9 * MS)])
    assert [(it.time, it.bound) for it in both] == [(None, MS), (None, MS)]


@given(
    st.lists(st.tuples(*[st.integers(0, 10 * MS)] * 3), min_size=1, max_size=20),
    st.integers(-HOUR, HOUR),
)
def test_the_true_time_is_within_the_bound(ways: list[tuple[int, int, int]], offset: int) -> None:
    hops = [hop(*way, offset=offset, at=at * HOUR) for at, way in enumerate(ways)]
    for (forth, _, _), transfer in zip(ways, transfers(hops), strict=True):
        assert not transfer.contradicts
        if transfer.time is not None:
            assert transfer.bound is not None
            assert abs(transfer.time - forth) <= transfer.bound < transfer.time
