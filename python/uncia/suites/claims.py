"""Verdicts: what the rows say about a paper's claims, and ``claims.json``.

A claim is *reproduced* if the whole 95 % interval of its value is on the side that it claims,
*differs* if it is on the other, and *cannot be checked here* otherwise, with the reason: the
interval holds both sides, too few rows, something that the machine or the platform lacks, or rows
that are missing. Intervals are over the rows of one run; how runs differ they do not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

from uncia.stats import bootstrap, shares
from uncia.stats.comparison import Figure
from uncia.suites.expressions import Comparison, Term, Value

Verdict = Literal["reproduced", "differs", "cannot be checked here"]

REPRODUCED: Final = "reproduced"
DIFFERS: Final = "differs"
UNCHECKED: Final = "cannot be checked here"
VERDICTS: Final[tuple[Verdict, ...]] = (REPRODUCED, DIFFERS, UNCHECKED)

Figures = Callable[[Term], Figure]
"""The figure of a term."""


@dataclass(frozen=True)
class Measured:
    """The value of an expression.

    Attributes:
        value: in the expression's unit; None if it cannot be computed.
        interval: its 95 % interval; None if it has none.
        why: why there is no value, or no interval.
    """

    value: float | None
    interval: tuple[float, float] | None = None
    why: str = ""


@dataclass(frozen=True)
class Finding:
    """A claim with its verdict; the form of an element of ``claims.json``.

    Attributes:
        id: ``ENTRY.NAME``.
        entry: the entry's name.
        paper: what the paper says, and where.
        ours: what was measured, in the unit of the claim; None if nothing was.
        interval: its 95 % interval; None if it has none.
        verdict: of the three.
        why: the claim with figures, or why there is no verdict.
    """

    id: str
    entry: str
    paper: str
    ours: float | None
    interval: tuple[float, float] | None
    verdict: Verdict
    why: str


def measure(value: Value, figures: Figures) -> Measured:
    """Compute an expression and its interval.

    Args:
        value: the expression.
        figures: gives the figure of each of its terms.
    """
    items = [figures(term) for term in value.terms]
    for term, figure in zip(value.terms, items, strict=True):
        if figure.value is None:
            return Measured(None, why=f"{term}: {figure.why}")
    result = _point(value, items)
    if result is None:
        return Measured(None, why=f"{value.terms[1]} is 0, so there is no ratio")
    for term, figure in zip(value.terms, items, strict=True):
        if figure.few:
            rows = f"{figure.rows:,} rows are too few for {term}, {figure.needed:,} are needed"
            return Measured(result, why=rows)
    interval = _interval(value, items)
    if interval is None:
        whys = [f"{term}: {it.why}" for term, it in zip(value.terms, items, strict=True) if it.why]
        return Measured(result, why=[*whys, "it is a single observation, without an interval"][0])
    return Measured(result, interval)


def _point(value: Value, items: Sequence[Figure]) -> float | None:
    first = items[0].value
    assert first is not None, "callers check that there are values"
    if value.second is None:
        return first
    second = items[1].value
    assert second is not None, "callers check that there are values"
    if value.operator == "-":
        return first - second
    return first / second if second > 0 else None


def _interval(value: Value, items: Sequence[Figure]) -> tuple[float, float] | None:
    counted = [figure.share for figure in items]
    draws = [figure.draws for figure in items]
    if value.second is None:
        if counted[0] is not None:
            low, high = shares.wilson(counted[0])
            return 100 * low, 100 * high
        return None if draws[0] is None else bootstrap.interval(draws[0])
    if counted[0] is not None and counted[1] is not None:
        low, high = shares.difference(counted[1], counted[0])
        return 100 * low, 100 * high
    if draws[0] is None or draws[1] is None:
        return None
    if value.operator == "-":
        return bootstrap.interval(draws[0] - draws[1])
    return bootstrap.interval(bootstrap.ratio(draws[0], draws[1]))


def judge(comparison: Comparison, measured: Measured) -> tuple[Verdict, str]:
    """Judge a claim by the interval of its value.

    Returns:
        The verdict, and the claim with figures or the reason why there is none.
    """
    if measured.value is None:
        return UNCHECKED, measured.why
    unit = comparison.value.unit
    text = _with_unit(_number(measured.value), unit)
    if measured.interval is None:
        return UNCHECKED, f"{text}; {measured.why}"
    low, high = measured.interval
    text += f", 95 % interval {_number(low)} to {_number(high)}"
    side = "above" if comparison.above else "below"
    claimed = f"claimed to be {side} {_with_unit(_number(comparison.bound), unit)}"
    if low > comparison.bound or high < comparison.bound:
        is_above = low > comparison.bound
        return (REPRODUCED if is_above == comparison.above else DIFFERS), f"{text}; {claimed}"
    return UNCHECKED, f"{text}; {claimed}, and the interval holds both"


def as_json(findings: Sequence[Finding]) -> str:
    """The text of ``claims.json``."""
    items = []
    for finding in findings:
        item = asdict(finding)
        item["ours"] = _finite(finding.ours)
        if finding.interval is not None:
            # An end without bound is null: JSON has no infinity.
            item["interval"] = [_finite(bound) for bound in finding.interval]
        items.append(item)
    return json.dumps(items, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


_NONE: Final = "No claims were judged: claims.json says of each why."


def summarize(findings: Sequence[Finding]) -> str:
    """One sentence that counts the verdicts."""
    counts = {verdict: sum(item.verdict == verdict for item in findings) for verdict in VERDICTS}
    parts = [f"{count} {_COUNTED[verdict]}" for verdict, count in counts.items() if count]
    claims = "1 claim" if len(findings) == 1 else f"{len(findings)} claims"
    return f"{claims}: {', '.join(parts)}." if findings else _NONE


_COUNTED: Final = {
    REPRODUCED: "reproduced",
    DIFFERS: "not as in the paper",
    UNCHECKED: "that cannot be checked here",
}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.4g}"


def _with_unit(number: str, unit: str) -> str:
    if unit in ("", "x"):
        return f"{number}{unit and '×'}"
    return f"{number} {unit}"
