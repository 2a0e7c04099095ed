"""Prices per vCPU-second and GB-second, and what one size costs everywhere.

Figure 1 and section 1 of *Demystifying Serverless Costs on Public Platforms* (EuroSys'26).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from uncia.costs.sizes import Size, decimal, fit_sizes, known_tariffs, price_per_second
from uncia.errors import UnciaError
from uncia.providers import LAMBDA_BYTES
from uncia.tariffs.model import Tariff
from uncia.units import GIB, MICRO_PER_VCPU, NS_PER_S

if TYPE_CHECKING:
    import pandas as pd

    from uncia.backends import Backend, Source

BUNDLE: Final = Size(MICRO_PER_VCPU, LAMBDA_BYTES)
"""The size that prices are compared at: 1 vCPU and 1769 MB, as AWS Lambda gives them."""

AGAINST: Final = "aws-lambda-arm"
"""The tariff to which the cost paper compares a virtual machine and a container (section 1)."""


def prices(
    tariffs: Sequence[str] | None = None,
    *,
    size: Size = BUNDLE,
    against: str = AGAINST,
) -> pd.DataFrame:
    """List what tariffs charge for a vCPU-second, a GB-second, and a second of one size.

    Where only memory is priced, its price includes the vCPU. Such prices are comparable only as the
    price of a vCPU with its memory. These prices include neither fees nor rounding.

    Args:
        tariffs: ids or files; by default the whole catalogue.
        size: the size that is priced.
        against: the tariff whose price of the size is 1.

    Returns:
        A row for each tariff: ``tariff``, ``provider``, ``region``, ``as_of``, ``bills`` (request,
        instance), ``usd_per_vcpu_s`` and ``usd_per_gb_s`` (Decimal; None if the other price, or
        that of the instance, includes it), ``cpu_memory_ratio`` (their ratio), ``usd_per_s`` (the
        size itself, at these prices), ``sold_cpu``, ``sold_memory`` (the smallest size sold that
        covers it, or the only one; micro-vCPU and bytes), ``sold_usd_per_s`` (price of that size,
        with storage where the tariff has it) and ``relative`` (the same over that of ``against``).

    Raises:
        UnciaError: a tariff does not exist.
    """
    import pandas as pd

    chosen = known_tariffs(tariffs, "all")
    reference = known_tariffs([against], "all")[0]
    sold = [sizes[0] for sizes in fit_sizes([*chosen, reference], [size])]
    unit = _sold_price(reference, sold[-1])
    rows = [
        _row(tariff, size, fitted, unit) for tariff, fitted in zip(chosen, sold[:-1], strict=True)
    ]
    return pd.DataFrame(rows, dtype=object)


def commonest(source: Source, *, backend: Backend) -> Size:
    """The most common allocation in an invocation table; of equally common ones the smallest.

    Raises:
        UnciaError: the table cannot be read, or has no allocated memory.
    """
    import ibis

    from uncia.tariffs.rows import prepare

    rows = prepare(backend.table(source), ())
    cpu, memory = "v_allocated_cpu", "v_allocated_memory"
    sized = rows.filter(rows[memory].notnull())
    counted = sized.aggregate(rows=sized.count(), by=[cpu, memory])
    order = (ibis.desc("rows"), memory, ibis.coalesce(counted[cpu], 0))
    top = backend.collect(counted.order_by(*order).limit(1)).to_pylist()
    if not top:
        raise UnciaError("no row of the table has its allocated memory", "Name a size: --size.")
    return Size(top[0][cpu], top[0][memory])


def _row(tariff: Tariff, size: Size, sold: Size, unit: Fraction | None) -> dict[str, Any]:
    cpu = _unit_price(tariff, "cpu", MICRO_PER_VCPU)
    memory = _unit_price(tariff, "memory", GIB)
    whole = _sold_price(tariff, sold)
    by_instance = any(charge.resource == "instance" for charge in tariff.charges)
    return {
        "tariff": tariff.id,
        "provider": tariff.provider,
        "region": tariff.region,
        "as_of": tariff.as_of.isoformat(),
        "bills": "instance" if tariff.by_instance else "request",
        "usd_per_vcpu_s": decimal(cpu),
        "usd_per_gb_s": decimal(memory),
        "cpu_memory_ratio": None if cpu is None or not memory else float(cpu / memory),
        "usd_per_s": None if by_instance else decimal(_plain(tariff, cpu, memory, size)),
        "sold_cpu": sold.cpu,
        "sold_memory": sold.memory,
        "sold_usd_per_s": decimal(whole),
        "relative": None if whole is None or not unit else float(whole / unit),
    }


def _unit_price(tariff: Tariff, resource: str, unit: int) -> Fraction | None:
    """Dollars per unit and second, of the first charge that is not free."""
    for charge in tariff.charges:
        if charge.resource == resource and charge.unit_price and charge.when != "preemptible":
            return charge.unit_price * unit * NS_PER_S
    return None


def _plain(
    tariff: Tariff, cpu: Fraction | None, memory: Fraction | None, size: Size
) -> Fraction | None:
    """The price of the size at unit prices; None where a price is unknown."""
    if any(
        charge.price is None and charge.resource in ("cpu", "memory") for charge in tariff.charges
    ):
        return None
    return (cpu or 0) * Fraction(size.cpu or 0, MICRO_PER_VCPU) + (memory or 0) * Fraction(
        size.memory or 0, GIB
    )


def _sold_price(tariff: Tariff, sold: Size) -> Fraction | None:
    """The price of a size that is sold; None where none is, or a price is unknown."""
    return price_per_second(tariff, sold) or None
