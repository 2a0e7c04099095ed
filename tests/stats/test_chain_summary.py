"""What is said of chains: whole ones, stages, and the time between."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_rows import table

from uncia.stats import chains

MS = 1_000_000


def row(
    stage: str | None, number: int, sent: int, received: int | None, parent: str | None = None
) -> dict[str, Any]:
    """A row; times in ms. Stages are streams of their own, as the generator names them."""
    return {
        "experiment": "e",
        "function": f"f-{stage}",
        "invocation": f"run-1:e-{stage}-{number}",
        "attempt": 1,
        "parent": None if parent is None else f"run-1:e-{parent}-{number}",
        "stage": stage,
        "open_loop": parent is None,
        "scheduled": (sent - 1) * MS if parent is None else None,
        "sent": sent * MS,
        "received": None if received is None else received * MS,
        "outcome": "timeout" if received is None else "ok",
    }


def test_a_diamond_of_which_one_branch_fails() -> None:
    rows = [
        row("a", 0, 10, 20),
        row("b", 0, 22, 30, "a"),
        row("c", 0, 20, 50, "a"),
        row("d", 0, 55, 60, "c"),
        row("a", 1, 110, 115),
        row("b", 1, 116, None, "a"),
        row("c", 1, 117, 120, "a"),
        row(None, 0, 5, 500),
    ]
    (result,) = chains.summarise(table(rows))
    assert (result["begun"], result["complete"]) == (2, 1)
    assert result["latency_ms"]["max"] == 51
    stages = {stage["stage"]: stage for stage in result["stages"]}
    assert {name: (stage["requests"], stage["ok"]) for name, stage in stages.items()} == {
        "a": (2, 2),
        "b": (2, 1),
        "c": (2, 2),
        "d": (1, 1),
    }
    assert stages["b"]["response_ms"]["max"] == 8
    assert stages["b"]["between_ms"]["max"] == 2
    assert stages["d"]["between_ms"]["max"] == 5
    assert stages["a"]["between_ms"]["max"] is None
    assert stages["d"]["function"] == "f-d"


def test_chains_that_a_stop_cut_off_are_not_complete() -> None:
    rows = [row("a", 0, 10, 20), row("b", 0, 22, 30, "a"), row("a", 1, 25, 28)]
    (result,) = chains.summarise(table(rows))
    assert (result["begun"], result["complete"]) == (2, 1)


def test_chains_are_whole_that_have_every_stage_that_was_declared() -> None:
    rows = [row("0", 0, 10, 20), row("1", 0, 22, 30, "0"), row("0", 1, 25, 28)]
    streams = [{"stage": "0"}, {"stage": "1", "after": ["0"]}, {"stage": "2", "after": ["1"]}]
    (result,) = chains.summarise(table(rows), {"streams": streams})
    assert (result["begun"], result["complete"]) == (2, 0)
    assert result["latency_ms"]["max"] is None
    (result,) = chains.summarise(table(rows), {"streams": [*streams[:2], {"stage": "x"}]})
    assert (result["begun"], result["complete"]) == (2, 1)
    (result,) = chains.summarise(table(rows), {})
    assert (result["begun"], result["complete"]) == (2, 1), "as far as the rows say"


def test_a_chain_of_which_a_request_was_tried_again_is_whole() -> None:
    rows = [
        row("a", 0, 10, None),
        row("a", 0, 12, 20) | {"attempt": 2},
        row("b", 0, 22, None, "a"),
        row("b", 0, 32, 40, "a") | {"attempt": 2},
        row("a", 1, 110, 115),
        row("b", 1, 116, None, "a"),
        row("b", 1, 120, None, "a") | {"attempt": 2},
    ]
    (result,) = chains.summarise(table(rows))
    assert (result["begun"], result["complete"]) == (2, 1)
    assert result["latency_ms"]["max"] == 31


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_parents_that_go_round_in_a_circle_are_no_chain(length: int) -> None:
    circle = [row("a", n, 10 + n, 20) for n in range(length)]
    for n, item in enumerate(circle):
        item["parent"] = circle[(n + 1) % length]["invocation"]
    rows = [*circle, row("b", 0, 40, 50, "a"), row("a", 9, 60, 70), row("b", 9, 70, 80, "a")]
    rows[0], rows[-1] = rows[-1], rows[0]
    result = chains.summarise(table(rows), {"streams": []})
    assert result[0]["complete"] == 1
    stages = [stage for item in result for stage in item["stages"]]
    assert sum(stage["requests"] for stage in stages) == length + 3


def test_two_chains_of_a_mix_are_apart_and_without_parents_there_are_none() -> None:
    rows = [row("a", 0, 10, 20), row("b", 0, 22, 30, "a"), row("x", 0, 5, 6)]
    result = chains.summarise(table(rows))
    assert [[stage["stage"] for stage in item["stages"]] for item in result] == [["x"], ["a", "b"]]
    assert chains.summarise(table([row("a", 0, 1, 2), row(None, 1, 1, 2)])) == []
    assert chains.summarise(table([])) == []


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_sequences_of_any_length_with_a_failure_anywhere(tasks: list[tuple[int, int]]) -> None:
    rows = []
    expected = []
    for number, (length, fails) in enumerate(tasks):
        for stage in range(length):
            failed = stage == fails
            sent = number * 100 + stage * 10
            parent = str(stage - 1) if stage else None
            rows.append(row(str(stage), number, sent, None if failed else sent + 5, parent))
            if failed:
                break
        else:
            expected.append((length, (length - 1) * 10 + 6))
    result = chains.summarise(table(rows))
    if not any(item["parent"] for item in rows):
        assert result == []
        return
    most = max(
        sum(1 for item in rows if item["invocation"].endswith(f"-{n}")) for n in range(len(tasks))
    )
    whole = [latency for length, latency in expected if length == most]
    assert result[0]["begun"] == len(tasks)
    assert result[0]["complete"] == len(whole)
    if whole:
        assert result[0]["latency_ms"]["mean"] == float(np.mean(whole))
