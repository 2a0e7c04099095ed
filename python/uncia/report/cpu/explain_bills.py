"""Bills of the chapter: one request priced exactly by the closed form, whole or in bursts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from uncia.bandwidth.closed_form import control_of_share, sweep
from uncia.bandwidth.cpu_time import constant
from uncia.costs.sizes import Size, price_per_second
from uncia.profiles.cpu import PLATFORMS
from uncia.tariffs import catalogue
from uncia.tariffs.request import cost
from uncia.units import MIB, MICRO_PER_VCPU, NS_PER_S

BURST_TARIFFS: Final = {"aws-lambda-x86": "aws", "gcp-run-request": "gcp", "ibm-code-engine": "ibm"}
"""Tariffs whose platform's period is known, and the platform."""

LONG_TASK: Final = 2 * NS_PER_S
"""CPU time of the task that is split."""

_SMALL_MB: Final = 512


@dataclass(frozen=True)
class Burst:
    """A task as a whole against bursts that each fit the quota.

    Attributes:
        fee: USD; a lower invocation fee makes the bursts cheaper.
        saved: share of the billed time that the bursts save.
        count: how many bursts.
    """

    fee: Fraction
    saved: Fraction
    count: int


def billed_ns(tariff: str, duration_ns: Fraction | int) -> int:
    """Apply the rules of the tariff's billable time to a duration, in ns."""
    return int(catalogue.get(tariff).time.rules(math.ceil(duration_ns)))


def memory_bill(tariff: str, memory_mb: int, duration_ns: Fraction | int) -> Fraction:
    """Price one request of a memory size in USD, including fee and rounding.

    Raises:
        ValueError: the tariff has no price for such a size.
    """
    request = {"execution": math.ceil(duration_ns), "allocated_memory": memory_mb * MIB}
    usd = cost(catalogue.get(tariff), request)
    if usd is None:
        raise ValueError(f"{tariff} has no price for {memory_mb} MB")
    return usd


def fees_that_pay(tariff: str, platform: str, shares: Sequence[int]) -> list[Burst | None]:
    """Compute the fee below which `LONG_TASK` is cheaper in bursts of a quota each than whole.

    Each burst is a request that waits for a period to begin, and then has the whole quota. Starts
    and the transfer of state are not counted, so the fee is an upper bound.

    Args:
        tariff: the tariff.
        platform: the platform whose period is used.
        shares: micro-vCPU; memory is what comes with them, or 512 MB where both can be set.

    Returns:
        For each share; None if one burst is enough.
    """
    rules, sold = catalogue.get(tariff), PLATFORMS[platform]
    controls = [control_of_share(sold.period_ns, share) for share in shares]
    bursts: list[Burst | None] = []
    for share, row in zip(shares, sweep(controls, constant(LONG_TASK)), strict=True):
        quota = row.control.quota_ns
        count = -(-LONG_TASK // quota)
        if count == 1:
            bursts.append(None)
            continue
        last = LONG_TASK - (count - 1) * quota
        whole_ns = billed_ns(tariff, row.mean_ns)
        split_ns = (count - 1) * billed_ns(tariff, quota) + billed_ns(tariff, last)
        memory = (
            _SMALL_MB if sold.mb_per_vcpu is None else sold.mb_per_vcpu * share // MICRO_PER_VCPU
        )
        price = price_per_second(rules, Size(share, memory * MIB))
        if price is None:
            raise ValueError(f"{tariff} has no price for {memory} MB")
        fee = price * (whole_ns - split_ns) / NS_PER_S / (count - 1)
        bursts.append(Burst(fee, 1 - Fraction(split_ns, whole_ns), count))
    return bursts
