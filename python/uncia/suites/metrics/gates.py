"""The metrics of gates: latencies, ratios, shares, the generator's lag and costs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from uncia.stats.comparison import LATENCIES, RATIOS, SHARES, Figure, GroupedCost
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.suites.rows import SubjectRows


def _figure(name: str, subject: SubjectRows, tariff: str) -> Figure:
    del tariff
    return subject.compared(name)


def charged(subject: SubjectRows, tariff: str) -> Mapping[str, GroupedCost]:
    """What the tariff charges for the subject's rows, by the tariff; empty if it prices none."""
    from uncia.report import costs
    from uncia.stats import bootstrap

    grouped = costs.grouped(subject.invocations, [tariff], bootstrap.SEED)
    return grouped.get(subject.form.experiment, {})


def _cost(subject: SubjectRows, tariff: str) -> Figure:
    from uncia.stats import comparison

    of_experiment = charged(subject, tariff)
    measured = subject.measured(None, subject.form.experiment)
    priced = comparison.Measured(measured.summary, measured.latency, measured.lag, of_experiment)
    figures = comparison.figures({subject.name: priced}, subject.name)
    missing = Figure(None, why=f"{tariff} has no price for these rows")
    return figures.get((subject.name, "cost", tariff), missing)


METRICS: Final = (
    *(
        Metric(
            name,
            "time",
            "ms",
            f"Latency at the client, {name}.",
            partial(_figure, name),
            of="requests",
        )
        for name in LATENCIES
    ),
    *(
        Metric(
            name,
            "ratio",
            "x",
            f"{name.upper()} as STeLLAR defines it.",
            partial(_figure, name),
            of="requests",
        )
        for name in RATIOS
    ),
    *(
        Metric(name, "share", "%", f"Share of requests that are {name}.", partial(_figure, name))
        for name in SHARES
    ),
    Metric(
        "lag",
        "time",
        "ms",
        "How late requests were sent, 99th percentile.",
        partial(_figure, "lag"),
        of="requests",
    ),
    Metric("cost", "cost", "USD", "Of a million requests under a tariff.", _cost),
)
