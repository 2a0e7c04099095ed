"""Trials of changes on a sample of a function's rows, billed before and after."""

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
    """A suggested change and its saving.

    Attributes:
        function: its name.
        kind: which change.
        tariff: id of the tariff under which it saves; None if it cannot be judged.
        saving: USD, of all rows at the function's present size; None if it cannot be judged.
        per_million: USD a million of these rows; None likewise.
        share: of their bill; None likewise.
        basis: ``exact``, ``estimated`` (with an assumption about times), ``at most``; "" if it
            cannot be judged.
        advice: what to do.
        assumption: what must be true for the saving.
        note: the data behind it, or what was not measured.
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
    """One way to make a change: in words, and the rows that are then billed.

    Attributes:
        words: what to do.
        parts: the rows; their bills are added.
        tariff: the tariff that bills them; by default that of the trial.
    """

    words: str
    parts: Sequence[Rows]
    tariff: Tariff | None = None


@dataclass(frozen=True)
class Trial:
    """A change of one function under one tariff, with several ways to make it.

    Attributes:
        function, kind, assumption: as in `Hint`.
        tariff: bills the function now.
        before: the present rows.
        ways: the cheapest one counts.
        instead: simpler changes, whose saving is subtracted.
    """

    function: str
    kind: str
    tariff: Tariff
    before: Rows
    ways: Sequence[Way]
    assumption: str
    instead: Sequence[Way] = field(default_factory=tuple)


def unjudged(function: str, kind: str, missing: str) -> Hint:
    """Return a hint that cannot be judged, because something was not measured."""
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
    """Return a hint that saves an amount of the bill of all rows; none if it saves nothing."""
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
    """Bill trials, and return a hint for each whose cheapest way saves anything."""
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
    """The bill of several parts; None if one of their rows cannot be priced or run."""
    total = Fraction(0)
    for part, rows in enumerate(parts):
        price = billed[index, role, number, part]
        if price.rows < rows.execution.size or price.beyond:
            return None
        total += price.cost
    return total
