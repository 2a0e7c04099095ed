"""Comparison of runs: the change of every metric of every experiment, with its interval.

A metric has a value in each run and, where possible, a bootstrap distribution
(`uncia.stats.bootstrap`). The change from the baseline is the ratio of the values; its interval
comes from the two distributions, drawn independently. Shares have a difference in percentage points
instead, with an interval from their counts (`uncia.stats.shares`). A metric that cannot be computed
has a reason, and never counts as "no change".
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from uncia.record import INSTANCE_STARTS
from uncia.stats import bootstrap, columns, shares, summary, untimed
from uncia.stats.quantiles import LEVEL, QUANTILES, Floats, Ints, minimum_rows, quantile

Kind = Literal["ratio", "points"]

LATENCIES: Final = ("p50", "p90", "p95", "p99", "max", "mean")
RATIOS: Final = ("mr", "tr", "tmr")
SHARES: Final = ("failed", "cold")
METRICS: Final = (*LATENCIES, *RATIOS, *SHARES, "lag", "cost")
"""Every metric: latencies and lag (p99) in ms, ratios, shares in percent, cost in USD/million."""

WHOLE_RUN: Final = ""
"""The name of all experiments of a run together; only costs have such a figure."""

_NS_PER_MS: Final = 1e6
_MIN_ROWS: Final = minimum_rows(QUANTILES["p50"])
"""Rows (or groups of rows) that the interval of a median needs; that of a mean needs as many."""


@dataclass(frozen=True)
class GroupedCost:
    """Costs of groups of rows of one experiment under one tariff.

    Attributes:
        cost_usd: shape (groups,), the cost of each group.
        rows: shape (groups,), how many priced rows each has.
    """

    cost_usd: Floats
    rows: Ints


@dataclass(frozen=True)
class Measured:
    """The data of one experiment of one run that a comparison needs.

    Attributes:
        summary: from `uncia.stats.summary`.
        latency: of rows with outcome ok, ascending, ns.
        lag: sent - scheduled, ascending, ns.
        costs: by tariff.
    """

    summary: Mapping[str, object]
    latency: Ints
    lag: Ints
    costs: Mapping[str, GroupedCost] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """A metric in one run.

    Attributes:
        value: in the metric's unit; None if it cannot be computed.
        draws: its bootstrap distribution; None if it has none.
        rows: how many rows (for costs: groups of rows) it is computed from.
        needed: rows that an interval would need, where `rows` are too few; else 0. A bootstrap of
            too few rows knows nothing of the unobserved tail, so there is none.
        count: of shares, how many rows have the property.
        why: the reason for a missing value.
        runs: the figures of several runs that this one is of (`uncia.stats.repeats.pool`).
        variances: what its rows alone let it vary, by scale (`uncia.stats.repeats.Scale`), where
            the draws were not kept.
    """

    value: float | None
    draws: Floats | None = None
    rows: int = 0
    needed: int = 0
    count: int | None = None
    why: str = ""
    runs: tuple["Figure", ...] = ()
    variances: Mapping[str, float] | None = None

    @property
    def few(self) -> bool:
        """Whether it has too few rows for an interval."""
        return self.needed > 0

    @property
    def share(self) -> shares.Share | None:
        """The count and rows of a share; None for other metrics."""
        return None if self.count is None else shares.Share(self.count, self.rows)


@dataclass(frozen=True)
class Change:
    """A metric in two runs.

    Attributes:
        experiment: its name, or `WHOLE_RUN`.
        metric: one of `METRICS`.
        tariff: for costs, its id; else "".
        baseline, candidate: the metric in each.
        kind: ``ratio`` (candidate / baseline) or ``points`` (difference, percentage points).
        change: the ratio or difference; None if either value is missing.
        interval: its 95 % interval; None if it has none. Of one run a side it is over rows.
        paired: of several runs a side, whether those of one index belong together.
    """

    experiment: str
    metric: str
    tariff: str
    baseline: Figure
    candidate: Figure
    kind: Kind
    change: float | None
    interval: tuple[float, float] | None
    paired: bool = False

    @property
    def repeats(self) -> int:
        """Runs on the side that has fewer."""
        return min(max(1, len(side.runs)) for side in (self.baseline, self.candidate))

    @property
    def significant(self) -> bool:
        """Whether the interval excludes "no change"."""
        if self.interval is None:
            return False
        none = 1.0 if self.kind == "ratio" else 0.0
        return self.interval[0] > none or self.interval[1] < none

    @property
    def why(self) -> str:
        """Why the change cannot be computed; empty if it can."""
        return self.baseline.why or self.candidate.why


def measured(
    table: pa.Table,
    run_meta: Mapping[str, object],
    costs: Mapping[str, Mapping[str, GroupedCost]],
) -> dict[str, Measured]:
    """Prepare the experiments of a run for a comparison.

    Args:
        table: its invocations.
        run_meta: its description.
        costs: experiment -> tariff -> costs.
    """
    tables = columns.by_word(table, "experiment")
    empty = table.slice(0, 0)
    result = {}
    for name, experiment_summary in summary.experiments(table, run_meta).items():
        rows = tables.get(name, empty)
        ok = rows.filter(columns.is_word(rows, "outcome", "ok"))
        result[name] = Measured(
            experiment_summary,
            columns.ordered(columns.latency(ok)),
            lag(rows),
            costs.get(name, {}),
        )
    return result


def lag(rows: pa.Table) -> Ints:
    """How late the generator sent each request, ns, ascending."""
    requests = rows.filter(columns.is_request(rows))
    return columns.ordered(columns.difference(requests, "sent", "scheduled"))


Figures = dict[tuple[str, str, str], Figure]
"""(experiment, metric, tariff) -> figure."""


def figures(
    run: Mapping[str, Measured],
    label: str,
    seed: int = bootstrap.SEED,
    *,
    of: Collection[str] | None = None,
    means: bool = True,
) -> Figures:
    """Compute every metric of every experiment of a run.

    Args:
        run: its experiments.
        label: distinguishes its random numbers from those of other runs.
        seed: of the bootstrap.
        of: the experiments whose metrics are wanted; all if left out. The others are bases alone.
        means: whether mean latencies are wanted, whose distribution takes longer than all others.
    """
    result: Figures = {}
    medians = {
        name: _median_draws(item, bootstrap.generator(seed, label, name, "latency"))
        for name, item in run.items()
    }
    cost_draws: dict[str, dict[str, Floats]] = {}
    for name, item in run.items():
        if of is not None and name not in of:
            continue
        rng = bootstrap.generator(seed, label, name, "latency")
        latencies = _latencies(item, rng, means=means)
        result |= {(name, metric, ""): figure for metric, figure in latencies.items()}
        result |= {
            (name, metric, ""): figure
            for metric, figure in _ratios(item, name, run, medians, seed, label).items()
        }
        result |= {(name, metric, ""): figure for metric, figure in _shares(item).items()}
        rng = bootstrap.generator(seed, label, name, "lag")
        result[name, "lag", ""] = _tail(item.lag, rng, untimed.why_no_lag(item.summary))
        for tariff, grouped in item.costs.items():
            rng = bootstrap.generator(seed, label, name, "cost", tariff)
            draws = _cost_draws(grouped, rng)
            cost_draws.setdefault(tariff, {})[name] = draws
            result[name, "cost", tariff] = _cost([grouped], [draws])
    for tariff, draws_of in cost_draws.items():
        parts = [(run[name].costs[tariff], draws) for name, draws in draws_of.items()]
        result[WHOLE_RUN, "cost", tariff] = _cost([p for p, _ in parts], [d for _, d in parts])
    return result


def compare(baseline: Figures, candidate: Figures) -> list[Change]:
    """Compute the changes of all metrics of either run, in the baseline's order."""
    keys = [*baseline, *(key for key in candidate if key not in baseline)]
    return [
        change(key, baseline.get(key, absent("baseline")), candidate.get(key, absent("candidate")))
        for key in keys
    ]


