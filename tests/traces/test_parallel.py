"""Work in other threads: results and tasks in order, and the first failure raised."""

from __future__ import annotations

import threading

import pytest

from uncia.traces.parallel import Background, in_order


def test_results_and_failures_are_in_order_of_the_items() -> None:
    def invert(number: int) -> float:
        return 1 / (number - 30)

    results = in_order(range(100), invert)
    assert [next(results) for _ in range(30)] == [1 / (number - 30) for number in range(30)]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_tasks_run_in_order_in_another_thread() -> None:
    background = Background()
    ran: list[tuple[int, int]] = []
    for number in range(20):
        background.add(lambda number=number: ran.append((number, threading.get_ident())))
    background.finish()
    assert [number for number, _ in ran] == list(range(20))
    assert {thread for _, thread in ran} != {threading.get_ident()}


def test_no_more_tasks_wait_than_may() -> None:
    background = Background(waiting=1)
    began, go_on = threading.Event(), threading.Event()

    def first() -> None:
        began.set()
        assert go_on.wait(60)

    added = threading.Event()

    def third() -> None:
        background.add(lambda: None)
        added.set()

    background.add(first)
    assert began.wait(60)
    background.add(lambda: None)
    caller = threading.Thread(target=third)
    caller.start()
    assert not added.wait(0.2)  # the first still runs and one waits
    go_on.set()
    caller.join(60)
    assert added.is_set()
    background.finish()


def test_a_failure_is_raised_and_nothing_more_runs() -> None:
    background = Background()
    ran: list[str] = []

    def fail() -> None:
        raise OSError("disk full")

    background.add(fail)
    with pytest.raises(OSError, match="disk full"):
        background.finish()
    with pytest.raises(RuntimeError):
        background.add(lambda: ran.append("after"))
    assert not ran


def test_abandoned_tasks_do_not_run() -> None:
    background = Background()
    began, go_on = threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        began.set()
        assert go_on.wait(60)

    background.add(first)
    assert began.wait(60)
    background.add(lambda: ran.append("second"))
    threading.Timer(0.1, go_on.set).start()
    background.abandon()
    assert not ran
