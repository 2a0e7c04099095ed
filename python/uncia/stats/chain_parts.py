"""Parts of a chain's latency: startup, communication and execution, which add up to it exactly.

Every complete chain is a window, from its scheduled time to its last answer (of an asynchronous
one, to the end of its last invocation). Each nanosecond of it belongs to one part:

* *execution*: at least one invocation of the chain does work of its own: it has its event and has
  not answered, and waits for no invocation of the chain;
* *startup*: otherwise, and at least one waits for an instance: ``queued`` and ``initialization``;
* *communication*: the rest, which is requests and answers under way between client, platform and
  functions, the time in which clients of functions are made, and think times.

Beside it stands the way of ServerlessBench (SoCC 2020, section 4.2, Figure 6): a caller's execution
holds all that its callees take, and startup is all the time in which one waits for an instance, so
that the parts overlap and add up to more than the latency.

Invocations are placed by the platform's clock, calls by their callers'. Where one of these does not
fit into what it has to lie within, clocks differ, and the chain's parts are withheld.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from uncia.stats import chains, clocks, columns, hop_chains, lineage, waits
from uncia.stats.columns import pc
from uncia.stats.hop_chains import Call, Chain, Row
from uncia.stats.summary import quantiles
from uncia.units import NS_PER_MS

_FEWEST_STAGES: Final = 2
"""Of a chain; what has fewer is a request."""

PARTS: Final = ("startup", "communication", "execution")

SLACK_NS: Final = clocks.SLACK_NS

NO_TIMES: Final = "the platform reports no times of an invocation"
CLOCKS_DIFFER: Final = "an invocation lies outside of what caused it: clocks differ"
NO_END: Final = "the chain has no times of the client's"

Interval: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class ChainParts:
    """The parts of one chain, in ns.

    Attributes:
        invocation: of its root.
        latency: of the chain; None if that is not known either.
        startup, communication, execution: disjoint parts, whose sum is the latency.
        startup_overlapping, execution_overlapping: as ServerlessBench has them.
        self_time: the sum over its invocations of their execution without their waiting for others.
            Attempts that were preempted are in the parts of the latency, and in no other sum.
        guessed: how much longer that is if nobody waited for what functions invoked on their own
            and reported no call of: rows do not tell whether they did, or sent an event.
        executed: the sum of their executions.
        billed: the sum of what the platform bills for; None if it does not say.
        invocations: of functions.
        started: those of them that waited for the start of an instance.
        withheld: why there are no parts; "" if there are.
    """

    invocation: str
    latency: int | None = None
    startup: int = 0
    communication: int = 0
    execution: int = 0
    startup_overlapping: int = 0
    execution_overlapping: int = 0
    self_time: int = 0
    guessed: int = 0
    executed: int = 0
    billed: int | None = None
    invocations: int = 0
    started: int = 0
    withheld: str = ""

    @property
    def billed_over_self(self) -> float | None:
        """The double-billing factor: what is billed over the time of own work.

        With `guessed` an upper bound.
        """
        return None if self.billed is None else ratio(self.billed, self.self_time)


@dataclass(frozen=True)
class ChainKind:
    """The chains of one kind in an experiment.

    Attributes:
        chain: its name in the file, or its stages where the client carries it on.
        kind: who carries it on.
        parts: of each complete chain.
        begun: how many were begun, be it that they were completed.
    """

    chain: str
    kind: str
    parts: list[ChainParts] = field(default_factory=list)
    begun: int = 0


class _WithheldError(Exception):
    """A chain's parts are not known."""


def ratio(part: int, whole: int) -> float | None:
    """One over the other; None if there is nothing to compare with."""
    return part / whole if whole > 0 else None


def of_experiment(
    table: pa.Table, spans: pa.Table | None = None, experiment: Mapping[str, object] | None = None
) -> list[ChainKind]:
    """Break down every complete chain of one experiment.

    Args:
        table: the invocations of the experiment, with columns as in the invocation table.
        spans: the run's spans; callers' calls are taken from them, and else from when the
            invocation that they caused came and ended.
        experiment: its description in ``run.yaml``, whose ``streams`` describe the chains.

    Returns:
        An item for each kind of chain; an empty list if the experiment has none.
    """
    described = columns.chains_of(experiment)
    calls = hop_chains.calls_of(spans, table) if described else {}
    events = waits.events_of(spans) if described else frozenset()
    is_marked = waits.are_marked(experiment)
    result = []
    for stream, of_stream in hop_chains.by_stream(table, described).items():
        about = described[stream]
        complete = [it for it in of_stream if lineage.is_complete(it, about)]
        waited_for = partial(waits.is_waited_for, described=about, events=events)
        parts = [
            _parts(
                lineage.without_followers(it, about), about["kind"], calls, waited_for, is_marked
            )
            for it in complete
        ]
        result.append(ChainKind(about["name"], about["kind"], parts, len(of_stream)))
    return [*result, *_of_client(table, experiment)]


