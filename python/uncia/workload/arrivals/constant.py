"""A constant rate: request k (from 0) is at k / rate, while that is before the duration."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Literal

from uncia.workload.arrivals._steady import SteadyProcess


class Process(SteadyProcess):
    """A constant rate: request k (from 0) is at k / rate, while that is before the duration."""

    kind: Literal["constant"]

    def expected_before(self, ns: int) -> Fraction:
        # Request k is due at k / rate, so the count is the ceiling of rate x time.
        return Fraction(ceil(super().expected_before(ns)))

    def sentence(self) -> str:
        return f"evenly {self.at_rate()}"
