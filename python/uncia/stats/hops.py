"""Hops: stages of chains that functions or the platform invoked, and no client.

The client's row that began a chain is its root. Latencies of experiments are over roots; what is
said here is of the hops, and of chains as a whole. Times of the platform are compared with the
client's only of the platform on the client's own machine, whose clock is the same.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from uncia.stats import clocks, columns
from uncia.stats.clocks import Stamps, Transfer
from uncia.stats.columns import pc
from uncia.stats.summary import quantiles
from uncia.stats.turns import turns

_NS_PER_MS: Final = 1e6
_TURN: Final = re.compile(r"-(?P<turn>[1-9][0-9]{0,17})$")
_BY_TRIGGER: Final = re.compile(r".+:[0-9]+(\.[0-9]+)?$")
"""What the platform calls what a trigger begins itself: the trigger, and the change's position."""
_STREAM: Final = re.compile(r"-(?P<stream>[0-9]+)-[0-9]+$")
_COLUMNS: Final = (
    *("invocation", "parent", "stage", "function", "outcome", "start", "instance"),
    *("scheduled", "sent", "received", "started", "ended"),
    *("queued", "initialization", "execution", "billed", "attempt"),
)
_TEXTS: Final = frozenset(_COLUMNS[:7])
_STAMPS: Final = ("call", "handler", "transfer")

Row = dict[str, Any]


@dataclass
class Chain:
    """One chain: the row that began it, other attempts of that, and its hops.

    Attributes:
        root, hops, attempts: these rows.
        before: of each turn of a stage the turns that it follows on; nothing of the first, and in
            chains that the client carries on.
    """

    root: Row
    hops: list[Row] = field(default_factory=list)
    attempts: list[Row] = field(default_factory=list)
    before: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """The timestamps of a hop: its call, its handler and its payload's if it reported those."""

    call: Row
    handler: Row | None
    transfer: Row | None


def summarise(
    table: pa.Table, spans: pa.Table | None = None, experiment: Mapping[str, object] | None = None
) -> list[dict[str, Any]]:
    """Summarise the hops of one experiment, an entry for each chain that it has.

    Args:
        table: the invocations of the experiment.
        spans: the run's spans, with the timestamps that functions reported.
        experiment: its description in ``run.yaml``, whose ``streams`` describe their chains.

    Returns:
        Plain JSON values; an empty list if the experiment has no such chains. ``begun`` (roots),
        ``complete`` (chains of which every hop was ok), ``hops``, ``latency_ms`` (of complete
        chains, from the scheduled time to the answer; of asynchronous ones to the end of their last
        invocation) and ``stages``.
    """
    described = columns.chains_of(experiment)
    if not described:
        return []
    calls = calls_of(spans, table)
    result = []
    for stream, chains in by_stream(table, described).items():
        chain = described[stream]
        result.append(_summarise(chain, chains, calls))
    return result


def payload_times(
    table: pa.Table, spans: pa.Table, experiment: Mapping[str, object] | None
) -> tuple[list[float], int, int]:
    """The transfer times of payloads between the stages of an experiment's chains.

    Args:
        table: the invocations of the experiment.
        spans: the run's spans, with the timestamps that functions reported.
        experiment: its description in ``run.yaml``.

    Returns:
        The times, ns; how many were withheld, as the bound of the clocks exceeds them; and the
        payloads' size in bytes, 0 if they differ.
    """
    calls = calls_of(spans, table)
    times: list[float | None] = []
    sizes: set[int | None] = set()
    for stream, chains in by_stream(table, described := columns.chains_of(experiment)).items():
        stages = described[stream]["stages"]
        # Of all hops, as any between two instances bounds the offset of their clocks.
        stamped: list[tuple[Stamps, Mapping[str, Any], bool]] = []
        for hop in (hop for chain in chains for hop in chain.hops):
            stage = stages.get(_stage(hop["stage"], described[stream]), {})
            call = calls.get(hop["invocation"])
            if call and (it := _stamps(call, hands_payload="payload" in stage)):
                stamped.append((it, stage, hop["outcome"] == "ok"))
        transfers = clocks.transfers(it for it, _, _ in stamped)
        for (it, stage, is_ok), transfer in zip(stamped, transfers, strict=True):
            if is_ok and it.payload is not None:
                times.append(transfer.time)
                sizes.add(stage["payload"])
    known = [time for time in times if time is not None]
    size = sizes.pop() if len(sizes) == 1 else None
    return known, len(times) - len(known), size or 0


