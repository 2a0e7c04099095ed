"""Gaps from a list."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from itertools import accumulate
from typing import Any, Literal

from pydantic import Field

from uncia.units import Duration, format_duration
from uncia.workload.arrivals.base import ArrivalProcess


class Process(ArrivalProcess):
    """A request after each of these gaps; the first gap is from the start."""

    kind: Literal["gaps"]
    gaps: list[Duration] = Field(min_length=1, description="From one request to the next")

    def engine(self) -> dict[str, Any]:
        return {"kind": "gaps", "gaps_ns": list(self.gaps)}

    def span_ns(self) -> int:
        return sum(self.gaps)

    def expected_before(self, ns: int) -> Fraction:
        return Fraction(bisect_left(list(accumulate(self.gaps)), ns))

    def sentence(self) -> str:
        return f"at {len(self.gaps)} given gaps within {format_duration(self.span_ns())}"
