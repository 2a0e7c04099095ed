"""The page of a suite: figures from our rows with the printed values as points, and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from uncia.report import numbers, theme, vega
from uncia.report import page as pages
from uncia.report.page import WRITTEN, Block, Chart, Note, Page, Section, Tile
from uncia.report.sections.instances import steps as steps_of
from uncia.report.table import Column, Table
from uncia.stats import columns
from uncia.suites import claims
from uncia.suites.claims import DIFFERS, REPRODUCED, UNCHECKED, Finding
from uncia.suites.conclusions import IN_PART, NOT_RUN, conclude
from uncia.suites.expressions import parse_value
from uncia.suites.forms import Axis, Figure, Printed
from uncia.suites.results import EntryResults, Results
from uncia.suites.rows import SubjectRows

REPORT: Final = "report.html"

_MARKS: Final = {REPRODUCED: "better", DIFFERS: "worse", UNCHECKED: ""}
_PAPER: Final = "printed: "
_HEIGHT: Final = 280
_COURSE_BINS: Final = 60
_NS_PER_S: Final = 1e9


def write(results: Results) -> Path:
    """Write ``report.html`` into the folder of the results.

    Raises:
        UnciaError: it cannot be written.
    """
    return pages.write(page(results), results.folder / REPORT)


def page(results: Results) -> Page:
    """The page of a suite."""
    suite, findings = results.suite, results.findings
    verdict = claims.summarize(findings)
    if results.failures:
        verdict += f" {_failed(results)}"
    counts = {
        name: sum(finding.verdict == name for finding in findings) for name in claims.VERDICTS
    }
    return Page(
        title=suite.form.title,
        kicker="Uncia suite report",
        summary=suite.form.description,
        verdict=verdict,
        good=not results.failures and not counts[DIFFERS],
        facts=[
            ("Paper", suite.form.citation),
            ("Suite", suite.name),
            ("Experiments", "shortened (--quick)" if results.quick else "in full"),
        ],
        warnings=[*results.failures, *_noises(results)],
        tiles=[Tile(name, str(count), "", "claims") for name, count in counts.items()],
        sections=[
            Section(
                "verdicts",
                "Verdicts",
                [_verdicts(findings)],
                "A claim is reproduced if the whole 95 % interval of its value, over the rows of"
                " one run or the seeds of a simulation, lies on the side that it claims, and"
                " differs if it lies on the other.",
            ),
            *_conclusions(results),
            *(_section(entry, results.quick) for entry in results.entries),
        ],
        footer=f"{WRITTEN} from the tables beside it. This page loads nothing from anywhere.",
    )


def _failed(results: Results) -> str:
    count = len(results.failures)
    return f"{count} run{'s' if count > 1 else ''} failed."


def _noises(results: Results) -> Iterator[str]:
    for entry in results.entries:
        if entry.noise:
            yield f"{entry.entry.name}: a noisy machine: {entry.noise}."


def _verdicts(findings: Sequence[Finding]) -> Table:
    return Table(
        [
            Column("claim", "id"),
            Column("verdict", "verdict", mark=lambda finding: _MARKS[finding.verdict]),
            Column("the paper, and why", "paper", note=lambda finding: finding.why, mark="wrap"),
        ],
        findings,
        "claims.json has the same in a form for programs. What is ours is computed from"
        " invocations.parquet, spans.parquet and instances.parquet of the entry's runs, and from"
        " simulation.json of simulations.",
        "Claims",
        stacked=True,
        fold=False,
    )


def _conclusions(results: Results) -> list[Section]:
    """What the paper concludes, with the verdicts behind it."""
    form = results.suite.form
    if not form.conclusions:
        return []
    marks = {**_MARKS, IN_PART: "", NOT_RUN: ""}
    table = Table(
        [
            Column("", "name"),
            Column("the paper", lambda row: f"{row.form.paper} ({row.form.place})", mark="wrap"),
            Column("here", "verdict", mark=lambda row: marks[row.verdict]),
            Column("our figures", lambda row: "; ".join(row.ours) or row.why, mark="wrap"),
        ],
        conclude(form, results.findings),
        "Reproduced or not as in the paper if all claims that could be judged are, and in part"
        " otherwise; the claims behind each are in the third column.",
        form.called,
        stacked=True,
        fold=False,
    )
    return [Section("conclusions", form.called, [table])]


def _section(results: EntryResults, quick: bool) -> Section:
    entry = results.entry
    blocks: list[Block] = [Note(sentence, "warning") for sentence in results.failures]
    if not entry.form.runs:
        blocks.append(Note("Nothing is run for this entry."))
    elif not results.is_drawn and not results.failures:
        blocks.append(Note("Not run."))
    blocks += [Note(f"Scaled, {item.factor}: {item.means}.") for item in entry.form.scale]
    if results.is_drawn:
        for figure in entry.form.figures:
            blocks.append(_chart(results, figure))
            blocks += [Note(sentence) for sentence in _missing(results, figure)]
    if entry.form.printed:
        blocks.append(_printed(results))
    if entry.form.runs:
        blocks.append(_runs(results))
    return Section(
        entry.name.replace(".", "-"),
        f"{entry.form.shows}: {entry.form.title}",
        blocks,
        f"Section {entry.form.section}. {entry.form.description}"
        + (" The experiments are shortened (--quick)." if quick and entry.form.runs else ""),
    )


@dataclass(frozen=True)
class _Beside:
    """A printed value, and ours."""

    printed: Printed
    ours: claims.Measured

    @property
    def note(self) -> str:
        """The unit and the interval of ours, or why there is none."""
        if self.printed.ours is None or self.ours.value is None:
            return self.ours.why
        unit = parse_value(self.printed.ours).unit
        interval = self.ours.interval
        return unit if interval is None else f"{unit} ({numbers.span(interval)})".strip()


def _printed(results: EntryResults) -> Table:
    nothing = claims.Measured(None)
    rows = [
        _Beside(item, nothing if item.ours is None else results.measure(item.ours))
        for item in results.entry.form.printed
    ]
    return Table(
        [
            Column("what", lambda row: row.printed.what),
            Column("printed", lambda row: _cell(row.printed), align="number"),
            Column("at this scale", lambda row: row.printed.scaled, _scaled),
            Column("of", lambda row: row.printed.provider),
            Column("in", lambda row: row.printed.place),
            Column(
                "ours",
                lambda row: row.ours.value,
                numbers.figure,
                note=lambda row: row.note,
                mark=lambda row: "wrap" if row.ours.value is None and row.note else "",
            ),
        ],
        rows,
        "Ours with its 95 % interval over rows or seeds; a dash where there is nothing to set"
        " beside it.",
        "Printed values and ours",
        fold=False,
    )


def _cell(item: Printed) -> str:
    text = item.value if isinstance(item.value, str) else f"{item.value:,.6g}"
    return f"{text} {item.unit}".strip()


def _scaled(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


def _runs(results: EntryResults) -> Table:
    return Table(
        [
            Column("run", "name"),
            Column("is", "status", mark=lambda run: "bad" if run.status == "failed" else ""),
            Column("file", lambda run: results.entry.form.runs[run.name].file),
            Column("folder", lambda run: f"{results.entry.name}/{run.name}"),
            Column("rows", lambda run: _row_count(results, run.name), numbers.count),
        ],
        results.runs,
        "Each folder has a report of its own, with every row behind it.",
        "Runs",
    )


def _row_count(results: EntryResults, run: str) -> int | None:
    tables = results.tables.get(run)
    return None if tables is None else int(tables.invocations.num_rows)


def _chart(results: EntryResults, figure: Figure) -> Block:
    name = f"{results.entry.name}-{figure.name}".replace(".", "-")
    title = figure.title
    if results.entry.form.scale:
        title += f" ({', '.join(item.factor for item in results.entry.form.scale)})"
    if figure.course is not None:
        rows = results.subject(figure.course.subject)
        spec = None if rows is None else _course(rows, figure)
    else:
        spec = _lines(results, figure)
    if spec is None:
        return Note(f"{figure.title}: there are no rows to draw.")
    return Chart(name, spec, f"{figure.title}, ours and printed values", title)


def _missing(results: EntryResults, figure: Figure) -> Iterator[str]:
    """What is not in a figure because it cannot be had, a sentence each."""
    for name, reason in figure.absent.items():
        yield f"{name}: {reason}."
    lacking: dict[str, list[str]] = {}
    for series in figure.series:
        for at, text in zip(series.x, series.expressions(), strict=True):
            if results.measure(text).value is None and (why := results.lacks(text)):
                lacking.setdefault(why, []).append(f"{series.name}, {at}")
    for why, points in lacking.items():
        yield f"Not in the figure ({'; '.join(points)}): {why}."


def _lines(results: EntryResults, figure: Figure) -> vega.Spec | None:
    """Series over x with their intervals, and the printed values as points."""
    rows: list[dict[str, Any]] = []
    empty = dict(figure.absent)
    for series in figure.series:
        for at, text in zip(series.x, series.expressions(), strict=True):
            measured = results.measure(text)
            if measured.value is None:
                if _is_nominal(figure) and (why := results.lacks(text)):
                    empty.setdefault(str(at), why)
                continue
            rows.append({"x": at, "value": measured.value, "name": series.name, **_ends(measured)})
    if not rows:
        return None
    certain = [row for row in rows if row["low"] is not None]
    shown = [row[key] for row in rows for key in ("value", "low", "high")]
    shown += [float(mark.y) for mark in figure.printed]
    shown = [value for value in shown if value is not None and math.isfinite(value)]
    if not shown:
        return None
    for row in certain:
        row["low"] = max(row["low"], min(shown))
        row["high"] = min(row["high"], max(shown))
    shown_at = {str(row["x"]) for row in rows}
    absent = [{"x": at, "why": why} for at, why in empty.items() if at not in shown_at]
    marks = [
        {"x": mark.x, "value": mark.y, "name": f"{_PAPER}{mark.name}", "place": mark.place}
        for mark in figure.printed
    ]
    order = list(dict.fromkeys(row["name"] for row in [*rows, *marks]))
    shades = dict(zip(order, theme.colours(len(order)), strict=True))
    colour = vega.colours("name", order, [shades[name] for name in order], long=True)
    x = _x(figure, [*rows, *absent], marks)
    y = vega.quantity("value", figure.y.title, **_scale(figure.y, shown))
    layers = []
    if not _is_nominal(figure):
        layers.append(vega.layer("line", rows, {"strokeWidth": 2}, x=x, y=y, color=colour))
    if certain:
        layers.append(
            vega.layer(
                "rule",
                certain,
                {"strokeWidth": 2, "opacity": 0.6},
                x=x,
                y=vega.quantity("low", figure.y.title, **_only_scale(y)),
                y2={"field": "high"},
                color=colour,
            )
        )
    uncertain = [row for row in rows if row["low"] is None]
    for points, style in ((certain, {"filled": True}), (uncertain, {"filled": False})):
        if points:
            layers.append(
                vega.layer(
                    "point",
                    points,
                    {"size": 60, "opacity": 1, **style},
                    x=x,
                    y=y,
                    color=colour,
                    tooltip=vega.tips(
                        ("name", " "),
                        ("x", figure.x.title),
                        ("value", figure.y.title, ",.4~r"),
                        ("interval", "95 % interval"),
                    ),
                )
            )
    if marks:
        layers.append(
            vega.layer(
                "point",
                marks,
                {"shape": "diamond", "size": 150, "strokeWidth": 2, "filled": False},
                x=x,
                y=y,
                color=colour,
                tooltip=vega.tips(
                    ("name", " "), ("x", figure.x.title), ("value", "", ",.4~r"), ("place", "in")
                ),
            )
        )
    if absent:
        layers.append(
            vega.layer(
                "text",
                absent,
                {"text": "none here", "fontSize": 11},
                x=x,
                y={"value": _HEIGHT - 12},
                color={"value": theme.REFERENCE},
                tooltip=vega.tips(("x", figure.x.title), ("why", "")),
            )
        )
    return vega.chart(*layers, height=_HEIGHT)


def _ends(measured: claims.Measured) -> dict[str, Any]:
    """The ends of a value's interval, None where it has none, and what its tooltip says of it."""
    if measured.interval is None:
        why = measured.why or "too few rows for an interval"
        return {"low": None, "high": None, "interval": why}
    low, high = measured.interval
    start = numbers.figure4(low) if math.isfinite(low) else "no lower bound"
    end = f" to {numbers.figure4(high)}" if math.isfinite(high) else ", no upper bound"
    return {"low": low, "high": high, "interval": f"{start}{end}"}


