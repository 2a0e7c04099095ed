"""What a rule is: its key in a tariff file, its formula, and where what it changes is reported."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self


@dataclass(frozen=True)
class Rule(ABC):
    """Something that changes what is billed of a time or of an amount.

    The docstring of a rule begins with what it does and its formula; that line explains its key in
    ``uncia tariffs rules`` and in the JSON Schema of tariffs.

    Attributes:
        bound: ns, bytes or micro-vCPU; from 0.
        key: its name in a tariff file; no other rule or part of a tariff has it.
        position: rules are applied in ascending order of it.
        rounds: whether what it adds is rounding (``rounding_usd``), and no other term of a price.
        part: of `uncia.costs.decompose`, where what it adds or takes off counts.
        of: whether a tariff's time has the key, its amounts of resources, or both.
        positive: whether its bound must be above zero.
    """

    bound: int
    key: ClassVar[str]
    position: ClassVar[int]
    rounds: ClassVar[bool] = False
    part: ClassVar[Literal["rounding", "minimum"]] = "minimum"
    of: ClassVar[frozenset[Literal["time", "amount"]]] = frozenset({"time", "amount"})
    positive: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, amount: Any) -> Any:
        """What is billed of an amount: whole, from 0; null of null, and never less of more.

        Written with ``+ - * %``, comparisons and the functions of `uncia.tariffs.exact`, so that it
        takes an Ibis column, a `uncia.tariffs.exact.Number` or an int alike.
        """

    @abstractmethod
    def words(self, bound: str) -> str:
        """The rule for people, its bound as text."""

    def scaled(self, scale: int) -> Self:
        """The same rule of amounts in smaller units, of which `scale` make one."""
        return replace(self, bound=self.bound * scale)

    @classmethod
    def check(cls, bound: int) -> None:
        """Refuse a bound that makes no sense.

        Raises:
            ValueError: it must be above zero.
        """
        if cls.positive and bound == 0:
            raise ValueError(f"a {cls.key} must be above zero; leave the key out for none")

    @classmethod
    def summary(cls) -> str:
        """The first line of its docstring, as plain text."""
        return (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ").replace("``", "")
