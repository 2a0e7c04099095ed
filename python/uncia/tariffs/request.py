"""Equation (1) of one request, in plain integers, by the times, rules and sizes of every bill.

For a table see `uncia.tariffs.bill`, which gives the same amounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from uncia.record import INSTANCE_STARTS
from uncia.tariffs.billable_time import actual_time, lacks_initialization, measured
from uncia.tariffs.columns import Numbers
from uncia.tariffs.exact import Number
from uncia.tariffs.fit import fit
from uncia.tariffs.model import Charge, Tariff
from uncia.units import MICRO_PER_VCPU


def quantities(tariff: Tariff, request: Mapping[str, int | None]) -> list[Fraction | None]:
    """What each charge bills of a request: micro-vCPU x ns or bytes x ns; None if not known.

    Args:
        tariff: bills by request.
        request: columns of the invocation table by name, and ``cpu_time``; ns, bytes, micro-vCPU.

    Raises:
        UnciaError: the tariff bills instance time.
    """

    def row(name: str) -> Number:
        return Number(request.get(name))

    steps = Numbers()
    size = fit(tariff.sizes, steps, row("allocated_cpu"), row("allocated_memory"))
    time = tariff.time.rules.apply(steps, actual_time(tariff.time, steps, row))

    def quantity(charge: Charge) -> Fraction | None:
        rules, scale = charge.rules, 1
        if charge.basis == "allocated":
            amount, scale = size.cpu if charge.resource == "cpu" else size.memory, size.scale
        elif charge.is_rate:
            amount = row(measured(charge))
        elif tariff.time.kind == "cpu":
            return _fraction(time * MICRO_PER_VCPU)
        else:
            return _fraction(rules.apply(steps, row(measured(charge))) * MICRO_PER_VCPU)
        return _fraction(rules.scaled(scale).apply(steps, amount) * time, scale)

    return [quantity(charge) for charge in tariff.charges]


def cost(tariff: Tariff, request: Mapping[str, Any]) -> Fraction | None:
    """Dollars for a request that ran, exactly; None where an amount or a price is not known.

    Args:
        tariff: bills by request.
        request: as of `quantities`, ``preemptible`` where a charge depends on it, and ``start``:
            if an instance started, its turnaround is known with its ``initialization`` only.

    Raises:
        UnciaError: the tariff bills instance time.
    """
    if tariff.fee.price is None or (tariff.time.kind == "turnaround" and _unknown_start(request)):
        return None
    total = Fraction(tariff.fee.price)
    for charge, quantity in zip(tariff.charges, quantities(tariff, request), strict=True):
        if charge.unit_price == 0:
            continue  # what costs nothing cannot make a request unpriceable
        preemptible = request.get("preemptible")
        if charge.when != "always" and preemptible is None:
            return None
        if charge.unit_price is None or quantity is None:
            return None
        if charge.when != "always" and bool(preemptible) != (charge.when == "preemptible"):
            continue
        total += (-1 if charge.is_credit else 1) * charge.unit_price * quantity
    return total


def _unknown_start(request: Mapping[str, Any]) -> bool:
    starts = Number(request.get("start") in INSTANCE_STARTS)
    return bool(lacks_initialization(starts, Number(request.get("initialization"))).value)


def _fraction(number: Number, scale: int = 1) -> Fraction | None:
    return None if number.value is None else Fraction(number.value, scale)