def executions(table: pa.Table, experiment: Mapping[str, object] | None) -> Any:
    """Whether each row is an execution of a sequence, which is no invocation of a function."""
    sequences = {
        n for n, chain in columns.chains_of(experiment).items() if chain["kind"] == "sequence"
    }
    numbers = [stream_of(text) for text in columns.words(table, "invocation").to_pylist()]
    is_sequence = pa.array([number in sequences for number in numbers], pa.bool_())
    return pc.and_(is_sequence, pc.invert(columns.is_hop(table)))


def waiting(
    table: pa.Table, spans: pa.Table | None, experiment: Mapping[str, object] | None
) -> Any:
    """How long each invocation of a chain waited for those that it invoked, in ns.

    Args:
        table: the invocations of one experiment.
        spans: the run's spans.
        experiment: its description in ``run.yaml``.

    Returns:
        A number for each row, 0 of those that waited for nothing: by the caller's clock where it
        reported its calls and the platform's times allow them, else by the platform's.
    """
    described = columns.chains_of(experiment)
    calls = calls_of(spans, table) if described else {}
    intervals: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for stream, chains in by_stream(table, described).items():
        for chain in chains:
            # Of several attempts the one that went well.
            rows = sorted((chain.root, *chain.hops), key=_success)
            callers = {it["invocation"]: it for it in rows}
            ends = {it["invocation"]: it["ended"] for it in (chain.root, *chain.hops)}
            others = followers(chain, described[stream])
            for hop in chain.hops:
                is_waited = is_waited_for(hop, described[stream])
                if hop["invocation"] in others:
                    # Nobody waits for what a trigger began; what that invokes may be waited for.
                    is_waited = None if hop["parent"] in others else False
                interval = _interval(hop, calls.get(hop["invocation"]))
                if is_waited is not False:
                    interval = _bounded(interval, hop, callers.get(hop["parent"]), bool(is_waited))
                if interval is None or is_waited is False:
                    continue
                end = ends.get(hop["parent"])
                if is_waited or (end is not None and interval[1] <= end):
                    intervals[hop["parent"]].append(interval)
    waited = {name: _length(of_name) for name, of_name in intervals.items()}
    names = columns.words(table, "invocation").to_pylist()
    return pa.array([waited.get(name, 0) for name in names], pa.int64())


def is_waited_for(hop: Row, described: Mapping[str, Any]) -> bool | None:
    """Whether the parent of a hop waits for it; None: if the hop ends before its parent does.

    The stages of nested chains are waited for, those of others are not: the platform carries these
    chains on. What functions invoke on their own may be either.
    """
    if _stage(hop["stage"], described) not in described["stages"]:
        return None
    return bool(described["kind"] == "nested")


def _interval(hop: Row, call: Call | None) -> tuple[int, int] | None:
    if call is not None:
        start, end = call.call["start"], call.call["end"]
        # What a function reports may be anything.
        return (start, end) if 0 <= end - start <= clocks.LONGEST_NS else None
    if hop["ended"] is None:
        return None
    took = sum(hop[name] or 0 for name in ("queued", "initialization", "execution"))
    return hop["ended"] - took, hop["ended"]


def _bounded(
    interval: tuple[int, int] | None, hop: Row, caller: Row | None, is_waited: bool
) -> tuple[int, int] | None:
    """When a caller waited for a hop, as far as the platform's times of both allow it.

    A call lies within the caller's run, and what is waited for within the call. A function that
    reports another call has a clock that is off, or lies: the platform's times stand instead.

    Args:
        interval: the call as the caller reported it, or the platform's times of the hop.
        hop: what was called.
        caller: its parent's row, if there is one.
        is_waited: whether the caller waits for the hop; else it may have.
    """
    if caller is None or caller["started"] is None or caller["ended"] is None:
        return interval
    run = caller["started"], caller["ended"]
    by_platform = _interval(hop, None)
    inner = by_platform if is_waited else None
    if interval is None or not _is_within(interval, run) or not _is_within(inner, interval):
        interval = by_platform
    if interval is None or not is_waited:
        return interval
    start, end = (min(max(moment, run[0]), run[1]) for moment in interval)
    return start, end


