"""Times from a list."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, field_validator

from uncia.units import Duration, format_duration
from uncia.workload.arrivals.base import ArrivalProcess


class Process(ArrivalProcess):
    """A request at each of these times from the start."""

    kind: Literal["times"]
    times: list[Duration] = Field(min_length=1, description="From the start, in order")

    @field_validator("times")
    @classmethod
    def _in_order(cls, times: list[int]) -> list[int]:
        for index, (before, time) in enumerate(pairwise(times), start=1):
            if time < before:
                raise ValueError(
                    f"times[{index}] ({format_duration(time)}) is before times[{index - 1}]"
                    f" ({format_duration(before)}): write them in order"
                )
        return times

    def engine(self) -> dict[str, Any]:
        return {"kind": "times", "times_ns": list(self.times)}

    def span_ns(self) -> int:
        return self.times[-1]

    def expected_before(self, ns: int) -> Fraction:
        return Fraction(bisect_left(self.times, ns))

    def sentence(self) -> str:
        return f"at {len(self.times)} given times within {format_duration(self.span_ns())}"
