"""The unit of a profile's times, inferred from the file.

Files name no unit, and the published ones use two: milliseconds and nanoseconds. Units differ by
factors of 1,000, so rough bounds distinguish them. For each run and unit:

* ``t0``, in ns: the probe began before the first gap, and not longer before than it ran;
* ``duration``, in s from request to answer: the events lie within it, and if there are many, they
  do not all lie in a small part of it;
* loops: between the gaps, one turn of the loop takes between 5 ns and 100 us;
* the algorithm: it notes jumps of 0.5 ms and more; and since a period is 1 s at most, throttles
  come more often than every 5 s.

A unit must pass all of them, in every run. If none does, or several do, it is an error. Gaps that
are longer than the time between their ends have another unit than the times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, get_args

from uncia.bandwidth.profiles.raw import NS, RawRun, Unit
from uncia.errors import UnciaError

_SECOND: Final = 1e9
# The caller's clock and the probe's differ; only factors of 1,000 matter here.
_SLACK: Final = 1.1
_SLACK_NS: Final = 5e7
_LONGEST_RUN_NS: Final = 3600e9  # when no duration says so
_LOOP_NS: Final = (5.0, 100e3)
_MIN_GAP_NS: Final = 0.45e6
_LONGEST_INTERVAL_NS: Final = 5e9
_MIN_EVENTS: Final = 20  # events whose spread is meaningful
_SPREAD: Final = 0.05

_HINT: Final = "Say what the times are in: --unit ns, us, ms or s."

# Whether a piece of evidence fits a run whose times are multiplied by a factor; None: no evidence.
_Evidence = Callable[[RawRun, float], bool | None]


def decide(
    path: Path, runs: Sequence[RawRun], stated: Unit | None
) -> tuple[Unit | None, list[str]]:
    """Decide on the unit of a file's times, with notes on how it was found.

    Args:
        path: named in errors.
        runs: those that succeeded.
        given: the unit that the user names; it is used, with a note if the evidence contradicts it.

    Returns:
        The unit, None if no run has an event; and notes.

    Raises:
        UnciaError: no unit fits a run, runs are in different units, several units fit, or times
            and gaps are in different ones.
    """
    watched = [run for run in runs if run.events]
    if not watched:
        return stated, []
    for run in watched:
        if (pair := _crossed(run)) is not None:
            raise UnciaError(
                f"{path}: run {run.index}: its gaps are some {pair.times:,} times longer than what"
                f" lies between them: times and gaps are in different units, such as"
                f" {pair.example}",
                "Write both in the same unit.",
            )
    if stated is not None:
        against = [
            f"run {run.index}: {', '.join(names)}"
            for run in watched
            if (names := _against(run, stated))
        ]
        notes = [f"the times are in {stated}, as was said"]
        if against:
            notes.append(
                f"{len(against)} runs speak against {stated}, the first of them {against[0]}"
            )
        return stated, notes
    fitting: set[Unit] = set(NS)
    for run in watched:
        fits = {unit for unit in NS if not _against(run, unit)}
        if not fits:
            raise UnciaError(
                f"{path}: run {run.index} contradicts itself: {_contradiction(run)}", hint=_HINT
            )
        if not fitting & fits:
            raise UnciaError(
                f"{path}: its runs are in different units: the times of run {run.index} look like "
                f"{_either(fits)}, those of the runs before it like {_either(fitting)}",
                hint="Split the file, or correct it.",
            )
        fitting &= fits
    if len(fitting) > 1:
        raise UnciaError(
            f"{path}: its times may be in {_either(fitting)}: it has no evidence of which",
            hint=_HINT,
        )
    unit = fitting.pop()
    return unit, [f"the times are in {unit}: {_grounds(watched[0])}"]


@dataclass(frozen=True)
class _Pair:
    """A factor between the units of times and gaps, and an example of two such units."""

    times: int
    example: str


_PAIRS: Final = (
    _Pair(10**3, "ms and us"),
    _Pair(10**6, "ms and ns"),
    _Pair(10**9, "s and ns"),
)


def _crossed(run: RawRun) -> _Pair | None:
    """Find units in which gaps fit between their ends, if they do not in that of the times."""
    inner = math.fsum(gap for _, gap in run.events[1:])
    between = run.events[-1][0] - run.events[0][0]
    if between <= 0 or inner <= between * min(pair.times for pair in _PAIRS) / 100:
        return None
    return next((pair for pair in _PAIRS if inner <= between * pair.times), None)


def _by_t0(run: RawRun, factor: float) -> bool | None:
    if run.t0 is None:
        return None
    time, gap = run.events[0]
    begin = (time - gap) * factor
    limit = _LONGEST_RUN_NS if run.duration_s is None else _max_ns(run.duration_s)
    # Rounding of the times may put a gap a little before t0.
    slack = _SLACK_NS / 10
    return any(-slack <= begin - t0 <= limit for t0 in (run.t0, run.t0 * factor))


def _by_duration(run: RawRun, factor: float) -> bool | None:
    if not run.duration_s:
        return None
    span = _span(run) * factor
    if span > _max_ns(run.duration_s):
        return False
    return len(run.events) < _MIN_EVENTS or span >= _SPREAD * run.duration_s * _SECOND


def _by_loops(run: RawRun, factor: float) -> bool | None:
    if run.iterations is None or len(run.events) < _MIN_EVENTS:
        return None
    busy = _span(run) - math.fsum(gap for _, gap in run.events)
    return _LOOP_NS[0] <= busy * factor / run.iterations <= _LOOP_NS[1]


def _by_threshold(run: RawRun, factor: float) -> bool | None:
    # The median, because a probe may have had a lower threshold.
    return median(gap for _, gap in run.events) * factor >= _MIN_GAP_NS


def _by_intervals(run: RawRun, factor: float) -> bool | None:
    if len(run.events) < _MIN_EVENTS:
        return None
    return _span(run) * factor / len(run.events) <= _LONGEST_INTERVAL_NS


_EVIDENCE: Final[dict[str, _Evidence]] = {
    "its t0": _by_t0,
    "its duration": _by_duration,
    "its loop count": _by_loops,
    "the size of its gaps": _by_threshold,
    "the distance of its events": _by_intervals,
}


def _against(run: RawRun, unit: Unit) -> list[str]:
    """List the evidence that contradicts a unit."""
    return [name for name, test in _EVIDENCE.items() if test(run, NS[unit]) is False]


def _grounds(run: RawRun) -> str:
    """Describe the evidence that a run has."""
    names = [name for name, test in _EVIDENCE.items() if test(run, 1) is not None]
    return f"{', '.join(names)} {'fits' if len(names) == 1 else 'fit'} no other unit"


def _contradiction(run: RawRun) -> str:
    """Describe which units each piece of evidence fits."""
    findings = []
    for name, test in _EVIDENCE.items():
        fits = {unit for unit in NS if test(run, NS[unit]) is not False}
        if not fits:
            findings.append(f"{name} fits no unit")
        elif len(fits) < len(NS):
            findings.append(f"{name} fits {_either(fits)}")
    return ", ".join(findings)


def _either(units: set[Unit]) -> str:
    return " or ".join(unit for unit in get_args(Unit) if unit in units)


def _span(run: RawRun) -> float:
    """Return the time from the begin of the first gap to the end of the last."""
    time, gap = run.events[0]
    return run.events[-1][0] - (time - gap)


def _max_ns(duration_s: float) -> float:
    return duration_s * _SECOND * _SLACK + _SLACK_NS
