"""Free tiers: what a month's free amounts take off a bill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from uncia.errors import UnciaError
from uncia.tariffs.line import Line
from uncia.tariffs.model import Tariff
from uncia.tariffs.money import money
from uncia.units import GIB, MICRO_PER_VCPU, NS_PER_S


@dataclass(frozen=True)
class Credit:
    """Dollars that a free tier takes off, exactly.

    Attributes:
        fees: of invocation fees.
        charges: of what is charged for resources.
    """

    fees: Fraction = Fraction(0)
    charges: Fraction = Fraction(0)


def credit(tariff: Tariff, line: Line) -> Credit:
    """What the free tier takes off, if the rows are all of a month.

    Free requests reduce the fees, free vCPU-seconds and GB-seconds the amounts billed; unused free
    amounts expire, as at the end of a month.

    Raises:
        UnciaError: the tariff has several prices for a resource, so which amounts are free is
            undefined.
    """
    tier = tariff.free_tier
    if tier is None or line.exact_cost is None:
        return Credit()
    fees = min(line.rows, tier.requests or 0) * Fraction(tariff.fee.price or 0)
    charges = Fraction(0)
    billed = {"cpu": line.billable_micro_vcpu_ns, "memory": line.billable_byte_ns}
    free = {
        "cpu": (tier.vcpu_seconds or 0) * MICRO_PER_VCPU * NS_PER_S,
        "memory": (tier.gb_seconds or 0) * GIB * NS_PER_S,
    }
    for resource, limit in free.items():
        of_resource = [charge for charge in tariff.charges if charge.resource == resource]
        if not limit or not any(charge.unit_price for charge in of_resource):
            continue
        amount, price = billed[resource], of_resource[0].unit_price
        # The amount billed is that of all charges together, those of no price and credits as well.
        if len(of_resource) > 1 or of_resource[0].is_credit or amount is None or price is None:
            raise UnciaError(
                f"the tariff {tariff.id} has several prices for {resource}, and its free tier does"
                " not say which of them it covers"
            )
        charges += min(amount, limit) * price
    return Credit(fees, charges)


def apply_free_tier(lines: Sequence[Line], tariffs: Sequence[Tariff]) -> list[Line]:
    """Subtract each tariff's free tier from the lines of a whole table.

    Args:
        lines: not grouped, as a free tier is for all that an account does in a month.
        tariffs: those of the lines, in their order.

    Raises:
        UnciaError: as `credit`.
    """
    result = []
    for line, tariff in zip(lines, tariffs, strict=True):
        if line.exact_cost is None:
            result.append(line)
            continue
        taken = credit(tariff, line)
        free = taken.fees + taken.charges
        cost = line.exact_cost - free
        result.append(
            replace(
                line,
                free_usd=money(free),
                free_fee_usd=money(taken.fees),
                cost_usd=money(cost),
                exact_cost=cost,
            )
        )
    return result
