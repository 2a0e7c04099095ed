"""The CPU time from rows below one vCPU only, by inversion of the model.

Durations are steps in the CPU time, so a single row may leave a range of CPU times that fit
equally well; several rows at different sizes narrow it down.
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
"""Relative error of a predicted mean (one standard deviation), if the platform's is unknown."""

_WITHIN: Final = 3.84
"""Squared errors this far above the minimum bound the 95 % interval (chi squared, 1 degree)."""

_INDEPENDENT: Final = 4
"""Rows count as at most so many, because the model errs alike at neighbouring sizes."""

_STEPS: Final = 120
_SAMPLES: Final = 300
_ROWS: Final = 24


def inverted(table: Table, preset: Preset, arrivals: Arrivals) -> Work:
    """Find the constant CPU time that explains the means of the rows.

    Raises:
        UnciaError: no CPU time explains them: durations below what the platform adds by itself.
    """
    below = list(rows_below(table, preset))
    rows = _chosen(below)
    shortest = min(row.mean_ns for row in rows) - preset.outside_ns
    if shortest <= 0:
        raise UnciaError(
            f"{table.path}: a mean of {min(row.mean_ns for row in rows) / NS_PER_MS:.3f} ms is no"
            f" more than what {preset.title} adds by itself",
            "Check the units: durations are in ms.",
        )
    low = shortest * min(float(preset.share(row.size)) for row in rows) / 2
    grid = np.geomspace(low, shortest, _STEPS)
    errors = _errors(preset, arrivals, rows, grid)
    best = int(errors.argmin())
    fine = np.linspace(grid[max(0, best - 1)], grid[min(_STEPS - 1, best + 1)], _STEPS // 2)
    finer = _errors(preset, arrivals, rows, fine)
    candidates, scores = np.concatenate((grid, fine)), np.concatenate((errors, finer))
    # The mean weighted by likelihood is the safest of CPU times that fit equally well.
    order = candidates.argsort()
    likely = np.exp((scores.min() - scores[order]) / 2) * np.gradient(candidates[order])
    need = float(np.average(candidates[order], weights=likely))
    fits = candidates[scores <= scores.min() + _WITHIN]
    cpu = cpu_time.constant(max(1, round(need)))
    names = ", ".join(size_words(preset, row.size) for row in rows[:4])
    others = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
    notes = [
        f"{table.path.name} has no row at one vCPU ({size_words(preset, preset.whole)}) or more:"
        f" the CPU time is what explains the means at {names}{others},"
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
    """Choose at most `_ROWS` of the rows, evenly by size."""
    if len(rows) <= _ROWS:
        return rows
    indexes = np.linspace(0, len(rows) - 1, _ROWS).round().astype(int)
    return [rows[int(index)] for index in indexes]


def _errors(preset: Preset, arrivals: Arrivals, rows: list[Row], needs: Floats) -> Floats:
    """Compute squared errors of the rows' means, in deviations, for each CPU time."""
    cpus = [cpu_time.constant(max(1, round(need))) for need in needs]
    predictions = predict_each(preset, cpus, [row.size for row in rows], arrivals, samples=_SAMPLES)
    means = np.array([[item.mean_ns for item in by_size] for by_size in predictions])
    deviations = np.log(means / [row.mean_ns for row in rows]) / _sigma(preset)
    errors: Floats = np.square(deviations).mean(axis=1) * min(len(rows), _INDEPENDENT)
    return errors


def _sigma(preset: Preset) -> float:
    return preset.error or _SIGMA
