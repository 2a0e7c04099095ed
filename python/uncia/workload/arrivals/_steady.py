"""The base of processes with one rate and one duration."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from pydantic import Field

from uncia.units import NS_PER_S, Duration, Rate, format_duration, format_rate, rate_per_second_text
from uncia.workload.arrivals.base import ArrivalProcess


class SteadyProcess(ArrivalProcess):
    """A process whose rate is the same, on average, for as long as it lasts."""

    rate: Rate = Field(description="Requests per second, minute or hour")
    duration: Duration = Field(gt=0, description="How long requests are scheduled")

    def engine(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "rate_per_s": rate_per_second_text(self.rate),
            "duration_ns": self.duration,
        }

    def span_ns(self) -> int:
        return self.duration

    def expected_before(self, ns: int) -> Fraction:
        return self.rate * min(ns, self.duration) / NS_PER_S

    def at_rate(self) -> str:
        """The rate and the duration in words."""
        return f"at {format_rate(self.rate)} for {format_duration(self.duration)}"
