"""The base of processes of independent gaps with a mean and a coefficient of variation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from uncia.workload.arrivals._steady import SteadyProcess

# Beyond these the engine's numbers are no longer exact to the nanosecond, and no trace is near.
CoefficientOfVariation = Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)]


class RenewalProcess(SteadyProcess):
    """Independent gaps of mean 1 / rate and a given coefficient of variation.

    `expected_before` is rate x time, which the number comes to in the long run: the first gap
    begins at the start of the process, so that with a high variation a short one has more requests
    (about (cv^2 - 1) / 2), and with a low variation fewer.
    """

    cv: CoefficientOfVariation = Field(
        description="Coefficient of variation of the gaps: standard deviation / mean"
    )

    def engine(self) -> dict[str, Any]:
        return {**super().engine(), "cv": self.cv}

    def at_rate(self) -> str:
        return f"(CV {self.cv:g}) {super().at_rate()}"
