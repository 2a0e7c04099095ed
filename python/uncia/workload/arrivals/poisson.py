"""A Poisson process: independent exponential gaps of mean 1 / rate, while in the duration."""

from __future__ import annotations

from typing import Literal

from uncia.workload.arrivals._steady import SteadyProcess


class Process(SteadyProcess):
    """A Poisson process: independent exponential gaps of mean 1 / rate, while in the duration."""

    kind: Literal["poisson"]

    def sentence(self) -> str:
        return f"Poisson {self.at_rate()}"
