"""What the resources that were used cost at a tariff's own prices, without rules and fees."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from uncia.tariffs.model import Resource, Tariff


def cost_of_use(tariff: Tariff, used: Mapping[Resource, Fraction | int | None]) -> Fraction | None:
    """Dollars for what was used, exactly.

    It is what Equation (1) charges if each amount is as used, and no rule changes it. The parts
    ``use`` of `uncia.costs.decompose` sum to it where the use of all rows is known.

    Args:
        tariff: the tariff.
        used: by resource, micro-vCPU x ns or bytes x ns; None where it is not known.

    Returns:
        None where that has no meaning: the tariff charges for reserving or lending, or only under
        some condition; or where a use that it charges for is not known, or a price.
    """
    total = Fraction(0)
    for charge in tariff.charges:
        if charge.basis not in ("allocated", "used") or charge.when != "always":
            return None
        price = charge.unit_price
        if price == 0:
            continue
        amount = used.get(charge.resource)
        if price is None or amount is None:
            return None
        total += price * amount
    return total
