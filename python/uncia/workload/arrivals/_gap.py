"""Distributions of the time from one burst to the next."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from uncia.forms import Form
from uncia.units import Duration, format_duration
from uncia.workload.arrivals._renewal import CoefficientOfVariation


class _Gap(Form):
    @abstractmethod
    def engine(self) -> dict[str, Any]:
        """The distribution as the engine takes it."""

    @abstractmethod
    def mean_ns(self) -> float:
        """Its mean in nanoseconds."""

    @abstractmethod
    def sentence(self) -> str:
        """The distribution in a few words, after "at gaps"."""


class Fixed(_Gap):
    """Always the same."""

    distribution: Literal["fixed"]
    interval: Duration = Field(gt=0, description="From one burst to the next")

    def engine(self) -> dict[str, Any]:
        return {"distribution": "fixed", "ns": self.interval}

    def mean_ns(self) -> float:
        return self.interval

    def sentence(self) -> str:
        return f"of {format_duration(self.interval)}"


class Exponential(_Gap):
    """Shift plus an exponentially distributed time."""

    distribution: Literal["exponential"]
    mean: Duration = Field(gt=0, description="Mean of the random part")
    shift: Duration = Field(0, description="Added to every gap: the least that it can be")

    def engine(self) -> dict[str, Any]:
        return {"distribution": "exponential", "mean_ns": self.mean, "shift_ns": self.shift}

    def mean_ns(self) -> float:
        return self.mean + self.shift

    def sentence(self) -> str:
        least = f" after {format_duration(self.shift)}" if self.shift else ""
        return f"exponential of mean {format_duration(self.mean)}{least}"


class Uniform(_Gap):
    """Evenly distributed between two times."""

    distribution: Literal["uniform"]
    min: Duration = Field(0, description="The least")
    max: Duration = Field(gt=0, description="The greatest")

    @field_validator("max")
    @classmethod
    def _in_order(cls, greatest: int, info: ValidationInfo) -> int:
        least = info.data.get("min", 0)
        if greatest < least:
            raise ValueError(
                f"the greatest gap ({format_duration(greatest)}) is less than the least"
                f" ({format_duration(least)})"
            )
        return greatest

    def engine(self) -> dict[str, Any]:
        return {"distribution": "uniform", "min_ns": self.min, "max_ns": self.max}

    def mean_ns(self) -> float:
        return (self.min + self.max) / 2

    def sentence(self) -> str:
        return f"of {format_duration(self.min)} to {format_duration(self.max)}"


class Varied(_Gap):
    """Gamma, Weibull or lognormal, by mean and coefficient of variation."""

    distribution: Literal["gamma", "weibull", "lognormal"]
    mean: Duration = Field(gt=0, description="Mean")
    cv: CoefficientOfVariation = Field(description="Standard deviation / mean")

    def engine(self) -> dict[str, Any]:
        return {"distribution": self.distribution, "mean_ns": self.mean, "cv": self.cv}

    def mean_ns(self) -> float:
        return self.mean

    def sentence(self) -> str:
        return f"{self.distribution} of mean {format_duration(self.mean)} and CV {self.cv:g}"


Gap = Annotated[Fixed | Exponential | Uniform | Varied, Field(discriminator="distribution")]
