"""The CPU time from rows below one vCPU alone, by inversion of the model.

Durations are steps in the CPU time, so a single row may leave a range of CPU times that fit
equally well: several rows at unlike sizes narrow it down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from uncia.bandwidth import cpu_time
from uncia.bandwidth.predict.cpu import Work, rows_below, size_words
from uncia.bandwidth.predict.measured import Row, Table
from uncia.bandwidth.predict.model import Arrivals, predict_each
from uncia.bandwidth.presets import Preset
from uncia.errors import UnciaError
from uncia.units import NS_PER_MS

if TYPE_CHECKING:
    Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

_SIGMA: Final = 0.06
"""Relative error of a predicted mean (one standard deviation), if the platform's is not known."""

_WITHIN: Final = 3.84
"""Squared errors above the least by so much bound the 95 % interval (chi squared, 1 degree)."""

_INDEPENDENT: Final = 4
"""The model errs alike at neighbouring sizes: more rows count as no more than so many."""

_STEPS: Final = 120
_SAMPLES: Final = 300
_ROWS: Final = 24


def inverted(table: Table, preset: Preset, arrivals: Arrivals) -> Work:
    """The CPU time, taken as constant, that explains the means of the rows.

    Raises:
        UnciaError: no CPU time explains them: durations below what the platform adds by itself.
    """
    below = list(rows_below(table, preset))
    rows = _chosen(below)
    least = min(row.mean_ns for row in rows) - preset.outside_ns
    if least <= 0:
        raise UnciaError(
            f"{table.path}: a mean of {min(row.mean_ns for row in rows) / NS_PER_MS:.3f} ms is no"
            f" more than what {preset.title} adds by itself",
            "Check the units: durations are in ms.",
        )
    low = least * min(float(preset.share(row.size)) for row in rows) / 2
    grid = np.geomspace(low, least, _STEPS)
    errors = _errors(preset, arrivals, rows, grid)
    best = int(errors.argmin())
    fine = np.linspace(grid[max(0, best - 1)], grid[min(_STEPS - 1, best + 1)], _STEPS // 2)
    finer = _errors(preset, arrivals, rows, fine)
    every, scores = np.concatenate((grid, fine)), np.concatenate((errors, finer))
    # Of CPU times that fit alike the middle is the safest: each counts by its likelihood.
    order = every.argsort()
    likely = np.exp((scores.min() - scores[order]) / 2) * np.gradient(every[order])
    need = float(np.average(every[order], weights=likely))
    fits = every[scores <= scores.min() + _WITHIN]
    cpu = cpu_time.constant(max(1, round(need)))
    names = ", ".join(size_words(preset, row.size) for row in rows[:4])
    more = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
    notes = [
        f"{table.path.name} has no row at one vCPU ({size_words(preset, preset.whole)}) or more:"
        f" the CPU time is what explains the means at {names}{more},"
        f" {need / NS_PER_MS:.3g} ms, between {fits.min() / NS_PER_MS:.3g} and"
        f" {fits.max() / NS_PER_MS:.3g} ms with 95 % confidence, and taken as constant."
    ]
    off = float(np.sqrt(scores.min() / min(len(rows), _INDEPENDENT))) * _sigma(preset)
    if off > 3 * _sigma(preset):
        notes.append(
            f"No CPU time explains these means: they are off by {off:.0%}. The function may wait"
            " for something else, or use more than one thread."
        )
    return Work(
        cpu,
        "inverted",
        need + preset.outside_ns,
        float(fits.min()),
        float(fits.max()),
        tuple(notes),
    )


def _chosen(rows: list[Row]) -> list[Row]:
    """At most `_ROWS` of the rows, evenly by size."""
    if len(rows) <= _ROWS:
        return rows
    places = np.linspace(0, len(rows) - 1, _ROWS).round().astype(int)
    return [rows[int(place)] for place in places]


def _errors(preset: Preset, arrivals: Arrivals, rows: list[Row], needs: Floats) -> Floats:
    """Squared errors of the rows' means, in deviations, for each CPU time."""
    cpus = [cpu_time.constant(max(1, round(need))) for need in needs]
    each = predict_each(preset, cpus, [row.size for row in rows], arrivals, samples=_SAMPLES)
    means = np.array([[one.mean_ns for one in found] for found in each])
    off = np.log(means / [row.mean_ns for row in rows]) / _sigma(preset)
    errors: Floats = np.square(off).mean(axis=1) * min(len(rows), _INDEPENDENT)
    return errors


def _sigma(preset: Preset) -> float:
    return preset.error or _SIGMA
