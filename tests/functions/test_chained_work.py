"""Alu and Array Sum: their answers are right whoever does the work, and wrong ones fail."""

from typing import Any

import pytest

LEFT, RIGHT = 7, 13


def sum_of_results(operations: int) -> int:
    """All operations, one after the other, by an independent computation."""
    total = 0
    for i in range(operations):
        a, b = 10 + i * LEFT % 91, 10 + i * RIGHT % 91
        total += (a + b, a - b, a * b, a // b)[i % 4]
    return total


@pytest.mark.parametrize("operations", [0, 1, 363, 364, 5_003])
def test_alu_computes_the_same_alone_in_threads_and_in_processes(
    operations: int, call: Any
) -> None:
    events = [
        {"operations": operations},
        {"operations": operations, "workers": 3},
        {"operations": operations, "workers": 100, "by": "processes"},
    ]
    replies = call("alu", *events)
    assert [reply["answer"]["result"] for reply in replies] == [sum_of_results(operations)] * 3
    assert all(reply["answer"]["uncia"]["valid"] for reply in replies)
    assert all(reply["answer"]["compute_ns"] > 0 for reply in replies)


def test_alu_says_what_is_wrong_with_its_parameters_and_that_it_has_no_store(call: Any) -> None:
    few, kind, store = call("alu", {"workers": 0}, {"by": "magic"}, {"phase": "load"})
    assert "workers: 0 is not between 1 and 1000" in few["message"]
    assert "by: 'magic' is not one of threads, processes" in kind["message"]
    assert "reaches no store: name it in its reach ([store])" in store["message"]


@pytest.mark.parametrize("runtime", ["python", "go"])
def test_array_sum_adds_one_and_fails_with_another_sum(runtime: str, call: Any) -> None:
    first, last, wrong, text, unknown, negative = call(
        "array-sum",
        {},
        {"n": 99, "expected": 100},
        {"n": 98, "expected": 100},
        {"n": "many"},
        {"m": 1},
        {"n": -1},
        runtime=runtime,
    )
    assert (first["answer"]["sum"], last["answer"]["sum"]) == (1, 100)
    assert first["answer"]["parameters"] == {"n": 0, "expected": 0}
    assert "expected: the sum is 99, not 100" in wrong["message"]
    assert "n: " in text["message"]
    assert "is not a " in text["message"]
    assert "unknown parameter" in unknown["message"]
    assert "between 0 and 1000000" in negative["message"]
