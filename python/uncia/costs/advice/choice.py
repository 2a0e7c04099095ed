"""A choice: a platform and size for a function, with its p95, cost and saving."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from uncia.costs.advice.bills import Price
from uncia.costs.advice.claims import Claim
from uncia.costs.advice.gather import Study, memory_needed
from uncia.costs.advice.rows import Configuration
from uncia.costs.advice.sizes import Size, size_words

Basis = Literal["measured", "estimated"]


@dataclass(frozen=True)
class Choice:
    """A platform and size for a function.

    Attributes:
        function: its name.
        tariff: id.
        platform: where its rows were measured; "" if unknown.
        size: the billed size.
        basis: ``measured``: rows ran at this size on the platform that the tariff bills.
            ``estimated``: times of another size or platform are assumed, or computed by a model.
        claim: of the p95; an estimate has only its value and whether it keeps the bound.
        turnaround_p95: ns; None if unknown.
        rows: number of rows behind it.
        per_million: USD; None if no row was priced.
        saved: USD a million less than at present; None if unknown.
        saved_interval: its bootstrap interval.
        usable: False if the platform cannot run it; None if that was not measured.
        is_present: whether the function uses it now.
        note: the assumption, and what is missing.
        rank: from 1 within its function: measured choices first, those that keep the bound before
            those that may and those that do not, each by cost; then the estimated likewise; last
            what nobody sells. None if it is not usable or has no price.
    """

    function: str
    tariff: str
    platform: str
    size: Size
    basis: Basis
    claim: Claim
    turnaround_p95: int | None
    rows: int
    per_million: Fraction | None
    saved: Fraction | None
    saved_interval: tuple[float, float] | None
    usable: bool | None
    is_present: bool
    note: str
    rank: int | None = None


def usability(
    study: Study, config: Configuration, size: Size, price: Price
) -> tuple[bool | None, list[str]]:
    """Whether the platform can run the rows, None if unknown; and the reasons if not."""
    facts = study.facts[config]
    if price.beyond:
        return False, [f"{price.beyond:,} rows exceed what the platform allows"]
    if size.memory is None or (config.memory >= 0 and size.memory >= config.memory):
        return True, []
    needed = max(facts.peak or 0, facts.average or 0)
    if needed > size.memory:
        return False, [f"rows used {size_words(Size(needed, None))} of memory"]
    if memory_needed(facts) is not None:
        return True, []
    return None, [
        "smaller than what was allocated, and the peak of memory was not measured: whether it"
        " suffices is not known"
    ]


def unpriced_reasons(price: Price) -> str:
    """Why rows of a price could not be priced, with their counts."""
    return ", ".join(f"{rows:,}: {reason}" for reason, rows in price.unpriced.items()) or "no rows"
