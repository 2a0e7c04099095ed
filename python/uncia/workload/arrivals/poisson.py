"""A Poisson process: independent exponential gaps of mean 1 / rate, while in the duration."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from uncia.units import NS_PER_S, Duration, Rate, format_duration, format_rate, rate_per_second_text
from uncia.workload.arrivals.base import ArrivalProcess


class Process(ArrivalProcess):
    """A Poisson process: independent exponential gaps of mean 1 / rate, while in the duration."""

    kind: Literal["poisson"]
    rate: Rate = Field(description="Requests per second, minute or hour")
    duration: Duration = Field(gt=0, description="How long requests are scheduled")

    def engine(self) -> dict[str, Any]:
        return {
            "kind": "poisson",
            "rate_per_s": rate_per_second_text(self.rate),
            "duration_ns": self.duration,
        }

    def span_ns(self) -> int:
        return self.duration

    def expected_requests(self) -> int:
        return round(self.rate * self.duration / NS_PER_S)

    def sentence(self) -> str:
        return f"Poisson at {format_rate(self.rate)} for {format_duration(self.duration)}"
