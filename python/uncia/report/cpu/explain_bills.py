"""What the closed form means for a bill: one request priced exactly, as a whole or in bursts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from uncia.bandwidth import closed_form
from uncia.bandwidth.closed_form import PLATFORMS, control_of_share
from uncia.costs.sizes import Size, price_per_second
from uncia.tariffs import catalogue
from uncia.units import MIB, NS_PER_S

BURST_TARIFFS: Final = {"aws-lambda-x86": "aws", "gcp-run-request": "gcp", "ibm-code-engine": "ibm"}
"""Tariffs whose platform's period is known, and the platform."""

LONG_TASK: Final = 2 * NS_PER_S
"""CPU time of the task that is split."""

_WHOLE_MB: Final = 1769
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
    """A duration with the granularity and the minimum of the tariff, in ns."""
    time = catalogue.get(tariff).time
    step = time.granularity or 1
    rounded = -(-Fraction(duration_ns) // step) * step
    return max(int(rounded), time.minimum or 0)


def memory_bill(tariff: str, memory_mb: int, duration_ns: Fraction | int) -> Fraction:
    """USD for one request of a memory size, fee and rounding included.

    Raises:
        ValueError: the tariff has no price for such a size.
    """
    rules = catalogue.get(tariff)
    price = price_per_second(rules, Size(None, memory_mb * MIB), "memory")
    if price is None:
        raise ValueError(f"{tariff} has no price for {memory_mb} MB")
    return price * billed_ns(tariff, duration_ns) / NS_PER_S + Fraction(rules.fee.price or 0)


def fee_that_pays(tariff: str, platform: str, micro_vcpu: int) -> Burst | None:
    """The fee below which `LONG_TASK` is cheaper in bursts of a quota each than as a whole.

    Each burst is a request of its own that begins with the whole quota, having waited for a period
    to begin; what starts and state cost is not counted, so that the fee is an upper bound.

    Args:
        tariff: the tariff.
        platform: whose period counts.
        micro_vcpu: the share; memory is what comes with it, or 512 MB where both can be set.

    Returns:
        None if one burst is enough.
    """
    control = control_of_share(PLATFORMS[platform].period_ns, micro_vcpu)
    count = -(-LONG_TASK // control.quota_ns)
    if count < 2:
        return None
    whole = billed_ns(tariff, closed_form.duration(control.period_ns, control.quota_ns, LONG_TASK))
    last = LONG_TASK - (count - 1) * control.quota_ns
    split = (count - 1) * billed_ns(tariff, control.quota_ns) + billed_ns(tariff, last)
    memory = _WHOLE_MB * micro_vcpu // 10**6 if PLATFORMS[platform].whole_mb else _SMALL_MB
    price = price_per_second(catalogue.get(tariff), Size(micro_vcpu, memory * MIB))
    if price is None:
        raise ValueError(f"{tariff} has no price for {memory} MB")
    return Burst(
        price * (whole - split) / NS_PER_S / (count - 1), 1 - Fraction(split, whole), count
    )
