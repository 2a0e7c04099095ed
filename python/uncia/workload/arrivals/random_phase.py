"""A constant rate that begins at a random moment of its first interval."""

from __future__ import annotations

from typing import Literal

from uncia.workload.arrivals._steady import SteadyProcess


class Process(SteadyProcess):
    """Request k (from 0) is at (k + u) / rate, u drawn once from [0, 1), while in the duration.

    What FaaSProfiler calls "Uniform". Functions of the same rate do not send at the same moments.
    """

    kind: Literal["random_phase"]

    def sentence(self) -> str:
        return f"evenly, from a random phase, {self.at_rate()}"
