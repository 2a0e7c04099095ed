"""A rate that swings about its mean."""

from __future__ import annotations

from fractions import Fraction
from math import cos, pi
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from uncia.units import (
    NS_PER_S,
    Duration,
    Rate,
    RateOrZero,
    format_duration,
    format_rate,
    rate_per_second_text,
)
from uncia.workload.arrivals._profile import RateProfile


class Process(RateProfile):
    """The rate at time t is mean + amplitude x sin(2 pi (t / period + phase))."""

    kind: Literal["sine"]
    mean: Rate = Field(description="The rate that it swings about")
    amplitude: RateOrZero = Field(description="How far it swings to either side; at most the mean")
    period: Duration = Field(gt=0, description="From one crest to the next")
    phase: float = Field(
        0.0,
        ge=0,
        lt=1,
        allow_inf_nan=False,
        description="In turns: 0 begins at the mean and rises, 0.25 at the crest",
    )
    duration: Duration = Field(gt=0, description="How long requests are scheduled")

    @field_validator("amplitude")
    @classmethod
    def _stays_positive(cls, amplitude: Fraction, info: ValidationInfo) -> Fraction:
        mean = info.data.get("mean")
        if mean is not None and amplitude > mean:
            raise ValueError(
                f"an amplitude of {format_rate(amplitude)} about a mean of {format_rate(mean)}"
                " makes the rate negative: write at most the mean"
            )
        return amplitude

    def engine(self) -> dict[str, Any]:
        return {
            "kind": "sine",
            "mean_per_s": rate_per_second_text(self.mean),
            "amplitude_per_s": rate_per_second_text(self.amplitude),
            "period_ns": self.period,
            "phase": self.phase,
            "duration_ns": self.duration,
            "placement": self.placement,
        }

    def span_ns(self) -> int:
        return self.duration

    def integral(self, ns: int) -> float:
        turns = ns % self.period / self.period + self.phase
        swing = cos(2 * pi * self.phase) - cos(2 * pi * turns)
        per_period = float(self.amplitude) * self.period / NS_PER_S
        return float(self.mean * ns / NS_PER_S) + per_period * swing / (2 * pi)

    def sentence(self) -> str:
        return (
            f"at {format_rate(self.mean)} +- {format_rate(self.amplitude)} in waves of"
            f" {format_duration(self.period)} for {format_duration(self.duration)}{self.placed()}"
        )
