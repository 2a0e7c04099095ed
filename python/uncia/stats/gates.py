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
value. A quantile beyond the bound that rests on too few rows for an interval is *not judged*. A
gate of which all metrics are not judged (such as one that names the experiment) fails; a strict
gate goes by the value. A metric that cannot be computed is *unknown* and fails.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
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
from uncia.text import plural

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
    """A parsed condition.

    Attributes:
        text: as the user wrote it.
        experiment: a name or a pattern with ``*`` and ``?``; None for all.
        metric: one of `uncia.stats.comparison.METRICS`.
        tariff: for costs, an id or pattern; None for all.
        rise: whether a value that is too high violates it; else one that is too low.
        bound: from 0; percent, percentage points, ms, a ratio, USD per million, or rows.
        measure: compared with the bound: the ``change`` in percent (or percentage points), the
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
    """The verdict of a gate on one metric."""

    gate: Gate
    run: str
    subject: str
    verdict: Verdict
    reason: str


def parse(text: str) -> Gate:
    """Parse a gate.

    Raises:
        UnciaError: the text does not follow the grammar; the message says where.
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
            f"{text!r}: a rise of {metric} is written in %, as runs may differ in length",
            hint=_HINT,
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
    """Judge one candidate by one gate.

    Args:
        gate: the condition.
        run: the candidate's name, for the reasons.
        changes: all its changes.
        experiments: the baseline's experiments to which a gate without a name applies.
        strict: whether a value beyond the bound is a violation even without support.

    Returns:
        At least one finding: a gate without a metric to judge is ``unknown``.
    """
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
    if not judged:
        default = "the whole run" if gate.metric == "cost" else "any experiment"
        suffix = f" under {gate.tariff}" if gate.tariff else ""
        reason = f"there is no {gate.metric} of {gate.experiment or default}{suffix} to compare"
        return [Finding(gate, run, gate.metric, "unknown", reason)]
    findings = [_judge_change(gate, run, change, strict) for change in judged]
    if all(finding.verdict == "not judged" for finding in findings):
        return [replace(finding, verdict="unknown") for finding in findings]
    return findings


def _applies(gate: Gate, change: Change) -> bool:
    if gate.metric == "cost":
        if gate.tariff is not None and not fnmatchcase(change.tariff, gate.tariff):
            return False
        if gate.experiment is None:
            return change.experiment == WHOLE_RUN
    if gate.experiment is None:
        return True
    return change.experiment != WHOLE_RUN and fnmatchcase(change.experiment, gate.experiment)


def _judge_change(gate: Gate, run: str, change: Change, strict: bool) -> Finding:
    subject = ".".join(part for part in (change.experiment, change.metric) if part)
    if change.tariff:
        subject += f":{change.tariff}"
    finding = partial(Finding, gate, run, subject)
    candidate, baseline = change.candidate.value, change.baseline.value
    if candidate is None or (baseline is None and gate.measure != "value"):
        why = change.candidate.why or change.baseline.why
        return finding("unknown", f"{subject} cannot be computed: {why}")
    value, spread, reference = _measured(gate, change, candidate, baseline or 0.0)
    beyond = value > gate.bound if gate.rise else value < -gate.bound
    if gate.measure == "value":
        beyond = value > gate.bound if gate.rise else value < gate.bound
    text = _describe(gate, change, candidate, baseline, spread)
    if not beyond:
        return finding("within", text)
    limiting = change.candidate
    if gate.measure != "value" and change.baseline.few:
        limiting = change.baseline
    if limiting.few and not strict:
        rows, needed = limiting.rows, limiting.needed
        return finding(
            "not judged",
            f"{text}; {rows} rows are too few to tell it from chance, {needed} are needed",
        )
    if spread is None:
        return finding("violated", f"{text}; decided by the value alone")
    if spread[0] > reference if gate.rise else spread[1] < reference:
        return finding("violated", text)
    allowed = "the limit" if gate.measure == "value" else "no change"
    if strict:
        return finding("violated", f"{text}; strict, though the interval allows {allowed}")
    return finding("not supported", f"{text}; the interval allows {allowed}")


def _measured(
    gate: Gate, change: Change, candidate: float, baseline: float
) -> tuple[float, tuple[float, float] | None, float]:
    """(the value compared with the bound, its interval, the value it must exclude)."""
    if gate.measure == "value":
        if gate.metric in SHARES:
            return float(change.candidate.count or 0), None, gate.bound
        return candidate, interval_of(change.candidate), gate.bound
    if gate.measure == "difference":
        spread = None
        if change.candidate.draws is not None and change.baseline.draws is not None:
            spread = interval(change.candidate.draws - change.baseline.draws)
        return candidate - baseline, spread, 0.0
    assert change.change is not None, "both values are there"
    if change.kind == "points":
        return change.change, change.interval, 0.0
    if change.interval is None:
        return 100 * (change.change - 1), None, 0.0
    low, high = change.interval
    return 100 * (change.change - 1), (100 * (low - 1), 100 * (high - 1)), 0.0


def _describe(
    gate: Gate,
    change: Change,
    candidate: float,
    baseline: float | None,
    spread: tuple[float, float] | None,
) -> str:
    """Describe a change in words: from, to, by how much, and the interval."""
    unit = unit_of(change.metric)
    text = f"{_number(baseline)} → {_number(candidate)}{unit}"
    if gate.measure == "value" and gate.metric in SHARES and change.candidate.count is not None:
        text += f" ({plural(change.candidate.count, 'request')})"
    elif gate.measure == "change" and change.change is not None:
        difference = change.change if change.kind == "points" else 100 * (change.change - 1)
        text += f" ({difference:+.1f} {'points' if change.kind == 'points' else '%'})"
    elif gate.measure == "difference":
        text += f" ({candidate - (baseline or 0.0):+.4g}{unit})"
    if spread is not None:
        sign = "" if gate.measure == "value" else "+"
        text += f", 95 % interval {spread[0]:{sign}.3g} to {spread[1]:{sign}.3g}"
    return text


def unit_of(metric: str) -> str:
    """The unit of a metric's values, with a leading blank."""
    if metric in LATENCIES or metric == "lag":
        return " ms"
    if metric in SHARES:
        return " %"
    return " USD per million" if metric == "cost" else ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
