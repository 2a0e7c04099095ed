"""The quota: the share of time obtained, times the period.

The kernel carries debts over (``distribute_cfs_runtime`` pays them first), so what is obtained in
the long run is the quota, however much single runs overrun.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from uncia.bandwidth.infer import limits
from uncia.bandwidth.infer.trace import Trace

WITHIN: Final = 0.05
_SYSTEMATIC: Final = 0.012  # what resumption and tasks beside the probe take of the quota


@dataclass(frozen=True)
class Share:
    """CPU time obtained over wall-clock time, between the first and the last gap of every run.

    Attributes:
        value: the share.
        error: its standard error over runs (or pieces of one), relative.
        confidence: that quota and share agree to 5 %.
    """

    value: float
    error: float
    confidence: float


def find(trace: Trace) -> Share | None:
    """The share, or None if no run has two gaps."""
    pairs = [
        (float(run.cpu.sum()), float(run.interval.sum())) for run in trace.runs if len(run.end) > 1
    ]
    if not pairs:
        return None
    cpu, wall = (np.array(values) for values in zip(*pairs, strict=True))
    if len(pairs) < 4:
        cpu, wall = _pieces(trace)
    total = wall.sum()
    if total <= 0 or cpu.sum() <= 0:
        return None
    value = float(cpu.sum() / total)
    error = 1.0
    if len(cpu) > 1:
        rng = np.random.default_rng(0)
        draws = rng.integers(0, len(cpu), (2 * limits.POINTS, len(cpu)))
        shares = cpu[draws].sum(axis=1) / wall[draws].sum(axis=1)
        error = float(shares.std() / value)
    spread = math.hypot(error, _SYSTEMATIC)
    confidence = round(min(limits.MAX_CONFIDENCE, math.erf(WITHIN / spread / math.sqrt(2))), 3)
    return Share(value, error, confidence)


def _pieces(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """CPU and wall-clock time of consecutive pieces of a few runs."""
    cpu: list[float] = []
    wall: list[float] = []
    for run in trace.runs:
        parts = np.array_split(np.arange(max(0, len(run.end) - 1)), limits.MIN_THROTTLES)
        for part in parts:
            if len(part):
                cpu.append(float(run.cpu[part].sum()))
                wall.append(float(run.interval[part].sum()))
    return np.array(cpu), np.array(wall)
