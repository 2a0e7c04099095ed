"""Forms that a BB Trace is drawn from: the prior, measured profiles, a provider's population."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from uncia import yamlio
from uncia.forms import Form, Name

_PRIOR: Final = Path(__file__).with_name("prior.yaml")
_POPULATION: Final = Path(__file__).parent.with_name("azure2019.yaml")

Possible = Literal["interactive", "batch", "both"]
Pair = list[float]


class Sourced(Form):
    """Figures, and where they are from."""

    source: str = Field(min_length=1, description="A section of the paper, or: assumption")
    note: str = ""


class Range(Sourced):
    """From the least to the greatest."""

    low: float = Field(gt=0)
    high: float = Field(gt=0)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Peak(Range):
    """Most threads, in parts of their mean."""

    low: float = Field(ge=1)


class Phases(Range):
    """Numbers of phases."""

    low: int = Field(ge=1, le=10_000)
    high: int = Field(ge=1, le=10_000)


class BySize(Sourced):
    """The mean by input, in parts of that with medium input."""

    small: float = Field(gt=0)
    medium: float = Field(gt=0)
    large: float = Field(gt=0)


class SuiteFunction(Form):
    """A function of the suite."""

    name: Name
    application: str = ""
    qos: Possible = Field(description="What it may be")
    urgent: bool = Field(False, description="No spot cores while it is interactive")


class Prior(Form):
    """What profiles are drawn from where none were measured."""

    mean: Range
    by_size: BySize
    peak: Peak
    phases: Phases
    functions: list[SuiteFunction] = Field(min_length=1)

    @model_validator(mode="after")
    def _room(self) -> Self:
        small, large = self.by_size.small, self.by_size.large
        if self.mean.low / small > self.mean.high / large:
            raise ValueError("mean: the range leaves no room for the sizes' ratio")
        return self

    def engine(self) -> dict[str, Any]:
        """The prior as the engine takes it."""
        sizes = self.by_size
        return {
            "functions": [f.model_dump(exclude={"application"}) for f in self.functions],
            "mean": [self.mean.low, self.mean.high],
            "by_size": [sizes.small, sizes.medium, sizes.large],
            "peak": [self.peak.low, self.peak.high],
            "phases": [self.phases.low, self.phases.high],
        }


class Parallelism(Form):
    """Threads that run."""

    mean: float = Field(ge=0, description="Averaged over an invocation")
    max: int = Field(ge=1, le=100_000, description="At most")

    @model_validator(mode="after")
    def _mean_is_less(self) -> Self:
        if self.mean > self.max:
            raise ValueError("mean is above max")
        return self


class Sizes(Form):
    """By the input."""

    small: Parallelism
    medium: Parallelism
    large: Parallelism


class Profile(SuiteFunction):
    """A function of the suite, as it was measured or drawn."""

    phases: int = Field(ge=1, le=10_000, description="Of an invocation")
    sizes: Sizes


class Profiles(Form):
    """Profiles instead of the prior."""

    profiles: list[Profile] = Field(min_length=1)

    def engine(self) -> list[dict[str, Any]]:
        """The profiles as the engine takes them."""
        return [profile.model_dump(exclude={"application"}) for profile in self.profiles]


class Daily(Form):
    """Invocations of a function in a day."""

    log_mean: float
    log_deviation: float = Field(ge=0)
    max_deviations: float = Field(gt=0)


class Durations(Form):
    """Durations, in seconds."""

    log_mean: float
    log_deviation: float = Field(ge=0)
    deviations: Pair = Field(min_length=2, max_length=2)
    spread: Pair = Field(min_length=2, max_length=2)
    points: list[Pair] = Field(min_length=1)


class Memory(Form):
    """Memory of applications, in bytes."""

    c: float = Field(gt=0)
    k: float = Field(gt=0)
    scale: float = Field(gt=0)
    uniform: Pair = Field(min_length=2, max_length=2)
    points: list[Pair] = Field(min_length=1)


class Population(Form):
    """A provider's functions as distributions."""

    daily: Daily
    swing: float = Field(ge=0, le=1)
    durations: Durations
    memory: Memory
    functions_per_app: int = Field(ge=1)


def prior() -> Prior:
    """The prior of the suite's profiles."""
    return yamlio.validate(Prior, yamlio.load(_PRIOR))


def population() -> Population:
    """Azure's functions of 2019."""
    return yamlio.validate(Population, yamlio.load(_POPULATION))


def profiles(path: Path) -> Profiles:
    """Read profiles: what ``profiles.yaml`` of a made trace is, too.

    Raises:
        UnciaError: the file cannot be read, or is none: with file, line and key.
    """
    return yamlio.validate(Profiles, yamlio.load(path))
