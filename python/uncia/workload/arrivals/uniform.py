"""Gaps drawn evenly from an interval, while in the duration."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from uncia.units import Duration, format_duration
from uncia.workload.arrivals.base import ArrivalProcess


class Process(ArrivalProcess):
    """Independent gaps, each uniformly distributed between the least and the greatest."""

    kind: Literal["uniform"]
    min_gap: Duration = Field(0, description="The least time from one request to the next")
    max_gap: Duration = Field(gt=0, description="The greatest time from one request to the next")
    duration: Duration = Field(gt=0, description="How long requests are scheduled")

    @field_validator("max_gap")
    @classmethod
    def _in_order(cls, max_gap: int, info: ValidationInfo) -> int:
        min_gap = info.data.get("min_gap", 0)
        if max_gap < min_gap:
            raise ValueError(
                f"the greatest gap ({format_duration(max_gap)}) is less than the least"
                f" ({format_duration(min_gap)})"
            )
        return max_gap

    def engine(self) -> dict[str, Any]:
        return {
            "kind": "uniform",
            "min_gap_ns": self.min_gap,
            "max_gap_ns": self.max_gap,
            "duration_ns": self.duration,
        }

    def span_ns(self) -> int:
        return self.duration

    def expected_before(self, ns: int) -> Fraction:
        return Fraction(2 * min(ns, self.duration), self.min_gap + self.max_gap)

    def sentence(self) -> str:
        return (
            f"gaps of {format_duration(self.min_gap)} to {format_duration(self.max_gap)}"
            f" for {format_duration(self.duration)}"
        )
