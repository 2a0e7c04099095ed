"""What to change: for each function the cheapest platform and size that keeps its p95, and hints.

>>> from uncia.costs.advice import advice, hints
>>> advice("results/demo", p95="200ms", tariffs=["aws-lambda-x86"])

Durations are only known at sizes at which rows ran, so a choice is *measured* or *estimated*, and
the two are ranked apart. Costs of measured choices are exact. See `uncia.costs.advice.claims` for
what the confidence of a claim means, and `uncia.costs.advice.sample.stretched` for the model behind
estimated times.
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
    present: str | None = None,
    backend: Backend | None = None,
) -> pd.DataFrame:
    """The platforms and sizes for each function, best first.

    Args:
        source: an invocation table; functions are told apart by name, and their rows by platform
            and allocation.
        p95: bound of the 95th percentile, such as ``200ms`` or in ns; by default none.
        functions: names; by default all.
        tariffs: ids or files; by default all that bill by request.
        fit: how allocations become sizes, ``allocated`` or ``used-peak``.
        confidence: with which a claim must hold, and of every interval.
        of: the time that the bound is of, ``execution`` or ``turnaround``.
        present: id of the tariff in use; by default that of the platform, by its name. If neither
            is known, a choice is compared with the present size under its own tariff. The present
            size is that of most rows.
        backend: where it is computed; by default a DuckDB of its own.

    Returns:
        One row a choice, by function and ``rank``; see ``docs/how-to/choose-a-platform.md`` for the
        columns. Amounts are decimals, rounded at the twelfth place. What was not done is said in
        ``attrs["notes"]``.

    Raises:
        UnciaError: an argument is wrong, or the table cannot be read or holds nothing to advise on.
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
    ) as found:
        return choice_frame(found)


def hints(
    source: Source,
    *,
    functions: Sequence[str] | None = None,
    tariffs: Sequence[str | Path | Tariff] | None = None,
    fit: FitRule = "allocated",
    present: str | None = None,
    backend: Backend | None = None,
) -> pd.DataFrame:
    """What else could be changed: memory, merging, splitting, concurrency, always-on, architecture.

    Args:
        source, functions, tariffs, fit, present, backend: as of `advice`.

    Returns:
        One row a hint, by function and saving. A hint that would save nothing is not there; one
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
    ) as found:
        return hint_frame(found)
