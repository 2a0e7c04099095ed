"""The function `phases`: both runtimes hold the memory and use the CPU time they are asked for."""

import json
from typing import Any

import pytest

from uncia.functions import check_answer, load

BOTH = pytest.mark.parametrize("runtime", ["python", "provided"])
MB = 1 << 20
MS = 1_000_000


def phase(duration: int, threads: int, memory: int) -> dict[str, int]:
    return {"duration": duration, "threads": threads, "memory": memory}


def echoed(reply: dict[str, Any]) -> Any:
    """The phases that an answer repeats: in Python as they were given."""
    phases = reply["answer"]["parameters"]["phases"]
    return json.loads(phases) if isinstance(phases, str) else phases


@BOTH
def test_each_phase_has_its_time_threads_and_memory(runtime: str, call: Any) -> None:
    phases = [
        phase(20 * MS, 3, 96 * MB),
        phase(10 * MS, 0, 160 * MB),
        phase(5 * MS, 1, 0),
        phase(0, 0, 64 * MB),
    ]
    first, second = call("phases", {"phases": phases}, {"phases": phases[:1]}, runtime=runtime)
    measured = first["answer"]["measured"]
    assert first["answer"]["parameters"]["phases"] == phases
    # What taking memory costs in a phase that sleeps is asked for that much less in the next.
    owed = 0
    for asked, took in zip(phases, measured, strict=True):
        owed += took["cpu_ns"] - asked["duration"] * asked["threads"]
        assert owed >= 0
    for asleep in (1, 3):
        assert measured[asleep]["wall_ns"] >= phases[asleep]["duration"] - 1000
    # A process has counts of its pages that are exact to some tens of them for each CPU.
    assert measured[0]["resident_bytes"] >= 92 * MB
    assert measured[1]["resident_bytes"] >= 156 * MB
    assert measured[2]["resident_bytes"] < 92 * MB
    assert 60 * MB <= measured[3]["resident_bytes"] < 92 * MB
    envelope = first["answer"]["uncia"]
    assert envelope["valid"] is True
    assert envelope["cpu_ns"] >= 65 * MS
    assert (envelope["fresh"], second["answer"]["uncia"]["fresh"]) == (True, False)


@BOTH
def test_taking_memory_is_part_of_the_cpu_time(runtime: str, call: Any) -> None:
    large, small = 512 * MB, 64 * MB
    taking = [phase(0, 0, large), phase(0, 0, small)] * 3
    (reply,) = call("phases", {"phases": taking}, runtime=runtime)
    alone = reply["answer"]["uncia"]["cpu_ns"]
    # As long as all the taking, so that each phase can make good what its own took, on any machine.
    each = max(300 * MS, alone)
    # In phases that work, and before one in which two threads do.
    working = [phase(each, 1, large), phase(each, 1, small)] * 3
    sleeping = [*taking, phase(3 * each, 2, small)]
    # The process uses what is asked for, and not what taking memory costs on top of it.
    for reply in call("phases", *({"phases": it} for it in (working, sleeping)), runtime=runtime):
        assert 6 * each <= reply["answer"]["uncia"]["cpu_ns"] < 6 * each + alone / 2


@BOTH
def test_an_event_in_a_body_or_as_text_and_none_at_all(runtime: str, call: Any) -> None:
    phases = [phase(MS, 1, 0), phase(2 * MS, 0, 7)]
    in_body = {"requestContext": {}, "body": json.dumps({"phases": phases})}
    body, text, none = call("phases", in_body, {"phases": json.dumps(phases)}, {}, runtime=runtime)
    assert body["answer"]["parameters"]["phases"] == phases
    assert echoed(text) == phases
    assert echoed(none) == [phase(50 * MS, 1, 64 * MB)]
    assert check_answer(load("phases"), none["answer"]) == []


@BOTH
@pytest.mark.parametrize(
    "phases",
    [
        [],
        "no JSON",
        [phase(-1, 1, 0)],
        [phase(1, 257, 0)],
        [phase(1, 1, 10_241 * MB)],
        [phase(1, 1, 0)] * 1001,
        [{"duration": 1, "threads": 1}],
        [{**phase(1, 1, 0), "cpu": 3}],
        [{"duration": 1.5, "threads": 1, "memory": 0}],
    ],
)
def test_phases_that_cannot_be_are_named(runtime: str, phases: Any, call: Any) -> None:
    (reply,) = call("phases", {"phases": phases}, runtime=runtime)
    assert reply["error"] == "ValueError"
    assert "phases" in reply["message"]
