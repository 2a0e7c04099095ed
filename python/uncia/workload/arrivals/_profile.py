"""What processes of a rate that changes with time have in common."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from math import floor
from typing import Literal

from pydantic import Field

from uncia.workload.arrivals.base import ArrivalProcess


class RateProfile(ArrivalProcess):
    """Requests along a rate that changes with time; L(t) is its integral from 0 to t."""

    placement: Literal["even", "poisson"] = Field(
        "even",
        description="even: request k (from 0) when L reaches k; poisson: a Poisson process of that"
        " rate",
    )

    @abstractmethod
    def integral(self, ns: int) -> Fraction | float:
        """L, for a time that is not after the end."""

    def expected_before(self, ns: int) -> Fraction | float:
        end = min(ns, self.span_ns())
        if end <= 0:
            return 0.0
        if self.placement == "poisson":
            return self.integral(end)
        # Request k is in the first nanosecond at which L has reached k.
        return float(floor(self.integral(end - 1)) + 1)

    def placed(self) -> str:
        """The placement in words, after the profile."""
        return ", as a Poisson process" if self.placement == "poisson" else ""
