"""Execution as the platform reports it, which is what providers bill."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from uncia.stats import bootstrap
from uncia.stats.comparison import Figure
from uncia.stats.quantiles import QUANTILES, minimum_rows, quantile
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.suites.rows import SubjectRows

_NS_PER_MS: Final = 1e6
_NONE: Final = "no request succeeded with an execution that the platform reports"


def _mean(subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    values = subject.ordered("execution")
    n, needed = int(values.size), minimum_rows(QUANTILES["p50"])
    if n == 0:
        return Figure(None, why=_NONE)
    mean = float(values.mean()) / _NS_PER_MS
    if n < needed:
        return Figure(mean, rows=n, needed=needed)
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "execution_mean")
    return Figure(mean, bootstrap.means(values, rng) / _NS_PER_MS, n)


def _quantile(name: str, subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    values, order = subject.ordered("execution"), QUANTILES[name]
    value, n, needed = quantile(values, order), int(values.size), minimum_rows(order)
    if value is None:
        return Figure(None, why=_NONE)
    if n < needed:
        return Figure(value / _NS_PER_MS, rows=n, needed=needed)
    # All quantiles of a subject are drawn jointly, so that their ratios have the right spread.
    rng = bootstrap.generator(bootstrap.SEED, subject.name, "execution")
    draws = bootstrap.quantiles(values, tuple(QUANTILES.values()), rng) / _NS_PER_MS
    return Figure(value / _NS_PER_MS, draws[list(QUANTILES).index(name)], n)


METRICS: Final = (
    Metric("execution_mean", "time", "ms", "Mean execution, as the platform reports it.", _mean),
    *(
        Metric(
            f"execution_{name}",
            "time",
            "ms",
            f"Execution as the platform reports it, {name}.",
            partial(_quantile, name),
        )
        for name in QUANTILES
    ),
)