def summarise(
    table: pa.Table, spans: pa.Table | None = None, experiment: Mapping[str, object] | None = None
) -> list[dict[str, Any]]:
    """Summarise the parts of an experiment's chains, an entry for each kind of chain.

    Args:
        table, spans, experiment: as of `of_experiment`.

    Returns:
        Plain JSON values: ``chain``, ``kind``, ``complete``, ``withheld`` (reason -> chains) and
        ``groups``, of the chains in which an instance was started (``started`` true) and of the
        others: sums in ns, which add up as those of each chain do, the two factors, and quantiles
        of each part.
    """
    return [
        {
            "chain": kind.chain,
            "kind": kind.kind,
            "complete": len(kind.parts),
            "withheld": dict(Counter(it.withheld for it in kind.parts if it.withheld)),
            "groups": [
                _group(chosen, started)
                for started in (True, False)
                if (
                    chosen := [
                        it for it in kind.parts if not it.withheld and bool(it.started) == started
                    ]
                )
            ],
        }
        for kind in of_experiment(table, spans, experiment)
        if kind.parts
    ]


def _group(parts: Sequence[ChainParts], started: bool) -> dict[str, Any]:
    def total(name: str) -> int:
        return sum(getattr(it, name) for it in parts)

    billed = [it.billed for it in parts if it.billed is not None]
    all_billed = sum(billed) if len(billed) == len(parts) else None
    return {
        "started": started,
        "chains": len(parts),
        "invocations": total("invocations"),
        "latency_ns": total("latency"),
        **{f"{name}_ns": total(name) for name in PARTS},
        "overlapping": {
            "startup_ns": total("startup_overlapping"),
            "communication_ns": total("communication"),
            "execution_ns": total("execution_overlapping"),
        },
        "self_ns": total("self_time"),
        "guessed_ns": total("guessed"),
        "executed_ns": total("executed"),
        "billed_ns": all_billed,
        "billed_over_self": None if all_billed is None else ratio(all_billed, total("self_time")),
        "executed_over_self": ratio(total("executed"), total("self_time")),
        **{
            f"{name}_ms": quantiles(
                np.sort(np.array([getattr(it, name) for it in parts], dtype=np.int64)), NS_PER_MS
            )
            for name in PARTS
        },
    }


def _of_client(table: pa.Table, experiment: Mapping[str, object] | None) -> list[ChainKind]:
    """Chains that the client carried on, by the stream of their first requests."""
    declared = {} if experiment is None else chains.declared_stages(experiment)
    if all(len(stages) < _FEWEST_STAGES for stages in declared.values()):
        return []
    rows = hop_chains.rows_of(table.filter(pc.invert(columns.is_hop(table))))
    later = [row for row in rows if row["parent"] is not None]
    parents = {row["invocation"]: row["parent"] for row in later}
    first = (row for row in rows if row["parent"] is None and row["stage"] is not None)
    owner = hop_chains.begun(first)
    roots = list(owner.values())
    for row in later:
        chain = hop_chains.owner_of(row["parent"], parents, owner)
        if chain is not None:
            chain.hops.append(row)
    begun: dict[str, list[Chain]] = {}
    for chain in roots:
        stream = str(hop_chains.stream_of(chain.root["invocation"]))
        if len(declared.get(stream, set())) >= _FEWEST_STAGES:
            begun.setdefault(stream, []).append(chain)
    return [_kind_of_client(of_stream, declared[stream]) for stream, of_stream in begun.items()]


def _kind_of_client(begun: Sequence[Chain], stages: set[str]) -> ChainKind:
    complete = [
        chain
        for chain in begun
        if stages <= {it["stage"] for it in (chain.root, *chain.hops) if it["outcome"] == "ok"}
    ]
    rows = [row for chain in complete[:1] for row in (chain.root, *chain.hops)]
    name = " > ".join(dict.fromkeys(row["stage"] for row in rows))
    parts = [_parts(chain, "client", {}) for chain in complete]
    return ChainKind(name, "client", parts, len(begun))


def _parts(
    chain: Chain,
    kind: str,
    calls: Mapping[str, Call],
    waited_for: Callable[[Row], bool | None] = lambda row: False,
    is_marked: bool = False,
) -> ChainParts:
    """The parts of a complete chain, or why they are withheld."""
    name = str(chain.root["invocation"])
    latency = None
    try:
        window = _window(chain, kind)
        # Asynchronous chains end with an invocation, by the clock that places all of them.
        latency = None if kind == "asynchronous" else window[1] - window[0]
        return _known_parts(name, chain, kind, window, calls, waited_for, is_marked)
    except _WithheldError as error:
        return ChainParts(name, latency, withheld=str(error))


