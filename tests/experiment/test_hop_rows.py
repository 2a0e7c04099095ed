"""Hops in the platform's log and in functions' reports: whose word counts."""

from types import SimpleNamespace
from typing import Any

from record_rows import table

from uncia.experiment import conclude, hops
from uncia.experiment.join import unmatched
from uncia.experiment.stages import ChainPlan, StagePlan


def sent(name: str, experiment: str = "e", **more: Any) -> dict[str, Any]:
    """A client's row."""
    return {
        "run": "r",
        "experiment": experiment,
        "function": "f",
        "invocation": name,
        "request_id": f"id-{name}",
        "attempt": 1,
        "open_loop": True,
        "scheduled": 1,
        "outcome": "ok",
    } | more


def logged(name: str, parent: str | None = None, **more: Any) -> dict[str, Any]:
    """A row of the platform's log."""
    return {
        "function": "deployed",
        "invocation": name,
        "request_id": f"id-{name}",
        "attempt": 1,
        "parent": parent,
        "execution": 5,
        "outcome": "ok",
    } | more


def reported(name: str, parent: str, stage: str) -> dict[str, Any]:
    """The row of a hop that a function reported."""
    return logged(name, parent, stage=stage) | {"experiment": "e", "run": "r", "execution": 99}


def test_hops_have_the_experiment_of_their_root_and_the_platforms_word() -> None:
    client = table(
        [sent("a"), sent("b", "other"), reported("x", "b", "second"), reported("lie", "a", "never")]
    )
    log = table(
        [
            logged("y", "x", stage="third"),
            logged("a"),
            logged("b"),
            logged("x", "a"),
            logged("z", "b"),
            logged("z", "b", attempt=2),
            logged("stray", "nobody"),
            logged("unknown", None),
        ]
    )
    assembled = hops.assemble(client, log)
    rows = assembled.rows.to_pylist()
    assert [row["invocation"] for row in rows] == ["a", "b", "y", "x", "z", "z"]
    by_name = {row["invocation"]: row for row in rows}
    # A function that names another's invocation as its parent is not believed.
    assert by_name["x"]["parent"] == "a"
    assert [by_name[name]["experiment"] for name in "xyz"] == ["e", "e", "other"]
    # The log's stage counts; where it has none, the caller's.
    assert [by_name[name]["stage"] for name in "xyz"] == ["second", "third", None]
    assert [row["execution"] for row in rows] == [5] * 6
    assert all(by_name[name]["scheduled"] is None for name in "xyz")
    assert (assembled.unknown, assembled.joined.strangers) == (["id-lie"], 2)
    # Nobody waits for the log to have what is not true.
    assert unmatched(client, log) == 0


def test_a_circle_in_a_damaged_log_leads_to_no_root() -> None:
    log = table([logged("a"), logged("x", "y"), logged("y", "x")])
    assert hops.caused(table([sent("a")]), log).num_rows == 0


def stage(name: str, *following: int, repeat: int = 1) -> StagePlan:
    return StagePlan(name, "f", "f", {}, repeat=repeat, next=following)


def test_chains_of_events_end_when_nothing_is_to_come() -> None:
    chain = ChainPlan("c", "asynchronous", [stage("a", 1, 2, repeat=2), stage("b"), stage("c")])
    client = table(
        [
            sent("r-0-1", stage="a-1"),
            sent("failed-0-2", stage="a-1", outcome="function_error"),
            # Of another stream of the mix, of which nothing follows.
            sent("other-1-1"),
        ]
    )
    log = [logged("r-0-1"), logged("failed-0-2", outcome="function_error"), logged("other-1-1")]

    def left(*more: dict[str, Any]) -> int:
        return hops.outstanding(client, table([*log, *more]), chain, 0)

    turn = logged("x", "r-0-1", stage="a-2")
    assert left() == 1
    assert left(turn) == 2
    assert left(turn, logged("y", "x", stage="b")) == 1
    assert left(turn, logged("own", "x"), logged("t:1", "x", stage="t")) == 2
    # A chain that a trigger begins may have stages of the same names.
    triggered = [logged("t:1", "x", stage="b"), logged("u", "t:1", stage="a-1")]
    assert left(turn, *triggered) == 2
    assert left(turn, logged("y", "x", stage="b"), *triggered) == 1
    assert left(turn, logged("y", "x", stage="b"), logged("z", "x", stage="c")) == 0
    failed = logged("x", "r-0-1", stage="a-2", outcome="function_error")
    assert left(failed) == 0
    # Its second attempt went well, so that its next are awaited; two attempts are one of them.
    twice = [failed, logged("x", "r-0-1", stage="a-2", attempt=2)]
    of_b = [logged("y", "x", stage="b", outcome="timeout"), logged("y", "x", stage="b", attempt=2)]
    assert left(*twice) == 2
    assert left(*twice, *of_b) == 1


def test_callers_within_a_stage_of_a_sequence_waited() -> None:
    root = sent("r:e-0-0", function="c", stage="c", scheduled=0, received=100)
    stage = logged("a", "r:e-0-0", stage="a") | {"experiment": "e", "execution": 50, "ended": 60}
    callee = logged("b", "a") | {"experiment": "e", "execution": 20, "ended": 40}
    single = {"function": "f", "repeat": 1, "next": []}
    chain = {"name": "c", "kind": "sequence", "hops": 1, "stages": {"a": single}}
    streams = [{"function": "c", "stage": "a", "hops": chain}]
    run: Any = SimpleNamespace(data=lambda: {"experiments": {"e": {"streams": streams}}})
    rows, waited = conclude._invoked(run, table([root, stage, callee]), None)
    assert rows["invocation"].to_pylist() == ["a", "b"]
    assert waited.to_pylist() == [20, 0]
