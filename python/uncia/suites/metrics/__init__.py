"""Metrics of a subject's rows: those of gates, and those of papers, a file each.

A metric is found by its place: every module here lists its own in ``METRICS``. Each is computed as
a `uncia.stats.comparison.Figure`, with what its interval needs: draws of a bootstrap, or counts.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from uncia.errors import UnciaError
from uncia.text import nearest

if TYPE_CHECKING:
    from uncia.stats.comparison import Figure
    from uncia.suites.rows import SubjectRows
    from uncia.suites.simulated import SimulatedRows
    from uncia.suites.traced import TracedGroup

Kind = Literal["time", "share", "ratio", "number", "cost"]
Population = Literal["rows", "requests", "chains", "complete"]


@dataclass(frozen=True)
class Metric:
    """A number that summarises rows.

    Attributes:
        name: lower-case letters, ``_``, then digits.
        kind: of number; times are in ms, shares in percent.
        unit: as it is written after a number.
        description: what it is, in a sentence.
        compute: the figure of a subject's rows, and a tariff ("" but for costs); None for metrics
            of others.
        simulate: the value for each seed of a simulated subject, None where there is none; None
            for metrics of others.
        profile: the figure of functions of a trace; None for metrics of others.
        locality: the value of a line of `uncia.suites.locality`, of which there is one for each
            seed; None for metrics of others.
        is_of_fits: whether it is of the power laws that entries draw.
        is_geometric: whether its mean over seeds is the geometric one, as of rates, times and
            ratios; of parts of a whole it is the arithmetic one.
        counts_all: whether what failed is in the figure as well.
        of: what must not have failed much, or its figure is one of the survivors: invocations,
            clients' requests, the chains that these began, or chains to their last stage.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    compute: Callable[[SubjectRows, str], Figure] | None = None
    simulate: Callable[[SimulatedRows], Sequence[float | None]] | None = None
    profile: Callable[[TracedGroup], Figure] | None = None
    locality: Callable[[Mapping[str, Any]], float | None] | None = None
    is_of_fits: bool = False
    is_geometric: bool = True
    counts_all: bool = False
    of: Population = "rows"


@cache
def all_metrics() -> Mapping[str, Metric]:
    """Every metric by name, in the order of the modules' names."""
    listed: dict[str, Metric] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        for item in importlib.import_module(f"{__name__}.{info.name}").METRICS:
            if item.name in listed:
                raise ValueError(f"two metrics are called {item.name}")
            listed[item.name] = item
    return listed


def metric(name: str, text: str) -> Metric:
    """The metric of this name.

    Args:
        name: of a metric.
        text: the expression that names it, for the message.

    Raises:
        UnciaError: there is none.
    """
    known = all_metrics()
    if name not in known:
        close = nearest(name, known)
        hint = f"Did you mean {close}?" if close else f"The metrics are {', '.join(known)}."
        raise UnciaError(f"{text!r}: there is no metric {name!r}", hint=hint)
    return known[name]
