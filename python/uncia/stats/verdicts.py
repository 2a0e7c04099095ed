"""Verdicts: what conditions (`uncia.stats.gates`) find in a comparison.

The interval of a change is compared with the bound: a condition is *violated* where all of the
interval is beyond it, *holds* where none is, and is *not judged* where the bound lies within, with
the number of repeats that would decide. It is not judged either where the interval cannot be
trusted: one run a side (how runs differ is unknown), too few runs or rows, or a machine that was
noisier on the side that looks worse. One run beside enough of the baseline is judged by how those
differ. Counts (``failed>0``) have no interval by their nature; their
value decides. What cannot be computed is not judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import partial
from typing import Final, Literal

from uncia.stats import comparison, repeats, shares
from uncia.stats.bootstrap import interval
from uncia.stats.comparison import SHARES, WHOLE_RUN, Change
from uncia.stats.gates import Gate, unit_of
from uncia.stats.quantiles import LEVEL
from uncia.stats.repeats import Estimate
from uncia.text import plural

Verdict = Literal["holds", "violated", "not judged"]
Side = Literal["baseline", "candidate"]

MIN_REPEATS: Final = 4
"""Fewest runs a side that are judged. With three, Student's interval reaches 4.3 standard errors to
either side, so that hardly anything could be judged; with four it is 3.2, with five 2.8."""


@dataclass(frozen=True)
class Noise:
    """How disturbed the runs of both sides were.

    Attributes:
        sentence: what disturbed them, with figures; empty if nothing did.
        worse: the side that was disturbed more, if that matters.
    """

    sentence: str = ""
    worse: Side | None = None


@dataclass(frozen=True)
class Finding:
    """The verdict of a gate on one metric.

    Attributes:
        gate: the condition.
        run: the candidate's name.
        subject: what was judged, such as ``warm.p50``.
        verdict: of the three.
        reason: why, with the figures.
        change: what was judged; None if there is nothing.
        value: what was compared with the bound, in the bound's unit.
        interval: its 95 % interval; None if it has none.
        repeats: how many repeats would probably decide, if it is not judged and that is known.
        missing: nothing could be computed, so that no leniency lets it pass.
    """

    gate: Gate
    run: str
    subject: str
    verdict: Verdict
    reason: str
    change: Change | None = None
    value: float | None = None
    interval: tuple[float, float] | None = None
    repeats: int | None = None
    missing: bool = False


_QUIET: Final = Noise()


def judge(
    gates: Sequence[Gate],
    run: str,
    changes: Sequence[Change],
    experiments: Sequence[str],
    *,
    noise: Noise = _QUIET,
    rows_only: bool = False,
) -> list[Finding]:
    """Judge one candidate by all conditions.

    With m metrics judged together, one of them is beyond its bound by chance m times as often; so
    for a violation the interval has the level 1 - 5 %/m (Bonferroni). For all to hold, each must,
    which needs no correction.

    Args:
        gates: the conditions.
        run: the candidate's name, for the reasons.
        changes: all its changes.
        experiments: the baseline's experiments to which a gate without a name applies.
        noise: how disturbed the runs were.
        rows_only: judge single runs as well, by intervals over their rows.

    Returns:
        At least one finding for each gate: one without a metric to judge is not judged.
    """
    subjects = [(gate, _subjects(gate, changes, experiments)) for gate in gates]
    judgements = max(1, sum(len(judged) for _, judged in subjects))
    judge_change = partial(
        _judge_change, run, judgements=judgements, noise=noise, rows_only=rows_only
    )
    findings = []
    for gate, judged in subjects:
        findings += [judge_change(gate, change) for change in judged]
        if not judged:
            default = "the whole run" if gate.metric == "cost" else "any experiment"
            suffix = f" under {gate.tariff}" if gate.tariff else ""
            reason = f"there is no {gate.metric} of {gate.experiment or default}{suffix} to compare"
            findings.append(Finding(gate, run, gate.metric, "not judged", reason, missing=True))
    return findings


def _subjects(gate: Gate, changes: Sequence[Change], experiments: Sequence[str]) -> list[Change]:
    """The changes that a gate is meant for."""
    judged = [
        change for change in changes if change.metric == gate.metric and _applies(gate, change)
    ]
    if gate.experiment is None and gate.metric != "cost":
        judged = [change for change in judged if change.experiment in experiments]
    if gate.metric == "cost" and gate.tariff is None:
        # A tariff that can price neither run is ignored; one that can price only one is not.
        judged = [
            change
            for change in judged
            if change.baseline.value is not None or change.candidate.value is not None
        ]
    return judged


def _applies(gate: Gate, change: Change) -> bool:
    if gate.metric == "cost":
        if gate.tariff is not None and not fnmatchcase(change.tariff, gate.tariff):
            return False
        if gate.experiment is None:
            return change.experiment == WHOLE_RUN
    if gate.experiment is None:
        return True
    return change.experiment != WHOLE_RUN and fnmatchcase(change.experiment, gate.experiment)


@dataclass(frozen=True)
class _Measurement:
    """What is compared with a bound, in the bound's unit.

    Attributes:
        value: the change, difference or value.
        interval: at 95 %; None if it has none.
        strict: at the level of a violation, which is higher if several are judged together.
        estimate: from several runs; None of one run.
    """

    value: float
    interval: tuple[float, float] | None
    strict: tuple[float, float] | None
    estimate: Estimate | None = None


def _judge_change(
    run: str, gate: Gate, change: Change, *, judgements: int, noise: Noise, rows_only: bool
) -> Finding:
    subject = ".".join(part for part in (change.experiment, change.metric) if part)
    if change.tariff:
        subject += f":{change.tariff}"
    candidate, baseline = change.candidate, change.baseline
    if candidate.value is None or (baseline.value is None and gate.measure != "value"):
        # Of a change, the side that has no value says why.
        why = candidate.why or baseline.why
        reason = f"{subject} cannot be computed: {why}"
        return Finding(gate, run, subject, "not judged", reason, change, missing=True)
    measured = _measure(gate, change, 1 - (1 - LEVEL) / judgements)
    text = _describe(gate, change, measured)
    finding = partial(
        Finding, gate, run, subject, change=change, value=measured.value, interval=measured.interval
    )
    if gate.measure == "value" and gate.metric in SHARES:
        beyond = _is_beyond(gate, measured.value)
        return finding("violated" if beyond else "holds", f"{text}; a count decides by its value")
    sides = [candidate] if gate.measure == "value" else [baseline, candidate]
    for side in sides:
        if side.few:
            rows = f"{plural(side.rows, 'row')}{' a run' if side.runs else ''}"
            verb = "is" if side.rows == 1 else "are"
            reason = f"{text}; {rows} {verb} too few for a {gate.metric}, {side.needed} are needed"
            return finding("not judged", reason)
    runs = min(max(1, len(side.runs)) for side in sides)
    if _is_single(change):
        runs = len(baseline.runs)
    if not (rows_only and all(len(side.runs) < 2 for side in sides)):
        if runs < MIN_REPEATS:
            which = "one run" if runs == 1 else f"{runs} runs"
            reason = f"{text}; {which} a side cannot show how runs differ, {MIN_REPEATS} can"
            return finding("not judged", reason, repeats=MIN_REPEATS)
        if measured.interval is None:
            return finding("not judged", f"{text}; a value of 0 in a run has no ratio")
    if measured.interval is None or measured.strict is None:
        beyond = _is_beyond(gate, measured.value)
        return finding("violated" if beyond else "holds", f"{text}; it has no interval over rows")
    if _is_beyond(gate, _near(gate, measured.strict)):
        if _favours(noise, gate, violation=True):
            return finding("not judged", f"{text}; too noisy: {noise.sentence}")
        return finding("violated", text)
    if not _is_beyond(gate, _far(gate, measured.interval)):
        if _favours(noise, gate, violation=False):
            return finding("not judged", f"{text}; too noisy: {noise.sentence}")
        return finding("holds", text)
    return _undecided(finding, gate, text, measured, judgements, noise)


def _is_single(change: Change) -> bool:
    """Whether one run stands beside several, which show how runs differ."""
    return len(change.candidate.runs) == 1 and len(change.baseline.runs) >= MIN_REPEATS


def _undecided(
    finding: partial[Finding],
    gate: Gate,
    text: str,
    measured: _Measurement,
    judgements: int,
    noise: Noise,
) -> Finding:
    """The interval allows both; say why, and what would decide."""
    assert measured.interval is not None
    reason = f"{text}; the interval includes the bound"
    if _is_beyond(gate, _near(gate, measured.interval)):
        reason = f"{text}; of {judgements} metrics judged together, one may be so by chance"
    if rows := _too_few_for_share(gate, finding.keywords["change"]):
        # Not noise is the reason: with no failure at all the interval would include the bound.
        verb = "is" if rows == 1 else "are"
        reason = f"{text}; {plural(rows, 'row')} a side {verb} too few to exclude {gate.bound:g} %"
    elif noise.sentence:
        reason += f"; noisy: {noise.sentence}"
    if measured.estimate is None or measured.estimate.is_single:
        return finding("not judged", reason)
    level = 1 - (1 - LEVEL) / judgements
    needed = measured.estimate.repeats_to_decide(_bound(gate, measured.estimate), level)
    if needed is None:
        return finding("not judged", f"{reason}; too near it for any number of repeats")
    return finding("not judged", f"{reason}; about {needed} repeats would decide", repeats=needed)


def _too_few_for_share(gate: Gate, change: Change) -> int:
    """The rows of the side that has fewer, if a share of 0 in both could not be judged; else 0."""
    before, after = change.baseline.share, change.candidate.share
    if gate.metric not in SHARES or gate.measure != "change" or before is None or after is None:
        return 0
    clean = shares.difference(before._replace(hits=0), after._replace(hits=0))
    in_points = 100 * clean[0], 100 * clean[1]
    return min(before.rows, after.rows) if _is_beyond(gate, _far(gate, in_points)) else 0


def _bound(gate: Gate, estimate: Estimate) -> float:
    """The bound on the scale of the estimate's interval."""
    if gate.measure == "value":
        return gate.bound
    signed = gate.bound if gate.rise else -gate.bound
    return 1 + signed / 100 if estimate.scale == "ratio" else signed


