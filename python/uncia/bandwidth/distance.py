"""How far apart two samples are: the Wasserstein-1 distance, by quantiles."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_ORDERS: Final = (np.arange(2_000) + 0.5) / 2_000


def distance(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """The mean distance between 2,000 quantiles of the one and the other, in their unit.

    Interpolated between the values, unlike the quantiles that are reported: it is the area between
    two distribution functions, not one of the values.

    Args:
        one: shape (n,), n >= 1.
        other: shape (m,), m >= 1.
    """
    return float(np.abs(np.quantile(one, _ORDERS) - np.quantile(other, _ORDERS)).mean())
