"""What synthetic requests of Huawei's trace are drawn from, and where each constant is from.

*Published*: counts of rows by region, of cold starts, and of requests without CPU time, as the
filters of the cost paper's pipeline report them. *Fitted*: :data:`WEIGHTS` and the parameters of
the classes, by ``benches/bills/calibrate.py`` to the statistics that the paper and its notebooks
print (EuroSys 2026, section 2, Figures 2, 3 and 5). *Chosen*: what nothing published determines;
said where it stands.
"""

from functools import cache
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

ALL_ROWS: Final = 947_970_744
REGION_ROWS: Final = {
    "R1": 364_210_340,
    "R2": 321_345_210,
    "R3": 192_197_138,
    "R4": 66_769_797,
    "R5": 3_448_259,
}
NAN_ROWS: Final = {
    "R1": 3_727,
    "R2": 706_832,
    "R3": 148_082_665,
    "R4": 2_388_676,
    "R5": 5_180,
}
"""Rows without data or without a pod that says its size."""

LARGE_ROWS: Final = {"R2": 2_784_182}
"""Rows of pods above 10,240 MB."""

USED_ROWS: Final = 558_735_833
"""Kept rows whose CPU time is not 0; the same share in every region is a choice."""

ZERO_ROWS: Final = 235_263_649

NAN_USAGE_ROWS: Final = 587_610_349 - USED_ROWS - LARGE_ROWS["R2"]
"""Rows whose usage is NaN: those that 'CPU time != 0' keeps before anything else is filtered.

The other rows without data then have a CPU time of 0: they have no pod here.
"""

COLD_STARTS: Final = 11_913_857
MATCHED_COLD_STARTS: Final = 388_955
"""Cold starts, of 31 days, whose pod serves a request of day 30: about one day's share."""

FLAVOURS: Final = (
    (300, 128),
    (400, 256),
    (600, 512),
    (800, 768),
    (1000, 1024),
    (1200, 1280),
    (1400, 1536),
    (1600, 1792),
    (1800, 2048),
    (2200, 2560),
    (2600, 3072),
    (3000, 3584),
    (3400, 4096),
    (6600, 8192),
    (8200, 10240),
)
"""Millicores and megabytes: 200 millicores, and 100 more for each 128 MB."""

LARGE: Final = ((13000, 16384), (25800, 32768))

CLASSES: Final = ("instant", "short", "tenth", "long")

WEIGHTS: Final = (
    (0.004566, 0.116854, 0.120845, 0.001866),  # 300-128
    (0.015562, 0.077303, 0.091413, 0.001047),  # 400-256
    (0.007936, 0.081419, 0.033340, 0.011832),  # 600-512
    (0.022736, 0.045239, 0.003095, 0.008622),  # 800-768
    (0.013060, 0.061023, 0.004204, 0.013615),  # 1000-1024
    (0.063071, 0.017085, 0.000934, 0.004998),  # 1200-1280
    (0.030225, 0.011858, 0.000806, 0.004025),  # 1400-1536
    (0.015197, 0.009017, 0.000730, 0.003405),  # 1600-1792
    (0.006698, 0.018492, 0.001224, 0.005242),  # 1800-2048
    (0.002670, 0.006102, 0.000588, 0.002491),  # 2200-2560
    (0.003230, 0.005387, 0.000527, 0.002205),  # 2600-3072
    (0.004505, 0.004926, 0.000480, 0.002017),  # 3000-3584
    (0.003996, 0.011438, 0.000664, 0.003731),  # 3400-4096
    (0.003034, 0.003912, 0.000282, 0.001524),  # 6600-8192
    (0.002029, 0.003975, 0.000243, 0.001463),  # 8200-10240
)
"""Share of the rows by flavour (rows) and class (columns)."""

MU: Final = (-0.131437, 1.940939, 4.676450, 6.338796)
SIGMA: Final = (0.576134, 0.559292, 0.299303, 0.950453)
"""Of the logarithm of the execution time in ms, by class."""

MU_ZERO: Final = -1.361877
SIGMA_ZERO: Final = 0.686268
"""The same of requests whose CPU time is 0."""

CPU: Final = (-0.732000, -0.076127, -0.379135, -0.078028)
CPU_SPREAD: Final = 0.656177
CPU_BY_SIZE: Final = 0.008365
MEMORY: Final = (-2.121169, -0.569561, -0.354019, -0.311322)
MEMORY_SPREAD: Final = 0.823662
MEMORY_BY_SIZE: Final = -0.066035
"""Probit of the utilisation: by class, plus the slope by the logarithm of the vCPU."""

RHO_EXECUTION_CPU: Final = 0.022915
RHO_EXECUTION_MEMORY: Final = -0.010256
RHO_CPU_MEMORY: Final = 0.561076
"""Correlations of the latent normals."""

CLIP: Final = 3.75
"""The latent normals are cut here, so that means over some 100,000 rows can be tested."""

LARGE_CPU: Final = -0.5
LARGE_MEMORY: Final = -2.5
"""Chosen: pods above 10,240 MB use little of it, so that they do not move the published means."""

_STEPS: Final = 4096  # of the tables, in a unit of the latent normals
_REACH: Final = 8  # of the probit table

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def execution_tables() -> npt.NDArray[np.int32]:
    """Execution time in us at each latent value, of each class and of rows without CPU time.

    Rounded to whole microseconds: what is drawn does then not depend on a processor's exponential.
    Shape (classes + 1, points), for the places of :func:`latent`.
    """
    z = np.arange(-CLIP * _STEPS, CLIP * _STEPS + 1) / _STEPS
    mu, sigma = np.array([*MU, MU_ZERO]), np.array([*SIGMA, SIGMA_ZERO])
    times = 1000 * np.exp(mu[:, None] + sigma[:, None] * z)
    whole: npt.NDArray[np.int32] = np.maximum(np.rint(times), 1).astype(np.int32)
    return whole


def latent(z: Floats) -> Ints:
    """The place of latent normals in an execution table."""
    return ((z + np.float32(CLIP)) * np.float32(_STEPS) + np.float32(0.5)).astype(np.int64)


@cache
def _probits() -> Floats:
    """The normal distribution function on a grid, cut to 7 decimals."""
    normal = NormalDist()
    points = range(-_REACH * _STEPS, _REACH * _STEPS + 1)
    return np.array([round(normal.cdf(i / _STEPS), 7) for i in points], dtype=np.float32)


def probit(x: Floats) -> Floats:
    """The normal distribution function of numbers within :data:`_REACH`, by table."""
    return _probits().take(((x + np.float32(_REACH)) * np.float32(_STEPS)).astype(np.int64))


def cholesky() -> tuple[tuple[float, ...], ...]:
    """Rows of the factor that makes three independent normals correlated, to 12 decimals.

    Of execution, CPU and memory; the last correlation is the partial one given execution.
    """
    ec, em, cm = RHO_EXECUTION_CPU, RHO_EXECUTION_MEMORY, RHO_CPU_MEMORY
    rest = (1 - em**2) ** 0.5
    rows = ((1.0,), (ec, (1 - ec**2) ** 0.5), (em, cm * rest, rest * (1 - cm**2) ** 0.5))
    return tuple(tuple(round(value, 12) for value in row) for row in rows)
