"""The change between two sides of several runs each, with an interval over runs and rows.

Two runs of the same code differ by more than their rows explain: the machine's clock, its caches
and its neighbours differ. So the run is what is repeated, and one figure a run is compared:

* Of ratios (latencies, costs) the logarithm of a run's figure is taken, of shares the points.
* In interleaved runs, each repeat gives a pair, and the pair one difference, in which whatever both
  runs share cancels. The variance of the mean comes from how the differences vary (s²), which holds
  the variation of runs and that of rows.
* It is never taken to be less than the rows alone allow: of few repeats s² may come out small by
  chance, and the variance within the runs, known from many rows, is a lower bound.
* The interval is Student's, with one degree of freedom less than repeats. Runs that were not
  interleaved are compared by Welch's formula instead.
* A single run beside several of the baseline shows no spread. It is taken to vary as those do, so
  the interval is the one in which a further run of the baseline would lie, around its difference.

A percentile bootstrap that draws runs, then rows, covers far less than it says with five runs a
side, because five runs drawn from five vary less than five new ones (docs/explanation/gates.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

import numpy as np

from uncia.stats import shares, student
from uncia.stats.comparison import Change, Figure, Figures, absent, moved_by
from uncia.stats.quantiles import LEVEL, Floats

Scale = Literal["ratio", "points", "unit"]
"""How two figures are compared: by their ratio, in percentage points, or in the metric's unit."""

MAX_REPEATS: Final = 1000
"""Repeats beyond which a change is called too near its bound for any number to decide."""

_POWER_Z: Final = 0.8416
"""Standard normal quantile of 0.8: the number of repeats said to decide does so four times in five,
if the change and the spread are as they were seen."""