def _is_beyond(gate: Gate, value: float) -> bool:
    if gate.rise:
        return value > gate.bound
    return value < (gate.bound if gate.measure == "value" else -gate.bound)


def _near(gate: Gate, interval: tuple[float, float]) -> float:
    """The end of an interval that must be beyond the bound for a violation."""
    return interval[0] if gate.rise else interval[1]


def _far(gate: Gate, interval: tuple[float, float]) -> float:
    """The end of an interval that must not be beyond the bound for it to hold."""
    return interval[1] if gate.rise else interval[0]


def _favours(noise: Noise, gate: Gate, *, violation: bool) -> bool:
    """Whether noise alone may have led to a verdict: it makes the side slower that has more of it.

    A limit on the candidate's own value is only ever violated by noise, never met by it.
    """
    if gate.measure == "value":
        return bool(noise.sentence) and violation == gate.rise
    return noise.worse == ("candidate" if violation == gate.rise else "baseline")


def _measure(gate: Gate, change: Change, level: Fraction) -> _Measurement:
    """Bring a change into the unit of the gate's bound."""
    candidate, baseline = change.candidate, change.baseline
    assert candidate.value is not None
    value = candidate.value
    if gate.measure == "value":
        if gate.metric in SHARES:
            return _Measurement(float(candidate.count or 0), None, None)
        estimate = (
            repeats.level(baseline, candidate)
            if _is_single(change)
            else repeats.estimate(None, candidate, "ratio", paired=change.paired)
        )
        draws = candidate.draws
    elif gate.measure == "difference":
        assert baseline.value is not None
        value -= baseline.value
        estimate = repeats.estimate(baseline, candidate, "unit", paired=change.paired)
        draws = None
        if candidate.draws is not None and baseline.draws is not None:
            draws = candidate.draws - baseline.draws
    else:
        assert change.change is not None, "both values are there"
        estimate = repeats.estimate(baseline, candidate, change.kind, paired=change.paired)
        scale = _to_percent if change.kind == "ratio" else _same
        value = scale(change.change)
        if estimate is None and change.repeats > 1:
            return _Measurement(value, None, None)
        intervals = [
            comparison.row_interval(baseline, candidate, wanted)
            if estimate is None
            else estimate.interval(wanted)
            for wanted in (LEVEL, level)
        ]
        spread, strict = (
            None if bounds is None else (scale(bounds[0]), scale(bounds[1])) for bounds in intervals
        )
        return _Measurement(value, spread, strict, estimate)
    if estimate is not None:
        return _Measurement(value, estimate.interval(), estimate.interval(level), estimate)
    if draws is None:
        return _Measurement(value, None, None)
    return _Measurement(value, interval(draws), interval(draws, level))


def _to_percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def _same(points: float) -> float:
    return points


def _describe(gate: Gate, change: Change, measured: _Measurement) -> str:
    """Describe a change in words: from, to, by how much, and the interval."""
    unit = unit_of(change.metric)
    text = f"{_number(change.baseline.value)} → {_number(change.candidate.value)}{unit}"
    if gate.measure == "value" and gate.metric in SHARES:
        text += f" ({change.candidate.count} requests)"
    elif gate.measure == "change":
        text += f" ({measured.value:+z.1f} {'points' if change.kind == 'points' else '%'})"
    elif gate.measure == "difference":
        text += f" ({_number(measured.value, '+')}{unit})"
    if measured.interval is not None:
        sign = "" if gate.measure == "value" else "+"
        low, high = (_number(bound, sign, digits=3) for bound in measured.interval)
        text += f", 95 % interval {low} to {high}"
    return text


def _number(value: float | None, sign: str = "", digits: int = 4) -> str:
    """Write so many digits, or all before the point: no exponent of ten."""
    if value is None:
        return "–"
    return f"{value:{sign}.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:{sign}z.{digits}g}"
