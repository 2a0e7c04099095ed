"""Claims about chains: not of those alone whose clocks agree, nor of those alone that went well."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from suite_rows import MS, claim, judged, row, suite, times, write_run

from uncia.suites.claims import DIFFERS, REPRODUCED, UNCHECKED, Finding

CHAINS = 100
HOUR = 3_600_000


def findings(
    folder: Path,
    kind: str,
    stages: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    spans: Sequence[Mapping[str, Any]],
    *claims: str,
) -> list[Finding]:
    """The verdicts on claims about the experiment ``slow``, whose chains have these stages."""
    only = folder / "out" / "fig1" / "only"
    write_run(only, [*rows, *times("fast", [10] * 20)], spans=spans)
    meta = yaml.safe_load((only / "run.yaml").read_text())
    described = {
        name: {"function": "hello", "repeat": 1, "next": list(stages[n : n + 1])}
        for n, name in enumerate(stages, 1)
    }
    chain = {"name": "c", "kind": kind, "hops": len(stages) - 1, "stages": described}
    meta["experiments"]["slow"]["streams"] = [{"hops": chain}]
    (only / "run.yaml").write_text(yaml.safe_dump(meta))
    named = {f"claim-{number}": claim(text) for number, text in enumerate(claims)}
    return judged(suite(folder / "mine", named), folder / "out").findings


def asked(number: int, took: int, **more: Any) -> dict[str, Any]:
    """What began a chain, and had its answer after so many ms."""
    begin = number * 1_000 * MS
    times = {"scheduled": begin, "sent": begin, "received": begin + took * MS}
    name = {"invocation": f"r-0-{number}", "open_loop": True, "queued": 0}
    return row("slow", number, **times, **name, started=None, billed=10 * MS) | more


def hop(number: int, name: str, parent: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    """A hop between two times in ms since its chain began."""
    begin = number * 1_000
    of_client = dict.fromkeys(("open_loop", "scheduled", "sent", "received"))
    ran = {"started": (begin + start) * MS, "ended": (begin + end) * MS, "queued": 0}
    return row(
        "slow",
        number,
        **of_client,
        **ran,
        invocation=name,
        parent=parent,
        execution=(end - start) * MS,
        billed=10 * MS,
        **more,
    )


def nested(lying: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Chains of two: the first ones take 200 ms more, and report their call an hour off."""
    rows, spans = [], []
    for number in range(CHAINS):
        is_lie = number < lying
        took = 210 if is_lie else 10
        begin = number * 1_000
        first = asked(number, took + 4, stage="a", instance="A")
        ran = {"started": (begin + 1) * MS, "ended": (begin + took + 3) * MS}
        rows.append(first | ran | {"execution": (took + 2) * MS})
        rows.append(hop(number, f"h{number}", first["invocation"], 2, took + 2, stage="b"))
        off = begin + (HOUR if is_lie else 0)
        call = {"start": (off + 2) * MS, "end": (off + took + 2) * MS, "clock": "function"}
        named = {"run": "r", "invocation": f"h{number}", "instance": "A", "name": "call"}
        spans.append(named | call)
    return rows, spans


def test_a_clock_that_lies_does_not_choose_the_chains_that_are_judged(tmp_path: Path) -> None:
    claims = ("slow.chain_latency < 100ms", "slow.chain_execution < 100ms")
    ratio = "slow.billed_over_self < 3"
    for lying, verdicts in ((0, [REPRODUCED] * 3), (90, [DIFFERS, UNCHECKED, UNCHECKED])):
        rows, spans = nested(lying)
        result = findings(tmp_path, "nested", "ab", rows, spans, *claims, ratio)
        assert [it.verdict for it in result] == verdicts
    latency, execution, factor = result
    # That needs no clock but the client's.
    assert latency.ours == pytest.approx(0.9 * 214 + 0.1 * 14)
    for it in (execution, factor):
        assert it.ours is None
        assert "90 of 100 complete chains are withheld" in it.why
        assert "clocks differ" in it.why


def test_the_few_chains_that_are_withheld_leave_a_sample(tmp_path: Path) -> None:
    claims = ("slow.chain_latency < 100ms", "slow.chain_execution < 100ms")
    for lying, verdict in ((10, REPRODUCED), (11, UNCHECKED)):
        rows, spans = nested(lying)
        latency, execution = findings(tmp_path, "nested", "ab", rows, spans, *claims)
        assert (latency.verdict, execution.verdict) == (REPRODUCED, verdict)


STAGES = [f"s{number}" for number in range(10)]


