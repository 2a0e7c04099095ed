"""The Wasserstein-1 distance of two samples, by quantiles."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_ORDERS: Final = (np.arange(2_000) + 0.5) / 2_000


def distance(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float:
    """Compute the mean distance between 2,000 quantiles of two samples, in their unit.

    Unlike reported quantiles, these are interpolated, because the distance is the area between two
    distribution functions and not one of the values.

    Args:
        first: shape (n,), n >= 1.
        second: shape (m,), m >= 1.
    """
    return float(np.abs(np.quantile(first, _ORDERS) - np.quantile(second, _ORDERS)).mean())
