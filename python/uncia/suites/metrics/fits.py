"""The metric of power laws that entries draw through their subjects (`uncia.suites.fits`)."""

from __future__ import annotations

from typing import Final

from uncia.suites.metrics import Metric

METRICS: Final = (
    Metric(
        "exponent", "number", "", "The exponent of a power law through subjects.", is_of_fits=True
    ),
)