def change(key: tuple[str, str, str], baseline: Figure, candidate: Figure) -> Change:
    """Compute the change of one metric."""
    experiment, metric, tariff = key
    bounds: tuple[float, float] | None = None
    if baseline.value is not None and candidate.value is not None:
        bounds = row_interval(baseline, candidate)
    kind, moved = moved_by(metric, baseline.value, candidate.value)
    return Change(experiment, metric, tariff, baseline, candidate, kind, moved, bounds)


def moved_by(
    metric: str, baseline: float | None, candidate: float | None
) -> tuple[Kind, float | None]:
    """Compute by how much a metric has changed: shares in points, all else as a ratio.

    Returns:
        How it is measured, and the change; None if a value is missing. What was 0 and is not has
        grown without bound.
    """
    kind: Kind = "points" if metric in SHARES else "ratio"
    if baseline is None or candidate is None:
        return kind, None
    if kind == "points":
        return kind, candidate - baseline
    if baseline > 0:
        return kind, candidate / baseline
    return kind, 1.0 if candidate == baseline else math.inf


def row_interval(
    baseline: Figure, candidate: Figure, level: Fraction = LEVEL
) -> tuple[float, float] | None:
    """The interval of the change between two runs, over their rows; None if it has none."""
    before, after = baseline.share, candidate.share
    if before is not None and after is not None:
        low, high = shares.difference(before, after, level)
        return 100.0 * low, 100.0 * high
    if baseline.draws is None or candidate.draws is None:
        return None
    ratios = bootstrap.ratio(candidate.draws, baseline.draws)
    # What is 0 on both sides, such as the lag of rows of another clock, has not changed.
    ratios = np.where((candidate.draws == 0) & (baseline.draws == 0), 1.0, ratios)
    return bootstrap.interval(ratios, level)


