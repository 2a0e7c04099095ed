"""The sizes that tariffs sell for given allocations, and their prices, outside of any table."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa

from uncia.errors import UnciaError
from uncia.tariffs.model import Charge, Tariff
from uncia.tariffs.money import MONEY_PLACES, money
from uncia.units import NS_PER_S, UnitError, format_cpu, format_size, parse_cpu, parse_size

if TYPE_CHECKING:
    from uncia.backends import Backend


class Size(NamedTuple):
    """An allocation: micro-vCPU and bytes; None where it is not known."""

    cpu: int | None
    memory: int | None

    @property
    def words(self) -> str:
        """As people write it: ``0.5 vCPU/512 MB``."""
        parts = [
            None if self.cpu is None else format_cpu(self.cpu),
            None if self.memory is None else format_size(self.memory),
        ]
        return "/".join(part for part in parts if part is not None) or "any"


def parse_allocation(text: str) -> Size:
    """A size from ``512MB/0.5vCPU``, in either order; one of the two may be left out.

    Raises:
        UnciaError: it is no such text.
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


def fitted(
    tariffs: Sequence[Tariff], allocations: Sequence[Size], backend: Backend
) -> list[list[Size]]:
    """What each tariff sells for each allocation, by the rule that bills are fitted with.

    Returns:
        For each tariff, a size for each allocation; None in it where nothing is sold that covers
        it, or where the tariff has no such knob.
    """
    from uncia.tariffs.columns import Columns
    from uncia.tariffs.fit import fit

    if not allocations or not tariffs:
        return [[] for _ in tariffs]
    columns = {
        "place": pa.array(range(len(allocations)), pa.int64()),
        "cpu": pa.array([one.cpu for one in allocations], pa.int64()),
        "memory": pa.array([one.memory for one in allocations], pa.int64()),
    }
    rows = Columns(backend.table(pa.table(columns)))
    fits = [fit(tariff.sizes, rows, rows.base("cpu"), rows.base("memory")) for tariff in tariffs]
    full = rows.table()
    wanted = {"place": full["place"]}
    for place, one in enumerate(fits):
        wanted |= {f"c{place}": full[one.cpu.name], f"m{place}": full[one.memory.name]}
    found = backend.collect(full.select(**wanted).order_by("place"))
    sold: list[list[Size]] = []
    for place, one in enumerate(fits):
        pairs = zip(found[f"c{place}"].to_pylist(), found[f"m{place}"].to_pylist(), strict=True)
        sold.append(
            [Size(_whole(cpu, one.scale), _whole(memory, one.scale)) for cpu, memory in pairs]
        )
    return sold


def _whole(value: int | None, scale: int) -> int | None:
    """A fitted amount in micro-vCPU or bytes, of one in `scale` parts of them."""
    return None if value is None else round(Fraction(int(value), scale))


def billed_amount(charge: Charge, size: Size) -> int | None:
    """The amount of a charge at a size, granularity, minimum and maximum applied.

    What is billed by use counts as if the whole size were used: a vCPU of CPU time each second.
    Storage has its own amount; an instance is one.
    """
    if charge.resource == "instance":
        return 1
    if charge.resource == "storage":
        return charge.limit("amount") or 0
    amount = size.cpu if charge.resource == "cpu" else size.memory
    if amount is None:
        return None
    return bounded(amount, charge) if charge.is_rate else amount


def bounded(amount: int, charge: Charge) -> int:
    """An amount with the granularity, the minimum and the maximum of a charge."""
    if (step := charge.limit("granularity")) is not None:
        amount = -(-amount // step) * step
    if (least := charge.limit("minimum")) is not None:
        amount = max(amount, least)
    if (most := charge.limit("maximum")) is not None:
        amount = min(amount, most)
    return amount


def price_per_second(tariff: Tariff, size: Size, resource: str | None = None) -> Fraction | None:
    """Dollars a second at a size, exactly; None where a price or an amount is not known.

    Args:
        tariff: the tariff; only its plain charges for what is allocated or used count: what is
            reserved, borrowed or lent is no property of a size.
        size: as it is; see `fitted`.
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
    """A number as `uncia.tariffs.money.money` rounds it; None stays None."""
    return None if value is None else money(value, places)


def known_tariffs(names: Sequence[str] | None, which: Literal["request", "all"]) -> list[Tariff]:
    """Tariffs by id or file; by default those that bill by request, or all in the catalogue.

    Raises:
        UnciaError: there is no such tariff, or one is named twice.
    """
    from uncia.tariffs import catalogue

    if names is None:
        return [
            catalogue.get(name)
            for name in (catalogue.billable() if which == "request" else catalogue.ids())
        ]
    found = [catalogue.find(name) for name in names]
    ids = [tariff.id for tariff in found]
    for name in ids:
        if ids.count(name) > 1:
            raise UnciaError(f"the tariff {name} is named twice")
    return found
