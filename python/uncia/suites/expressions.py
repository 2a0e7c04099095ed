"""Expressions over summaries: the grammar of claims, figures and printed values.

It is that of gates (`uncia.stats.gates`), over subjects instead of a baseline and a candidate:

    TERM > NUMBER UNIT                     a value is above (<: below) a bound
    TERM / TERM > NUMBER                   a ratio; NUMBER% is a rise of so much
    TERM - TERM > NUMBER UNIT              a difference, in the metric's unit
    TERM > TERM                            one is above the other

TERM is ``SUBJECT.METRIC`` or ``SUBJECT.cost:TARIFF``. A subject is an experiment, or a part of one
that the entry names. A percentage beside a share (``cold``, ``failed``) is its value, or points of
a difference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from uncia.errors import UnciaError
from uncia.stats.gates import TIME_IN_MS
from uncia.suites.metrics import Metric, metric

Operator = Literal["", "/", "-"]

_TERM: Final = (
    r"(?P<{0}_subject>[^<>:\s/]+)\.(?P<{0}_metric>[a-z][a-z_]*[0-9]*)(?::(?P<{0}_tariff>[^<>\s]+))?"
)
_VALUE: Final = re.compile(
    _TERM.format("first") + r"(?:\s*(?P<operator>/|\s-\s)\s*" + _TERM.format("second") + r")?"
)
_BOUND: Final = re.compile(r"(?P<number>-?[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>%|[a-zA-Zµ$/]*)")
_HINT: Final = (
    "Write SUBJECT.METRIC>NUMBER UNIT, for example warm.p50<5ms, busy.execution_mean /"
    " idle.execution_mean > 1.5 or idle-60.cold < 5%."
)


@dataclass(frozen=True)
class Term:
    """A metric of a subject.

    Attributes:
        subject: an experiment, or a part of one with a name.
        metric: what is computed of its rows.
        tariff: of costs, its id; else "".
    """

    subject: str
    metric: Metric
    tariff: str = ""

    def __str__(self) -> str:
        suffix = f":{self.tariff}" if self.tariff else ""
        return f"{self.subject}.{self.metric.name}{suffix}"


@dataclass(frozen=True)
class Value:
    """A term, or two of them divided or subtracted.

    Attributes:
        text: as it was written.
        first: the term, or the left one.
        operator: ``/``, ``-`` or "".
        second: the right term; None if there is one.
    """

    text: str
    first: Term
    operator: Operator = ""
    second: Term | None = None

    @property
    def terms(self) -> list[Term]:
        """Its one or two terms."""
        return [self.first] if self.second is None else [self.first, self.second]

    @property
    def unit(self) -> str:
        """The unit of its value, as it is written after a number; "" if it has none."""
        if self.operator == "/":
            return "x"
        if self.operator == "-" and self.first.metric.kind == "share":
            return "points"
        return self.first.metric.unit


@dataclass(frozen=True)
class Comparison:
    """A claim: a value that is on one side of a bound.

    Attributes:
        text: as it was written.
        value: what is compared.
        above: whether it is claimed to be above the bound; else below.
        bound: in the value's unit.
    """

    text: str
    value: Value
    above: bool
    bound: float


def parse_value(text: str) -> Value:
    """Parse an expression without a bound.

    Raises:
        UnciaError: it does not follow the grammar, or has a metric that does not exist.
    """
    match = _VALUE.fullmatch(text.strip())
    if match is None:
        raise UnciaError(f"{text!r} is not an expression over summaries", hint=_HINT)
    first = _term(text, match, "first")
    if match["operator"] is None:
        return Value(text.strip(), first)
    second = _term(text, match, "second")
    operator: Operator = "/" if match["operator"].strip() == "/" else "-"
    if operator == "/" and "share" in (first.metric.kind, second.metric.kind):
        raise UnciaError(
            f"{text!r}: a ratio of shares has no interval",
            hint="Write the difference: a.cold - b.cold.",
        )
    if first.metric.kind != second.metric.kind:
        raise UnciaError(f"{text!r}: {first} and {second} have different units")
    return Value(text.strip(), first, operator, second)


def parse(text: str) -> Comparison:
    """Parse a claim.

    Raises:
        UnciaError: it does not follow the grammar, or a metric or unit does not exist.
    """
    sides = re.split(r"([<>])", text)
    if len(sides) != 3:
        raise UnciaError(f"{text!r} is not a claim: it needs one < or >", hint=_HINT)
    left, side, right = sides
    above = side == ">"
    match = _BOUND.fullmatch(right.strip())
    if match is None:
        return _between(text, left, right, above)
    value = parse_value(left)
    return Comparison(text.strip(), value, above, _bound(text, value, match))


def _between(text: str, left: str, right: str, above: bool) -> Comparison:
    """One term above another: a ratio of 1, or a difference of 0 where they are shares."""
    first, second = parse_value(left), parse_value(right)
    if first.second is not None or second.second is not None:
        raise UnciaError(f"{text!r}: one of the two sides is a number", hint=_HINT)
    is_share = first.first.metric.kind == "share"
    joined = parse_value(f"{first.text} {'-' if is_share else '/'} {second.text}")
    return Comparison(text.strip(), joined, above, 0.0 if is_share else 1.0)


def _term(text: str, match: re.Match[str], side: str) -> Term:
    known = metric(match[f"{side}_metric"], text)
    tariff = match[f"{side}_tariff"] or ""
    if (known.kind == "cost") != bool(tariff):
        raise UnciaError(
            f"{text!r}: "
            + (f"only cost has a tariff, not {known.name}" if tariff else "cost needs a tariff"),
            hint="Such as busy.cost:aws-lambda-x86.",
        )
    return Term(match[f"{side}_subject"], known, tariff)


def _bound(text: str, value: Value, match: re.Match[str]) -> float:
    """The bound in the unit of the value."""
    number, unit = float(match["number"]), match["unit"]
    known = value.first.metric
    if value.operator == "/":
        if unit in ("", "x"):
            return number
        if unit == "%":
            return 1 + number / 100
        raise UnciaError(f"{text!r}: {unit!r} is not a unit of a ratio", hint="Write 1.5 or 50%.")
    if known.kind == "time":
        if unit in TIME_IN_MS:
            return number * TIME_IN_MS[unit]
        raise UnciaError(
            f"{text!r}: {known.name} is a time, so the bound needs a unit",
            hint=f"Write {', '.join(TIME_IN_MS)}.",
        )
    allowed = {"share": ("%",), "cost": ("USD", "usd", "$"), "ratio": ("", "x")}.get(
        known.kind, (known.unit,)
    )
    if unit not in allowed:
        raise UnciaError(
            f"{text!r}: {unit!r} is not a unit of {known.name}",
            hint=f"Its unit is {allowed[0] or 'none'}.",
        )
    return number
