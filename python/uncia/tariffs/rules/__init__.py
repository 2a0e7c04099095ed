"""The rules by which a time or an amount becomes what is billed of it, each a file of this folder.

A rule is a subclass of `Rule`: its key in a tariff file, its formula, and where what it adds or
takes off is reported. The formula is written once, and every bill and analysis applies it. A new
rule is one new file here: its class is found by its place, and its key belongs to the forms of
`uncia.tariffs.model` from then on.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from uncia.errors import UnciaError
from uncia.tariffs.rules.base import Rule
from uncia.tariffs.rules.free import Free
from uncia.tariffs.rules.granularity import Granularity
from uncia.tariffs.rules.maximum import Maximum
from uncia.tariffs.rules.minimum import Minimum

if TYPE_CHECKING:
    from uncia.tariffs.columns import Steps, T

__all__ = [
    "AMOUNT_KEYS",
    "KINDS",
    "TIME_KEYS",
    "Free",
    "Granularity",
    "Level",
    "Maximum",
    "Minimum",
    "Rule",
    "Rules",
]

Level = Literal["plain", "unrounded", "stepped", "billed"]
"""How far rules are applied: not at all; without those that round; granularities alone; all."""


def _kinds() -> Iterator[type[Rule]]:
    """The rules that the files of this folder define."""
    for file in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{file.name}")
        for kind in vars(module).values():
            defined = isinstance(kind, type) and kind.__module__ == module.__name__
            if defined and issubclass(kind, Rule) and not inspect.isabstract(kind):
                yield kind


def _in_order(kinds: Iterator[type[Rule]]) -> tuple[type[Rule], ...]:
    """Sort rules by position.

    Raises:
        UnciaError: two have the same key.
    """
    ordered = sorted(kinds, key=lambda kind: (kind.position, kind.key))
    by_key: dict[str, type[Rule]] = {}
    for kind in ordered:
        first = by_key.setdefault(kind.key, kind)
        if first is not kind:
            raise UnciaError(
                f"two rules of tariffs have the key {kind.key}:"
                f" {inspect.getfile(first)} and {inspect.getfile(kind)}",
                "give one of them another key",
            )
    return tuple(ordered)


KINDS: Final = _in_order(_kinds())
"""Every rule, in the order in which they are applied."""

TIME_KEYS: Final = tuple(kind.key for kind in KINDS if "time" in kind.of)
AMOUNT_KEYS: Final = tuple(kind.key for kind in KINDS if "amount" in kind.of)


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
        return Rules(tuple(rule.scaled(scale) for rule in self.rules))

    def without_steps(self) -> Rules:
        """All but those that round to steps, for times that are estimates."""
        return self.keep(lambda rule: rule.part != "rounding")

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