def _is_nominal(figure: Figure) -> bool:
    return any(isinstance(x, str) for series in figure.series for x in series.x)


def _x(figure: Figure, rows: vega.Rows, marks: vega.Rows) -> vega.Channel:
    if _is_nominal(figure):
        known = {str(row["x"]): None for row in [*rows, *marks]}
        declared = {str(x): None for series in figure.series for x in series.x if str(x) in known}
        order = list(declared | known)
        return vega.names("x", order, axis={"labelAngle": 0, "labelLimit": 160})
    values = [float(row["x"]) for row in [*rows, *marks]]
    return vega.quantity("x", figure.x.title, **_scale(figure.x, values))


def _scale(axis: Axis, values: Sequence[float]) -> vega.Channel:
    if axis.log and min(values) > 0:
        return vega.logarithmic(values, padding=10)
    return {"axis": {"tickCount": 6}}


def _only_scale(channel: Mapping[str, Any]) -> vega.Channel:
    return {key: channel[key] for key in ("scale", "axis") if key in channel}


def _course(subject: SubjectRows, figure: Figure) -> vega.Spec | None:
    """Mean execution in equal parts of the time, and the instances alive beside it."""
    table = subject.ok
    begun = columns.integers(table, "started").to_numpy(zero_copy_only=False).astype(float)
    execution = columns.integers(table, "execution").to_numpy(zero_copy_only=False).astype(float)
    known = ~(np.isnan(begun) | np.isnan(execution))
    begun, execution = begun[known], execution[known]
    if not begun.size:
        return None
    first = begun.min()
    span = max(float(begun.max() - first), 1.0)
    bins = np.minimum((begun - first) / span * _COURSE_BINS, _COURSE_BINS - 1).astype(int)
    kinds = (figure.y.title, "instances")
    rows = [
        {
            "time": (number + 0.5) * span / _COURSE_BINS / _NS_PER_S,
            "value": float(execution[bins == number].mean()) / 1e6,
            "name": kinds[0],
        }
        for number in range(_COURSE_BINS)
        if (bins == number).any()
    ]
    alive = steps_of(subject.instances, int(first + span), vega.MAX_POINTS - 1)
    steps = [
        {"time": max(0.0, (moment - first) / _NS_PER_S), "value": count, "name": kinds[1]}
        for moment, count in alive
        if moment - first <= span
    ]
    if steps:
        steps.append({**steps[-1], "time": span / _NS_PER_S})
    colour = vega.colours("name", kinds, long=True)
    x = vega.quantity("time", figure.x.title)
    above = vega.layer(
        "line",
        rows,
        {"strokeWidth": 2},
        x=x,
        y=vega.quantity("value", figure.y.title),
        color=colour,
        tooltip=vega.tips(("time", figure.x.title, ",.3~r"), ("value", figure.y.title, ",.4~r")),
    )
    below = vega.layer(
        "line",
        steps,
        {"strokeWidth": 2, "interpolate": "step-after"},
        x=x,
        y=vega.quantity("value", "instances", axis={"orient": "right", "tickMinStep": 1}),
        color=colour,
    )
    spec = vega.chart(above, below, height=_HEIGHT)
    spec["resolve"] = {"scale": {"y": "independent"}}
    return spec
