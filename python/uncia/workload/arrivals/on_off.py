"""Times of one rate and times of another, taking turns at random (MMPP with two states)."""

from __future__ import annotations

from fractions import Fraction
from math import exp
from typing import Any, Literal

from pydantic import Field

from uncia.units import (
    NS_PER_S,
    Duration,
    Rate,
    RateOrZero,
    format_duration,
    format_rate,
    rate_per_second_text,
)
from uncia.workload.arrivals.base import ArrivalProcess


class Process(ArrivalProcess):
    """A Markov-modulated Poisson process: Poisson at a rate that is switched at random.

    How long it is on and off is exponentially distributed with the two means.
    """

    kind: Literal["on_off"]
    on_rate: Rate = Field(description="While it is on")
    off_rate: RateOrZero = Field(Fraction(0), description="While it is off; 0/s sends nothing then")
    mean_on: Duration = Field(gt=0, description="How long it stays on, on average")
    mean_off: Duration = Field(gt=0, description="How long it stays off, on average")
    duration: Duration = Field(gt=0, description="How long requests are scheduled")
    start: Literal["on", "off", "stationary"] = Field(
        "stationary", description="How it begins; stationary: drawn, as if it had run for ever"
    )

    def engine(self) -> dict[str, Any]:
        return {
            "kind": "on_off",
            "on_rate_per_s": rate_per_second_text(self.on_rate),
            "off_rate_per_s": rate_per_second_text(self.off_rate),
            "mean_on_ns": self.mean_on,
            "mean_off_ns": self.mean_off,
            "duration_ns": self.duration,
            "start": self.start,
        }

    def span_ns(self) -> int:
        return self.duration

    def expected_before(self, ns: int) -> float:
        time = min(ns, self.duration)
        share = self.mean_on / (self.mean_on + self.mean_off)
        first = {"on": 1.0, "off": 0.0, "stationary": share}[self.start]
        # The probability of being on decays from `first` to `share` with this rate; this is its
        # integral.
        decay = 1 / self.mean_on + 1 / self.mean_off
        on = share * time + (first - share) * (1 - exp(-decay * time)) / decay
        return float(self.on_rate) * on / NS_PER_S + float(self.off_rate) * (time - on) / NS_PER_S

    def sentence(self) -> str:
        return (
            f"Poisson at {format_rate(self.on_rate)} for {format_duration(self.mean_on)} and at"
            f" {format_rate(self.off_rate)} for {format_duration(self.mean_off)} (means), in turn,"
            f" for {format_duration(self.duration)}"
        )
