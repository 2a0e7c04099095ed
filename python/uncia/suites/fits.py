"""Power laws: straight lines through subjects, where both axes are logarithms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from uncia.stats import bootstrap
from uncia.stats.comparison import Figure
from uncia.stats.quantiles import Floats
from uncia.suites.expressions import Term, Value

LEAST: Final = 5
"""Points of a line whose exponent has an interval."""

_LEAST_SPREAD: Final = 1e-9
"""Of the logarithms of x, which else differ by rounding alone."""

Figures = Callable[[Term], Figure]


def exponent(name: str, points: Sequence[tuple[Value, Value]], figures: Figures) -> Figure:
    """The exponent of the power law through points, by least squares of logarithms.

    Its interval is of both kinds of chance: each point's by the draws of its terms, and which
    points there are, by drawing them with replacement.

    Args:
        name: of the fit.
        points: expressions for x and y; those without a value are left out.
        figures: gives the figure of each term.
    """
    drawn = []
    for x, y in points:
        pair = [_draws(value, figures) for value in (x, y)]
        if all(part is not None and part[0] > 0 for part in pair):
            drawn.append(pair)
    if len(drawn) < LEAST:
        why = f"{len(drawn)} points have both values, of enough rows; {LEAST} are needed"
        return Figure(None, why=why)
    values = np.log([[part[0] for part in pair if part is not None] for pair in drawn])
    if np.ptp(values[:, 0]) < _LEAST_SPREAD:
        return Figure(None, why="its points do not differ in x")
    slope = _slope(values[:, 0, np.newaxis], values[:, 1, np.newaxis])
    draws = np.log([[part[1] for part in pair if part is not None] for pair in drawn])
    rng = bootstrap.generator(bootstrap.SEED, "fit", name)
    count, resamples = draws.shape[0], draws.shape[2]
    chosen = rng.integers(0, count, (count, resamples))
    at = np.arange(resamples)
    slopes = _slope(draws[chosen, 0, at], draws[chosen, 1, at])
    slopes = slopes[np.isfinite(slopes)]
    if slopes.size < resamples / 2:
        return Figure(float(slope[0]), rows=count, why="its points hardly differ in x")
    return Figure(float(slope[0]), slopes, count)


def _slope(x: Floats, y: Floats) -> Floats:
    """Slopes of lines, shape (resamples,), through points in columns, shape (points, resamples)."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes: Floats = (x * y).sum(axis=0) / (x * x).sum(axis=0)
    return slopes


def _draws(value: Value, figures: Figures) -> tuple[float, Floats] | None:
    """The value of an expression and its draws; without draws, the value repeated.

    None if there is no value, or too few rows to tell its uncertainty.
    """
    items = [figures(term) for term in value.terms]
    if any(item.value is None or item.few for item in items):
        return None
    points = [float(item.value or 0.0) for item in items]
    draws = [
        np.full(bootstrap.RESAMPLES, point) if item.draws is None else item.draws
        for item, point in zip(items, points, strict=True)
    ]
    if len(items) == 1:
        return points[0], draws[0]
    if value.operator == "-":
        return points[0] - points[1], np.maximum(draws[0] - draws[1], np.finfo(float).tiny)
    if points[1] <= 0:
        return None
    return points[0] / points[1], bootstrap.ratio(draws[0], draws[1])
