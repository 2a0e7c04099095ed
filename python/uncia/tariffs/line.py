"""A line of a bill: what one tariff charges for one group of rows."""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from uncia.units import GIB, MICRO_PER_VCPU, NS_PER_S

_VCPU_SECOND: Final = MICRO_PER_VCPU * NS_PER_S
_GB_SECOND: Final = GIB * NS_PER_S
_MILLION: Final = 1_000_000


@dataclass(frozen=True)
class Line:
    """What one tariff charges for one group of rows.

    Attributes:
        tariff: id of the tariff.
        group: values of the grouping columns; empty without groups.
        fit: how allocations became sizes, in words.
        total_rows: rows of the group: priced, not billable and unpriced.
        rows: rows that were priced.
        not_billable: rows that no platform charges for, by reason.
        unpriced: rows that this tariff cannot price, by reason.
        beyond_limits: priced rows that exceed what the platform allows.
        billable_micro_vcpu_ns: CPU billed for; None if no row was priced or a vCPU is not known.
        billable_byte_ns: memory billed for; None as above.
        used_micro_vcpu_ns: CPU used, over the rows where it and the billed amount are known.
        used_byte_ns: memory used, likewise.
        used_vcpu_rows: how many rows that is, for CPU.
        used_memory_rows: how many rows that is, for memory.
        inflation_vcpu: billed over used, both over those rows; None if nothing was used.
        inflation_memory: likewise.
        fee_usd: invocation fees.
        rounding_usd: what granularities and minimums add.
        cost_usd: the bill.
        exact_cost: the same, not rounded.
        exact_parts: the exact cost by what is charged for, without the invocation fees: ``cpu`` and
            ``memory``.
        hint_byte_ns: memory that instances held while they idled on the account of hints; None if
            the tariff has no idle price, or the instances are not known.
        hint_usd: what that cost, which is part of the bill; likewise.
        hint_unknown: instances of which that is not known, and which are not in it; likewise.
        free_usd: what the free tier took off; None if the free tier was not applied.
        free_fee_usd: what of it are invocation fees; likewise.
    """

    tariff: str
    group: Mapping[str, str | None]
    fit: str
    total_rows: int
    rows: int
    not_billable: Mapping[str, int]
    unpriced: Mapping[str, int]
    beyond_limits: int
    billable_micro_vcpu_ns: int | None
    billable_byte_ns: int | None
    used_micro_vcpu_ns: int | None
    used_byte_ns: int | None
    used_vcpu_rows: int
    used_memory_rows: int
    inflation_vcpu: Fraction | None
    inflation_memory: Fraction | None
    fee_usd: decimal.Decimal | None
    rounding_usd: decimal.Decimal | None
    cost_usd: decimal.Decimal | None
    exact_cost: Fraction | None = field(repr=False, compare=False, default=None)
    exact_parts: Mapping[str, Fraction] | None = field(repr=False, compare=False, default=None)
    hint_byte_ns: int | None = None
    hint_usd: decimal.Decimal | None = None
    hint_unknown: int | None = None
    free_usd: decimal.Decimal | None = None
    free_fee_usd: decimal.Decimal | None = None

    @property
    def unpriced_rows(self) -> int:
        """Billable rows that this tariff cannot price."""
        return sum(self.unpriced.values())

    @property
    def billable_vcpu_s(self) -> Fraction | None:
        """CPU billed for, vCPU x s."""
        return _over(self.billable_micro_vcpu_ns, _VCPU_SECOND)

    @property
    def billable_gb_s(self) -> Fraction | None:
        """Memory billed for, GB x s."""
        return _over(self.billable_byte_ns, _GB_SECOND)

    @property
    def used_vcpu_s(self) -> Fraction | None:
        """CPU used, vCPU x s."""
        return _over(self.used_micro_vcpu_ns, _VCPU_SECOND)

    @property
    def used_gb_s(self) -> Fraction | None:
        """Memory used, GB x s."""
        return _over(self.used_byte_ns, _GB_SECOND)

    @property
    def hint_gb_s(self) -> Fraction | None:
        """Memory idle on the account of hints, GB x s."""
        return _over(self.hint_byte_ns, _GB_SECOND)

    @property
    def hint_share(self) -> Fraction | None:
        """Part of the bill that is for what was idle on the account of hints."""
        return _share(self.hint_usd, self.exact_cost)

    @property
    def cost_usd_per_million(self) -> Fraction | None:
        """Dollars for a million invocations like those priced."""
        if self.exact_cost is None or self.rows == 0:
            return None
        return self.exact_cost * _MILLION / self.rows

    @property
    def fee_share(self) -> Fraction | None:
        """Part of the bill that is invocation fees, without those that are free."""
        if self.fee_usd is None:
            return None
        return _share(self.fee_usd - (self.free_fee_usd or 0), self.exact_cost)

    @property
    def rounding_share(self) -> Fraction | None:
        """Part of the bill that granularities and minimums add.

        None if a free tier took off vCPU-seconds or GB-seconds: it does not say whether those are
        what was used or what rounding added.
        """
        if self.free_usd != self.free_fee_usd:
            return None
        return _share(self.rounding_usd, self.exact_cost)


def _over(value: int | None, unit: int) -> Fraction | None:
    return None if value is None else Fraction(value, unit)


def _share(part: decimal.Decimal | None, cost: Fraction | None) -> Fraction | None:
    return Fraction(part) / cost if part is not None and cost else None
