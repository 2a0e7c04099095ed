"""Latency: quantiles, distributions, and the ratios MR, TR and TMR."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from uncia.report import charts, numbers
from uncia.report.data import RunData
from uncia.report.page import Block, Cell, Chart, Note, Row, Section, Table
from uncia.stats import columns
from uncia.stats.quantiles import Ints
from uncia.stats.summary import BASE, HIGH_RATIO

_NS_PER_MS: Final = 1e6
_QUANTILES: Final = ("p50", "p90", "p95", "p99")
_CURVES_PER_PANEL: Final = 7
"""More curves than this in one panel cannot be told apart."""

_WHERE_OK: Final = "the experiment's rows of invocations with outcome ok"
_LATENCY: Final = f"Latency is received − scheduled over {_WHERE_OK}; n is how many they are."
_INTERVAL: Final = "Small figures: 95 % interval from order statistics."
_FEW: Final = "† too few rows for an interval: read it as a single observation."


def overview(run: RunData) -> Section:
    """Quantiles of every experiment."""
    with_rows = {k: v for k, v in run.summaries.items() if v["latency_rows"]}
    blocks: list[Block] = []
    if with_rows:
        rows = [
            {"name": name, **{q: found["latency_ms"][q] for q in ("p50", "p90", "p99")}}
            for name, found in with_rows.items()
            if found["latency_ms"]["p50"] > 0
        ]
        blocks.append(
            Chart(
                "latency-quantiles",
                charts.ranges(rows, "latency, ms (logarithmic)"),
                "Median, p90 and p99 latency of each experiment on a logarithmic axis",
            )
        )
    blocks.append(
        Table(
            ("<experiment", "n", "p50, ms", "p90, ms", "p95, ms", "p99, ms", "max, ms", "mean, ms"),
            [_quantile_row(name, found) for name, found in run.summaries.items()],
            f"{_LATENCY} {_INTERVAL} {_FEW}",
        )
    )
    return Section(
        "latency",
        "Latency",
        blocks,
        "What a client waits: from the moment a request was due to the last byte of its answer. "
        "A request that the generator sent late is charged for the delay.",
    )


def _quantile_row(name: str, found: Mapping[str, Any]) -> list[Cell | str]:
    return [name, numbers.count(found["latency_rows"]), *_quantile_cells(found)]


def _quantile_cells(found: Mapping[str, Any]) -> list[Cell | str]:
    latency, intervals = found["latency_ms"], found["latency_ci95_ms"]
    cells: list[Cell | str] = []
    for quantile in _QUANTILES:
        bounds = intervals[quantile]
        few = quantile in found["unsupported_quantiles"] and latency[quantile] is not None
        note = "" if bounds is None else numbers.span(bounds)
        cells.append(Cell(numbers.figure(latency[quantile]), note, "few" if few else ""))
    return [*cells, numbers.figure(latency["max"]), numbers.figure(latency["mean"])]


def distributions(run: RunData) -> Section:
    """The distribution functions, related experiments in one panel."""
    curves = {
        name: columns.ordered(
            columns.difference(
                table.filter(columns.is_word(table, "outcome", "ok")), "received", "scheduled"
            )
        )
        for name, table in run.tables.items()
    }
    curves = {name: values for name, values in curves.items() if values.size}
    if not curves:
        return Section("distributions", "Distributions", [Note("No request succeeded.", "warning")])
    base = {BASE: curves[BASE]} if BASE in curves else {}
    panels = []
    for label, names in families(list(curves)):
        own: dict[str, Ints] = {name: curves[name] for name in names}
        reference = {} if BASE in own else base
        panels.append(
            Chart(
                f"cdf-{_slug(label)}",
                charts.distribution(
                    own,
                    reference,
                    _NS_PER_MS,
                    "latency, ms (logarithmic)",
                    ordered=_numbered(names),
                ),
                f"Cumulative distribution of latency: {', '.join(own)}",
                label,
            )
        )
    shares = (0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
    table = Table(
        ("<experiment", "n", "min", "p5", "p25", "p50", "p75", "p90", "p95", "p99", "max"),
        [
            [
                name,
                numbers.count(int(values.size)),
                numbers.figure(int(values[0]) / _NS_PER_MS),
                *(numbers.figure(_at(values, share) / _NS_PER_MS) for share in shares[1:]),
                numbers.figure(int(values[-1]) / _NS_PER_MS),
            ]
            for name, values in curves.items()
        ],
        f"All in ms. {_LATENCY} The curves run through order statistics, at most"
        f" {charts.POINTS_PER_CURVE} of each; the first and the last value are always among them.",
    )
    return Section(
        "distributions",
        "Distributions",
        [Row(panels), table],
        "The share of requests that were answered within a given time. A flat stretch is a gap "
        "between two kinds of answers, such as warm and cold. "
        + (f"Dashed grey: {BASE}, for comparison. " if base else "")
        + "Choose a name in a legend to bring out its curve.",
    )


def _at(ordered: Ints, share: float) -> int:
    from fractions import Fraction

    from uncia.stats.quantiles import quantile

    return quantile(ordered, Fraction(round(share * 100), 100)) or 0


def families(names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Experiments that belong together: the same word before the first dash.

    Families of one are put together; a family too large for one panel is split.

    >>> families(["warm", "cold", "burst-warm", "burst-cold"])
    [('warm, cold', ['warm', 'cold']), ('burst', ['burst-warm', 'burst-cold'])]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.split(r"[-_.]", name)[0], []).append(name)
    single = [members[0] for members in groups.values() if len(members) == 1]
    found = [single] if single else []
    found += [members for members in groups.values() if len(members) > 1]
    result = []
    for members in found:
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


def ratios(run: RunData) -> Section:
    """MR, TR and TMR of every experiment."""
    rows = [
        {
            "name": name,
            "kind": kind.upper(),
            "value": found[kind],
            "low": (found[f"{kind}_ci95"] or (None, None))[0],
            "high": (found[f"{kind}_ci95"] or (None, None))[1],
        }
        for name, found in run.summaries.items()
        for kind in ("mr", "tr", "tmr")
        if found[kind] is not None and found[kind] > 0
    ]
    blocks: list[Block] = []
    if rows:
        blocks.append(
            Chart(
                "ratios",
                charts.ratios(rows, "ratio (logarithmic)", HIGH_RATIO, ("MR", "TR", "TMR")),
                "MR, TR and TMR of each experiment with 95 % intervals; the line stands at 10",
            )
        )
    else:
        blocks.append(Note("No experiment has a ratio: see the warnings.", "warning"))
    waits = any(found["wait_ms"] for found in run.summaries.values())
    blocks.append(
        Table(
            ("<experiment", "n", "MR", "TR", "TMR", "<base", "wait subtracted, ms"),
            [
                [
                    name,
                    numbers.count(found["latency_rows"]),
                    *(_ratio_cell(found, kind) for kind in ("mr", "tr", "tmr")),
                    found["base"] or numbers.ABSENT,
                    numbers.figure(found["wait_ms"]) if found["wait_ms"] else numbers.ABSENT,
                ]
                for name, found in run.summaries.items()
            ],
            "MR = p50 / p50 of the base, TR = p99 / p50 of the base, TMR = p99 / p50, of latency"
            f" as above{' less the wait' if waits else ''}. Small figures: 95 % bootstrap"
            f" interval. Red: above {HIGH_RATIO:g}. {_FEW}",
        )
    )
    return Section(
        "ratios",
        "Ratios to warm",
        blocks,
        "How much slower than a single warm request: at the median (MR) and in the tail (TR); and "
        "how far the tail is from the experiment's own median (TMR). Above 10, the line, is a "
        "problem for whoever depends on it."
        + (
            " Where a function waits on purpose, the wait is subtracted first, so that what is "
            "left is the platform."
            if waits
            else ""
        ),
    )


def _ratio_cell(found: Mapping[str, Any], kind: str) -> Cell:
    value, bounds = found[kind], found[f"{kind}_ci95"]
    few = bounds is None and value is not None
    high = value is not None and value > HIGH_RATIO
    mark = " ".join(word for word, on in (("few", few), ("high", high)) if on)
    return Cell(numbers.figure(value), "" if bounds is None else numbers.span(bounds), mark)


def bursts(run: RunData) -> Section | None:
    """The same figures by burst size."""
    found = [(name, size) for name, each in run.summaries.items() for size in each["by_burst_size"]]
    if not found:
        return None
    rows = [
        {
            "name": f"{name} × {size['size']}",
            **{q: size["latency_ms"][q] for q in ("p50", "p90", "p99")},
        }
        for name, size in found
        if size["latency_rows"] and size["latency_ms"]["p50"] > 0
    ]
    blocks: list[Block] = []
    if rows:
        blocks.append(
            Chart(
                "bursts",
                charts.ranges(rows, "latency, ms (logarithmic)"),
                "Median, p90 and p99 latency by burst size on a logarithmic axis",
            )
        )
    head = ("<experiment", "burst size", "bursts", "n", "p50, ms", "p99, ms", "MR", "TR", "TMR")
    blocks.append(
        Table(
            head,
            [
                [
                    name,
                    numbers.count(size["size"]),
                    numbers.count(size["bursts"]),
                    numbers.count(size["latency_rows"]),
                    _quantile_cells(size)[0],
                    _quantile_cells(size)[3],
                    *(_ratio_cell(size, kind) for kind in ("mr", "tr", "tmr")),
                ]
                for name, size in found
            ],
            "A burst is the rows with the same burst number and scheduled time; its size counts"
            f" them all, n those with outcome ok. {_INTERVAL} {_FEW}",
            "By burst size",
        )
    )
    return Section(
        "bursts",
        "Bursts",
        blocks,
        "Many requests at the same instant, by how many there were. If large bursts are slower"
        " than small ones by whole executions, requests queue; if only by a start, the platform"
        " scales.",
    )