def asynchronous(failing: int, outcome: str) -> list[dict[str, Any]]:
    """Chains of ten whose clients are told that they began; so many fail in their last stage."""
    rows = []
    for number in range(CHAINS):
        root = asked(number, 12, stage="s0")
        begin = number * 1_000 * MS
        rows.append(root | {"started": begin + MS, "ended": begin + 11 * MS})
        parent = root["invocation"]
        for turn, stage in enumerate(STAGES[1:], 1):
            name = f"h{number}-{turn}"
            is_bad = number < failing and stage == STAGES[-1]
            ended = {"outcome": outcome} if is_bad else {}
            rows.append(hop(number, name, parent, 12 * turn, 12 * turn + 10, stage=stage) | ended)
            parent = name
    return rows


def test_asynchronous_chains_end_with_their_last_stage(tmp_path: Path) -> None:
    claims = (
        "slow.chain_latency < 1s",
        "slow.chain_failed > 50%",
        "slow.chain_timed_out > 50%",
        "slow.p50 < 1s",
        "slow.memory_time < 1GBs",
    )
    # Nine chains in ten, and no more than 9 % of the rows.
    rows = asynchronous(90, "timeout")
    result = findings(tmp_path, "asynchronous", STAGES, rows, [], *claims)
    latency, failed, late, answer, memory = result
    assert (latency.verdict, failed.verdict) == (UNCHECKED, REPRODUCED)
    assert "90 of 100 chains of slow failed" in latency.why
    assert (failed.ours, late.ours) == (90, 90)
    # The client had its answers.
    assert answer.verdict == REPRODUCED
    assert memory.verdict == UNCHECKED
    rows = asynchronous(5, "function_error")
    result = findings(tmp_path, "asynchronous", STAGES, rows, [], *claims)
    latency, failed, late, _, memory = result
    assert (latency.verdict, failed.verdict) == (REPRODUCED, DIFFERS)
    assert memory.verdict == REPRODUCED
    assert (failed.ours, late.ours) == (5, 0)


@pytest.mark.parametrize(("failing", "verdict"), [(5, REPRODUCED), (45, UNCHECKED)])
def test_hops_that_went_well_do_not_make_up_for_chains_that_failed(
    failing: int, verdict: str, tmp_path: Path
) -> None:
    rows = []
    for number in range(CHAINS):
        root = asked(number, 130, execution=None, billed=None, instance=None, start=None)
        ended = {"outcome": "function_error"} if number < failing else {}
        rows.append(root | ended)
        for turn, stage in enumerate(STAGES):
            name, begin = f"h{number}-{turn}", 12 * turn + 1
            row = hop(number, name, root["invocation"], begin, begin + 10, stage=stage)
            rows.append(row | (ended if stage == STAGES[-1] else {}))
    claims = ("slow.chain_latency < 1s", "slow.gap_p50 < 1s", "slow.p50 < 1s")
    result = findings(tmp_path, "sequence", STAGES, rows, [], *claims)
    assert [it.verdict for it in result] == [verdict] * 3
    if failing == 45:
        assert "45 of 100 chains of slow failed" in result[0].why
        assert "45 of 100 requests of slow failed" in result[2].why


def test_the_clients_own_chains_are_counted_by_chains_as_well(tmp_path: Path) -> None:
    rows = []
    for number in range(CHAINS):
        first = asked(number, 10, stage="a")
        begin = number * 1_000 * MS
        rows.append(first | {"started": begin + MS, "ended": begin + 9 * MS})
        # Each of two stages after it fails in other chains.
        for position, stage in enumerate("bc", 1):
            failed = {"outcome": "function_error"} if number % 10 == position else {}
            rows.append(
                row("slow", number, invocation=f"r-{position}-{number}", stage=stage, queued=0)
                | {"parent": first["invocation"], "open_loop": False, "scheduled": None}
                | {"sent": begin + 12 * MS, "received": begin + 24 * MS}
                | {"started": begin + 13 * MS, "ended": begin + 23 * MS}
                | failed
            )
    only = tmp_path / "out" / "fig1" / "only"
    write_run(only, rows)
    meta = yaml.safe_load((only / "run.yaml").read_text())
    meta["experiments"]["slow"]["streams"] = [
        {"stage": "a"},
        {"stage": "b", "after": ["a"]},
        {"stage": "c", "after": ["a"]},
    ]
    (only / "run.yaml").write_text(yaml.safe_dump(meta))
    folder = suite(tmp_path / "mine", {"it": claim("slow.chain_latency < 1s")})
    (result,) = judged(folder, tmp_path / "out").findings
    # Of the rows 7 % failed.
    assert result.verdict == UNCHECKED
    assert result.ours == pytest.approx(24)
    assert "20 of 100 chains of slow failed" in result.why
