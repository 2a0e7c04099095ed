"""The functions of the studies: tasks in bursts, and work between two requests."""

from typing import Any

import pytest


def test_a_task_in_bursts_comes_to_the_same_and_is_checked_against_the_whole(call: Any) -> None:
    whole, begun = (
        reply["answer"] for reply in call("intermittent", {"frames": 12}, {"frames": 5})
    )
    state = {"first": begun["next"], "digest": begun["digest"], "frames": 7}
    right, wrong, unchecked = (
        reply["answer"]
        for reply in call(
            "intermittent",
            {**state, "expected": whole["digest"]},
            {**state, "expected": whole["digest"] ^ 1},
            state,
        )
    )
    assert right["next"] == whole["next"] == 12
    assert right["digest"] == wrong["digest"] == whole["digest"]
    assert [answer["uncia"]["valid"] for answer in (right, wrong, unchecked)] == [True, False, True]


def test_what_a_thread_did_between_two_requests_is_two_spans(call: Any) -> None:
    begun, collected = (
        reply["answer"] for reply in call("background", {"cpu": "20ms"}, {"cpu": "0ms"})
    )
    assert "spans" not in begun["uncia"], "nothing was collected"
    work = collected["collected"]
    assert collected["uncia"]["spans"] == [
        ["background", work["answer_ns"], work["collect_ns"]],
        [
            "background_cpu",
            work["answer_ns"],
            work["answer_ns"] + work["cpu_ns"] - work["answer_cpu_ns"],
        ],
    ]


@pytest.mark.parametrize("kind", ["memory", "registers"])
def test_what_streams_count_is_of_the_span_that_they_report(kind: str, call: Any) -> None:
    given = {"kind": kind, "threads": 2, "traffic": 24_000_000, "array": 1 << 20}
    (reply,) = call("streams", given, runtime="provided")
    answer = reply["answer"]
    ((name, start, end),) = answer["uncia"]["spans"]
    assert (name, end - start) == (kind, answer["wall_ns"])
    assert answer["uncia"]["handler_start_ns"] <= start
    counted = 2 * 24_000_000 / (answer["wall_ns"] / 1e9) if kind == "memory" else 0
    assert answer["bytes_per_s"] == pytest.approx(counted, abs=1)
