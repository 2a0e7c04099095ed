"""What is said of hops: complete chains, stages, waiting, and what was billed twice."""

from typing import Any

import pyarrow as pa
import pytest
from record_rows import table

from uncia.stats import chains, columns, hop_chains, hops, summary, waits

MS = 1_000_000


def root(number: int, received: int, **more: Any) -> dict[str, Any]:
    return {
        "experiment": "e",
        "function": "f",
        "invocation": f"run-1:e-0-{number}",
        "attempt": 1,
        "stage": "a",
        "open_loop": True,
        "scheduled": 0,
        "sent": MS,
        "received": received * MS,
        "started": 2 * MS,
        "ended": (received - 1) * MS,
        "execution": (received - 3) * MS,
        "outcome": "ok",
    } | more


def hop(name: str, parent: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {
        "experiment": "e",
        "function": "f",
        "invocation": name,
        "attempt": 1,
        "parent": parent,
        "stage": "b",
        "started": start * MS,
        "ended": end * MS,
        "execution": (end - start) * MS,
        "queued": 0,
        "outcome": "ok",
    } | more


def described(kind: str, **stages: dict[str, Any]) -> dict[str, Any]:
    count = sum(stage["repeat"] for stage in stages.values())
    chain = {
        "name": "c",
        "kind": kind,
        "hops": count if kind == "sequence" else count - 1,
        "stages": stages,
    }
    return {"streams": [{"function": "f", "stage": "a", "hops": chain}]}


ONE: dict[str, Any] = {"function": "f", "repeat": 1, "next": []}
FORK = described("nested", a=ONE, b=ONE, c=ONE)


def test_a_chain_is_complete_with_every_hop_and_latencies_are_of_roots() -> None:
    rows = table(
        [
            root(0, 20),
            hop("x", "run-1:e-0-0", 4, 10),
            hop("y", "run-1:e-0-0", 8, 14, stage="c"),
            root(1, 30),
            hop("z", "run-1:e-0-1", 4, 10, outcome="function_error", error="no"),
            hop("orphan", "nobody", 4, 10),
        ]
    )
    (chain,) = hops.summarise(rows, None, FORK)
    assert (chain["begun"], chain["complete"], chain["hops"]) == (2, 1, 3)
    assert chain["latency_ms"]["max"] == 20
    stages = {stage["stage"]: (stage["hops"], stage["ok"]) for stage in chain["stages"]}
    assert stages == {"b": (2, 1), "c": (1, 1)}
    of_all = summary.summarise(rows, FORK)
    assert (of_all["invocations"], of_all["hop_rows"], of_all["latency_rows"]) == (6, 4, 2)
    assert not [it for it in summary.warnings({"e": of_all}) if "never sent" in it]
    # They are none of the client's chains.
    assert chains.summarise(rows, FORK) == []


def test_hops_that_functions_make_on_their_own_complete_no_chain() -> None:
    first = "run-1:e-0-0"
    stranger = hop("own", first, 12, 14, stage=None)
    rows = table([root(0, 20), hop("x", first, 4, 10), stranger])
    (chain,) = hops.summarise(rows, None, FORK)
    assert (chain["complete"], chain["hops"]) == (0, 2)
    rows = table([root(0, 20), hop("x", first, 4, 10), hop("y", "x", 5, 9, stage="c"), stranger])
    (chain,) = hops.summarise(rows, None, FORK)
    assert (chain["complete"], chain["hops"]) == (1, 3)


def test_the_bandwidth_is_the_payload_over_the_median_transfer_time() -> None:
    first = "run-1:e-0-0"
    rows = table([root(0, 20), hop("x", first, 6, 16)])
    handed = {**ONE, "payload": 1_000_000}
    spans = [
        {"invocation": "x", "instance": i, "name": n, "clock": "kernel-1", "start": a, "end": b}
        for i, n, a, b in (
            ("i", "call", 4 * MS, 18 * MS),
            ("j", "handler", 6 * MS, 16 * MS),
            ("j", "transfer", 3 * MS, 7 * MS),
        )
    ]
    chains_of = described("nested", a=ONE, b=handed)
    (chain,) = hops.summarise(rows, table(spans, "spans"), chains_of)
    (stage,) = chain["stages"]
    assert stage["transfer_ms"]["p50"] == 4
    assert (stage["payload_bytes"], stage["bandwidth_mbps"]) == (1_000_000, 2_000)
    assert hops.payload_times(rows, table(spans, "spans"), chains_of) == ([4 * MS], 0, 1_000_000)
    # By other clocks the one call leaves 4 ms of room on 3 ms or so: no more than a guess.
    for span in spans:
        span["clock"] = "function"
    spans[2] = {**spans[2], "start": 4 * MS, "end": 6 * MS}
    (chain,) = hops.summarise(rows, table(spans, "spans"), chains_of)
    assert chain["stages"][0]["transfers_withheld"] == 1
    assert chain["stages"][0]["bandwidth_mbps"] is None
    assert hops.payload_times(rows, table(spans, "spans"), chains_of) == ([], 1, 1_000_000)
    # Of a stage that hands on no payload, a span of this name is the function's own.
    for span in spans:
        span["clock"] = "kernel-1"
    spans[2] = {**spans[2], "start": 3 * MS, "end": 7 * MS}
    (chain,) = hops.summarise(rows, table(spans, "spans"), FORK)
    assert chain["stages"][0]["transfer_ms"]["p50"] == 2
    assert hops.payload_times(rows, table(spans, "spans"), FORK) == ([], 0, 0)
    # One that hands on now more, now less has a time, and no bandwidth.
    several = described("nested", a=ONE, b={**ONE, "payload": None})
    (chain,) = hops.summarise(rows, table(spans, "spans"), several)
    (stage,) = chain["stages"]
    assert (stage["transfer_ms"]["p50"], stage["bandwidth_mbps"]) == (4, None)
    assert hops.payload_times(rows, table(spans, "spans"), several) == ([4 * MS], 0, 0)
    # Nothing was handed on, as far as the spans go.
    (chain,) = hops.summarise(rows, None, chains_of)
    assert chain["stages"][0]["bandwidth_mbps"] is None


@pytest.mark.parametrize(("withheld", "bandwidth"), [(1, 4_000), (2, None)])
def test_the_bandwidth_is_none_of_the_slower_half(withheld: int, bandwidth: float | None) -> None:
    first = "run-1:e-0-0"
    names = [f"x{number}" for number in range(2 + withheld)]
    rows = table([root(0, 20), *(hop(name, first, 6, 16) for name in names)])
    # Each between two instances of its own, whose clocks are one or not.
    spans = [
        {"invocation": x, "instance": f"{x}-{n == 'call'}", "name": n, "clock": clock}
        | {"start": start, "end": end}
        for x, clock in zip(names, ["kernel-1"] * 2 + ["function"] * withheld, strict=True)
        for n, start, end in (
            ("call", 4 * MS, 18 * MS),
            ("handler", 6 * MS, 16 * MS),
            ("transfer", 4 * MS, 6 * MS),
        )
    ]
    chains_of = described("nested", a=ONE, b={**ONE, "payload": 1_000_000})
    (chain,) = hops.summarise(rows, table(spans, "spans"), chains_of)
    (stage,) = chain["stages"]
    assert (stage["transfers_withheld"], stage["bandwidth_mbps"]) == (withheld, bandwidth)


def test_a_caller_waits_once_for_those_that_it_waits_for_together() -> None:
    rows = table(
        [
            root(0, 20),
            hop("x", "run-1:e-0-0", 4, 10),
            hop("y", "run-1:e-0-0", 8, 14, stage="c", queued=MS),
        ]
    )
    # By the platform: 4 to 10, and 7 (with the time in the queue) to 14.
    assert waits.waiting(rows, None, FORK).to_pylist() == [10 * MS, 0, 0]
    call = {"invocation": "x", "instance": "i", "name": "call", "clock": "function"}
    spans = table([{**call, "start": 3 * MS, "end": 11 * MS}], "spans")
    assert waits.waiting(rows, spans, FORK).to_pylist() == [11 * MS, 0, 0]
    for kind in ("asynchronous", "sequence"):
        alone = described(kind, a=ONE, b=ONE, c=ONE)
        assert waits.waiting(rows, spans, alone).to_pylist() == [0, 0, 0]


HOUR = 3_600_000


@pytest.mark.parametrize(
    ("call", "waited"),
    [
        # It began its call before the hop came, and had the answer after its end.
        ((3, 13), 10),
        # Longer than it ran, an hour off, before it ran, and shorter than what it waited for.
        ((3, HOUR), 8),
        ((HOUR + 3, HOUR + 13), 8),
        ((-HOUR, 13), 8),
        ((5, 6), 8),
        ((13, 3), 8),
    ],
)
def test_the_platforms_times_bound_the_calls_that_functions_report(
    call: tuple[int, int], waited: int
) -> None:
    rows = table([root(0, 1_000), hop("x", "run-1:e-0-0", 4, 12)])
    chain = described("nested", a=ONE, b=ONE)
    start, end = call
    span = {"invocation": "x", "instance": "i", "name": "call", "clock": "function"}
    spans = table([span | {"start": start * MS, "end": end * MS}], "spans")
    assert waits.waiting(rows, spans, chain).to_pylist() == [waited * MS, 0]


def test_calls_stand_alone_where_the_platform_has_no_times() -> None:
    nothing = dict.fromkeys(("started", "ended", "execution", "queued"))
    span = {"invocation": "x", "instance": "i", "name": "call", "clock": "function"}
    spans = table([span | {"start": 3 * MS, "end": 13 * MS}], "spans")
    chain = described("nested", a=ONE, b=ONE)
    for of_root, of_hop, waited in (
        (nothing, nothing, 10),
        (nothing, {}, 10),
        # The caller's run is known, and the call lies within it, or does not.
        ({}, nothing, 10),
        ({"ended": 8 * MS}, nothing, 0),
    ):
        rows = table([root(0, 1_000) | of_root, hop("x", "run-1:e-0-0", 4, 12) | of_hop])
        assert waits.waiting(rows, spans, chain).to_pylist() == [waited * MS, 0]


def test_nobody_waits_longer_than_it_runs() -> None:
    # The caller met its timeout while it waited.
    rows = table([root(0, 11), hop("x", "run-1:e-0-0", 4, 30)])
    chain = described("nested", a=ONE, b=ONE)
    assert waits.waiting(rows, None, chain).to_pylist() == [6 * MS, 0]


def test_events_end_with_their_last_stage_and_sequences_have_gaps() -> None:
    rows = table([root(0, 5), hop("x", "run-1:e-0-0", 9, 12), hop("y", "x", 13, 40, stage="c")])
    (chain,) = hops.summarise(rows, None, described("asynchronous", a=ONE, b=ONE, c=ONE))
    assert (chain["complete"], chain["latency_ms"]["max"]) == (1, 40)
    first = "run-1:e-0-0"
    rows = table(
        [
            root(0, 50, function="c", stage=None),
            hop("x", first, 3, 12, stage="a-1"),
            hop("y", first, 13, 40, stage="a-2"),
        ]
    )
    twice = described("sequence", a={**ONE, "repeat": 2})
    (chain,) = hops.summarise(rows, None, twice)
    (stage,) = chain["stages"]
    assert (stage["stage"], stage["hops"], stage["between_ms"]["max"]) == ("a", 2, 1)
    assert hop_chains.executions(rows, twice).to_pylist() == [True, False, False]


def test_a_stage_of_a_sequence_follows_on_what_leads_to_it_and_not_on_what_stands_beside_it() -> (
    None
):
    first = "run-1:e-0-0"
    sequence = described(
        "sequence",
        a={**ONE, "next": ["b", "c"]},
        b={**ONE, "next": ["d"]},
        c={**ONE, "repeat": 2, "next": ["d"]},
        d=ONE,
    )
    rows = table(
        [
            root(0, 700, function="c", stage=None),
            hop("a", first, 3, 100, stage="a"),
            # What a calls on its own is no stage, and no stage follows on it.
            hop("own", "a", 20, 350, stage=None),
            hop("b", first, 101, 399, stage="b"),
            hop("c1", first, 400, 410, stage="c-1"),
            hop("c2", first, 415, 420, stage="c-2"),
            hop("d", first, 427, 500, stage="d"),
        ]
    )
    (chain,) = hop_chains.by_stream(rows, columns.chains_of(sequence))[0]
    between = hops.times_between([chain])
    assert between == {"b": MS, "c1": 300 * MS, "c2": 5 * MS, "d": 7 * MS}
    (of_chain,) = hops.summarise(rows, None, sequence)
    stages = {it["stage"]: it["between_ms"]["max"] for it in of_chain["stages"]}
    assert stages == {"a": None, "b": 1, "c": 300, "d": 7, "(not known)": None}


def test_a_stage_that_was_preempted_began_with_its_first_attempt() -> None:
    first = "run-1:e-0-0"
    sequence = described("sequence", a={**ONE, "next": ["b"]}, b=ONE)
    rows = table(
        [
            root(0, 90, function="c", stage=None),
            hop("a", first, 3, 10, stage="a"),
            hop("b", first, 12, 40, outcome="preempted"),
            hop("b", first, 60, 80, attempt=2),
        ]
    )
    (chain,) = hop_chains.by_stream(rows, columns.chains_of(sequence))[0]
    assert hops.times_between([chain]) == {"b": 2 * MS}


@pytest.mark.parametrize(
    ("clock", "time", "bound", "withheld"), [("kernel-1", 1, 0, 0), ("function", None, None, 1)]
)
def test_transfers_carry_the_bound_of_their_clocks(
    clock: str, time: float | None, bound: float | None, withheld: int
) -> None:
    rows = table([root(0, 20), hop("x", "run-1:e-0-0", 4, 10)])
    spans = table(
        [
            {"invocation": "x", "instance": "i", "name": "call", "start": 0, "end": 8 * MS}
            | {"clock": clock},
            {"invocation": "x", "instance": "j", "name": "handler", "start": MS, "end": 7 * MS}
            | {"clock": clock},
        ],
        "spans",
    )
    (chain,) = hops.summarise(rows, spans, FORK)
    (stage,) = chain["stages"]
    assert (stage["overhead_ms"]["max"], stage["transfer_ms"]["max"]) == (2, time)
    assert (stage["transfer_bound_ms"]["max"], stage["transfers_withheld"]) == (bound, withheld)
    backwards = spans.set_column(
        spans.column_names.index("start"), "start", pa.array([2 * MS, MS], pa.int64())
    )
    (chain,) = hops.summarise(rows, backwards, FORK)
    (stage,) = chain["stages"]
    if clock != "function":
        assert (stage["contradictions"], stage["transfers_withheld"]) == (1, 1)
        (sentence,) = hops.warnings({"e": {"hops": [chain]}})
        assert "contradict each other" in sentence


def test_is_hop_is_false_of_the_clients_later_stages() -> None:
    rows = table([root(0, 1), root(1, 2, parent="run-1:e-0-0", open_loop=False)])
    assert columns.is_hop(rows).to_pylist() == [False, False]


def test_attempts_that_were_preempted_are_of_the_chain_of_the_one_that_went_well() -> None:
    first = "run-1:e-0-0"
    preempted = {"outcome": "preempted", "error": "stopped", "received": None, "billed": 0}
    rows = table(
        [
            root(0, 30, attempt=3),
            root(0, 10, attempt=1) | preempted,
            root(0, 12, attempt=2) | preempted,
            hop("x", first, 14, 18),
            hop("y", first, 19, 22, stage="c"),
        ]
    )
    (chain,) = hop_chains.by_stream(rows, columns.chains_of(FORK))[0]
    assert (chain.root["attempt"], [it["attempt"] for it in chain.attempts]) == (3, [1, 2])
    (found,) = hops.summarise(rows, None, FORK)
    assert (found["begun"], found["complete"], found["hops"]) == (1, 1, 2)
    of_all = summary.summarise(rows, FORK)
    assert (of_all["invocations"], of_all["sent"], of_all["preempted_attempts"]) == (3, 1, 2)
    assert of_all["outcomes"] == {"ok": 3}
    assert of_all["failed"] == 0
    # Of attempts without one that went well, the row with the client's outcome is the root.
    failed = table([root(0, 30, attempt=1, outcome="timeout", error="late"), rows.to_pylist()[1]])
    (chain,) = hop_chains.by_stream(failed, columns.chains_of(FORK))[0]
    assert chain.root["outcome"] == "timeout"
