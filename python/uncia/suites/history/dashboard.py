"""The dashboard of a history: a static page with the trend of each entry, and every time's fate.

A point is a time that is whole, at its number, with its interval; a diamond is one that violates a
condition; a line across is a time that failed, which has no value. A point leads to the report of
its time. The page loads nothing from anywhere, so the links lead to the history as it lies from
the page's folder.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup

from uncia.errors import UnciaError
from uncia.report import numbers, theme, vega
from uncia.report import page as pages
from uncia.report.page import WRITTEN, Block, Chart, Note, Page, Section, Tile
from uncia.report.table import Column, Table
from uncia.stats.comparison import WHOLE_RUN
from uncia.suites.catalogue import Suite
from uncia.suites.history import folders
from uncia.suites.history.judging import Judged
from uncia.suites.page import REPORT

PAGE: Final = "index.html"

POINTS: Final = 30_000
"""Points of all charts together: with about 60 bytes for each, and 1 MB for what draws them, the
page is below 3 MB. Of longer histories the latest times are drawn; the table has all."""

_TRENDS: Final = (
    ("p50", "p50, ms"),
    ("p99", "p99, ms"),
    ("tmr", "TMR (p99 / p50)"),
    ("cold", "cold, % of requests"),
    ("cost", "USD per million requests"),
)
_HEIGHT: Final = 170
_MARKS: Final = {"whole": "", "failed": "bad", "running": "", "foreign": "bad"}


@dataclass(frozen=True)
class _Point:
    """A figure of one experiment at one time."""

    number: int
    folder: str
    experiment: str
    value: float
    low: float | None
    high: float | None
    is_violated: bool


def write(suite: Suite, history: Path, judged: Sequence[Judged], site: Path) -> Path:
    """Write the page into a folder.

    Args:
        suite: that the history is of.
        history: its folder.
        judged: every time, in order.
        site: the folder of the page; made if it is not there.

    Raises:
        UnciaError: it cannot be written.
    """
    try:
        site.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnciaError(f"cannot write to {site}: {error.strerror or error}") from error
    return pages.write(page(suite, judged, _way(site, history)), site / PAGE)


def page(suite: Suite, judged: Sequence[Judged], way: str) -> Page:
    """The page.

    Args:
        suite: that the history is of.
        judged: every time, in order.
        way: the address of the history as seen from the page, with a ``/`` at its end.
    """
    counts = Counter(item.time.status for item in judged)
    newest = next((item for item in reversed(judged) if item.time.status != "foreign"), None)
    changed = [item for item in judged if item.violated]
    entries = list(dict.fromkeys(e.entry for item in judged for e in item.time.entries))
    # Each chart gets an equal part of the points.
    share = POINTS // max(1, len(entries) * len(_TRENDS))
    return Page(
        title=f"{suite.form.title}, again and again",
        kicker="Uncia dashboard",
        summary=suite.form.description,
        verdict="" if newest is None else _fate(newest),
        good=newest is None
        or (all(it.verdict == "holds" for it in newest.findings) and newest.time.status == "whole"),
        facts=[("Suite", suite.name), ("Times", numbers.count(len(judged)))],
        warnings=[
            f"{item.time.name}: {item.time.reason}"
            for item in judged
            if item.time.status == "foreign"
        ],
        tiles=[
            Tile("whole", str(counts["whole"]), "", "times"),
            Tile("failed", str(counts["failed"]), "", "times"),
            Tile("changed", str(len(changed)), "", "times that violate a condition"),
        ],
        sections=[
            *(_trend(suite, name, judged, way, share) for name in entries),
            Section("changes", "Changes", [_changes(changed, way)]),
            Section("times", "Times", [_times(judged, way)]),
        ],
        footer=f"{WRITTEN} from the folders of the history. This page loads nothing from anywhere.",
    )


def _way(site: Path, history: Path) -> str:
    return quote(os.path.relpath(history.resolve(), site.resolve())) + "/"


def _fate(item: Judged) -> str:
    """What came of a time, in a sentence."""
    if item.time.status != "whole":
        return f"The last time {item.time.status}: {item.time.reason}."
    if item.violated:
        subjects = ", ".join(dict.fromkeys(finding.subject for finding in item.violated))
        return f"The last time violates conditions: {subjects}."
    open_ = [finding for finding in item.findings if finding.verdict == "not judged"]
    if not open_:
        return "The last time violates no condition."
    first = f"{open_[0].subject}: {open_[0].reason}"
    if len(open_) == len(item.findings):
        return f"Of the last time nothing is judged, such as {first}."
    return (
        f"The last time violates no condition, but {len(open_)} of {len(item.findings)} were not"
        f" judged, such as {first}."
    )


def _trend(suite: Suite, entry: str, judged: Sequence[Judged], way: str, share: int) -> Section:
    """The charts of an entry."""
    form = suite.entries[entry].form if entry in suite.entries else None
    blocks: list[Block] = []
    notes: list[str] = []
    for metric, title in _TRENDS:
        tariffs = _tariffs(judged, entry) if metric == "cost" else [""]
        for tariff in tariffs:
            points, left_out = _latest(list(_points(judged, entry, metric, tariff)), share)
            if not points:
                continue
            if left_out:
                notes.append(f"{title}: the latest {_span(points)} times are drawn.")
            name = f"{entry}-{metric}{tariff and f'-{tariff}'}".replace(".", "-")
            shown = f"{title} under {tariff}" if tariff else title
            spec = _chart(points, _failed(judged, points[0].number), shown, way)
            blocks.append(Chart(name, spec, f"{shown}, over the times", shown))
    blocks += [Note(text) for text in dict.fromkeys(notes)]
    title = f"{form.shows}: {form.title}" if form is not None else entry
    scaled = "" if form is None else " ".join(f"Scaled, {item.factor}." for item in form.scale)
    return Section(entry.replace(".", "-"), title, blocks or [Note("No time is whole.")], scaled)


def _tariffs(judged: Sequence[Judged], entry: str) -> list[str]:
    found = dict.fromkeys(
        item["tariff"]
        for time in judged
        for part in time.time.entries
        if part.entry == entry
        for item in part.figures
        if item["metric"] == "cost"
    )
    return list(found)


def _points(judged: Sequence[Judged], entry: str, metric: str, tariff: str) -> Iterator[_Point]:
    for item in judged:
        if item.time.status != "whole":
            continue
        violated = {finding.subject for finding in item.violated}
        for part in item.time.entries:
            if part.entry != entry:
                continue
            figures = [
                figure
                for figure in part.figures
                if (figure["metric"], figure["tariff"]) == (metric, tariff)
                and figure["value"] is not None
            ]
            named = [figure for figure in figures if figure["experiment"] != WHOLE_RUN]
            # What a run of one experiment costs is what that costs, and is drawn once.
            shown = figures if len(named) > 1 else named
            suffix = f":{tariff}" if tariff else ""
            for figure in shown:
                experiment = figure["experiment"]
                subjects = {f"{entry}.{experiment}.{metric}{suffix}"}
                if experiment == WHOLE_RUN or shown is named:
                    subjects.add(f"{entry}/{part.run}.{metric}{suffix}")
                yield _Point(
                    folders.number(Path(item.time.name)),
                    item.time.name,
                    f"all of {part.run}" if experiment == WHOLE_RUN else experiment,
                    figure["value"],
                    figure["low"],
                    figure["high"],
                    not violated.isdisjoint(subjects),
                )


def _latest(points: list[_Point], share: int) -> tuple[list[_Point], bool]:
    """The points of the latest times, as many as fit; and whether some do not."""
    series = len({point.experiment for point in points}) or 1
    times = sorted({point.number for point in points})
    fitting = max(1, min(share, vega.MAX_POINTS) // series)
    if len(times) <= fitting:
        return points, False
    first = times[-fitting]
    return [point for point in points if point.number >= first], True


def _span(points: Sequence[_Point]) -> int:
    return len({point.number for point in points})


def _failed(judged: Sequence[Judged], since: int) -> list[tuple[int, str]]:
    """Number and reason of the times that failed."""
    return [
        (folders.number(Path(item.time.name)), item.time.reason)
        for item in judged
        if item.time.status == "failed" and folders.number(Path(item.time.name)) >= since
    ]


def _chart(
    points: Sequence[_Point], failed: Sequence[tuple[int, str]], title: str, way: str
) -> vega.Spec:
    """One metric over the times: a line with intervals for each experiment."""
    order = list(dict.fromkeys(point.experiment for point in points))
    colour = vega.colours("e", order, theme.colours(len(order)), long=True)
    x = vega.quantity("n", "time", axis={"tickMinStep": 1, "format": "d"}, scale={"zero": False})
    y = vega.quantity("v", title, scale={"zero": False})
    link = [{"calculate": f"'{way}' + datum.f + '/{REPORT}'", "as": "href"}]
    tip = vega.tips(
        ("f", "time"),
        ("e", " "),
        ("v", title, ",.4~r"),
        ("l", "from", ",.4~r"),
        ("h", "to", ",.4~r"),
    )
    layers = [
        vega.layer("line", [], {"strokeWidth": 1.5}, x=x, y=y, color=colour),
        vega.layer(
            "rule",
            [],
            {"strokeWidth": 1.5, "opacity": 0.5},
            where="isValid(datum.l)",
            x=x,
            y=vega.quantity("l", title, scale={"zero": False}),
            y2={"field": "h"},
            color=colour,
        ),
        vega.layer(
            "point",
            [],
            {"filled": True, "size": 36, "opacity": 1, "cursor": "pointer"},
            where="!datum.c",
            transform=link,
            x=x,
            y=y,
            color=colour,
            href={"field": "href", "type": "nominal"},
            tooltip=tip,
        ),
        vega.layer(
            "point",
            [],
            {
                "shape": "diamond",
                "filled": True,
                "size": 160,
                "opacity": 1,
                "color": theme.ALERT,
                "cursor": "pointer",
            },
            where="datum.c",
            transform=link,
            x=x,
            y=y,
            href={"field": "href", "type": "nominal"},
            tooltip=tip,
        ),
    ]
    for layer in layers:
        del layer["data"]
    if failed:
        layers.append(
            vega.layer(
                "rule",
                [{"n": number, "why": f"failed: {reason}"} for number, reason in failed],
                {"color": theme.ALERT, "strokeDash": vega.DASHED, "strokeWidth": 1.5},
                x=x,
                tooltip=vega.tips(("n", "time", "d"), ("why", " ")),
            )
        )
    spec = vega.chart(*layers, height=_HEIGHT)
    # One table for all layers, as text: a row is a third as long as an object with its keys.
    spec["data"] = {
        "values": _csv(points),
        "format": {
            "type": "csv",
            "parse": {"n": "number", "v": "number", "l": "number", "h": "number", "c": "boolean"},
        },
    }
    return spec


def _csv(points: Iterable[_Point]) -> str:
    lines = ["n,f,e,v,l,h,c"]
    for point in points:
        values = [
            "" if value is None else f"{value:.4g}"
            for value in (point.value, point.low, point.high)
        ]
        experiment = point.experiment.replace('"', '""')
        changed = "true" if point.is_violated else ""
        lines.append(f'{point.number},{point.folder},"{experiment}",{",".join(values)},{changed}')
    return "\n".join(lines)


@dataclass(frozen=True)
class _Change:
    """A condition that a time violates."""

    name: str
    condition: str
    subject: str
    reason: str


def _changes(judged: Sequence[Judged], way: str) -> Table:
    rows = [
        _Change(item.time.name, finding.gate.text, finding.subject, finding.reason)
        for item in reversed(judged)
        for finding in item.violated
    ]
    return Table(
        [
            Column("time", "name", _link(way)),
            Column("condition", "condition"),
            Column("subject", "subject"),
            Column("reason", "reason", mark="wrap"),
        ],
        rows,
        "Each time is compared with those before it, by the conditions that it was made with.",
        "Changes",
        fold=False,
    )


def _times(judged: Sequence[Judged], way: str) -> Table:
    return Table(
        [
            Column("time", lambda item: item.time.name, _link(way), align="text"),
            Column("begun", lambda item: item.time.begun or None),
            Column("is", lambda item: item.time.status, mark=lambda item: _MARKS[item.time.status]),
            Column("compared with", _compared, numbers.count),
            Column("violates", lambda item: len(item.violated) or None, numbers.count),
            Column("why", lambda item: item.time.reason or None, mark="wrap"),
        ],
        list(reversed(judged)),
        "The latest first. What failed has no figures in any chart.",
        "Times",
        fold=False,
    )


def _compared(item: Judged) -> int | None:
    """How many times before it a time was compared with, at most."""
    if not item.compared:
        return None
    return max(len(names) for names in item.compared.values())


def _link(way: str) -> Any:
    """Write a time's name as a link to its report."""

    def write_link(name: str) -> str:
        return Markup('<a href="{}{}/{}">{}</a>').format(way, name, REPORT, name)

    return write_link
