"""The figures of one run of an entry in a plain form, from which changes are computed again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from uncia.errors import UnciaError
from uncia.report import costs, run_sets
from uncia.report.data import RunData
from uncia.stats import bootstrap, columns, comparison, repeats
from uncia.stats.columns import pc
from uncia.stats.comparison import SHARES, WHOLE_RUN, Figure, GroupedCost
from uncia.stats.shares import wilson

Key = tuple[str, str, str]
"""(experiment, metric, tariff), as `uncia.stats.comparison.Figures` has it."""

_BETWEEN: Final = "\x1f"
_SCALES: Final[tuple[repeats.Scale, ...]] = ("ratio", "unit")


def of_runs(runs: Sequence[RunData], tariffs: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Every metric of every experiment of some runs, with its interval over rows.

    All are billed at once, as a query takes longer than its rows.

    Args:
        runs: their tables.
        tariffs: ids; costs are under these.

    Raises:
        UnciaError: there is no such tariff.
    """
    billed = _billed(runs, tariffs)
    return [_of_run(run, grouped) for run, grouped in zip(runs, billed, strict=True)]


def check(run: RunData) -> None:
    """Check that a run has the rows that its description promises.

    Raises:
        UnciaError: it has none, or none of an experiment: it is not whole.
    """
    if not run.invocations.num_rows:
        raise UnciaError("there are no rows")
    named = set(columns.words(run.invocations, "experiment").unique().to_pylist())
    for name in run.experiment_meta:
        if name not in named:
            raise UnciaError(f"there are no rows of the experiment {name}")


def disturbances(run: RunData) -> dict[str, float]:
    """How much CPU time others took while a run went on, percent by counter."""
    return run_sets.taken([run])


def _billed(
    runs: Sequence[RunData], tariffs: Sequence[str]
) -> list[dict[str, dict[str, GroupedCost]]]:
    """What each run costs: experiment -> tariff -> costs."""
    if not tariffs or not runs:
        return [{} for _ in runs]
    parts = []
    for index, run in enumerate(runs):
        table = run.invocations
        names = columns.words(table, "experiment")
        labelled = pc.binary_join_element_wise(str(index), names, _BETWEEN)
        position = table.schema.get_field_index("experiment")
        labels = labelled.cast(table.schema.field(position).type)
        parts.append(table.set_column(position, table.schema.field(position), labels))
    result: list[dict[str, dict[str, GroupedCost]]] = [{} for _ in runs]
    for label, of_tariff in costs.grouped(pa.concat_tables(parts), tariffs).items():
        position_text, _, name = label.partition(_BETWEEN)
        result[int(position_text)][name] = of_tariff
    return result


def _of_run(run: RunData, grouped: Mapping[str, Mapping[str, GroupedCost]]) -> list[dict[str, Any]]:
    measured = comparison.measured(run.invocations, run.meta, grouped)
    computed = comparison.figures(measured, run.name)
    shown = {WHOLE_RUN, *run.summaries}
    return [_plain(key, figure) for key, figure in computed.items() if key[0] in shown]


def read(items: Sequence[Mapping[str, Any]]) -> dict[Key, Figure]:
    """The figures of a plain form, without their draws."""
    return {
        (item["experiment"], item["metric"], item["tariff"]): Figure(
            item["value"],
            rows=item["rows"],
            needed=item["needed"],
            count=item["count"],
            why=item["why"],
            variances=item["variances"],
        )
        for item in items
    }


def _plain(key: Key, figure: Figure) -> dict[str, Any]:
    experiment, metric, tariff = key
    low, high = _interval(metric, figure)
    return {
        "experiment": experiment,
        "metric": metric,
        "tariff": tariff,
        "value": figure.value,
        "low": low,
        "high": high,
        "rows": figure.rows,
        "needed": figure.needed,
        "count": figure.count,
        "why": figure.why,
        "variances": None
        if figure.draws is None
        else {scale: repeats.row_variance(figure, scale) for scale in _SCALES},
    }


def _interval(metric: str, figure: Figure) -> tuple[float | None, float | None]:
    """The 95 % interval over rows; of shares by Wilson's formula."""
    if metric in SHARES and figure.share is not None:
        low, high = wilson(figure.share)
        return 100 * low, 100 * high
    if figure.draws is None:
        return None, None
    low, high = bootstrap.interval(figure.draws)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else (None, None)
