"""How requests ended: outcomes, starts, instances and error texts."""

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
_ERROR_TEXTS: Final = 12
"""Different error texts shown; the rest are counted."""

_ERROR_LENGTH: Final = 160


def section(run: RunData, rows: pa.Table) -> Section:
    """Shares where not all went well, a table of counts, and the error texts."""
    summaries = run.all_summaries
    words = list(dict.fromkeys(word for found in summaries.values() for word in found["outcomes"]))
    words.sort(
        key=lambda word: list(_OUTCOMES).index(word) if word in _OUTCOMES else len(_OUTCOMES)
    )
    blocks: list[Block] = []
    if set(words) - {"ok"}:
        blocks.append(
            Chart(
                "outcomes",
                plots.stacked(
                    [
                        {"name": name, "part": word, "value": n}
                        for name, found in summaries.items()
                        for word, n in found["outcomes"].items()
                    ],
                    words,
                    "share of requests",
                    normalized=True,
                    palette=[_OUTCOMES.get(word, _OTHER) for word in words],
                    form=",",
                ),
                "Outcomes of each experiment as shares",
            )
        )
    blocks.append(_counts(run, words))
    errors = _errors(rows)
    if errors is not None:
        blocks.append(errors)
    return Section(
        "outcomes",
        "Outcomes",
        blocks,
        "How every request ended. Nothing is left out: what was scheduled is a row.",
    )


def _counts(run: RunData, words: list[str]) -> Table:
    summaries = run.all_summaries
    restored = any(found["starts"].get("restored") for found in summaries.values())
    origins = _origins(run)

    def outcome(word: str) -> Column:
        return Column(word, lambda row: row["outcomes"].get(word, 0), count)

    def start(kind: str) -> Column:
        def value(row: Any) -> int | None:
            return row["starts"].get(kind, 0) if row["starts"] else None

        return Column(kind, value, count)

    return Table(
        [
            Column("experiment", "name"),
            Column("requests", "invocations", count),
            Column("sent", "sent", count),
            *(outcome(word) for word in words),
            Column("failed", "failed", count, mark=lambda row: "bad" if row["failed"] else ""),
            *(start(kind) for kind in (INSTANCE_STARTS if restored else ("cold",))),
            Column("instances", lambda row: row["instances"] or None, count),
            *(
                [Column("starts from", lambda row: ", ".join(origins[row["name"]]) or ABSENT)]
                if origins
                else []
            ),
        ],
        [{"name": name, **found} for name, found in summaries.items()],
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
        + "instances: different values of the column instance. A dash: the platform does"
        " not say."
        + (
            f" Experiments whose names end in {WARMUP_SUFFIX} prepare another one and are in"
            " no other section but this and the generator's."
            if any(name.endswith(WARMUP_SUFFIX) for name in summaries)
            else ""
        ),
        "Outcomes",
    )


def _origins(run: RunData) -> dict[str, list[str]]:
    """What the instances of each experiment were started from, by the settings of its functions or
    of the platform; empty if none says so."""
    platform = run.meta.get("platform")
    usual = platform.get("start_from") if isinstance(platform, Mapping) else None
    found: dict[str, list[str]] = {}
    for name in run.all_summaries:
        streams = run.experiment_meta.get(name, {}).get("streams")
        settings = [
            stream["settings"]
            for stream in (streams if isinstance(streams, list) else [])
            if isinstance(stream, Mapping) and isinstance(stream.get("settings"), Mapping)
        ]
        words = (own.get("start_from", usual) for own in settings or [{}])
        found[name] = list(dict.fromkeys(str(word) for word in words if word))
    return found if any(found.values()) else {}


def _errors(invocations: pa.Table) -> Table | None:
    """The error texts, most frequent first."""
    rows: list[tuple[str, str, int]] = []
    rest = 0
    for name, table in columns.by_word(invocations, "experiment").items():
        for text, n in columns.count_words(table, "error").items():
            if len(rows) == _ERROR_TEXTS:
                rest += n
                continue
            shown = text if len(text) <= _ERROR_LENGTH else f"{text[: _ERROR_LENGTH - 1]}…"
            rows.append((name, shown, n))
    if not rows:
        return None
    tail = f" {rest:,} more rows have other texts." if rest else ""
    return Table(
        [Column("experiment", 0), Column("error", 1, mark="wrap"), Column("rows", 2, count)],
        rows,
        f"The column error of invocations, by experiment.{tail}",
        "Errors",
    )
