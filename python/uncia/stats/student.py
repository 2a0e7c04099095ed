"""Student's t distribution: probabilities and quantiles, for one degree of freedom or more."""

import math
from functools import lru_cache
from typing import Final

import numpy as np

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)

_BISECTIONS: Final = 80
"""Halvings of the angle that a quantile is searched in: beyond the precision of a double."""


def cdf(t: float, freedom: float) -> float:
    """The probability of a value of at most ``t``.

    With ``t = sqrt(freedom) * tan(angle)`` the density becomes a power of a cosine, which is smooth
    and bounded, so that Gauss-Legendre quadrature gives it to 10 digits and more.

    Raises:
        ValueError: less than one degree of freedom.
    """
    if not freedom >= 1:
        raise ValueError("Student's t is computed for one degree of freedom or more")
    half = _half(math.atan(abs(t) / math.sqrt(freedom)), freedom)
    return 0.5 + math.copysign(min(0.5, half), t)


@lru_cache(maxsize=4096)
def quantile(p: float, freedom: float) -> float:
    """The value that is exceeded with probability 1 - ``p``, 0 < ``p`` < 1.

    Raises:
        ValueError: ``p`` is not between 0 and 1, or less than one degree of freedom.
    """
    if not 0 < p < 1:
        raise ValueError("the order of a quantile lies between 0 and 1")
    if not freedom >= 1:
        raise ValueError("Student's t is computed for one degree of freedom or more")
    target = abs(p - 0.5)
    low, high = 0.0, math.pi / 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _half(middle, freedom) < target:
            low = middle
        else:
            high = middle
    return math.copysign(math.sqrt(freedom) * math.tan(low), p - 0.5)


def _half(angle: float, freedom: float) -> float:
    """The probability between 0 and ``sqrt(freedom) * tan(angle)``."""
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(math.pi) / 2
    # Beyond 40 standard deviations nothing is left, and a narrow peak would be missed.
    width = min(angle, 40 / math.sqrt(freedom))
    angles = width / 2 * (_NODES + 1)
    powers = np.exp((freedom - 1) * np.log(np.cos(angles)))
    return float(math.exp(log_scale) * width / 2 * (_WEIGHTS @ powers))
