"""How long the invocations of chains waited for those that they invoked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from uncia.stats import clocks, columns
from uncia.stats.columns import pc
from uncia.stats.hop_chains import Call, Row, by_stream, calls_of, success
from uncia.stats.lineage import followers, stage_of

EVENT: Final = "event"
"""The span of an invocation for which nobody waits: how long the platform had it wait."""


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
    events = events_of(spans) if described else frozenset()
    intervals: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for stream, chains in by_stream(table, described).items():
        for chain in chains:
            # Of several attempts the one that went well.
            rows = sorted((chain.root, *chain.hops), key=success)
            callers = {it["invocation"]: it for it in rows}
            ends = {it["invocation"]: it["ended"] for it in (chain.root, *chain.hops)}
            others = followers(chain, described[stream])
            for hop in chain.hops:
                is_waited = is_waited_for(hop, described[stream], events)
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


def events_of(spans: pa.Table | None) -> frozenset[str]:
    """The invocations that were events, by the spans of a platform that marks them."""
    if spans is None:
        return frozenset()
    is_event = pc.and_(
        columns.is_word(spans, "name", EVENT), columns.is_word(spans, "clock", "platform")
    )
    names = columns.words(spans.filter(is_event), "invocation").to_pylist()
    return frozenset(name for name in names if name is not None)


def are_marked(experiment: Mapping[str, object] | None) -> bool:
    """Whether the platform of an experiment tells which invocations were events."""
    return experiment is not None and experiment.get("marks_events") is True


def is_waited_for(
    hop: Row, described: Mapping[str, Any], events: Collection[str] = ()
) -> bool | None:
    """Whether the parent of a hop waits for it; None: if the hop ends before its parent does.

    The stages of nested chains are waited for, those of others are not: the platform carries these
    chains on. What functions invoke on their own may be either, and is not where it was an event.
    """
    if stage_of(hop["stage"], described) not in described["stages"]:
        return False if hop["invocation"] in events else None
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
