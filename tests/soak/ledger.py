"""What clients were told, and whether the platform's log agrees with it."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Row = Mapping[str, Any]

# As many failures of its function end an event, as on Lambda.
_MAX_FAILURES = 3
# Unix times of two moments are read one after the other.
_STAMP_TOLERANCE_NS = 1_000_000
_FUNCTION_FAILED = ("function_error", "timeout")


@dataclass
class Sent:
    """One request, as its client knows it."""

    function: str
    is_event: bool
    # Increases whenever committed rows were taken away (a torn journal).
    era: int
    status: int | None = None
    outcome: str | None = None
    request_id: str | None = None
    # Its function was, or may have been, deleted after it was sent.
    is_orphan: bool = False


@dataclass
class Ledger:
    """All requests by the name of their invocation; filled by several threads."""

    sent: dict[str, Sent] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    era: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, name: str, function: str, is_event: bool, era: int) -> Sent:
        entry = Sent(function, is_event, era)
        with self._lock:
            self.sent[name] = entry
        return entry

    def orphan(self, function: str) -> None:
        """Note that a function is about to be deleted: its events need not run."""
        with self._lock:
            for entry in self.sent.values():
                if entry.function == function:
                    entry.is_orphan = True

    def problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)

    def promised(self) -> set[str]:
        """Events that were accepted and must run."""
        with self._lock:
            return {
                name
                for name, entry in self.sent.items()
                if entry.is_event
                and entry.status == 202
                and not entry.is_orphan
                and entry.era == self.era
            }


def is_done(rows: Iterable[Row]) -> bool:
    """Whether an event with these rows is done: it succeeded, or failed for good."""
    outcomes = [row["outcome"] for row in rows]
    failures = sum(outcome in _FUNCTION_FAILED for outcome in outcomes)
    return "ok" in outcomes or failures >= _MAX_FAILURES


def by_invocation(rows: Iterable[Row]) -> dict[str, list[Row]]:
    result: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        result[row["invocation"]].append(row)
    return result


def disagreements(ledger: Ledger, rows: list[Row], instances: list[Row]) -> list[str]:
    """What is wrong in the log, a sentence each."""
    result = list(ledger.problems)
    pairs = Counter((row["invocation"], row["attempt"]) for row in rows)
    doubled = [pair for pair, count in pairs.items() if count > 1]
    if doubled:
        result.append(f"(invocation, attempt) twice: {doubled[:5]}")
    logged = by_invocation(rows)
    for name, of_name in logged.items():
        entry = ledger.sent.get(name)
        parents = {row["parent"] for row in of_name}
        if entry is None and not (len(parents) == 1 and parents <= ledger.sent.keys()):
            result.append(f"{name} is in the log, and nobody sent it: {of_name}")
    for name, entry in ledger.sent.items():
        check = _event if entry.is_event else _request
        result += [
            f"{name} of {entry.function} {text}: {entry}, rows {_brief(logged.get(name, []))}"
            for text in check(entry, logged.get(name, []), entry.era == ledger.era)
        ]
    result += _executions(rows, {row["instance"] for row in instances})
    return result


def _request(entry: Sent, rows: list[Row], is_kept: bool) -> Iterable[str]:
    if len(rows) > 1:
        yield "has several rows"
    if entry.outcome is None:
        if entry.status == 404 and rows:
            yield "was refused and has a row"
        return
    if not rows:
        if is_kept:
            yield "was answered and has no row"
        return
    for key in ("outcome", "request_id"):
        if rows[0][key] != getattr(entry, key):
            yield f"was answered with another {key}"


def _event(entry: Sent, rows: list[Row], is_kept: bool) -> Iterable[str]:
    if sorted(row["attempt"] for row in rows) != list(range(1, len(rows) + 1)):
        yield "has attempts that are not numbered from 1"
    outcomes = [row["outcome"] for row in sorted(rows, key=lambda row: int(row["attempt"]))]
    if "ok" in outcomes[:-1]:
        yield "went on after it had succeeded"
    if sum(outcome in _FUNCTION_FAILED for outcome in outcomes) > _MAX_FAILURES:
        yield "was tried again after it had failed for good"
    if "throttled" in outcomes:
        yield "has a row of waiting for room"
    if entry.status == 202 and is_kept and not entry.is_orphan and not is_done(rows):
        yield "was accepted and did not run"


def _executions(rows: list[Row], instances: set[str]) -> Iterable[str]:
    served: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        for key in ("queued", "initialization", "execution", "billed"):
            if (row[key] or 0) < 0:
                yield f"{row['invocation']} has a negative {key}: {row[key]}"
        if row["instance"] is not None and row["started"] is not None:
            served[row["instance"]].append(row)
    unknown = sorted(served.keys() - instances)
    if unknown:
        yield f"instances that served and have no row: {unknown[:5]}"
    for instance, executions in served.items():
        executions.sort(key=lambda row: int(row["started"]))
        for row, following in pairwise(executions):
            if following["started"] < row["ended"] - _STAMP_TOLERANCE_NS:
                yield (
                    f"{instance} served {row['invocation']} and {following['invocation']} at once"
                )


def _brief(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["attempt"], row["outcome"], row["error"]) for row in rows]
