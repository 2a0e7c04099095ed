"""The rules by which a time or an amount becomes what is billed of it.

A rule is a class: its key in a tariff file, its formula, and where what it adds or takes off is
reported. The formula is written once, with the functions of `uncia.tariffs.exact`: it takes an Ibis
column, a `Number` or an int, and every bill and analysis applies it. A new rule is one more class
in `KINDS`, and its key in the forms of `uncia.tariffs.model`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from uncia.tariffs.exact import at_least, at_most, round_up

if TYPE_CHECKING:
    from uncia.tariffs.columns import Steps, T

Level = Literal["plain", "unrounded", "stepped", "billed"]
"""How far rules are applied: not at all; without those that round; granularities alone; all."""


@dataclass(frozen=True)
class Rule(ABC):
    """Something that changes what is billed.

    Attributes:
        bound: ns, bytes or micro-vCPU; from 0.
        key: its name in a tariff file.
        rounds: whether what it adds is rounding (``rounding_usd``), and no other term of a price.
        part: of `uncia.costs.decompose`, where what it adds or takes off counts.
    """

    bound: int
    key: ClassVar[str]
    rounds: ClassVar[bool] = False
    part: ClassVar[Literal["rounding", "minimum"]] = "minimum"

    @abstractmethod
    def __call__(self, amount: Any) -> Any:
        """What is billed of an amount; null of null, and never less of more."""

    @abstractmethod
    def words(self, bound: str) -> str:
        """The rule for people, its bound as text."""


@dataclass(frozen=True)
class Granularity(Rule):
    """Whole steps: ``ceil(a / g) * g``."""

    key = "granularity"
    rounds = True
    part = "rounding"

    def __call__(self, amount: Any) -> Any:
        return round_up(amount, self.bound)

    def words(self, bound: str) -> str:
        return f"in steps of {bound}"


@dataclass(frozen=True)
class Minimum(Rule):
    """At least so much."""

    key = "minimum"
    rounds = True

    def __call__(self, amount: Any) -> Any:
        return at_least(amount, self.bound)

    def words(self, bound: str) -> str:
        return f"at least {bound}"


@dataclass(frozen=True)
class Free(Rule):
    """The first so much of each request is not charged for: ``max(a - f, 0)``."""

    key = "free"

    def __call__(self, amount: Any) -> Any:
        return at_least(amount - self.bound, 0)

    def words(self, bound: str) -> str:
        return f"the first {bound} free"


@dataclass(frozen=True)
class Maximum(Rule):
    """At most so much."""

    key = "maximum"

    def __call__(self, amount: Any) -> Any:
        return at_most(amount, self.bound)

    def words(self, bound: str) -> str:
        return f"at most {bound}"


KINDS: Final[tuple[type[Rule], ...]] = (Granularity, Minimum, Free, Maximum)
"""Every rule, in the order in which they are applied."""

KEYS: Final = tuple(kind.key for kind in KINDS)


@dataclass(frozen=True)
class Rules:
    """The rules of a time or of an amount, applied one after the other."""

    rules: tuple[Rule, ...] = ()

    @classmethod
    def of(cls, bounds: Mapping[str, int | None]) -> Rules:
        """The rules of a form, by key; one that is null is none."""
        known = [(kind, bounds.get(kind.key)) for kind in KINDS]
        return cls(tuple(kind(bound) for kind, bound in known if bound is not None))

    def __bool__(self) -> bool:
        return bool(self.rules)

    def __call__(self, amount: Any) -> Any:
        """What is billed of an amount: an expression, a `Number` or an int."""
        for rule in self.rules:
            amount = rule(amount)
        return amount

    def apply(self, steps: Steps[T], amount: T) -> T:
        """What is billed of an amount, a step for each rule."""
        for rule in self.rules:
            amount = steps.add(rule, amount)
        return amount

    def at(self, level: Level) -> Rules:
        """Those that apply at a level."""
        match level:
            case "plain":
                return Rules()
            case "unrounded":
                return self.keep(lambda rule: not rule.rounds)
            case "stepped":
                return self.keep(lambda rule: rule.part == "rounding")
            case "billed":
                return self

    def keep(self, wanted: Callable[[Rule], bool]) -> Rules:
        """Those of which something holds."""
        return Rules(tuple(rule for rule in self.rules if wanted(rule)))

    def without(self, kind: type[Rule]) -> Rules:
        """All but those of a kind."""
        return self.keep(lambda rule: type(rule) is not kind)

    def scaled(self, scale: int) -> Rules:
        """The same of amounts in smaller units, of which `scale` make one."""
        return Rules(tuple(replace(rule, bound=rule.bound * scale) for rule in self.rules))

    def bound(self, kind: type[Rule]) -> int | None:
        """The bound of the rule of a kind; None if there is none."""
        return next((rule.bound for rule in self.rules if type(rule) is kind), None)

    @property
    def rounds(self) -> bool:
        """Whether any of them rounds."""
        return any(rule.rounds for rule in self.rules)

    def words(self, text: Callable[[int], str]) -> list[str]:
        """Each rule for people, with bounds as `text` writes them."""
        return [rule.words(text(rule.bound)) for rule in self.rules]