def absent(where: str) -> Figure:
    """The figure of a side that does not have it."""
    return Figure(None, why=f"the {where} has no such experiment or tariff")


def _latencies(item: Measured, rng: np.random.Generator, *, means: bool) -> dict[str, Figure]:
    latency = item.latency
    n = int(latency.size)
    if n == 0:
        return dict.fromkeys(LATENCIES, Figure(None, why=untimed.why_no_latency(item.summary)))
    draws = bootstrap.quantiles(latency, tuple(QUANTILES.values()), rng) / _NS_PER_MS
    result = {}
    for row, (name, order) in enumerate(QUANTILES.items()):
        result[name] = _figure(_ms(quantile(latency, order)), draws[row], n, minimum_rows(order))
    # A sample does not show how large its maximum might have been, so it has no distribution.
    result["max"] = Figure(_ms(int(latency[-1])), rows=n)
    if not means:
        return result
    mean = float(latency.mean()) / _NS_PER_MS
    result["mean"] = _figure(mean, bootstrap.means(latency, rng) / _NS_PER_MS, n, _MIN_ROWS)
    return result


def _figure(value: float | None, draws: Floats | None, rows: int, needed: int) -> Figure:
    """A figure, with a distribution only if it has enough rows."""
    if rows < needed:
        return Figure(value, rows=rows, needed=needed)
    return Figure(value, draws, rows)


def _median_draws(item: Measured, rng: np.random.Generator) -> Floats | None:
    """Draws of the median latency, ns; the same numbers as `_latencies` draws."""
    if item.latency.size < _MIN_ROWS:
        return None
    drawn: Floats = bootstrap.quantiles(item.latency, tuple(QUANTILES.values()), rng)[0]
    return drawn


