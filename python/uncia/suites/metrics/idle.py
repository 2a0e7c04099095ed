"""CPU that an instance has while it serves nothing (experiments of the function ``background``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uncia.bandwidth import background
from uncia.stats.comparison import Figure
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from uncia.suites.rows import SubjectRows

_MIN_ROUNDS: Final = 5
"""Rounds that an interval needs; of fewer, resamples are too often all alike."""


def _vcpu(subject: SubjectRows, tariff: str) -> Figure:
    """Unbilled CPU time over idle time, in vCPU."""
    del tariff
    every = background.rounds(subject.invocations, subject.run.spans, subject.form.experiment)
    good = [item for item in every if item.problem is None]
    if not good:
        why = every[0].problem if every else None
        return Figure(None, why=why or "there are no rounds of background work")
    value = float(background.vcpu_share(good))
    if len(good) < _MIN_ROUNDS:
        return Figure(value, rows=len(good), needed=_MIN_ROUNDS)
    return Figure(value, background.vcpu_draws(good, subject.name), len(good))


def _share(subject: SubjectRows, tariff: str) -> Figure:
    """The same as a part of what is allocated, in percent of it."""
    figure = _vcpu(subject, tariff)
    allocated = [value for value in subject.ok.column("allocated_cpu").to_pylist() if value]
    if figure.value is None or not allocated:
        return Figure(None, why=figure.why or "the platform does not say what it allocated")
    if len(set(allocated)) > 1:
        return Figure(None, why="its requests had different allocations of CPU")
    scale = 1e6 / allocated[0]
    draws = None if figure.draws is None else figure.draws * scale
    return Figure(figure.value * scale, draws, figure.rows, figure.needed)


METRICS: Final = (
    Metric("idle_vcpu", "number", "vCPU", "CPU of background work between requests.", _vcpu),
    Metric("idle_use", "ratio", "x", "The same over the CPU that is allocated.", _share),
)
