"""Outcomes: how requests ended, with starts, instances and error texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from uncia.record import INSTANCE_STARTS
from uncia.report import plots, theme
from uncia.report.data import RunData
from uncia.report.numbers import ABSENT, count
from uncia.report.page import Block, Chart, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import columns
from uncia.stats.summary import WARMUP_SUFFIX

if TYPE_CHECKING:
    import pyarrow as pa

POSITION: Final = 110
ROWS: Final = Rows("invocations")

_OUTCOMES: Final = {
    "ok": "#3f9f68",
    "throttled": "#e08a2c",
    "timeout": "#8a6fd1",
    "function_error": "#cf4a5c",
    "transport_error": "#98923a",
    "preempted": "#3b7fc4",
}
_OTHER: Final = theme.REFERENCE
_MAX_ERROR_TEXTS: Final = 12
"""Error texts of experiments that are shown; the rows of the others are counted."""

_MAX_ERROR_LENGTH: Final = 160


def section(run: RunData, rows: pa.Table) -> Section:
    """Show a table of counts, shares unless every outcome is ok, and the error texts."""
    summaries = run.all_summaries
    outcomes = list(dict.fromkeys(name for item in summaries.values() for name in item["outcomes"]))
    known = list(_OUTCOMES)
    outcomes.sort(key=lambda name: known.index(name) if name in known else len(known))
    blocks: list[Block] = []
    if set(outcomes) - {"ok"}:
        blocks.append(
            Chart(
                "outcomes",
                plots.stacked(
                    [
                        {"name": name, "part": outcome, "value": n}
                        for name, summary in summaries.items()
                        for outcome, n in summary["outcomes"].items()
                    ],
                    outcomes,
                    "share of requests",
                    normalized=True,
                    palette=[_OUTCOMES.get(name, _OTHER) for name in outcomes],
                    form=",",
                ),
                "Outcomes of each experiment as shares",
            )
        )
    blocks.append(_counts(run, outcomes))
    errors = _errors(rows)
    if errors is not None:
        blocks.append(errors)
    return Section(
        "outcomes",
        "Outcomes",
        blocks,
        "How every request ended. Nothing is left out: every scheduled request is a row.",
    )


def _counts(run: RunData, outcomes: list[str]) -> Table:
    summaries = run.all_summaries
    restored = any(summary["starts"].get("restored") for summary in summaries.values())
    origins = _origins(run)

    def outcome(name: str) -> Column:
        return Column(name, lambda row: row["outcomes"].get(name, 0), count)

    def start(kind: str) -> Column:
        def value(row: Any) -> int | None:
            return row["starts"].get(kind, 0) if row["starts"] else None

        return Column(kind, value, count, explanation=f"Requests that caused a {kind} start.")

    return Table(
        [
            Column("experiment", "name"),
            Column("requests", "invocations", count),
            Column("sent", "sent", count),
            *(
                [
                    Column(
                        "attempts preempted",
                        "preempted_attempts",
                        count,
                        explanation="Rows beside these requests, each of which ran again.",
                    )
                ]
                if any(summary["preempted_attempts"] for summary in summaries.values())
                else []
            ),
            *(outcome(name) for name in outcomes),
            Column(
                "failed",
                "failed",
                count,
                explanation="Requests that ended neither ok nor as the experiment declares.",
                mark=lambda row: "bad" if row["failed"] else "",
            ),
            *(start(kind) for kind in (INSTANCE_STARTS if restored else ("cold",))),
            Column("instances", lambda row: row["instances"] or None, count),
            *(
                [Column("starts from", lambda row: ", ".join(origins[row["name"]]) or ABSENT)]
                if origins
                else []
            ),
        ],
        [{"name": name, **summary} for name, summary in summaries.items()],
        "Counts of rows of invocations by the column outcome; sent: rows with sent not null;"
        " failed: neither ok nor declared by the experiment (expect); cold: rows with start"
        " cold; "
        + (
            "restored: rows with start restored, whose instance began with a runtime that had"
            " been started before; "
            if restored
            else ""
        )
        + ("starts from: the setting start_from; " if origins else "")
        + "instances: distinct values of the column instance. A dash: the platform does"
        " not report it."
        + (
            f" Experiments whose names end in {WARMUP_SUFFIX} prepare another one; only this"
            " section, the generator's and the bills by experiment show them."
            if any(name.endswith(WARMUP_SUFFIX) for name in summaries)
            else ""
        ),
        "Outcomes",
    )


def _origins(run: RunData) -> dict[str, list[str]]:
    """Look up the setting ``start_from`` of each experiment's functions, else of the platform.

    The result is empty if no experiment has the setting.
    """
    platform = run.meta.get("platform")
    default = platform.get("start_from") if isinstance(platform, Mapping) else None
    origins: dict[str, list[str]] = {}
    for name in run.all_summaries:
        streams = run.experiment_meta.get(name, {}).get("streams")
        settings = [
            stream["settings"]
            for stream in (streams if isinstance(streams, list) else [])
            if isinstance(stream, Mapping) and isinstance(stream.get("settings"), Mapping)
        ]
        values = (item.get("start_from", default) for item in settings or [{}])
        origins[name] = list(dict.fromkeys(str(value) for value in values if value))
    return origins if any(origins.values()) else {}


def _errors(invocations: pa.Table) -> Table | None:
    """List the error texts, most frequent first."""
    counted = sorted(
        (-n, name, text)
        for name, table in columns.by_word(invocations, "experiment").items()
        for text, n in columns.count_words(table, "error").items()
    )
    if not counted:
        return None
    rows = [
        (name, text if len(text) <= _MAX_ERROR_LENGTH else f"{text[: _MAX_ERROR_LENGTH - 1]}…", -n)
        for n, name, text in counted[:_MAX_ERROR_TEXTS]
    ]
    more = -sum(n for n, _, _ in counted[_MAX_ERROR_TEXTS:])
    tail = f" {more:,} more rows are not shown." if more else ""
    return Table(
        [Column("experiment", 0), Column("error", 1, mark="wrap"), Column("rows", 2, count)],
        rows,
        f"The column error of invocations, by experiment.{tail}",
        "Errors",
    )
