"""The base of processes whose rate changes with time."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from math import ceil
from typing import Literal

from pydantic import Field

from uncia.workload.arrivals.base import ArrivalProcess


class RateProfile(ArrivalProcess):
    """Requests along a rate that changes with time; L(t) is its integral from 0 to t."""

    placement: Literal["even", "poisson"] = Field(
        "even",
        description="even: request k (from 0) when L passes k; poisson: a Poisson process of this"
        " rate",
    )

    @abstractmethod
    def integral(self, ns: int) -> Fraction | float:
        """L, for a time that is not after the end."""

    def expected_before(self, ns: int) -> Fraction | float:
        reached = self.integral(min(ns, self.span_ns()))
        # Request k is at the last nanosecond at which L is not above k, so it is before `ns` if L
        # is above k there.
        return reached if self.placement == "poisson" else Fraction(ceil(reached))

    def placed(self) -> str:
        """The placement in words, after the profile."""
        return ", as a Poisson process" if self.placement == "poisson" else ""
