"""Changes tried on a sample of a function's rows: billed before and after, and compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from uncia.costs.advice.bills import Price
from uncia.costs.advice.gather import Study
from uncia.costs.advice.sample import Rows, bill_rows
from uncia.tariffs.model import Tariff

_MILLION: Final = 1_000_000


@dataclass(frozen=True)
class Hint:
    """A change, and what it would save.

    Attributes:
        function: its name.
        kind: which change.
        tariff: id of the tariff that it would save under; None if that does not matter.
        saving: USD, of all rows at the function's present size; None if it cannot be judged.
        per_million: USD a million of these rows; None likewise.
        share: of their bill; None likewise.
        basis: ``exact``, ``estimated`` (the assumption is of times), ``at most``; "" if it cannot
            be judged.
        advice: what to do.
        assumption: what must hold for it.
        note: what it rests on, or what was not measured.
    """

    function: str
    kind: str
    tariff: str | None
    saving: Fraction | None
    per_million: Fraction | None
    share: float | None
    basis: str
    advice: str
    assumption: str
    note: str


@dataclass(frozen=True)
class Way:
    """One way to do it: in words, and the rows that would be billed instead.

    Attributes:
        words: what to do.
        parts: their bills are added.
        tariff: the tariff that bills them; by default that of the trial.
    """

    words: str
    parts: Sequence[Rows]
    tariff: Tariff | None = None


@dataclass(frozen=True)
class Trial:
    """A change of one function under one tariff, with several ways to do it.

    Attributes:
        function, kind, assumption: as of `Hint`.
        tariff: under which it is billed now.
        before: the rows as they are.
        ways: the cheapest is taken.
        instead: simpler changes; what these save already is not counted.
    """

    function: str
    kind: str
    tariff: Tariff
    before: Rows
    ways: Sequence[Way]
    assumption: str
    instead: Sequence[Way] = field(default_factory=tuple)


def unjudged(function: str, kind: str, missing: str) -> Hint:
    """A hint that cannot be judged, for something was not measured."""
    return Hint(function, kind, None, None, None, None, "", "", "", f"cannot be judged: {missing}")


def saved(
    function: str,
    kind: str,
    tariff: str,
    amount: Fraction,
    price: Price,
    basis: str,
    advice: str,
    assumption: str,
    note: str = "",
) -> list[Hint]:
    """A hint that saves an amount of the bill of all rows; none if it saves nothing."""
    if amount <= 0 or not price.rows:
        return []
    return [
        Hint(
            function,
            kind,
            tariff,
            amount,
            amount * _MILLION / price.rows,
            float(amount / price.cost) if price.cost else None,
            basis,
            advice,
            assumption,
            note,
        )
    ]


def tried(study: Study, trials: Sequence[Trial]) -> list[Hint]:
    """The hints that trials lead to: one each, if its cheapest way saves anything."""
    groups: dict[str, dict[tuple[int, str, int, int], Rows]] = {}
    tariffs: dict[str, Tariff] = {}
    for index, trial in enumerate(trials):
        roles = {
            "before": [Way("", [trial.before])],
            "ways": trial.ways,
            "instead": trial.instead,
        }
        for role, ways in roles.items():
            for number, way in enumerate(ways):
                tariff = way.tariff or trial.tariff
                tariffs[tariff.id] = tariff
                for part, rows in enumerate(way.parts):
                    groups.setdefault(tariff.id, {})[index, role, number, part] = rows
    billed: dict[tuple[int, str, int, int], Price] = {}
    for name, group in groups.items():
        billed |= bill_rows(study.local, tariffs[name], group)
    hints = []
    for index, trial in enumerate(trials):
        hints += _judged(study, trial, index, billed)
    return hints


def _judged(
    study: Study, trial: Trial, index: int, billed: dict[tuple[int, str, int, int], Price]
) -> list[Hint]:
    sample = trial.before.sample
    now = _cost(billed, index, "before", 0, [trial.before])
    costs = [
        (_cost(billed, index, "ways", number, way.parts), number)
        for number, way in enumerate(trial.ways)
    ]
    costs_known = [(cost, number) for cost, number in costs if cost is not None]
    if now is None or not costs_known:
        return []
    simpler = [
        cost
        for number, way in enumerate(trial.instead)
        if (cost := _cost(billed, index, "instead", number, way.parts)) is not None
    ]
    best, number = min(costs_known)
    reference = min([now, *simpler])
    if best >= reference:
        return []
    per_row = (reference - best) / sample.rows
    in_table = study.facts[study.present(trial.function)].rows
    return [
        Hint(
            trial.function,
            trial.kind,
            trial.tariff.id,
            per_row * in_table,
            per_row * _MILLION,
            float((reference - best) / now),
            "estimated",
            trial.ways[number].words,
            trial.assumption,
            f"computed from {sample.describe()}",
        )
    ]


def _cost(
    billed: dict[tuple[int, str, int, int], Price],
    index: int,
    role: str,
    number: int,
    parts: Sequence[Rows],
) -> Fraction | None:
    """The bill of several parts; None if a row of theirs cannot be priced or run."""
    total = Fraction(0)
    for part, rows in enumerate(parts):
        price = billed[index, role, number, part]
        if price.rows < rows.execution.size or price.beyond:
            return None
        total += price.cost
    return total