def _is_within(interval: tuple[int, int] | None, outer: tuple[int, int]) -> bool:
    """Whether an interval lies within another, as far as clocks of one machine agree."""
    if interval is None:
        return True
    return outer[0] - clocks.SLACK_NS <= interval[0] and interval[1] <= outer[1] + clocks.SLACK_NS


def _length(intervals: Iterable[tuple[int, int]]) -> int:
    """The time that intervals cover together."""
    total, end = 0, None
    for start, stop in sorted(intervals):
        begin = start if end is None else max(start, end)
        total += max(0, stop - begin)
        end = stop if end is None else max(end, stop)
    return total


def stream_of(invocation: str | None) -> int | None:
    """Return the number of the stream that an invocation of the client's belongs to."""
    match = _STREAM.search(invocation or "")
    return None if match is None else int(match["stream"])


def rows_of(table: pa.Table) -> list[Row]:
    """The columns that are needed, as plain values."""
    plain = pa.table(
        {
            name: columns.words(table, name) if name in _TEXTS else columns.integers(table, name)
            for name in _COLUMNS
        }
    )
    rows: list[Row] = plain.to_pylist()
    return rows


def by_stream(
    table: pa.Table, described: Mapping[int, Mapping[str, Any]]
) -> dict[int, list[Chain]]:
    """The chains of each stream that has some."""
    if not described:
        return {}
    is_hop = columns.is_hop(table)
    chains: dict[int, list[Chain]] = {stream: [] for stream in described}
    before = {stream: _before(chain) for stream, chain in described.items()}
    owner = begun(rows_of(table.filter(pc.invert(is_hop))))
    for name, chain in owner.items():
        stream = stream_of(name)
        if stream is not None and stream in described:
            chain.before = before[stream]
            chains[stream].append(chain)
    hops = rows_of(table.filter(is_hop))
    parents = {hop["invocation"]: hop["parent"] for hop in hops}
    for hop in hops:
        of_hop = owner_of(hop["parent"], parents, owner)
        if of_hop is not None:
            of_hop.hops.append(hop)
    return chains


def _before(described: Mapping[str, Any]) -> dict[str, list[str]]:
    """The turns that each turn of a chain's stages follows on."""
    stages = described["stages"]
    named = {name: turns(name, stage["repeat"]) for name, stage in stages.items()}
    before: dict[str, list[str]] = defaultdict(list)
    for name, of_stage in named.items():
        for earlier, later in pairwise(of_stage):
            before[later].append(earlier)
        for follower in stages[name].get("next", ()):
            if follower in named:
                before[named[follower][0]].append(of_stage[-1])
    return dict(before)


def roots_of(table: pa.Table) -> list[str | None]:
    """The root of each invocation; of one that nothing leads to, None."""
    names = columns.words(table, "invocation").to_pylist()
    parents = columns.words(table, "parent").to_pylist()
    of_name = {name: parent for name, parent in zip(names, parents, strict=True) if parent}
    roots = {name: name for name, parent in zip(names, parents, strict=True) if parent is None}

    def root(name: str) -> str | None:
        passed: list[str] = []
        at: str | None = name
        while at is not None and at not in roots and len(passed) <= len(of_name):
            passed.append(at)
            at = of_name.get(at)
        root = None if at is None else roots.get(at)
        if root is not None:
            roots.update(dict.fromkeys(passed, root))
        return root

    return [root(name) for name in names]


def begun(roots: Iterable[Row]) -> dict[str, Chain]:
    """A chain for each invocation that began one: of several attempts it goes on from the best."""
    chains: dict[str, Chain] = {}
    for row in roots:
        chain = chains.setdefault(row["invocation"], Chain(row))
        if chain.root is row:
            continue
        first, second = sorted((chain.root, row), key=_success)
        chain.root = second
        chain.attempts.append(first)
    return chains


def _success(root: Row) -> tuple[bool, bool, int]:
    """What orders attempts: the one that went well, else the last that has the client's outcome."""
    return root["outcome"] == "ok", not is_preempted(root), root["attempt"] or 0


