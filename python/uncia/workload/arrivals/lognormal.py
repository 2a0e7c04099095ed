"""Lognormal gaps of mean 1 / rate and a given variation, while in the duration."""

from __future__ import annotations

from typing import Literal

from uncia.workload.arrivals._renewal import RenewalProcess


class Process(RenewalProcess):
    """Independent, lognormal gaps of mean 1 / rate."""

    kind: Literal["lognormal"]

    def sentence(self) -> str:
        return f"lognormal gaps {self.at_rate()}"
