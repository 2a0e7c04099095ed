"""What a summary needs of the rows of an experiment, kept while they are read some at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from uncia.stats import columns
from uncia.stats.columns import Column, pc
from uncia.stats.quantiles import Ints

COLUMNS: Final = (
    *("run", "invocation", "parent", "open_loop", "burst", "function", "platform", "instance"),
    *("outcome", "start", "scheduled", "sent", "received"),
)
"""The columns that it reads."""

_WORDS: Final = ("outcome", "function", "platform", "start")

_STREAM: Final = "-(?P<stream>[0-9]+)-[0-9]+$"
"""The end of an invocation's id: the numbers of its stream and of the request. Each stream numbers
its bursts from 0."""

_NS_PER_S: Final = 1e9


@dataclass
class Times:
    """How many times there are, and the first and last of them, ns."""

    count: int = 0
    first: int = 0
    last: int = 0

    def add(self, values: Column) -> None:
        """Add times; those that are null were not measured."""
        measured = columns.measured(values)
        if measured.size:
            first, last = int(measured.min()), int(measured.max())
            self.first = min(self.first, first) if self.count else first
            self.last = max(self.last, last) if self.count else last
            self.count += measured.size

    def rate(self) -> float | None:
        """So many a second: (n - 1) / (last - first)."""
        if self.count < 2 or self.last == self.first:
            return None
        return float(self.count - 1) * _NS_PER_S / (self.last - self.first)


class Sample:
    """Values that are added some at a time; those that are all the same take no room."""

    def __init__(self) -> None:
        self._parts: list[Ints] = []
        self.size = 0

    def add(self, values: Column) -> None:
        """Add values; those that are null were not measured."""
        part = columns.measured(values)
        if part.size:
            self._parts.append(part if part.min() < part.max() else _alike(part[0], part.size))
            self.size += part.size

    def ordered(self) -> Ints:
        """All values, ascending, for reading alone; the sample is empty then."""
        parts, self._parts = self._parts, []
        if parts and all(it.strides == (0,) and it[0] == parts[0][0] for it in parts):
            return _alike(parts[0][0], self.size)
        values = np.concatenate([np.empty(0, np.int64), *parts])
        parts.clear()
        values.sort()
        return values


def _alike(value: np.int64, size: int) -> Ints:
    """So many values that are the same, in the room of one."""
    return np.broadcast_to(value, (size,))


class Tally:
    """What a summary needs of the invocations of one experiment.

    Attributes:
        rows: how many there are. Attempts that were preempted are no invocations of their own, and
            count as ``preempted`` alone.
        hops: how many of them no client sent.
        preempted: how many attempts were.
        sent: how many have a time of sending.
        unsent: how many were scheduled, and have none.
        received: how many have a time of an answer.
        untimed: how many have no time of a client at all, as those of a trace.
        absurd: how many were answered before they were due, or more than a year later.
        unknown: how many requests a function answered without anybody saying how it started.
        unknown_hops: the same of hops.
        words: how often each word of a column occurs, most frequent first.
        instances: how many there are.
        latency: received - scheduled of rows with outcome ok, ascending, ns.
        answered: the same of all rows.
        lag: sent - scheduled, ascending, ns.
        scheduled: when requests were to be sent.
        answers: when those with outcome ok were answered.
        bursts: of each row of a burst its run, stream, burst, whether it is ok, and latency.
    """

    def __init__(self, parts: Iterable[pa.Table]) -> None:
        """Take the rows in parts; a column that they lack is null."""
        self.rows = self.hops = self.preempted = self.sent = self.received = 0
        self.unknown = self.unknown_hops = 0
        self.unsent = self.untimed = self.absurd = 0
        self.scheduled, self.answers = Times(), Times()
        counters = {name: Counter[str]() for name in _WORDS}
        instances: set[str] = set()
        latency, others, lag = Sample(), Sample(), Sample()
        bursts = [_bursts(pa.table({}))]
        for rows in parts:
            instances.update(columns.words(rows, "instance").drop_null().unique().to_pylist())
            is_preempted = columns.is_preempted(rows)
            self.preempted += int(pc.sum(is_preempted).as_py() or 0)
            rows = rows.filter(pc.invert(is_preempted))
            is_ok = columns.is_word(rows, "outcome", "ok")
            ok, rest = rows.filter(is_ok), rows.filter(pc.invert(is_ok))
            self.rows += rows.num_rows
            is_hop = columns.is_hop(rows)
            self.hops += int(pc.sum(is_hop).as_py() or 0)
            is_unknown = _is_unknown(rows)
            self.unknown += int(pc.sum(pc.and_not(is_unknown, is_hop)).as_py() or 0)
            self.unknown_hops += int(pc.sum(pc.and_(is_unknown, is_hop)).as_py() or 0)
            self.sent += _known(rows, "sent")
            self.received += _known(rows, "received")
            self._count_times(rows, is_hop)
            for name, counter in counters.items():
                counter.update(columns.count_words(rows, name))
            self.scheduled.add(columns.integers(rows, "scheduled"))
            self.answers.add(columns.integers(ok, "received"))
            latency.add(columns.latency(ok))
            others.add(columns.latency(rest))
            lag.add(columns.difference(rows, "sent", "scheduled"))
            bursts.append(_bursts(rows))
        self.words = {
            name: dict(sorted(counter.items(), key=lambda pair: (-pair[1], pair[0])))
            for name, counter in counters.items()
        }
        self.instances = len(instances)
        self.latency, self.lag = latency.ordered(), lag.ordered()
        self.answered = self.latency
        if others.size:
            self.answered = np.sort(np.concatenate([self.latency, others.ordered()]))
        self.bursts = pa.concat_tables(bursts)

    def _count_times(self, rows: pa.Table, is_hop: Column) -> None:
        """Count the rows whose times of a client are missing or absurd."""
        scheduled, sent, received = (
            pc.is_valid(columns.integers(rows, name)) for name in ("scheduled", "sent", "received")
        )
        timed = pc.or_(pc.or_(scheduled, sent), pc.or_(received, is_hop))
        self.unsent += int(pc.sum(pc.and_not(scheduled, sent)).as_py() or 0)
        self.untimed += int(pc.sum(pc.invert(timed)).as_py() or 0)
        self.absurd += int(pc.sum(columns.is_absurd(rows)).as_py() or 0)


def _is_unknown(rows: pa.Table) -> Column:
    """Whether each row was answered by a function, and nobody says how that started.

    What no client caused is of a trace, some of which name cold starts alone: theirs are known.
    """
    is_caused = pc.or_(pc.is_valid(columns.integers(rows, "sent")), columns.is_hop(rows))
    is_unknown = pc.and_(columns.is_answer(rows), pc.is_null(columns.words(rows, "start")))
    return pc.and_(is_caused, is_unknown)


def _known(rows: pa.Table, name: str) -> int:
    """The number of rows that have a value in the column."""
    values = columns.integers(rows, name)
    return int(len(values) - values.null_count)


def _bursts(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.is_valid(columns.integers(rows, "burst"))) if rows.num_rows else rows
    stream = pc.extract_regex(columns.words(rows, "invocation"), pattern=_STREAM)
    return pa.table(
        {
            "run": pc.fill_null(columns.words(rows, "run"), ""),
            "stream": pc.fill_null(pc.struct_field(stream, "stream"), ""),
            "burst": columns.integers(rows, "burst"),
            "ok": columns.is_word(rows, "outcome", "ok"),
            "latency": columns.latency(rows),
        }
    )
