"""What functions pay in a simulation, against what they pay under its first model.

All at prices by which both models earn as much a worker and second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.suites.simulated import SimulatedRows

_QUANTILES: Final = (10, 25, 50, 75, 90)
_LIMITS: Final = "npfu/limits.yaml"


def _ratios(subject: SimulatedRows) -> list[np.ndarray]:
    """For each seed, what each function pays over what it pays under the first model."""
    listed = []
    for seed, values, base_values in zip(
        subject.seeds, subject.values, subject.base_values, strict=True
    ):
        mine = _costs(subject, subject.model, seed, values)
        base = _costs(subject, subject.base, seed, base_values)
        listed.append(
            np.array([cost / base[name] for name, cost in mine.items() if base.get(name)])
        )
    return listed


def _costs(
    subject: SimulatedRows, model: str, seed: int, values: Mapping[str, Any]
) -> Mapping[str, float]:
    """What each function pays for an invocation at the seed's equal revenue, USD."""
    experiments = tuple(subject.experiment(model, known) for known in subject.seeds)
    own_tariff = subject.folder / f"tariff-{model}.yaml"
    bills = _bills(subject.folder, experiments, own_tariff, "function")
    experiment = subject.experiment(model, seed)
    costs = bills[experiment]
    counts = _served(subject.folder)
    # The prices of the tariff are those by which all seeds together earn as much.
    factor = values["price_factor_at_equal_revenue"] or 0.0
    scale = values["cost_usd"] * factor / sum(costs.values())
    return {
        name: cost * scale / counts[experiment, name]
        for name, cost in costs.items()
        if (experiment, name) in counts
    }


@lru_cache(maxsize=1)
def _rows(folder: Path) -> pa.Table:
    """The invocations of a run, without what no bill reads."""
    from uncia import record

    return record.read(folder, "invocations").drop_columns(["phases"])


@lru_cache(maxsize=64)
def _bills(
    folder: Path, experiments: tuple[str, ...], tariff: Path, by: str
) -> Mapping[str, Mapping[str, float]]:
    """What the rows of experiments cost under a tariff, USD, by experiment and a column."""
    from uncia import tariffs

    rows = _rows(folder)
    rows = rows.filter(pc.is_in(rows["experiment"].cast("string"), value_set=pa.array(experiments)))
    bills: dict[str, dict[str, float]] = {name: {} for name in experiments}
    for line in tariffs.bill(rows, [tariffs.read(tariff)], group_by=["experiment", by]):
        bills[str(line.group["experiment"])][str(line.group[by])] = float(line.exact_cost or 0)
    return bills


@lru_cache(maxsize=1)
def _served(folder: Path) -> Mapping[tuple[str, str], int]:
    """How many invocations were served, by experiment and function."""
    rows = _rows(folder)
    rows = rows.filter(pc.equal(rows["outcome"].cast("string"), "ok"))
    keys = ["experiment", "function"]
    named = pa.table({key: rows[key].cast("string") for key in keys})
    counted = named.group_by(keys).aggregate([([], "count_all")]).to_pylist()
    return {(row["experiment"], row["function"]): row["count_all"] for row in counted}


def _at_most(bound: float, subject: SimulatedRows) -> Sequence[float | None]:
    """The share of functions that pay at most so many percent."""
    return [100 * float((part <= bound / 100).mean()) for part in _ratios(subject)]


def _above(bound: float, subject: SimulatedRows) -> Sequence[float | None]:
    return [100 - share if share is not None else None for share in _at_most(bound, subject)]


def _quantile(percent: int, subject: SimulatedRows) -> Sequence[float | None]:
    return [100 * float(np.quantile(part, percent / 100)) for part in _ratios(subject)]


def _batch_part(tariff: str, subject: SimulatedRows) -> Sequence[float | None]:
    """The part of all bills that batch invocations pay under a tariff, percent."""
    from uncia.paths import data
    from uncia.tariffs import catalogue

    path = {
        "limits": data("experiments") / _LIMITS,
        "lent": subject.folder / f"tariff-{subject.model}.yaml",
    }.get(tariff, catalogue.path(tariff))
    experiments = tuple(subject.experiment(subject.model, seed) for seed in subject.seeds)
    bills = _bills(subject.folder, experiments, path, "qos")
    return [_share_of_batch(bills[experiment]) for experiment in experiments]


def _share_of_batch(costs: Mapping[str, float]) -> float | None:
    whole = sum(costs.values())
    return 100 * costs.get("batch", 0.0) / whole if whole else None


METRICS: Final = (
    Metric(
        "halved",
        "number",
        "%",
        "Functions that pay at most half of what they pay under the first model.",
        simulate=partial(_at_most, 50),
        is_geometric=False,
    ),
    Metric(
        "cheaper",
        "number",
        "%",
        "Functions that pay less than under the first model, by 0.1 % at least.",
        simulate=partial(_at_most, 99.9),
        is_geometric=False,
    ),
    Metric(
        "dearer_by_half",
        "number",
        "%",
        "Functions that pay more than half as much again.",
        simulate=partial(_above, 150),
        is_geometric=False,
    ),
    *(
        Metric(
            f"cost_p{percent}",
            "number",
            "%",
            f"Cost of a function, of that under the first model; {percent} % pay less.",
            simulate=partial(_quantile, percent),
        )
        for percent in _QUANTILES
    ),
    *(
        Metric(
            f"batch_part_by_{name}",
            "number",
            "%",
            f"What batch invocations pay of all bills, if {words}.",
            simulate=partial(_batch_part, tariff),
            is_geometric=False,
        )
        for name, tariff, words in (
            ("limits", "limits", "only reservations are billed"),
            ("usage", "spfu", "only use is billed"),
            ("used_lent", "lent", "what is borrowed is paid to who lends"),
        )
    ),
)