def _known_parts(
    name: str,
    chain: Chain,
    kind: str,
    window: Interval,
    calls: Mapping[str, Call],
    waited_for: Callable[[Row], bool | None],
    is_marked: bool,
) -> ChainParts:
    # What the client asked for is an execution of a sequence, and no invocation.
    invoked = [*([] if kind == "sequence" else [*chain.attempts, chain.root]), *chain.hops]
    ran = [row for row in invoked if row["outcome"] == "ok" or row["started"] is not None]
    if any(row["started"] is None or row["ended"] is None for row in ran):
        raise _WithheldError(NO_TIMES)
    runs = {id(row): _within((row["started"], row["ended"]), window) for row in ran}
    starts = [_within((row["started"] - _waited(row), row["started"]), window) for row in ran]
    waits, known = _waits(ran, runs, calls, waited_for, is_marked)
    pieces = {id(row): _without(runs[id(row)], waits.get(id(row), [])) for row in ran}
    working = [piece for of_row in pieces.values() for piece in of_row]
    execution, both = _length(working), _length([*working, *starts])
    latency = window[1] - window[0]
    # What was preempted takes its time of the chain; it is run again, and nobody pays for it.
    kept = [row for row in ran if not hop_chains.is_preempted(row)]
    billed = [row["billed"] for row in kept]
    self_time = sum(_length(pieces[id(row)]) for row in kept)
    most = sum(_length(_without(runs[id(row)], known.get(id(row), []))) for row in kept)
    return ChainParts(
        invocation=name,
        latency=latency,
        startup=both - execution,
        communication=latency - both,
        execution=execution,
        startup_overlapping=_length(starts),
        execution_overlapping=_length(runs.values()),
        self_time=self_time,
        guessed=most - self_time,
        executed=sum(end - start for start, end in (runs[id(row)] for row in kept)),
        billed=None if None in billed else sum(billed),
        invocations=len(kept),
        started=sum(row["initialization"] is not None for row in ran),
    )


def _window(chain: Chain, kind: str) -> Interval:
    root = chain.root
    begin = root["scheduled"] if root["scheduled"] is not None else root["sent"]
    if kind == "asynchronous":
        ends = [it["ended"] for it in (root, *chain.hops) if it["ended"] is not None]
    elif kind == "client":
        ends = [it["received"] for it in (root, *chain.hops) if it["received"] is not None]
    else:
        ends = [root["received"]]
    if begin is None or not ends or None in ends:
        raise _WithheldError(NO_END)
    return int(begin), int(max(ends))


def _waited(row: Row) -> int:
    return (row["queued"] or 0) + (row["initialization"] or 0)


def _waits(
    ran: Sequence[Row],
    runs: Mapping[int, Interval],
    calls: Mapping[str, Call],
    waited_for: Callable[[Row], bool | None],
    is_marked: bool,
) -> tuple[dict[int, list[Interval]], dict[int, list[Interval]]]:
    """When each caller waited for those that it invoked, by the identity of its row.

    All of it, and what is no guess, as it is not where the platform marks events.
    """
    attempts: dict[str, list[Row]] = {}
    for row in ran:
        attempts.setdefault(row["invocation"], []).append(row)
    waits: dict[int, list[Interval]] = {}
    known: dict[int, list[Interval]] = {}
    for row in ran:
        is_waited_for = waited_for(row)
        if row["parent"] not in attempts or is_waited_for is False:
            continue
        there = (row["started"] - _waited(row), row["ended"])
        call = calls.get(row["invocation"])
        if call is not None:
            given = (call.call["start"], call.call["end"])
            if is_waited_for:
                _within(there, given)
            there = given
        caller = _caller(attempts[row["parent"]], there[0])
        start, end = runs[id(caller)]
        if is_waited_for is None and there[1] > end + SLACK_NS:
            # It outlasts who invoked it, who did not wait.
            continue
        if hop_chains.is_preempted(caller):
            # What it had called goes on without it.
            there = (min(there[0], end), min(there[1], end))
        waited = _within(there, (start, end))
        waits.setdefault(id(caller), []).append(waited)
        if is_waited_for or is_marked or call is not None:
            known.setdefault(id(caller), []).append(waited)
    return waits, known


def _caller(attempts: Sequence[Row], moment: int) -> Row:
    """The attempt that was running when it called: the last one that had begun."""
    begun = [it for it in attempts if it["started"] <= moment + SLACK_NS]
    return max(begun or attempts, key=lambda it: int(it["started"]))


def _within(interval: Interval, outer: Interval) -> Interval:
    """An interval cut to one that it has to lie within; the stamps of one machine may be off a bit.

    Raises:
        _WithheldError: it is too far outside, or ends before it begins.
    """
    start, end = interval
    low, high = outer
    if start < low - SLACK_NS or end > high + SLACK_NS or end < start:
        raise _WithheldError(CLOCKS_DIFFER)
    start = min(max(start, low), high)
    return start, max(start, min(end, high))


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same times as intervals that do not overlap, in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _length(intervals: Iterable[Interval]) -> int:
    """The time that intervals cover together."""
    return sum(end - start for start, end in _merged(intervals))


def _without(interval: Interval, others: Iterable[Interval]) -> list[Interval]:
    """What others leave of an interval."""
    left: list[Interval] = []
    begin, end = interval
    for start, stop in _merged(others):
        if start > begin:
            left.append((begin, min(start, end)))
        begin = max(begin, stop)
    if begin < end:
        left.append((begin, end))
    return left
