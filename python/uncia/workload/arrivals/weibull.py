"""Weibull-distributed gaps of mean 1 / rate and a given variation, while in the duration."""

from __future__ import annotations

from typing import Literal

from uncia.workload.arrivals._renewal import RenewalProcess


class Process(RenewalProcess):
    """Independent, Weibull-distributed gaps of mean 1 / rate; with a CV of 1 a Poisson process."""

    kind: Literal["weibull"]

    def sentence(self) -> str:
        return f"Weibull-distributed gaps {self.at_rate()}"