def is_preempted(row: Row) -> bool:
    """As `uncia.stats.columns.is_preempted`, of one row."""
    return row["outcome"] == "preempted" and row["received"] is None


def owner_of(name: str | None, parents: Mapping[str, str], owner: dict[str, Chain]) -> Chain | None:
    """The chain that leads to an invocation; what is found on the way is noted in ``owner``."""
    passed: list[str] = []
    while name is not None and name not in owner and len(passed) <= len(parents):
        passed.append(name)
        name = parents.get(name)
    chain = owner.get(name) if name is not None else None
    if chain is not None:
        owner.update(dict.fromkeys(passed, chain))
    return chain


def calls_of(spans: pa.Table | None, table: pa.Table) -> dict[str, Call]:
    """The timestamps of each hop that functions reported, by its invocation.

    Args:
        spans: of the run.
        table: invocations, to which the hops belong.
    """
    if spans is None or spans.num_rows == 0:
        return {}
    is_stamp = pc.is_in(columns.words(spans, "name"), value_set=pa.array(_STAMPS))
    of_table = columns.words(table, "invocation").combine_chunks()
    is_of_table = pc.is_in(columns.words(spans, "invocation"), value_set=of_table)
    rows = spans.filter(pc.and_(is_stamp, is_of_table)).to_pylist()
    reported: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row["invocation"] is not None:
            reported[row["invocation"]].setdefault(row["name"], row)
    return {
        name: Call(rows["call"], rows.get("handler"), rows.get("transfer"))
        for name, rows in reported.items()
        if "call" in rows
    }


def _stamps(call: Call, *, hands_payload: bool) -> Stamps | None:
    """The timestamps of a hop; a span ``transfer`` may mean anything where none is handed on."""
    handler = call.handler
    if handler is None:
        return None
    clock = call.call["clock"]
    payload = call.transfer if hands_payload else None
    return Stamps(
        pair=(str(call.call["instance"]), str(handler["instance"])),
        sent=call.call["start"],
        received=call.call["end"],
        started=handler["start"],
        ended=handler["end"],
        is_one_clock=clock == handler["clock"] and clock.startswith(clocks.KERNEL),
        payload=None if payload is None else (payload["start"], payload["end"]),
    )


def _summarise(
    described: Mapping[str, Any], chains: list[Chain], calls: Mapping[str, Call]
) -> dict[str, Any]:
    own = {id(chain): without_followers(chain, described) for chain in chains}
    complete = [own[id(chain)] for chain in chains if is_complete(chain, described)]
    hops = [hop for chain in chains for hop in chain.hops]
    of_chain = {id(hop) for chain in own.values() for hop in chain.hops}
    stamps = {}
    for hop in hops:
        stage = described["stages"].get(_stage(hop["stage"], described), {})
        call = calls.get(hop["invocation"])
        if call and (it := _stamps(call, hands_payload="payload" in stage)):
            stamps[hop["invocation"]] = it
    times = dict(zip(stamps, clocks.transfers(stamps.values()), strict=True))
    between = times_between(own.values()) if described["kind"] == "sequence" else {}
    latencies = [
        took for chain in complete if (took := _took(chain, described["kind"])) is not None
    ]
    by_stage: dict[str, list[Row]] = {name: [] for name in described["stages"]}
    for hop in hops:
        name = _stage(hop["stage"], described)
        if id(hop) not in of_chain and name in described["stages"]:
            name = f"{name} (by a trigger)"
        by_stage.setdefault(name, []).append(hop)
    return {
        "chain": described["name"],
        "kind": described["kind"],
        "begun": len(chains),
        "complete": len(complete),
        "hops": len(hops),
        "latency_ms": _quantiles(latencies),
        "stages": [
            _of_stage(name, of_stage, stamps, times, between)
            | _bandwidth(described["stages"].get(name, {}).get("payload"), of_stage, stamps, times)
            for name, of_stage in by_stage.items()
            if of_stage
        ],
    }


def _stage(name: str | None, described: Mapping[str, Any]) -> str:
    """The stage of the file that a row's is a turn of."""
    if name is None:
        return "(not known)"
    match = None if name in described["stages"] else _TURN.search(name)
    if match is None:
        return name
    base = name[: match.start()]
    repeat = described["stages"].get(base, {}).get("repeat", 1)
    return base if 1 < repeat >= int(match["turn"]) else name


