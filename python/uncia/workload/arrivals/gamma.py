"""Gamma-distributed gaps of mean 1 / rate and a given variation, while in the duration."""

from __future__ import annotations

from typing import Literal

from uncia.workload.arrivals._renewal import RenewalProcess


class Process(RenewalProcess):
    """Independent, gamma-distributed gaps of mean 1 / rate; with a CV of 1 a Poisson process."""

    kind: Literal["gamma"]

    def sentence(self) -> str:
        return f"gamma-distributed gaps {self.at_rate()}"
