"""Invocation fees as time: how long a size could run for the price of being invoked.

Figure 5, left, of *Demystifying Serverless Costs on Public Platforms* (EuroSys'26, section 2.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from uncia.costs.sizes import Size, decimal, fit_sizes, known_tariffs, price_per_second
from uncia.providers import LAMBDA_BYTES, LAMBDA_MIN_MB
from uncia.tariffs.model import Tariff
from uncia.tariffs.sizes import Combinations, Fixed
from uncia.units import GIB, MIB, MICRO_PER_VCPU

if TYPE_CHECKING:
    import pandas as pd


MS_PER_S: Final = 1000

# The figure's sizes of tariffs without a list: Cloud Run's vCPU at 512 MB (0.333 is the default of
# functions), Azure's 1 GB and its largest, AWS' smallest and its first whole vCPU.
_SHOWN: Final[dict[str, tuple[Size, ...]]] = {
    "gcp-run-request": tuple(
        Size(cpu, 512 * MIB) for cpu in (80_000, 333_000, 500_000, MICRO_PER_VCPU)
    ),
    "azure-consumption": (Size(MICRO_PER_VCPU, GIB), Size(MICRO_PER_VCPU, 1536 * MIB)),
}
_SMALLEST: Final = Size(1, LAMBDA_MIN_MB * MIB)
_ONE_VCPU: Final = Size(MICRO_PER_VCPU, LAMBDA_BYTES)
_MAX_SHOWN: Final = 5
_COLUMNS: Final = ("tariff", "size", "cpu", "memory", "fee_usd", "usd_per_s", "fee_ms")


def fee_equivalents(
    tariffs: Sequence[str] | None = None,
    sizes: Sequence[Size] = (),
) -> pd.DataFrame:
    """Convert the invocation fee to milliseconds of billable time, for sizes of each tariff.

    Args:
        tariffs: ids or files; by default all that bill by request and charge a fee.
        sizes: allocations, fitted to what each tariff sells; by default the sizes of the figure.

    Returns:
        A row for each tariff and size: ``tariff``, ``size`` (in words), ``cpu`` (micro-vCPU),
        ``memory`` (bytes), ``fee_usd``, ``usd_per_s`` (Decimal) and ``fee_ms`` (Decimal: the
        fee over the price of a millisecond; of CPU time where that is billed). Charges by use count
        as if the whole size were used. A size that is not sold has only its name.

    Raises:
        UnciaError: a tariff does not exist.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    chosen = known_tariffs(tariffs, "request")
    if tariffs is None:
        chosen = [tariff for tariff in chosen if Fraction(tariff.fee.price or 0)]
    wanted = list(sizes) if sizes else [_SMALLEST, _ONE_VCPU]
    for tariff, sold in zip(chosen, fit_sizes(chosen, wanted), strict=True):
        shown = sold if sizes else _default_sizes(tariff, sold)
        for asked, size in zip(sizes or shown, shown, strict=True):
            rows.append(_row(tariff, asked, size))
    return pd.DataFrame(rows, columns=list(_COLUMNS), dtype=object)


def _default_sizes(tariff: Tariff, sold: Sequence[Size]) -> list[Size]:
    """The sizes shown by default: the figure's, a short list of pairs, or smallest and 1 vCPU."""
    if tariff.id in _SHOWN:
        return list(_SHOWN[tariff.id])
    match tariff.sizes:
        case Combinations():
            pairs = tariff.sizes.combinations[:_MAX_SHOWN]
            return [Size(pair.cpu, pair.memory) for pair in pairs]
        case Fixed():
            return [Size(tariff.sizes.cpu, tariff.sizes.memory)]
        case _:
            return list(dict.fromkeys(sold))


def _row(tariff: Tariff, asked: Size, size: Size) -> dict[str, Any]:
    fee = None if tariff.fee.price is None else Fraction(tariff.fee.price)
    # CPU time is billed at any size; its price is that of a whole vCPU used.
    by_cpu = tariff.time.kind == "cpu"
    price = price_per_second(tariff, Size(MICRO_PER_VCPU, size.memory) if by_cpu else size)
    return {
        "tariff": tariff.id,
        "size": size.words if size != Size(None, None) else asked.words,
        "cpu": size.cpu,
        "memory": size.memory,
        "fee_usd": decimal(fee),
        "usd_per_s": decimal(price),
        "fee_ms": decimal(fee * MS_PER_S / price, 6) if fee is not None and price else None,
    }
