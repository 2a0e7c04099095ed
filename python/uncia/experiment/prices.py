"""Tariffs of the billing models in a simulation, and their calibration at equal revenue."""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia import yamlio
from uncia.experiment.simulation import Model, SimulationFile
from uncia.tariffs import catalogue
from uncia.tariffs.model import Tariff

if TYPE_CHECKING:
    import pyarrow as pa

_DIGITS: Final = 18
"""Significant digits of a price in a file: a factor may be no decimal number."""


@dataclass(frozen=True)
class Revenue:
    """What a model earns with the same requests.

    Attributes:
        cost: of all rows, USD, exact.
        rate: USD a worker and second, exact.
        factor: all prices times this earn as much a worker and second as the first model's; None
            where one of the two earns nothing.
        served_by_qos: how many invocations of each class were served.
        cost_by_qos: of interactive and batch invocations, USD, at the catalogue's prices.
    """

    cost: Fraction
    rate: Fraction
    factor: Fraction | None
    cost_by_qos: Mapping[str, Fraction]
    served_by_qos: Mapping[str, int]


def resolved(file: SimulationFile, model: Model, factor: Fraction = Fraction(1)) -> dict[str, Any]:
    """The tariff of a model with all prices, as the data of a tariff file.

    Args:
        file: says what the paper leaves open.
        model: the billing model, which is also the id of a tariff in the catalogue.
        factor: for all prices.
    """
    data = yamlio.load(catalogue.path(model)).data
    charges = data["charges"]
    reserved = {charge["resource"]: charge["price"] for charge in charges if charge["price"]}
    shares = {"cpu": file.prices.spot, "memory": file.prices.preemptible}
    priced = []
    for charge in charges:
        price = charge["price"]
        if price is None:
            share = Fraction(str(shares[charge["resource"]]))
            price = Fraction(reserved[charge["resource"]]) * share
        priced.append({**charge, "price": _text(Fraction(price) * factor)})
    notes = [note for note in data.get("notes", []) if "prices nothing until" not in note]
    note = (
        f"As simulated: C_s / C_r = {file.prices.spot:g}, M_p / M_r = {file.prices.preemptible:g},"
        f" all prices times {float(factor):.9g}"
    )
    # Allocations are those of the simulation, which has rounded them up already.
    sizes = {"kind": "observed", "source": data["sizes"]["source"]}
    return {
        **data,
        "id": f"{model}-simulated",
        "charges": priced,
        "sizes": sizes,
        "notes": [*notes, note],
    }


def _text(price: Fraction) -> str:
    with decimal.localcontext(prec=_DIGITS):
        return f"{decimal.Decimal(price.numerator) / price.denominator:f}"


def revenue(
    file: SimulationFile, rows: Mapping[Model, pa.Table], ends_ns: Mapping[Model, int], work: Path
) -> dict[Model, Revenue]:
    """Bill each model's rows by its own tariff, and calibrate them to the first model.

    Args:
        file: what was simulated.
        rows: invocations of each model.
        ends_ns: when each simulation ended.
        work: a folder for the resolved tariffs, which stay there as ``tariff-MODEL.yaml``.

    Raises:
        UnciaError: a tariff cannot be written or used.
    """
    import pyarrow.compute as pc

    from uncia import tariffs

    first: Fraction | None = None
    result: dict[Model, Revenue] = {}
    for model in file.models:
        tariff = _tariff(file, model, work)
        lines = tariffs.bill(rows[model], [tariff], group_by=["qos"])
        by_qos = {str(line.group["qos"]): line.exact_cost or Fraction(0) for line in lines}
        cost = sum(by_qos.values(), Fraction(0))
        seconds = Fraction(ends_ns[model], 10**9) * file.cluster.workers
        rate = cost / seconds if seconds else Fraction(0)
        first = rate if first is None else first
        factor = first / rate if first and rate else None
        served = rows[model].filter(pc.field("outcome") == "ok")
        counts = pc.value_counts(served["qos"].cast("string")).to_pylist()
        by_class = {str(count["values"]): int(count["counts"]) for count in counts}
        result[model] = Revenue(cost, rate, factor, by_qos, by_class)
        if factor is not None:
            _tariff(file, model, work, factor)
    return result


def _tariff(
    file: SimulationFile, model: Model, work: Path, factor: Fraction = Fraction(1)
) -> Tariff:
    """Write a resolved tariff, and read it as anybody would."""
    path = work / f"tariff-{model}.yaml"
    path.write_text(yamlio.dump(resolved(file, model, factor)), encoding="utf-8")
    return catalogue.read(path)
