"""The sizes that tariffs sell for given allocations, and their prices."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from uncia.errors import UnciaError
from uncia.tariffs.fit import Size, fit_size
from uncia.tariffs.model import Charge, Tariff
from uncia.tariffs.money import MONEY_PLACES, money
from uncia.tariffs.rules import Level
from uncia.units import NS_PER_S, UnitError, parse_cpu, parse_size

__all__ = [
    "Size",
    "billed_amount",
    "decimal",
    "fit_sizes",
    "known_tariffs",
    "parse_allocation",
    "price_per_second",
]


def parse_allocation(text: str) -> Size:
    """Parse ``512MB/0.5vCPU``, in either order; one of the two may be omitted.

    Raises:
        UnciaError: the text is no size.
    """
    cpu: int | None = None
    memory: int | None = None
    for part in text.split("/"):
        try:
            if part.strip().lower().endswith("cpu"):
                cpu = parse_cpu(part.strip())
            else:
                memory = parse_size(part.strip())
        except UnitError as error:
            raise UnciaError(
                f"the size {text!r} cannot be read: {error}",
                "Write memory and vCPU, such as 512MB/0.5vCPU.",
            ) from error
    return Size(cpu, memory)


def fit_sizes(tariffs: Sequence[Tariff], allocations: Sequence[Size]) -> list[list[Size]]:
    """Fit allocations to the sizes of each tariff, by the rule of bills.

    Returns:
        For each tariff, a size for each allocation; None in it where no size covers the allocation,
        or where the tariff has no such setting.
    """
    return [[fit_size(tariff.sizes, size) for size in allocations] for tariff in tariffs]


def billed_amount(charge: Charge, size: Size, level: Level = "billed") -> int | None:
    """The amount of a charge at a size, by its rules.

    A charge by use counts as if the whole size were used: a vCPU of CPU time each second. Storage
    has its own amount; an instance counts as 1.

    Args:
        charge: of a tariff.
        size: as it is; see `fit_sizes`.
        level: how far the rules are applied.

    Returns:
        Micro-vCPU, bytes or instances; None where the size lacks it.
    """
    amount: int | None
    match charge.resource:
        case "instance":
            return 1
        case "storage":
            amount = charge.limit("amount") or 0
        case "cpu":
            amount = size.cpu
        case "memory":
            amount = size.memory
    if amount is None or not charge.is_rate:
        return amount
    return int(charge.rules.at(level)(amount))


def price_per_second(tariff: Tariff, size: Size, resource: str | None = None) -> Fraction | None:
    """Dollars a second at a size, exactly; None where a price or an amount is unknown.

    Args:
        tariff: with plain charges for allocated or used amounts; None if it has others, as
            reserved, borrowed or lent amounts are no property of a size.
        size: used as it is; see `fit_sizes`.
        resource: of this resource alone.
    """
    total = Fraction(0)
    for charge in tariff.charges:
        if resource is not None and charge.resource != resource:
            continue
        if charge.basis not in ("allocated", "used") or charge.when != "always":
            return None
        price = charge.unit_price
        if price == 0:
            continue
        amount = billed_amount(charge, size)
        if price is None or amount is None:
            return None
        total += price * amount * NS_PER_S
    return total


def decimal(value: Fraction | int | None, places: int = MONEY_PLACES) -> Decimal | None:
    """Round a number as `uncia.tariffs.money.money`; None stays None."""
    return None if value is None else money(value, places)


def known_tariffs(names: Sequence[str] | None, which: Literal["request", "all"]) -> list[Tariff]:
    """Look up tariffs by id or file; by default those that bill by request, or the catalogue.

    Raises:
        UnciaError: there is no such tariff, or one is named twice.
    """
    from uncia.tariffs import catalogue

    if names is None:
        return [
            catalogue.get(name)
            for name in (catalogue.billable() if which == "request" else catalogue.ids())
        ]
    chosen = [catalogue.find(name) for name in names]
    ids = [tariff.id for tariff in chosen]
    for name in ids:
        if ids.count(name) > 1:
            raise UnciaError(f"the tariff {name} is named twice")
    return chosen
