"""A constant rate: request k (from 0) is at k / rate, while that is before the duration."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from uncia.units import NS_PER_S, Duration, Rate, format_duration, format_rate, rate_per_second_text
from uncia.workload.arrivals.base import ArrivalProcess


class Process(ArrivalProcess):
    """A constant rate: request k (from 0) is at k / rate, while that is before the duration."""

    kind: Literal["constant"]
    rate: Rate = Field(description="Requests per second, minute or hour")
    duration: Duration = Field(gt=0, description="How long requests are scheduled")

    def engine(self) -> dict[str, Any]:
        return {
            "kind": "constant",
            "rate_per_s": rate_per_second_text(self.rate),
            "duration_ns": self.duration,
        }

    def span_ns(self) -> int:
        return self.duration

    def expected_requests(self) -> int:
        # Request k is due at k / rate, so the count is the ceiling of rate x duration.
        return -(-self.rate.numerator * self.duration // (self.rate.denominator * NS_PER_S))

    def sentence(self) -> str:
        return f"evenly at {format_rate(self.rate)} for {format_duration(self.duration)}"
