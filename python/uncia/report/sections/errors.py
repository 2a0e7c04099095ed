"""Errors: each distinct one that nobody expected, with its trace and the function's last output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from markupsafe import Markup

from uncia.report.data import RunData
from uncia.report.numbers import ABSENT, count
from uncia.report.page import Block, Note, Section
from uncia.report.sections import Rows
from uncia.report.table import Column, Table
from uncia.stats import columns, errors
from uncia.stats.columns import pc

POSITION: Final = 5
ROWS: Final = Rows("invocations")

_MAX_EXPLAINED: Final = 8
"""Errors whose trace and output are shown, the most frequent first."""

_TEXT: Final = Markup('<span style="white-space: pre-wrap; font-family: monospace">{}</span>')


def section(run: RunData, rows: pa.Table) -> Section | None:
    """Show the distinct errors of failed requests; None if all ended as expected."""
    failures = errors.distinct(_failed(run, rows))
    if not failures:
        return None
    explained = {_key(error): error for error in run.stored.get("errors") or []}
    blocks: list[Block] = [
        Table(
            [
                Column("type", lambda error: error["type"] or ABSENT),
                Column("message", "message", mark="wrap"),
                Column("outcome", "outcome"),
                Column("requests", "count", count),
                Column("functions", lambda error: ", ".join(error["functions"])),
                Column("experiments", lambda error: ", ".join(error["experiments"]) or ABSENT),
            ],
            failures,
            "Rows of invocations whose outcome is neither ok nor declared, by the column error."
            " Messages that differ only in identifiers are one.",
            "Errors",
        )
    ]
    for error in failures[:_MAX_EXPLAINED]:
        more = explained.get(_key(error), {})
        name = error["type"] or error["message"] or error["outcome"]
        for title, text in (
            ("first trace", "\n".join(more.get("trace") or [])),
            ("last output of the function", (more.get("output") or "").rstrip()),
        ):
            if text:
                blocks.append(
                    Note(Markup("{}, {}: {}").format(name, title, _TEXT.format("\n" + text)))
                )
    return Section(
        "errors",
        "Errors",
        blocks,
        "Requests that ended neither ok nor as the experiment declares, each distinct error once.",
    )


def _failed(run: RunData, rows: pa.Table) -> pa.Table:
    """The rows whose outcome their experiment does not declare."""
    parts = [rows.slice(0, 0)]
    for name, part in columns.by_word(rows, "experiment").items():
        outcomes = pa.array(list(run.all_summaries[name]["failed_outcomes"]), pa.utf8())
        parts.append(part.filter(pc.is_in(columns.words(part, "outcome"), value_set=outcomes)))
    return pa.concat_tables(parts)


def _key(error: Mapping[str, Any]) -> tuple[Any, ...]:
    return error.get("outcome"), error.get("type"), error.get("message")
