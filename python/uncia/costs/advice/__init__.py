"""Advice: the cheapest platform and size of each function that keeps its p95, and hints.

>>> from uncia.costs.advice import advice, hints
>>> advice("results/demo", p95="200ms", tariffs=["aws-lambda-x86"])

Durations are known only at sizes at which rows ran, so a choice is *measured* or *estimated*, and
the two are ranked separately. Costs of measured choices are exact. `uncia.costs.advice.claims`
defines the confidence of a claim, `uncia.costs.advice.sample.stretched` the model of estimated
times.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from uncia.backends import Backend, Source
from uncia.costs.advice.gather import Study, Time, study
from uncia.tariffs.compare import FitRule
from uncia.tariffs.model import Tariff

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Study", "advice", "hints", "study"]


def advice(
    source: Source,
    *,
    p95: str | int | None = None,
    functions: Sequence[str] | None = None,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    fit: FitRule = "allocated",
    confidence: float = 0.95,
    of: Time = "execution",
    present: str | Path | Tariff | None = None,
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Rank the platforms and sizes for each function, best first.

    Args:
        source: an invocation table; functions are identified by name, their configurations by
            platform and allocation.
        p95: bound of the 95th percentile, such as ``200ms`` or in ns; by default none.
        functions: names; by default all.
        tariffs: ids or files; by default all that bill by request.
        fit: how allocations become sizes, ``allocated`` or ``used-peak``.
        confidence: of claims and intervals.
        of: the bounded time, ``execution`` or ``turnaround``.
        present: the tariff in use, by id or file; by default that of the platform, by its name. If
            neither is known, a choice is compared with the present size under the choice's tariff.
            The present size is the most common one.
        backend: computes it; by default a DuckDB that is opened for it.

    Returns:
        A row for each choice, by function and ``rank``; see ``docs/how-to/choose-a-platform.md``
        for the columns. Amounts are decimals with twelve places. ``attrs["notes"]`` lists what was
        left out, and why.

    Raises:
        UnciaError: an argument is wrong, the table cannot be read, or no row ran and is billed.
    """
    from uncia.costs.advice.frames import choice_frame

    with study(
        source,
        p95=p95,
        functions=functions,
        tariffs=tariffs,
        fit=fit,
        confidence=confidence,
        of=of,
        present=present,
        backend=backend,
    ) as result:
        return choice_frame(result)


def hints(
    source: Source,
    *,
    functions: Sequence[str] | None = None,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    fit: FitRule = "allocated",
    present: str | Path | Tariff | None = None,
    backend: Backend | None = None,
) -> pd.DataFrame:
    """Suggest other changes: memory, merging, splitting, concurrency, always-on, architecture.

    Args:
        source, functions, tariffs, fit, present, backend: as in `advice`.

    Returns:
        A row for each hint, by function and saving. Hints that would save nothing are left out; one
        that cannot be judged has no saving, and its note says what was not measured.

    Raises:
        UnciaError: as `advice`.
    """
    from uncia.costs.advice.frames import hint_frame

    with study(
        source,
        p95=None,
        functions=functions,
        tariffs=tariffs,
        fit=fit,
        confidence=0.95,
        of="execution",
        present=present,
        backend=backend,
        for_choices=False,
    ) as result:
        return hint_frame(result)