def is_complete(chain: Chain, described: Mapping[str, Any]) -> bool:
    """Whether the root and a hop of each stage ended ok."""
    # By their stages: functions may invoke others on their own, which are no stages of the chain.
    own = without_followers(chain, described).hops
    good = {hop["stage"] for hop in own if hop["outcome"] == "ok"}
    return bool(chain.root["outcome"] == "ok" and _expected(described) <= good)


def without_followers(chain: Chain, described: Mapping[str, Any]) -> Chain:
    """The chain without what triggers began when it had changed documents.

    Nobody waits for that, and the client may have had its answer long before.
    """
    left = followers(chain, described)
    if not left:
        return chain
    return replace(chain, hops=[hop for hop in chain.hops if hop["invocation"] not in left])


def followers(chain: Chain, described: Mapping[str, Any]) -> set[str]:
    """The invocations that triggers began when documents had changed, with all behind them.

    By lineage, as stages of other chains may have the same names: an invocation is the chain's own
    if its parents lead to the root, and each has a stage that follows there, or none, as what
    functions invoke on their own.
    """
    rows = {hop["invocation"]: hop for hop in chain.hops}
    is_left = {chain.root["invocation"]: False}
    for name in rows:
        passed: list[str] = []
        at = name
        while at in rows and at not in is_left and len(passed) <= len(rows):
            passed.append(at)
            at = rows[at]["parent"]
        for each in reversed(passed):
            parent = rows[each]["parent"]
            is_left[each] = is_left.get(parent, False) or _is_by_trigger(
                rows[each], rows.get(parent), described
            )
    return {name for name, left in is_left.items() if left}


def behind_triggers(parents: Mapping[str, str | None]) -> set[str]:
    """Of invocations and their parents, what is named as triggers name it, and all behind that."""
    behind = {name: True for name in parents if _BY_TRIGGER.fullmatch(name)}
    for name in parents:
        passed: list[str] = []
        at: str | None = name
        while at is not None and at in parents and at not in behind:
            behind[at] = False
            passed.append(at)
            at = parents[at]
        if at is not None and behind.get(at, False):
            behind.update(dict.fromkeys(passed, True))
    return {name for name, is_behind in behind.items() if is_behind}


def _is_by_trigger(hop: Row, parent: Row | None, described: Mapping[str, Any]) -> bool:
    """Whether a trigger began a hop, whose parent is of the chain itself; of the root it is None.

    What a trigger begins is named by it, but for the states of a sequence: those are known by what
    they follow on.
    """
    if hop["stage"] is None:
        return False
    stages, name = described["stages"], _stage(hop["stage"], described)
    if name not in stages or _BY_TRIGGER.fullmatch(hop["invocation"]):
        return True
    if hop["started"] is None:
        # Without a platform's log, which alone has triggers, a parent is what functions reported.
        return False
    if described["kind"] == "sequence":
        # All of its states follow on the client's request.
        return parent is not None
    before = next(iter(stages)) if parent is None else _stage(parent["stage"], described)
    if before not in stages or not any(it.get("next") for it in stages.values()):
        return False
    repeats = name == before and stages[name]["repeat"] > 1
    return not repeats and name not in stages[before].get("next", ())


def _expected(described: Mapping[str, Any]) -> set[str]:
    """The turns of a chain's stages that are hops: all, but for the client's own request."""
    expected = [
        turn for name, it in described["stages"].items() for turn in turns(name, it["repeat"])
    ]
    return set(expected if described["kind"] == "sequence" else expected[1:])


def _took(chain: Chain, kind: str) -> int | None:
    root = chain.root
    begin = root["scheduled"] if root["scheduled"] is not None else root["sent"]
    ends = [root["received"]]
    if kind == "asynchronous":
        # A root that has not said when it ended has handed on: its hops say the end.
        rows = [*([] if root["ended"] is None else [root]), *chain.hops]
        ends = [row["ended"] for row in rows]
    if begin is None or not ends or None in ends:
        return None
    return int(max(ends) - begin)


