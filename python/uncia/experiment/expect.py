"""What an experiment declares of its own outcome, and whether the rows kept to it.

A run fails when a request ends otherwise than ``ok``, unless the experiment says that this may be:
throttling is an error in one experiment and the very thing measured in another. Attempts that were
preempted count only where a bound on them is declared, as each of them ran again. The same words
bound how instances were started, so that an experiment called *cold* cannot quietly measure warm
starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from uncia.forms import Form

FAILURES: Final = ("function_error", "throttled", "timeout", "transport_error", "preempted")
STARTS: Final = ("cold", "restored", "thawed", "warm")

_BOUND: Final = re.compile(r"at (most|least) (0|[1-9][0-9]*)(\.[0-9]+)?(%)?")
_GRAMMAR: Final = "'allowed', 'none', 'all', 'at most 5', 'at most 1%' or 'at least 95%'"


@dataclass(frozen=True)
class Bound:
    """How many rows of a class there may be: a count, or a share of all rows, kept exactly."""

    text: str
    least: Fraction = Fraction(0)
    most: Fraction | None = None
    share: bool = False

    def holds(self, count: int, rows: int) -> bool:
        """Whether ``count`` rows out of ``rows`` keep to the bound."""
        scale = rows if self.share else 1
        return self.least * scale <= count and (self.most is None or count <= self.most * scale)


NONE: Final = Bound("none", most=Fraction(0))


def parse_bound(text: object) -> Bound:
    """Parse ``allowed``, ``none``, ``all``, ``at most N``, ``at most P%``, ``at least ...``.

    :raises ValueError: anything else; the message shows the grammar.
    """
    if isinstance(text, Bound):
        return text
    if text == "allowed":
        return Bound("allowed")
    if text == "none":
        return NONE
    if text == "all":
        return Bound("all", least=Fraction(1), share=True)
    match = _BOUND.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a bound: write {_GRAMMAR}")
    word, whole, decimals, percent = match.groups()
    number = Fraction(whole + (decimals or ""))
    if percent:
        if number > 100:
            raise ValueError(f"{text!r} is more than all of them")
        number /= 100
    elif decimals:
        raise ValueError(
            f"{text!r} counts parts of a request: write a whole number or a share in %"
        )
    if word == "most":
        return Bound(str(text), most=number, share=bool(percent))
    return Bound(str(text), least=number, share=bool(percent))


BoundText = Annotated[
    Bound,
    BeforeValidator(parse_bound),
    PlainSerializer(lambda bound: bound.text, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "description": "How many rows may be of this class",
            "pattern": r"^(allowed|none|all|at (most|least) [0-9]+(\.[0-9]+)?%?)$",
            "examples": ["allowed", "at most 5", "at most 1%", "at least 95%"],
        }
    ),
]


class Expect(Form):
    """Bounds on outcomes (default: none but ``ok``) and on kinds of start (default: any)."""

    function_error: BoundText = NONE
    throttled: BoundText = NONE
    timeout: BoundText = NONE
    transport_error: BoundText = NONE
    preempted: BoundText = NONE
    cold: BoundText | None = None
    restored: BoundText | None = None
    thawed: BoundText | None = None
    warm: BoundText | None = None

    def bound(self, name: str) -> Bound | None:
        """The bound declared for an outcome or a kind of start."""
        bound: Bound | None = getattr(self, name)
        return bound


def allows_failures(expect: Expect) -> bool:
    """Whether some rows may end otherwise than ``ok``."""
    return any((expect.bound(name) or NONE) != NONE for name in FAILURES)


@dataclass(frozen=True)
class Breach:
    """A class of rows that is not as declared."""

    kind: Literal["outcome", "start"]
    name: str
    count: int
    rows: int
    bound: Bound

    def sentence(self) -> str:
        """For example ``12 of 120 throttled (declared: none)``."""
        return f"{self.count} of {self.rows} {self.name} (declared: {self.bound.text})"


def breaches(
    expect: Expect, outcomes: Mapping[str, int], starts: Mapping[str, int]
) -> list[Breach]:
    """The classes that break their bounds.

    Args:
        expect: what the experiment declares.
        outcomes: rows of each outcome, ``ok`` included.
        starts: rows of each kind of start; rows of unknown start are not in it.
    """
    rows = sum(outcomes.values())
    broken: list[Breach] = []
    for name in FAILURES:
        bound = expect.bound(name) or NONE
        count = outcomes.get(name, 0)
        if not bound.holds(count, rows):
            broken.append(Breach("outcome", name, count, rows, bound))
    for name in STARTS:
        declared = expect.bound(name)
        count = starts.get(name, 0)
        if declared is not None and not declared.holds(count, rows):
            broken.append(Breach("start", name, count, rows, declared))
    return broken
