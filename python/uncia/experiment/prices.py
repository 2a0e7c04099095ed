"""Tariffs of the billing models in a simulation, and their calibration at equal revenue."""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment.simulation import Model, SimulationFile
from uncia.tariffs import catalogue
from uncia.tariffs.model import Tariff

if TYPE_CHECKING:
    from uncia.backends import Source

_DIGITS: Final = 18
"""Significant digits of a price in a file: a factor may be no decimal number."""

Cell = tuple[Model, int]
"""A model and a seed: a simulation by itself."""


@dataclass(frozen=True)
class Revenue:
    """What a model earns with a seed.

    Attributes:
        cost: of all rows, USD, exact.
        rate: USD a worker and second, exact.
        factor: all prices times this earn as much a worker and second as the first model with the
            same seed, and so the same requests; None where one of the two earns nothing.
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
    file: SimulationFile, rows: Mapping[Cell, Source], ends_ns: Mapping[Cell, int], work: Path
) -> dict[Cell, Revenue]:
    """Bill each simulation's rows by its model's tariff, and calibrate them to the first model.

    The factor of a seed is that to the first model with that seed, so that seeds are independent of
    each other; the factor in ``tariff-MODEL.yaml`` is the one by which all seeds earn as much.

    Args:
        file: what was simulated.
        rows: invocations of each model and seed, in memory or the path of a file.
        ends_ns: when each simulation ended.
        work: a folder for the resolved tariffs, which stay there as ``tariff-MODEL.yaml``.

    Raises:
        UnciaError: a tariff cannot be written or used, or leaves rows without a price.
    """
    costs: dict[Cell, dict[str, Fraction]] = {}
    served: dict[Cell, dict[str, int]] = {}
    for model in file.models:
        tariff = _tariff(file, model, work)
        for seed in file.seeds():
            costs[model, seed], served[model, seed] = _costs(tariff, rows[model, seed])

    def rate(*cells: Cell) -> Fraction:
        cost = sum((sum(costs[cell].values(), Fraction(0)) for cell in cells), Fraction(0))
        seconds = Fraction(sum(ends_ns[cell] for cell in cells), 10**9) * file.cluster.workers
        return cost / seconds if seconds else Fraction(0)

    result: dict[Cell, Revenue] = {}
    for model in file.models:
        for seed in file.seeds():
            cell = (model, seed)
            result[cell] = Revenue(
                sum(costs[cell].values(), Fraction(0)),
                rate(cell),
                _factor(rate((file.models[0], seed)), rate(cell)),
                costs[cell],
                served[cell],
            )
        first = rate(*((file.models[0], seed) for seed in file.seeds()))
        factor = _factor(first, rate(*((model, seed) for seed in file.seeds())))
        if factor is not None:
            _tariff(file, model, work, factor)
    return result


def _factor(first: Fraction, rate: Fraction) -> Fraction | None:
    return first / rate if first and rate else None


def _costs(tariff: Tariff, rows: Source) -> tuple[dict[str, Fraction], dict[str, int]]:
    """What rows cost under a tariff, USD, and how many are priced, by class.

    Of a simulation the rows that are priced are those that were served: what is preempted or turned
    away costs nothing.

    Raises:
        UnciaError: rows that are billable have no price: their cost would count as 0.
    """
    from uncia import tariffs

    lines = tariffs.bill(rows, [tariff], group_by=["qos"])
    unpriced: Counter[str] = Counter()
    for line in lines:
        unpriced.update(line.unpriced)
    if unpriced:
        why = ", ".join(f"{reason} ({count:,})" for reason, count in sorted(unpriced.items()))
        raise UnciaError(f"the tariff {tariff.id} prices not all simulated invocations: {why}")
    costs = {str(line.group["qos"]): line.exact_cost or Fraction(0) for line in lines}
    return costs, {str(line.group["qos"]): line.rows for line in lines}


def _tariff(
    file: SimulationFile, model: Model, work: Path, factor: Fraction = Fraction(1)
) -> Tariff:
    """Write a resolved tariff, and read it as anybody would."""
    path = work / f"tariff-{model}.yaml"
    path.write_text(yamlio.dump(resolved(file, model, factor)), encoding="utf-8")
    return catalogue.read(path)
