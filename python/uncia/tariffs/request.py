"""Equation (1) of one request, in plain integers, by the times, rules and sizes of every bill.

For a table see `uncia.tariffs.bill`, which gives the same amounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, cast

from uncia.record import INSTANCE_STARTS
from uncia.tariffs.billable_time import actual_time, lacks_initialization, measured
from uncia.tariffs.columns import Numbers
from uncia.tariffs.exact import Number
from uncia.tariffs.fit import fit
from uncia.tariffs.model import Charge, Tariff
from uncia.tariffs.refusals import refusals
from uncia.tariffs.rows import (
    COMMON_UNPRICED,
    MAX_VALUES,
    NOT_BILLABLE,
    PRICED,
    common_code,
)
from uncia.units import MAX_TIME, MICRO_PER_VCPU


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


def why_not(tariff: Tariff, request: Mapping[str, Any]) -> str | None:
    """Why a bill refuses a request, in the words of `uncia.tariffs.bill`; None: it has a price.

    Args:
        tariff: bills by request.
        request: as of `cost`.

    Raises:
        UnciaError: the tariff bills instance time.
    """
    values = {name: request.get(name) for name in MAX_VALUES}
    cpu_time = request.get("cpu_time")
    absurd = any(not _is_plausible(value, MAX_VALUES[name]) for name, value in values.items())
    code = common_code(
        request.get("outcome"),
        values["execution"] is None,
        absurd or not _is_plausible(cpu_time, 2 * MAX_TIME),
    )
    if code != PRICED:
        return (NOT_BILLABLE | COMMON_UNPRICED)[code]

    def base(name: str) -> Number:
        if name == "unknown_start":
            return _unknown_start(request)
        kind, _, column = name.partition("_")
        value = request.get(column)
        return Number(value) if kind == "v" else Number(value is None)

    steps = Numbers()
    size = fit(tariff.sizes, steps, base("v_allocated_cpu"), base("v_allocated_memory"))
    checks = refusals(tariff, steps, base, size)
    return next((reason for reason, holds in checks if holds.value), None)


def cost(tariff: Tariff, request: Mapping[str, Any]) -> Fraction | None:
    """Dollars for a request, exactly; None where a bill refuses it or a price is not known.

    Args:
        tariff: bills by request.
        request: as of `quantities`, ``preemptible`` where a charge depends on it, ``outcome`` if it
            may be another than ok, and ``start``: if an instance started, its turnaround is known
            with its ``initialization`` only.

    Raises:
        UnciaError: the tariff bills instance time.
    """
    if tariff.unpriced_figures or why_not(tariff, request) is not None:
        return None
    total = Fraction(tariff.fee.price or 0)
    for charge, quantity in zip(tariff.charges, quantities(tariff, request), strict=True):
        applies = charge.when == "always" or _is_preemptible(request) == (
            charge.when == "preemptible"
        )
        if not applies or not charge.unit_price:
            continue  # what costs nothing cannot make a request unpriceable
        if quantity is None:
            return None
        total += (-1 if charge.is_credit else 1) * charge.unit_price * quantity
    return total


def total_cpu_time(user: int | None, system: int | None) -> int | None:
    """The sum of user and system CPU time; where one is not known it is the other, as in a bill."""
    return None if user is None and system is None else (user or 0) + (system or 0)


def _is_plausible(value: int | None, most: int) -> bool:
    return value is None or 0 <= value <= most


def _is_preemptible(request: Mapping[str, Any]) -> bool:
    return bool(request.get("preemptible"))


def _unknown_start(request: Mapping[str, Any]) -> Number:
    starts = Number(request.get("start") in INSTANCE_STARTS)
    unknown = lacks_initialization(starts, Number(request.get("initialization")))
    return cast(Number, unknown)


def _fraction(number: Number, scale: int = 1) -> Fraction | None:
    return None if number.value is None else Fraction(number.value, scale)
