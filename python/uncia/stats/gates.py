"""Gates: conditions on a comparison that make `uncia compare` fail.

    [experiment.]metric[:tariff] > [+]number unit        a rise, or a value, that is too high
    [experiment.]metric[:tariff] < [-]number unit        a drop, or a value, that is too low

* ``p99>10%``: p99 rises by more than 10 % over the baseline. ``p50<20%``: it drops by more.
* ``p99>50ms``: p99 of the candidate is above 50 ms, whatever the baseline.
* ``p99>+5ms``: p99 rises by more than 5 ms.
* ``failed>1%``, ``cold>5%``: the share rises by more than so many percentage points.
* ``failed>0``: more than 0 requests of the candidate failed.
* ``cost>5%``, ``cost:aws-lambda-x86>5%``: the cost of the whole run, under any or one tariff.
* ``warm.p99>10%``, ``pyaes-*.cost>5%``: one experiment, or those that match.

Verdicts. A gate is *violated* where the value is beyond the bound and the 95 % interval
excludes "no change" (for a limit on the value itself: excludes the limit). Where the value is
beyond the bound but the interval does not exclude that, it is *not supported* and passes, unless
the gate is strict. A metric that has no interval by its nature (``max``, counts) is decided by its
value. A quantile beyond the bound that rests on too few rows for an interval is *not judged*; a
gate that finds nothing else (one that names the experiment, for instance) fails, and a strict one
goes by the value. What cannot be computed is *unknown* and fails.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal

from uncia.errors import UnciaError
from uncia.stats.bootstrap import interval
from uncia.stats.comparison import (
    LATENCIES,
    METRICS,
    RATIOS,
    SHARES,
    WHOLE_RUN,
    Change,
    interval_of,
)

Verdict = Literal["within", "not supported", "not judged", "violated", "unknown"]
Measure = Literal["change", "difference", "value"]

_TIME_IN_MS: Final = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}

_UNITS: Final = {
    "cost": ("", "usd", "$"),
    **dict.fromkeys(SHARES, ("",)),
    **dict.fromkeys(RATIOS, ("", "x")),
}

_GRAMMAR: Final = re.compile(
    r"(?:(?P<experiment>[^<>:\s]+)\.)?(?P<metric>[a-z]+[0-9]*)(?::(?P<tariff>[^<>\s]+))?"
    r"\s*(?P<side>[<>])\s*(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>%|[a-zµ$]*)"
)
_HINT: Final = (
    "Write [EXPERIMENT.]METRIC[:TARIFF]>NUMBER UNIT, for example p99>10%, warm.p50>5ms,"
    " cost:aws-lambda-x86>5% or failed>0."
)


@dataclass(frozen=True)
class Gate:
    """A condition, read.

    Attributes:
        text: as it was written.
        experiment: a name or a pattern with ``*`` and ``?``; None for all.
        metric: one of `uncia.stats.comparison.METRICS`.
        tariff: for costs, an id or pattern; None for all.
        rise: whether too high is wrong; else too low.
        bound: above 0 or 0; percent, percentage points, ms, a ratio, USD per million, or rows.
        measure: what is held against it: the ``change`` in percent (or percentage points), the
            ``difference`` in the metric's unit, or the candidate's ``value``.
    """

    text: str
    experiment: str | None
    metric: str
    tariff: str | None
    rise: bool
    bound: float
    measure: Measure


@dataclass(frozen=True)
class Finding:
    """What a gate says of one metric."""

    gate: Gate
    run: str
    subject: str
    verdict: Verdict
    reason: str


def parse(text: str) -> Gate:
    """Read a gate.

    Raises:
        UnciaError: it does not follow the grammar; the message says where.
    """
    match = _GRAMMAR.fullmatch(text.strip())
    if match is None:
        raise UnciaError(f"{text!r} is not a gate", hint=_HINT)
    metric, unit = match["metric"], match["unit"]
    if metric not in METRICS:
        raise UnciaError(
            f"{text!r}: there is no metric {metric!r}",
            hint=f"The metrics are {', '.join(METRICS)}.",
        )
    if match["tariff"] is not None and metric != "cost":
        raise UnciaError(f"{text!r}: only cost has a tariff, not {metric}", hint=_HINT)
    rise = match["side"] == ">"
    if match["sign"] and match["sign"] != ("+" if rise else "-"):
        raise UnciaError(
            f"{text!r}: the sign and the side disagree; a rise is >+, a drop is <-",
            hint=_HINT,
        )
    measure: Measure = "value"
    bound = float(match["number"])
    if unit == "%":
        measure = "change"
    elif metric in LATENCIES or metric == "lag":
        if unit not in _TIME_IN_MS:
            raise UnciaError(
                f"{text!r}: {metric} is a time, so the bound needs a unit",
                hint=f"Write %, {', '.join(_TIME_IN_MS)}.",
            )
        bound *= _TIME_IN_MS[unit]
    elif unit not in _UNITS[metric]:
        raise UnciaError(f"{text!r}: {unit!r} is not a unit of {metric}", hint=_HINT)
    if metric in SHARES and unit == "" and match["sign"]:
        raise UnciaError(
            f"{text!r}: a rise of {metric} is told in %, as runs may differ in length", hint=_HINT
        )
    if match["sign"] and unit != "%":
        measure = "difference"
    return Gate(text.strip(), match["experiment"], metric, match["tariff"], rise, bound, measure)


def judge(
    gate: Gate,
    run: str,
    changes: Sequence[Change],
    experiments: Sequence[str],
    *,
    strict: bool = False,
) -> list[Finding]:
    """Hold one gate against one candidate.

    Args:
        gate: the condition.
        run: the candidate's name, for the reasons.
        changes: all its changes.
        experiments: the baseline's experiments that a gate without a name is meant for.
        strict: a value beyond the bound is a violation even without support.

    Returns:
        At least one finding: a gate that finds nothing to be held against is ``unknown``.
    """
    own = [found for found in changes if found.metric == gate.metric and _is_meant(gate, found)]
    if gate.experiment is None and gate.metric != "cost":
        own = [found for found in own if found.experiment in experiments]
    if gate.metric == "cost" and gate.tariff is None:
        # A tariff that can price neither run says nothing; one that could and now cannot does.
        own = [
            found
            for found in own
            if found.baseline.value is not None or found.candidate.value is not None
        ]
    if not own:
        what = gate.experiment or ("the whole run" if gate.metric == "cost" else "any experiment")
        of = f" under {gate.tariff}" if gate.tariff else ""
        reason = f"there is no {gate.metric} of {what}{of} to compare"
        return [Finding(gate, run, gate.metric, "unknown", reason)]
    findings = [_judge_one(gate, run, found, strict) for found in own]
    if all(finding.verdict == "not judged" for finding in findings):
        return [replace(finding, verdict="unknown") for finding in findings]
    return findings


def _is_meant(gate: Gate, found: Change) -> bool:
    if gate.metric == "cost":
        if gate.tariff is not None and not fnmatchcase(found.tariff, gate.tariff):
            return False
        if gate.experiment is None:
            return found.experiment == WHOLE_RUN
    if gate.experiment is None:
        return True
    return found.experiment != WHOLE_RUN and fnmatchcase(found.experiment, gate.experiment)


def _judge_one(gate: Gate, run: str, found: Change, strict: bool) -> Finding:
    subject = ".".join(part for part in (found.experiment, found.metric) if part)
    if found.tariff:
        subject += f":{found.tariff}"
    candidate, baseline = found.candidate.value, found.baseline.value
    if candidate is None or (baseline is None and gate.measure != "value"):
        why = found.candidate.why or found.baseline.why
        return Finding(gate, run, subject, "unknown", f"{subject} cannot be computed: {why}")
    moved, spread, none = _measure(gate, found, candidate, baseline or 0.0)
    beyond = moved > gate.bound if gate.rise else moved < -gate.bound
    if gate.measure == "value":
        beyond = moved > gate.bound if gate.rise else moved < gate.bound
    said = _say(gate, found, candidate, baseline, spread)
    if not beyond:
        return Finding(gate, run, subject, "within", said)
    few = found.candidate
    if gate.measure != "value" and found.baseline.few:
        few = found.baseline
    if few.few and not strict:
        need = f"{few.rows} rows are too few to tell it from chance, {few.needed} are needed"
        return Finding(gate, run, subject, "not judged", f"{said}; {need}")
    if spread is None:
        return Finding(gate, run, subject, "violated", f"{said}; decided by the value alone")
    supported = spread[0] > none if gate.rise else spread[1] < none
    if supported:
        return Finding(gate, run, subject, "violated", said)
    what = "the limit" if gate.measure == "value" else "no change"
    if strict:
        return Finding(
            gate, run, subject, "violated", f"{said}; strict, though the interval allows {what}"
        )
    return Finding(gate, run, subject, "not supported", f"{said}; the interval allows {what}")


def _measure(
    gate: Gate, found: Change, candidate: float, baseline: float
) -> tuple[float, tuple[float, float] | None, float]:
    """(what is held against the bound, its interval, the value that the interval must exclude)."""
    if gate.measure == "value":
        if gate.metric in SHARES:
            return float(found.candidate.count or 0), None, gate.bound
        return candidate, interval_of(found.candidate), gate.bound
    if gate.measure == "difference":
        spread = None
        if found.candidate.draws is not None and found.baseline.draws is not None:
            spread = interval(found.candidate.draws - found.baseline.draws)
        return candidate - baseline, spread, 0.0
    assert found.change is not None, "both values are there"
    if found.kind == "points":
        return found.change, found.interval, 0.0
    if found.interval is None:
        return 100 * (found.change - 1), None, 0.0
    low, high = found.interval
    return 100 * (found.change - 1), (100 * (low - 1), 100 * (high - 1)), 0.0


def _say(
    gate: Gate,
    found: Change,
    candidate: float,
    baseline: float | None,
    spread: tuple[float, float] | None,
) -> str:
    """The finding in words: from what to what, by how much, how sure."""
    unit = unit_of(found.metric)
    text = f"{_number(baseline)} → {_number(candidate)}{unit}"
    if gate.measure == "value" and gate.metric in SHARES:
        text += f" ({found.candidate.count} requests)"
    elif gate.measure == "change" and found.change is not None:
        moved = found.change if found.kind == "points" else 100 * (found.change - 1)
        text += f" ({moved:+.1f} {'points' if found.kind == 'points' else '%'})"
    elif gate.measure == "difference":
        text += f" ({candidate - (baseline or 0.0):+.4g}{unit})"
    if spread is not None:
        sign = "" if gate.measure == "value" else "+"
        text += f", 95 % interval {spread[0]:{sign}.3g} to {spread[1]:{sign}.3g}"
    return text


def unit_of(metric: str) -> str:
    """The unit of a metric's values, with the blank before it."""
    if metric in LATENCIES or metric == "lag":
        return " ms"
    if metric in SHARES:
        return " %"
    return " USD per million" if metric == "cost" else ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