def times_between(chains: Iterable[Chain]) -> dict[str, int]:
    """From the last end of what a stage follows on to its start, by the platform's clock.

    What stands beside it in a fan-out, and what functions invoke on their own, is none of that.
    """
    between: dict[str, int] = {}
    for chain in chains:
        ends = {hop["stage"]: hop["ended"] for hop in chain.hops if hop["outcome"] == "ok"}
        for hop in chain.hops:
            before = chain.before.get(hop["stage"], ())
            known = [ends[turn] for turn in before if ends.get(turn) is not None]
            if hop["started"] is None or not known or len(known) < len(before):
                continue
            gap, name = hop["started"] - max(known), hop["invocation"]
            if gap >= 0:
                # An attempt that was preempted was the start of it.
                between[name] = min(gap, between.get(name, gap))
    return between


def _of_stage(
    name: str,
    hops: list[Row],
    stamps: Mapping[str, Stamps],
    times: Mapping[str, Transfer],
    between: Mapping[str, int],
) -> dict[str, Any]:
    good = [hop for hop in hops if hop["outcome"] == "ok"]
    timed = [times[hop["invocation"]] for hop in good if hop["invocation"] in times]
    known = [it for it in timed if it.time is not None]
    return {
        "stage": name,
        "functions": sorted({hop["function"] for hop in hops}),
        "hops": len(hops),
        "ok": len(good),
        "cold": sum(hop["start"] == "cold" for hop in hops),
        "execution_ms": _quantiles(_present(good, "execution")),
        "queued_ms": _quantiles(_present(good, "queued")),
        "overhead_ms": _quantiles(_overheads(good, stamps)),
        "between_ms": _quantiles(
            [between[hop["invocation"]] for hop in good if hop["invocation"] in between]
        ),
        "transfer_ms": _quantiles([it.time for it in known if it.time is not None]),
        "transfer_bound_ms": _quantiles([it.bound for it in known if it.bound is not None]),
        "transfers_withheld": len(timed) - len(known),
        "contradictions": sum(it.contradicts for it in timed),
    }


def _bandwidth(
    payload: int | None,
    hops: Iterable[Row],
    stamps: Mapping[str, Stamps],
    times: Mapping[str, Transfer],
) -> dict[str, float | None]:
    """The payload that a stage was handed, in bytes, and its size over the median transfer time.

    The bandwidth is withheld if the clocks' bound reaches the median, as transfer times are, and if
    half of those or more are: the short ones are withheld first, so that the median of the others
    is too long.
    """
    if payload is None:
        return {"payload_bytes": None, "bandwidth_mbps": None}
    names = [hop["invocation"] for hop in hops if hop["outcome"] == "ok"]
    handed = [times[it] for it in names if it in stamps and stamps[it].payload is not None]
    known = [it.time for it in handed if it.time is not None]
    bounds = [it.bound for it in handed if it.bound is not None]
    if 2 * len(known) <= len(handed) or not bounds or np.median(bounds) >= np.median(known) > 0:
        return {"payload_bytes": payload, "bandwidth_mbps": None}
    median = float(np.median(known))
    return {
        "payload_bytes": payload,
        "bandwidth_mbps": payload * 8 / median * 1e3 if median > 0 else None,
    }


def _present(rows: Iterable[Row], name: str) -> list[int]:
    return [row[name] for row in rows if row[name] is not None]


def _overheads(hops: Iterable[Row], stamps: Mapping[str, Stamps]) -> Iterator[int]:
    """What each call took beside its handler: both are durations, so no clocks are compared."""
    for hop in hops:
        it = stamps.get(hop["invocation"])
        if it is not None and it.is_possible:
            yield (it.received - it.sent) - (it.ended - it.started)


def _quantiles(values: Iterable[float]) -> dict[str, float | None]:
    return quantiles(np.sort(np.array(list(values), dtype=np.int64)), _NS_PER_MS)


def warnings(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Warnings for readers of these summaries (`experiments` of ``summary.json``), as sentences."""
    sentences = []
    for name, summary in summaries.items():
        for chain in summary.get("hops", []):
            contradictions = sum(stage["contradictions"] for stage in chain["stages"])
            if contradictions:
                sentences.append(
                    f"{name}: the timestamps that functions reported of {contradictions:,} hops of"
                    f" {chain['chain']} contradict each other: a clock was set, or is wrong. Their"
                    " transfer times are withheld."
                )
    return sentences
