"""Distribution functions of latency, with related experiments in one panel."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from uncia.report import plots
from uncia.report.data import RunData
from uncia.report.numbers import count, figure
from uncia.report.page import Chart, Note, Row, Section
from uncia.report.sections import Rows
from uncia.report.sections.latency import AXIS, LATENCY, SAMPLES
from uncia.report.table import Column, Table
from uncia.stats import columns, untimed
from uncia.stats.quantiles import quantile
from uncia.stats.summary import BASE
from uncia.units import NS_PER_MS

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 20
ROWS: Final = Rows("invocations", {"outcome": "ok"})

_CURVES_PER_PANEL: Final = 7
"""More curves than this in one panel are hard to distinguish."""

_PERCENTILES: Final = (5, 25, 50, 75, 90, 95, 99)


def section(run: RunData, rows: pa.Table) -> Section:
    """Show a panel for each family of experiments, and a table of quantiles."""
    curves = {
        name: values
        for name, table in run.by_experiment(rows).items()
        if (values := columns.ordered(columns.latency(table))).size
    }
    if not curves:
        why = untimed.sentence(untimed.why_no_latency, run.summaries.values())
        return Section("distributions", "Distributions", [Note(why, "warning")])
    base = {BASE: curves[BASE]} if BASE in curves else {}
    panels: list[Chart] = []
    for label, members in families(list(curves)):
        panel_curves = {name: curves[name] for name in members}
        panels.append(
            Chart(
                _free(f"cdf-{_slug(label)}", {panel.name for panel in panels}),
                plots.distribution(
                    panel_curves,
                    {} if BASE in panel_curves else base,
                    NS_PER_MS,
                    AXIS,
                    in_order=_numbered(members),
                ),
                f"Cumulative distribution of latency: {', '.join(panel_curves)}",
                label,
            )
        )

    def percentile(percent: int) -> Column:
        share = Fraction(percent, 100)
        return Column(
            f"p{percent}",
            lambda row: (quantile(row[1], share) or 0) / NS_PER_MS,
            figure,
            "ms",
            f"{percent} % of the requests took no longer.",
        )

    table = Table(
        [
            Column("experiment", 0),
            Column("n", lambda row: int(row[1].size), count, explanation=SAMPLES),
            Column("min", lambda row: int(row[1][0]) / NS_PER_MS, figure, "ms"),
            *(percentile(percent) for percent in _PERCENTILES),
            Column("max", lambda row: int(row[1][-1]) / NS_PER_MS, figure, "ms"),
        ],
        list(curves.items()),
        f"{LATENCY} The curves run through order statistics, at most"
        f" {plots.POINTS_PER_CURVE} of each; the first and the last value are always among them.",
    )
    return Section(
        "distributions",
        "Distributions",
        [Row(panels), table],
        "The share of requests that were answered within a given time. A flat part is a gap "
        "between two kinds of answers, such as warm and cold. "
        + (f"Dashed grey: {BASE}, for comparison. " if base else "")
        + "Choose a name in a legend to bring out its curve.",
    )


def families(names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Group experiments by the word before the first dash.

    Single experiments form a family together; a family too large for one panel is split.

    >>> families(["warm", "cold", "burst-warm", "burst-cold"])
    [('warm, cold', ['warm', 'cold']), ('burst', ['burst-warm', 'burst-cold'])]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.split(r"[-_.]", name)[0], []).append(name)
    single = [members[0] for members in groups.values() if len(members) == 1]
    grouped = [single] if single else []
    grouped += [members for members in groups.values() if len(members) > 1]
    result = []
    for members in grouped:
        for start in range(0, len(members), _CURVES_PER_PANEL):
            part = members[start : start + _CURVES_PER_PANEL]
            stem = re.split(r"[-_.]", part[0])[0]
            label = stem if len(part) > 1 and members is not single else ", ".join(part)
            result.append((label if start == 0 else f"{label} ({start + 1} on)", part))
    return result


def _numbered(names: Sequence[str]) -> bool:
    return len(names) > 1 and all(re.search(r"\d+$", name) for name in names)


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "other"


def _free(name: str, taken: Collection[str]) -> str:
    """The name, with a number where it is taken."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(it for it in itertools.chain([name], numbered) if it not in taken)
