"""The BB Trace: what a provider publishes of its functions, completed with threads and phases.

From Cao and others, *Making Serverless Pay-For-Use a Reality with Leopard* (NSDI 2025), section
5.1.2. ``crates/bb`` makes it; here is what it is made of: :class:`Settings`, which are the open
choices, the forms of `uncia.traces.bb.forms`, and functions from an import
(`uncia.traces.bb.source`) or from a population.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from uncia.forms import Form
from uncia.traces.bb import forms, source

__all__ = ["MINUTES", "Choices", "Settings", "engine"]

MINUTES: Final = 60
"""Minutes of a trace."""

Size = Literal["small", "medium", "large", "mixed"]
Placement = Literal["equidistant", "uniform", "exponential"]


class Choices(Form):
    """What is open of a trace, but for the provider's functions and the seed."""

    functions: int = Field(
        1000, ge=1, le=1_000_000, description="How many; of an import, a random sample"
    )
    hour: int = Field(1, ge=1, le=100_000, description="Which hour of the trace, from 1")
    size: Size = Field(
        "medium", description="Input of the suite's functions; mixed: each by chance"
    )
    placement: Placement = Field("exponential", description="Where in its minute an invocation is")
    utilization: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Part of its CPU limit that a function uses, averaged over functions; by"
        " default as its profile says",
    )
    utilization_deviation: float = Field(
        0.1, ge=0, le=10, description="Standard deviation of that between functions"
    )
    batch_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Part of the invocations that are batch; by default as the functions are",
    )
    load: float = Field(1.0, gt=0, le=1e6, description="What the counts are multiplied by")


class Settings(Choices):
    """What a trace is made of, but for the provider's functions."""

    seed: int = Field(0, ge=0, lt=2**64)


def engine(
    settings: Settings, folder: Path | None, profiles: Path | None
) -> tuple[dict[str, Any], list[str]]:
    """What ``uncia-engine bb`` takes as ``trace``, and sentences on what was left out.

    Args:
        settings: the choices.
        folder: an import with arrivals and profiles; None for a population.
        profiles: measured profiles; None for the prior.

    Raises:
        UnciaError: a file or table cannot be read, or has too little for these settings.
    """
    start = (settings.hour - 1) * MINUTES
    warnings: list[str] = []
    given: dict[str, Any]
    if folder is None:
        population = forms.population().model_dump()
        given = {"synthetic": {"functions": settings.functions, "population": population}}
    else:
        sample = source.read(folder, start, MINUTES, settings.functions, settings.seed)
        given, warnings = {"given": sample.functions}, sample.warnings
    utilization = settings.utilization and {
        "mean": settings.utilization,
        "deviation": settings.utilization_deviation,
    }
    return {
        "seed": settings.seed,
        "start_minute": start,
        "minutes": MINUTES,
        "source": given,
        "profiles": {"prior": forms.prior().engine()}
        if profiles is None
        else {"given": forms.profiles(profiles).engine()},
        "size": settings.size,
        "placement": settings.placement,
        "utilization": utilization,
        "batch_share": settings.batch_share,
        "load": settings.load,
    }, warnings