def _ratios(
    item: Measured,
    name: str,
    run: Mapping[str, Measured],
    medians: Mapping[str, Floats | None],
    seed: int,
    label: str,
) -> dict[str, Figure]:
    """MR, TR and TMR; the base's draws are its own, so that it has MR 1 without spread."""
    result: dict[str, Figure] = {}
    wait = _wait_ns(item)
    drawn: Floats = np.empty((0, 0))
    if item.latency.size >= _MIN_ROWS:
        rng = bootstrap.generator(seed, label, name, "latency")
        drawn = bootstrap.quantiles(item.latency, tuple(QUANTILES.values()), rng) - wait
    base_name = item.summary.get("base")
    base = run.get(str(base_name)) if base_name is not None else None
    base_median = None if base is None else medians[str(base_name)]
    n = int(item.latency.size)
    for metric in RATIOS:
        value = item.summary.get(metric)
        if not isinstance(value, float):
            why = "there is no base with rows"
            if n == 0:
                why = untimed.why_no_latency(item.summary)
            if metric == "tmr" and n:
                why = "a request took less than its declared wait"
            result[metric] = Figure(None, why=why)
            continue
        order = QUANTILES["p50" if metric == "mr" else "p99"]
        needed, rows, draws = minimum_rows(order), n, None
        if drawn.size and metric == "tmr":
            draws = bootstrap.ratio(drawn[3], drawn[0])
        elif drawn.size and base is not None and base_median is not None:
            draws = bootstrap.ratio(drawn[3 if metric == "tr" else 0], base_median - _wait_ns(base))
        if draws is None:
            # The base may be the one with too few rows.
            rows, needed = (
                (n, needed) if n < needed or base is None else (base.latency.size, _MIN_ROWS)
            )
        result[metric] = _figure(value, draws, int(rows), needed)
    return result


def _shares(item: Measured) -> dict[str, Figure]:
    rows = item.summary["invocations"]
    if not isinstance(rows, int) or rows == 0:
        return dict.fromkeys(SHARES, Figure(None, why="no request was made"))
    result = {}
    for metric in SHARES:
        hits = item.summary[metric]
        of: object = rows
        starts = item.summary["starts"]
        if metric == "cold" and isinstance(starts, Mapping):
            # Restored starts count as well: an instance was started. What a function answered
            # without anybody knowing how it started is neither cold nor warm.
            hits = sum(starts.get(kind, 0) for kind in INSTANCE_STARTS)
            of = item.summary["start_rows"]
        if (
            not isinstance(hits, int)
            or not isinstance(of, int)
            or (metric == "cold" and not starts)
        ):
            result[metric] = Figure(None, why="the platform does not report how instances started")
            continue
        result[metric] = Figure(100.0 * hits / of, rows=of, count=hits)
    return result


def _tail(ordered: Ints, rng: np.random.Generator, why: str) -> Figure:
    order = QUANTILES["p99"]
    value = quantile(ordered, order)
    if value is None:
        return Figure(None, why=why)
    draws = bootstrap.quantiles(ordered, (order,), rng)[0] / _NS_PER_MS
    return _figure(_ms(value), draws, int(ordered.size), minimum_rows(order))


def _cost_draws(grouped: GroupedCost, rng: np.random.Generator) -> Floats:
    """Bootstrap distribution of an experiment's cost per row, resampled by groups."""
    groups = int(grouped.rows.size)
    if groups == 0:
        return np.zeros(bootstrap.RESAMPLES)
    picks = rng.integers(0, groups, (bootstrap.RESAMPLES, groups))
    cost = grouped.cost_usd[picks].sum(axis=1)
    rows = grouped.rows[picks].sum(axis=1)
    return np.asarray(cost / rows, dtype=np.float64)


def _cost(parts: Sequence[GroupedCost], draws: Sequence[Floats]) -> Figure:
    """USD per million rows of several experiments; each is resampled by itself, as its number of
    rows is part of the design, not chance."""
    weights = [int(part.rows.sum()) for part in parts]
    rows = sum(weights)
    if rows == 0:
        return Figure(None, why="no row could be priced")
    value = 1e6 * sum(float(part.cost_usd.sum()) for part in parts) / rows
    total = np.zeros(bootstrap.RESAMPLES)
    for weight, drawn in zip(weights, draws, strict=True):
        total = total + weight * drawn
    return _figure(value, 1e6 * total / rows, sum(int(part.rows.size) for part in parts), _MIN_ROWS)


def _wait_ns(item: Measured) -> float:
    wait = item.summary["wait_ms"]
    return float(wait) * _NS_PER_MS if isinstance(wait, float | int) else 0.0


def _ms(value: int | None) -> float | None:
    return None if value is None else value / _NS_PER_MS