@dataclass(frozen=True)
class Estimate:
    """A figure or a change, from several runs.

    Attributes:
        scale: `mean` and `spread` are natural logarithms for ``ratio``.
        mean: over the repeats.
        spread: standard deviation that one repeat contributes; that of the mean is
            ``spread / sqrt(repeats)``.
        repeats: runs on the side that has fewer.
        freedom: degrees of freedom of the spread.
        counts: of shares, all hits of all rows of each side.
        is_single: the candidate is one run, and its spread that of the baseline.
    """

    scale: Scale
    mean: float
    spread: float
    repeats: int
    freedom: float
    counts: tuple[shares.Share, shares.Share] | None = None
    is_single: bool = False

    def interval(self, level: Fraction = LEVEL, repeats: int | None = None) -> tuple[float, float]:
        """The confidence interval: a ratio, or a difference in points or in the unit.

        Args:
            level: its confidence level.
            repeats: as if there were so many, of the same mean and spread; by default those seen.
        """
        low, high = self._interval(level, repeats or self.repeats)
        return (_exp(low), _exp(high)) if self.scale == "ratio" else (low, high)

    def repeats_to_decide(self, bound: float, level: Fraction = LEVEL) -> int | None:
        """Repeats with which the interval would probably lie on one side of ``bound``.

        Args:
            bound: on the scale of `interval`.
            level: of the interval.

        Returns:
            The fewest that decide in four of five cases, if mean and spread are what they seem;
            None if more than `MAX_REPEATS`, or if the candidate is a single run.
        """
        if self.is_single:
            return None
        if self.scale == "ratio":
            bound = math.log(bound) if bound > 0 else -math.inf

        def decides(repeats: int) -> bool:
            margin = _POWER_Z * self.spread / math.sqrt(repeats)
            low, high = self._interval(level, repeats)
            return low - margin > bound or high + margin <= bound

        if not decides(MAX_REPEATS):
            return None
        low, high = self.repeats, MAX_REPEATS
        while high - low > 1:
            middle = (low + high) // 2
            if decides(middle):
                high = middle
            else:
                low = middle
        return high

    def _interval(self, level: Fraction, repeats: int) -> tuple[float, float]:
        freedom = self.freedom * (repeats - 1) / (self.repeats - 1)
        t = student.quantile(float((1 + level) / 2), freedom)
        half = t * self.spread / math.sqrt(repeats)
        low, high = self.mean - half, self.mean + half
        if self.counts is not None:
            # Of none in all runs the spread is 0; the counts know better.
            scaled = [
                shares.Share(hits * repeats // self.repeats, rows * repeats // self.repeats)
                for hits, rows in self.counts
            ]
            by_rows = shares.difference(scaled[0], scaled[1], level)
            low, high = min(low, 100 * by_rows[0]), max(high, 100 * by_rows[1])
        return low, high


def compare(
    baseline: Sequence[Figures], candidate: Sequence[Figures], *, paired: bool
) -> list[Change]:
    """Compute the changes of all metrics between two sides of several runs each.

    Args:
        baseline, candidate: the figures of each run; if paired, in the order of the pairs.
        paired: whether the runs were interleaved, so that those of one index belong together.
    """
    keys = dict.fromkeys(key for run in (*baseline, *candidate) for key in run)
    return [
        change(
            key,
            [run.get(key, absent("baseline")) for run in baseline],
            [run.get(key, absent("candidate")) for run in candidate],
            paired=paired,
        )
        for key in keys
    ]


def change(
    key: tuple[str, str, str],
    baseline: Sequence[Figure],
    candidate: Sequence[Figure],
    *,
    paired: bool,
) -> Change:
    """Compute the change of one metric."""
    experiment, metric, tariff = key
    before, after = pool(baseline), pool(candidate)
    kind, moved = moved_by(metric, before.value, after.value)
    bounds: tuple[float, float] | None = None
    if moved is not None:
        estimated = estimate(before, after, kind, paired=paired)
        if estimated is not None and not (before.few or after.few):
            bounds = estimated.interval()
    return Change(experiment, metric, tariff, before, after, kind, moved, bounds, paired=paired)


def pool(figures: Sequence[Figure]) -> Figure:
    """One figure for several runs: the geometric mean, or the share of all rows.

    It keeps the runs' figures, and is missing if one of them is.
    """
    runs = tuple(figures)
    rows = sum(figure.rows for figure in runs)
    values = [figure.value for figure in runs if figure.value is not None]
    if len(values) < len(runs):
        index, why = next((i, f.why) for i, f in enumerate(runs) if f.value is None)
        missing = len(runs) - len(values)
        which = f"run {index + 1}" if missing == 1 else f"{missing} of {len(runs)} runs"
        return Figure(None, rows=rows, why=f"{which}: {why}" if len(runs) > 1 else why, runs=runs)
    if runs[0].count is not None:
        hits = sum(figure.count or 0 for figure in runs)
        return Figure(100.0 * hits / rows, rows=rows, count=hits, runs=runs)
    few = [figure for figure in runs if figure.few]
    # What is too few is said of one run: more runs do not make its quantile a better one.
    return Figure(
        _mean(values),
        rows=min((f.rows for f in few), default=rows),
        needed=max((f.needed for f in few), default=0),
        runs=runs,
    )


def estimate(
    baseline: Figure | None, candidate: Figure, scale: Scale, *, paired: bool
) -> Estimate | None:
    """Estimate the change between two sides, or the candidate's figure itself.

    Args:
        baseline: a pooled figure; None for the candidate's figure itself.
        candidate: a pooled figure.
        scale: how to compare them.
        paired: whether runs of the same index belong together.

    Returns:
        None where the runs do not show a spread: fewer than two a side, a missing value, or a value
        of 0, which has no ratio.
    """
    if baseline is not None and len(candidate.runs) == 1 and len(baseline.runs) > 1:
        return _estimate_single(baseline, candidate, scale)
    after = _sample(candidate, scale)
    before = None if baseline is None else _sample(baseline, scale)
    if baseline is not None and scale == "ratio" and _is_free(baseline) and _is_free(candidate):
        repeats = min(len(baseline.runs), len(candidate.runs))
        return Estimate(scale, 0.0, 0.0, repeats, repeats - 1.0)
    if after is None or (baseline is not None and before is None):
        return None
    counts = None
    if before is None:
        mean, n = float(after[0].mean()), after[0].size
        variance, freedom = _variance(*after), n - 1.0
    elif paired:
        differences, within = after[0] - before[0], after[1] + before[1]
        mean, n = float(differences.mean()), differences.size
        variance, freedom = _variance(differences, within), n - 1.0
    else:
        mean, n = float(after[0].mean() - before[0].mean()), min(after[0].size, before[0].size)
        parts = [(_variance(*side) / side[0].size, side[0].size - 1) for side in (before, after)]
        total = sum(part for part, _ in parts)
        # Welch and Satterthwaite; without any spread, as many as the smaller side has.
        freedom = float(n - 1)
        if total > 0:
            freedom = total**2 / sum(part**2 / degrees for part, degrees in parts)
        variance = total * n
    if scale == "points" and baseline is not None:
        counts, mean = _counted(baseline, candidate)
    return Estimate(scale, mean, math.sqrt(variance), n, freedom, counts)


def level(baseline: Figure, candidate: Figure) -> Estimate | None:
    """Estimate the figure of a single run itself, which varies as the baseline's runs do.

    Args:
        baseline: a pooled figure of several runs.
        candidate: the pooled figure of one run.

    Returns:
        Its logarithm; None where a value is missing or 0.
    """
    before = _sample(baseline, "ratio")
    if before is None or candidate.value is None or candidate.value <= 0:
        return None
    count = before[0].size
    variance = max(_variance(*before), row_variance(candidate.runs[0], "ratio"))
    spread = math.sqrt(variance * count)
    return Estimate("ratio", math.log(candidate.value), spread, count, count - 1.0, is_single=True)


def _estimate_single(baseline: Figure, candidate: Figure, scale: Scale) -> Estimate | None:
    """The change from several runs to one."""
    count = len(baseline.runs)
    if scale == "ratio" and _is_free(baseline) and candidate.value == 0:
        return Estimate(scale, 0.0, 0.0, count, count - 1.0, is_single=True)
    before, value = _sample(baseline, scale), candidate.value
    if before is None or value is None or (scale == "ratio" and value <= 0):
        return None
    mean = (math.log(value) if scale == "ratio" else value) - float(before[0].mean())
    of_run = _variance(*before)
    total = of_run / count + max(of_run, row_variance(candidate.runs[0], scale))
    counts = None
    if scale == "points":
        counts, mean = _counted(baseline, candidate)
    spread = math.sqrt(total * count)
    return Estimate(scale, mean, spread, count, count - 1.0, counts, is_single=True)


def _counted(
    baseline: Figure, candidate: Figure
) -> tuple[tuple[shares.Share, shares.Share], float]:
    """The counts of two shares, and their difference in points."""
    first, second = baseline.share, candidate.share
    assert first is not None
    assert second is not None
    return (first, second), 100.0 * (second.hits / second.rows - first.hits / first.rows)


def _sample(figure: Figure, scale: Scale) -> tuple[Floats, Floats] | None:
    """Each run's value on the scale, and the variance that its rows alone give it."""
    values = [run.value for run in figure.runs if run.value is not None]
    if len(values) < 2 or len(values) < len(figure.runs):
        return None
    scaled = np.array(values, np.float64)
    if scale == "ratio":
        if scaled.min() <= 0:
            return None
        scaled = np.log(scaled)
    return scaled, np.array([row_variance(run, scale) for run in figure.runs], np.float64)


def _is_free(figure: Figure) -> bool:
    """Whether several runs have the value 0, all of them: a tariff that charges nothing."""
    return len(figure.runs) > 1 and all(run.value == 0 for run in figure.runs)


def row_variance(run: Figure, scale: Scale) -> float:
    """The variance of a run's value on the scale, as far as its rows alone go."""
    if run.variances is not None:
        return run.variances.get(scale, 0.0)
    if run.count is not None:
        share = run.count / run.rows
        return 1e4 * share * (1 - share) / run.rows
    if run.draws is None:
        return 0.0
    draws = run.draws[np.isfinite(run.draws) & (run.draws > 0)]
    if scale == "ratio":
        draws = np.log(draws)
    return float(draws.var()) if draws.size else 0.0


def _variance(values: Floats, within: Floats) -> float:
    """The variance of one repeat: that between them, but no less than within them."""
    return max(float(values.var(ddof=1)), float(within.mean()))


def _mean(values: Sequence[float]) -> float:
    """The geometric mean; the arithmetic one where a value has no logarithm."""
    if len(values) == 1 or min(values) <= 0:
        return sum(values) / len(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def _exp(value: float) -> float:
    """e to the power of ``value``; infinite where a double ends."""
    return math.inf if value > 700 else math.exp(value)
