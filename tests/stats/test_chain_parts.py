"""Parts of chains: they add up, are what each moment is spent on, and are withheld if need be."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_rows import table

from uncia.report.sections import chain_parts as section
from uncia.stats import chain_parts, hops, waits
from uncia.stats.chain_parts import CLOCKS_DIFFER, NO_TIMES, SLACK_NS, ChainParts

KERNEL = "kernel-1"
FAR = 10 * SLACK_NS


@dataclass
class Node:
    """An invocation: when it came, was given to its handler and ended, and what it called."""

    came: int
    queued: int
    initialization: int
    ended: int
    call: tuple[int, int]
    children: list["Node"] = field(default_factory=list)

    @property
    def started(self) -> int:
        return self.came + self.queued + self.initialization

    def row(self, name: str, parent: str | None, stage: str) -> dict[str, Any]:
        return {
            "experiment": "e",
            "function": "f",
            "invocation": name,
            "attempt": 1,
            "parent": parent,
            "stage": stage,
            "started": self.started,
            "ended": self.ended,
            "queued": self.queued,
            "initialization": self.initialization or None,
            "execution": self.ended - self.started,
            "billed": self.ended - self.started + self.initialization,
            "start": "cold" if self.initialization else "warm",
            "outcome": "ok",
        }


def cuts(low: int, high: int, count: int) -> st.SearchStrategy[list[int]]:
    moments = st.integers(min_value=low, max_value=high)
    return st.lists(moments, min_size=count, max_size=count).map(sorted)


@st.composite
def trees(draw: st.DrawFn, low: int, high: int, depth: int) -> Node:
    """An invocation called at `low` and answered at `high`, whose callees lie in its execution."""
    came, given_at, started, ended = draw(cuts(low, high, 4))
    node = Node(came, given_at - came, started - given_at, ended, (low, high))
    if depth:
        for _ in range(draw(st.integers(min_value=0, max_value=3))):
            begin, end = draw(cuts(started, ended, 2))
            node.children.append(draw(trees(begin, end, depth - 1)))
    return node


def nested_tables(root: Node, with_calls: bool) -> tuple[pa.Table, pa.Table | None, dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    spans: list[dict[str, Any]] = []
    stages: dict[str, Any] = {}

    def add(node: Node, parent: str | None) -> None:
        stage = f"s{len(rows)}"
        name = stage if parent else "run-1:e-0-0"
        stages[stage] = {"function": "f", "repeat": 1, "next": []}
        row = node.row(name, parent, stage)
        if parent is None:
            low, high = node.call
            row |= {"open_loop": True, "scheduled": low, "sent": low, "received": high}
        else:
            span = {"run": "run-1", "invocation": name, "instance": "i", "clock": KERNEL}
            start, end = node.call
            spans.append(span | {"name": "call", "start": start, "end": end})
        rows.append(row)
        for child in node.children:
            add(child, name)

    add(root, None)
    return (
        table(rows),
        table(spans, "spans") if with_calls and spans else None,
        described("nested", stages),
    )


def described(kind: str, stages: dict[str, Any]) -> dict[str, Any]:
    chain = {"name": "c", "kind": kind, "hops": len(stages) - (kind != "sequence")}
    return {"streams": [{"function": "f", "stage": "s0", "hops": chain | {"stages": stages}}]}


def all_nodes(root: Node) -> list[Node]:
    return [root, *(node for child in root.children for node in all_nodes(child))]


def only(rows: pa.Table, spans: pa.Table | None, experiment: dict[str, Any]) -> ChainParts:
    (kind,) = chain_parts.of_experiment(rows, spans, experiment)
    (parts,) = kind.parts
    return parts


def by_moment(root: Node, with_calls: bool) -> dict[str, int]:
    """What each nanosecond of the window is spent on, one after the other."""
    nodes = all_nodes(root)
    spent = dict.fromkeys(("startup", "communication", "execution", "waiting", "starting"), 0)

    def waits(node: Node, moment: int) -> bool:
        calls = [it.call if with_calls else (it.came, it.ended) for it in node.children]
        return any(start <= moment < end for start, end in calls)

    for moment in range(*root.call):
        runs = [node for node in nodes if node.started <= moment < node.ended]
        starts = any(node.came <= moment < node.started for node in nodes)
        works = any(not waits(node, moment) for node in runs)
        part = "execution" if works else "startup" if starts else "communication"
        spent[part] += 1
        spent["waiting"] += bool(runs)
        spent["starting"] += starts
    return spent


@given(trees(0, 200, 3), st.booleans())
def test_nested_parts_are_what_each_moment_is_spent_on(root: Node, with_calls: bool) -> None:
    parts = only(*nested_tables(root, with_calls))
    spent = by_moment(root, with_calls)
    assert not parts.withheld
    assert parts.startup + parts.communication + parts.execution == parts.latency == 200
    assert (parts.startup, parts.communication, parts.execution) == (
        spent["startup"],
        spent["communication"],
        spent["execution"],
    )
    assert (parts.startup_overlapping, parts.execution_overlapping) == (
        spent["starting"],
        spent["waiting"],
    )
    assert parts.executed == sum(it.ended - it.started for it in all_nodes(root))
    assert parts.execution <= parts.self_time <= parts.executed
    assert parts.started == sum(bool(it.initialization) for it in all_nodes(root))


@given(st.lists(cuts(0, 300, 4), min_size=1, max_size=6))
def test_a_sequence_has_no_waiting_callers(turns: list[list[int]]) -> None:
    stages = {f"s{n}": {"function": "f", "repeat": 1, "next": []} for n in range(len(turns))}
    root = {
        "experiment": "e",
        "function": "c",
        "invocation": "run-1:e-0-0",
        "attempt": 1,
        "open_loop": True,
        "scheduled": 0,
        "sent": 0,
        "received": 300,
        "outcome": "ok",
    }
    nodes = [Node(a, b - a, c - b, d, (a, d)) for a, b, c, d in turns]
    rows = [root, *(it.row(f"h{n}", "run-1:e-0-0", f"s{n}") for n, it in enumerate(nodes))]
    parts = only(table(rows), None, described("sequence", stages))
    assert not parts.withheld
    assert parts.startup + parts.communication + parts.execution == parts.latency == 300
    covered = {m for it in nodes for m in range(it.started, it.ended)}
    starting = {m for it in nodes for m in range(it.came, it.started)}
    assert (parts.execution, parts.startup) == (len(covered), len(starting - covered))
    assert parts.self_time == parts.executed
    assert parts.invocations == len(turns)


@given(trees(0, 200, 2))
def test_an_asynchronous_chain_ends_with_its_last_stage(root: Node) -> None:
    rows, spans, experiment = nested_tables(root, True)
    experiment["streams"][0]["hops"]["kind"] = "asynchronous"
    nodes = all_nodes(root)
    if len(nodes) == 1:
        return
    parts = only(rows, spans, experiment)
    last = max(it.ended for it in nodes)
    assert parts.latency == last == parts.startup + parts.communication + parts.execution
    # Nobody waits for an event.
    assert parts.self_time <= parts.executed


def chain(**changes: Any) -> tuple[pa.Table, pa.Table, dict[str, Any]]:
    """A caller (10 to 90 us) that calls at 20 and has its answer at 80; the callee runs from 40."""
    us = 1_000
    child = Node(30 * us, 5 * us, 5 * us, 70 * us, (20 * us, 80 * us))
    root = Node(5 * us, 5 * us, 0, 90 * us, (0, 100 * us), [child])
    rows, spans, experiment = nested_tables(root, True)
    assert spans is not None
    plain = rows.to_pylist()
    plain[1] |= changes
    return table(plain), spans, experiment


def test_a_chain_by_hand() -> None:
    parts = only(*chain())
    us = 1_000
    assert parts == ChainParts(
        "run-1:e-0-0",
        latency=100 * us,
        startup=(5 + 10) * us,
        communication=(5 + 10 + 10 + 10) * us,
        execution=(10 + 30 + 10) * us,
        startup_overlapping=15 * us,
        execution_overlapping=80 * us,
        self_time=(80 - 60 + 30) * us,
        executed=(80 + 30) * us,
        billed=(80 + 35) * us,
        invocations=2,
        started=1,
    )
    assert parts.billed_over_self == pytest.approx(115 / 50)
    (summary,) = chain_parts.summarise(*chain())
    (group,) = summary["groups"]
    assert group["started"] is True
    whole = group["startup_ns"] + group["communication_ns"] + group["execution_ns"]
    assert whole == group["latency_ns"] == 100 * us
    overlapping = group["overlapping"]
    assert overlapping["execution_ns"] - group["execution_ns"] == 30 * us
    assert group["executed_over_self"] == pytest.approx(110 / 50)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"started": None, "ended": None, "execution": None}, NO_TIMES),
        ({"ended": FAR}, CLOCKS_DIFFER),
        ({"started": -FAR}, CLOCKS_DIFFER),
        ({"started": 70_001}, CLOCKS_DIFFER),
        ({"queued": FAR}, CLOCKS_DIFFER),
    ],
)
def test_parts_without_comparable_clocks_are_withheld(changes: dict[str, Any], why: str) -> None:
    parts = only(*chain(**changes))
    # The client's clock says how long it took.
    assert parts == ChainParts("run-1:e-0-0", 100_000, withheld=why)
    rows, spans, experiment = chain(**changes)
    # Of asynchronous chains it does not.
    experiment["streams"][0]["hops"]["kind"] = "asynchronous"
    assert only(rows, spans, experiment).latency is None or why == CLOCKS_DIFFER
    (summary,) = chain_parts.summarise(*chain(**changes))
    assert (summary["complete"], summary["withheld"], summary["groups"]) == (1, {why: 1}, [])


def test_a_caller_whose_clock_is_another_withholds_them() -> None:
    rows, spans, experiment = chain()
    (span,) = spans.to_pylist()
    late = table([span | {"start": span["start"] + FAR, "end": span["end"] + FAR}], "spans")
    assert only(rows, late, experiment).withheld == CLOCKS_DIFFER


def test_what_is_not_billed_has_no_factor_and_incomplete_chains_no_parts() -> None:
    parts = only(*chain(billed=None))
    assert parts.billed is None
    assert parts.billed_over_self is None
    rows, spans, experiment = chain(outcome="function_error", error="no")
    (kind,) = chain_parts.of_experiment(rows, spans, experiment)
    assert kind.parts == []
    assert chain_parts.summarise(rows, spans, experiment) == []


def test_the_clients_chains_have_parts_as_well() -> None:
    first = Node(10, 5, 0, 40, (0, 50))
    branches = [Node(60, 0, 20, 100, (55, 110)), Node(60, 5, 0, 70, (55, 75))]
    rows = [
        first.row("run-1:e-0-0", None, "a")
        | {"open_loop": True, "scheduled": 0, "sent": 1, "received": 50}
    ]
    for stream, node in enumerate(branches, 1):
        rows.append(
            node.row(f"run-1:e-{stream}-0", "run-1:e-0-0", "bc"[stream - 1])
            | {"open_loop": False, "sent": node.call[0], "received": node.call[1]}
        )
    experiment = {
        "streams": [
            {"stage": "a"},
            {"stage": "b", "after": ["a"]},
            {"stage": "c", "after": ["a"]},
        ]
    }
    (kind,) = chain_parts.of_experiment(table(rows), None, experiment)
    (parts,) = kind.parts
    assert (kind.chain, kind.kind) == ("a > b > c", "client")
    # c runs from 65 to 70, while b is started from 60 to 80.
    assert (parts.latency, parts.execution, parts.startup) == (110, 25 + 5 + 20, 5 + 5 + 10)
    assert parts.startup_overlapping == 5 + 20


def test_an_asynchronous_root_may_outlast_its_hops() -> None:
    ms = 1_000_000
    root = Node(0, 0, 0, 20 * ms, (0, 21 * ms), [Node(5 * ms, 0, 0, 10 * ms, (4 * ms, 5 * ms))])
    rows, spans, experiment = nested_tables(root, True)
    experiment["streams"][0]["hops"]["kind"] = "asynchronous"
    parts = only(rows, spans, experiment)
    assert (parts.withheld, parts.latency, parts.execution) == ("", 20 * ms, 20 * ms)


@pytest.mark.parametrize("kind", ["sequence", "asynchronous"])
@pytest.mark.parametrize("ended", [40, 400])
def test_who_invokes_another_within_a_stage_waits_unless_it_ends_before(
    kind: str, ended: int
) -> None:
    us = 1_000
    ms = 1_000_000
    root = Node(0, 0, 0, 5 * us, (0, 1 * ms)).row("run-1:e-0-0", None, "c")
    root |= {"open_loop": True, "scheduled": 0, "sent": 0, "received": 10 * ms}
    stage = Node(10 * us, 0, 0, 100 * us, (0, 0)).row("h0", "run-1:e-0-0", "s0")
    # More than the slack of clocks after its caller's end, or within.
    end = ended * us if ended < 100 else 5 * ms
    hop = Node(20 * us, 0, 0, end, (0, 0)).row("h1", "h0", "s0") | {"stage": None}
    stages = {"s0": {"function": "f", "repeat": 1, "next": []}}
    experiment = described(kind, stages | ({} if kind == "sequence" else {"s1": stages["s0"]}))
    if kind == "asynchronous":
        stage["stage"] = "s1"
    rows = table([root, stage, hop])
    parts = only(rows, None, experiment)
    assert not parts.withheld
    waited = 20 * us if ended < 100 else 0
    assert parts.executed - parts.self_time == waited
    # That it waited is a guess.
    assert parts.guessed == waited
    assert waits.waiting(rows, None, experiment).to_pylist() == [0, waited, 0]
    call = {"run": "run-1", "invocation": "h1", "instance": "i", "clock": KERNEL, "name": "call"}
    sent = table([call | {"start": 20 * us, "end": 21 * us}], "spans")
    reported = only(rows, sent, experiment)
    assert (reported.executed - reported.self_time, reported.guessed) == (
        1 * us,
        0,
    )


def test_an_event_that_nobody_waits_for_makes_the_factor_an_upper_bound() -> None:
    stages = {
        "first": {"function": "f", "repeat": 1, "next": ["last"]},
        "last": {"function": "f", "repeat": 1, "next": []},
    }
    root = hop_row("run-1:e-0-0", None, "first", 5, 105)
    root |= {"open_loop": True, "scheduled": 0, "sent": 0, "received": 110 * MS}
    rows = [root, hop_row("h", "run-1:e-0-0", "last", 90, 100)]
    rows.append(hop_row("e", "run-1:e-0-0", None, 10, 60))
    parts = only(table(rows), None, described("nested", stages))
    assert (parts.billed, parts.self_time, parts.guessed) == (160 * MS, 100 * MS, 50 * MS)
    (summary,) = chain_parts.summarise(table(rows), None, described("nested", stages))
    assert summary["groups"][0]["guessed_ns"] == 50 * MS
    note = section._bound({**summary["groups"][0], "name": "e"})
    assert "upper bounds" in note
    assert "is 1.07." in note
    # Of stages it is known.
    assert only(table(rows[:2]), None, described("nested", stages)).guessed == 0
    # So it is where the platform marks what was an event.
    marked = described("nested", stages) | {"marks_events": True}
    parts = only(table(rows), None, marked)
    assert (parts.self_time, parts.guessed) == (100 * MS, 0)
    event = {"run": "run-1", "invocation": "e", "instance": "i", "clock": "platform"}
    event |= {"name": "event", "start": 5 * MS, "end": 10 * MS}
    parts = only(table(rows), table([event], "spans"), marked)
    assert (parts.billed, parts.self_time, parts.guessed) == (160 * MS, 150 * MS, 0)
    assert waits.waiting(table(rows), table([event], "spans"), marked).to_pylist() == [
        10 * MS,
        0,
        0,
    ]


def test_attempts_that_were_preempted_take_time_and_are_neither_billed_nor_own_work() -> None:
    rows, spans, experiment = chain()
    before = only(rows, spans, experiment)
    root, callee = rows.to_pylist()
    lost = {"outcome": "preempted", "error": "stopped", "received": None, "billed": 9}
    of_root = root | lost | {"started": 2_000, "ended": 4_000, "queued": 0}
    root |= {"attempt": 2}
    of_callee = callee | lost | {"started": 22_000, "ended": 25_000, "queued": 0}
    of_callee |= {"initialization": None}
    after = only(table([root, of_root, of_callee, callee | {"attempt": 2}]), None, experiment)
    assert not after.withheld
    for name in ("billed", "executed", "invocations"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.latency == after.startup + after.communication + after.execution
    # The root's first attempt ran for 2 us before anything of the chain did.
    alone = only(table([root, of_root, callee]), spans, experiment)
    assert alone.execution == before.execution + 2_000
    assert (alone.self_time, alone.billed) == (before.self_time, before.billed)


MS = 1_000_000


def begun_by_a_trigger(
    kind: str, *followers: dict[str, Any], last: str = "ok"
) -> tuple[pa.Table, None, dict[str, Any]]:
    """A chain whose stage `last` writes at 30 ms, and what that began."""
    stages = {
        "first": {"function": "f", "repeat": 1, "next": ["last"]},
        "last": {"function": "f", "repeat": 1, "next": []},
    }
    rows = []
    if kind == "sequence":
        rows.append(hop_row("f", "run-1:e-0-0", "first", 5, 8))
    whole = hop_row("run-1:e-0-0", None, "first", 5, 45)
    whole |= {"open_loop": True, "scheduled": 0, "sent": 0, "received": 50 * MS}
    if kind == "sequence":
        whole |= {"started": None, "ended": None, "execution": None, "billed": None}
    rows += [whole, hop_row("h", "run-1:e-0-0", "last", 10, 40) | {"outcome": last}]
    return table([*rows, *followers]), None, described(kind, stages)


def hop_row(name: str, parent: str | None, stage: str | None, start: int, end: int) -> Any:
    return Node(start * MS, 0, 0, end * MS, (0, 0)).row(name, parent, stage or "") | {
        "stage": stage
    }


@pytest.mark.parametrize("kind", ["nested", "asynchronous", "sequence"])
@pytest.mark.parametrize(
    "followers",
    [
        # A function, or the first stage of a chain that functions carry on, and what it invokes.
        [
            hop_row("t:1", "h", "first", 60, 90),
            hop_row("u", "t:1", "last", 95, 99),
            hop_row("v", "u", None, 96, 97),
        ],
        # The second time that it follows on itself.
        [hop_row("t:2.2", "h", "last", 60, 90)],
        # The states of a sequence.
        [hop_row("w", "h", "first", 60, 90), hop_row("x", "h", "other", 91, 99)],
        # Within the time of who wrote.
        [hop_row("t:1", "h", "first", 20, 35)],
    ],
)
def test_what_triggers_begin_is_told_by_lineage(kind: str, followers: list[Any]) -> None:
    alone = begun_by_a_trigger(kind)
    whole = begun_by_a_trigger(kind, *followers)
    assert only(*whole) == only(*alone)
    before, after = (hops.summarise(*it)[0] for it in (alone, whole))
    assert after["latency_ms"] == before["latency_ms"]
    assert after["hops"] == before["hops"] + len(followers)
    of_stages = {it["stage"]: it["hops"] for it in before["stages"]}
    assert of_stages.items() <= {it["stage"]: it["hops"] for it in after["stages"]}.items()
    between = [
        [it["between_ms"] for it in each["stages"] if it["stage"] == "last"]
        for each in (before, after)
    ]
    assert between[0] == between[1]
    # Nobody waited for what a trigger began.
    waited = dict(
        zip(
            whole[0]["invocation"].to_pylist(),
            waits.waiting(whole[0], None, whole[2]).to_pylist(),
            strict=True,
        )
    )
    assert waited["h"] == 0


def test_what_a_trigger_began_stands_for_no_stage_of_the_chain() -> None:
    for follower in (hop_row("t:1", "h", "last", 60, 90), hop_row("w", "h", "last", 60, 90)):
        rows, spans, experiment = begun_by_a_trigger("nested", follower, last="function_error")
        (kind,) = chain_parts.of_experiment(rows, spans, experiment)
        assert kind.parts == []
        assert hops.summarise(rows, None, experiment)[0]["complete"] == 0


def test_a_hop_of_which_no_platform_tells_is_where_functions_say() -> None:
    """Functions that do not know their own request's name report their hops as the root's."""
    stages = {
        name: {"function": "f", "repeat": 1, "next": follows}
        for name, follows in (("a", ["b"]), ("b", ["c"]), ("c", []))
    }
    root = hop_row("run-1:e-0-0", None, "a", 5, 45)
    root |= {"open_loop": True, "scheduled": 0, "sent": 0, "received": 50 * MS}
    hops_of = [hop_row(name, "run-1:e-0-0", name, 10, 20) for name in "bc"]
    for row in hops_of:
        row |= {"started": None, "ended": None}
    (summary,) = hops.summarise(table([root, *hops_of]), None, described("nested", stages))
    assert (summary["complete"], summary["hops"]) == (1, 2)


def test_a_trigger_that_is_called_like_a_turn_is_none() -> None:
    stages = {"hop": {"function": "f", "repeat": 2, "next": []}}
    root = hop_row("run-1:e-0-0", None, "hop-1", 5, 45)
    root |= {"open_loop": True, "scheduled": 0, "sent": 0, "received": 50 * MS}
    turn = hop_row("h", "run-1:e-0-0", "hop-2", 10, 40)
    alone = only(table([root, turn]), None, described("nested", stages))
    for name, stage in (("hop-2:1", "hop-2"), ("hop-3:1", "hop-3"), ("w", "hop-3")):
        rows = table([root, turn, hop_row(name, "h", stage, 60, 90)])
        assert only(rows, None, described("nested", stages)) == alone
