"""Distinct errors of invocations: each once, with how often it came and where it came first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from uncia.stats import columns
from uncia.stats.columns import pc

# What differs between two failed requests with the same error.
_IDS: Final = (
    (re.compile(r"RequestId: \S+ (Error: )?"), ""),
    (re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<address>"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b"), "<id>"),
    (re.compile(r"\b[0-9]{6,}\b"), "<number>"),
)
# How the client names an error before the function's own words.
_PREFIX: Final = re.compile(r"(Unhandled|Handled|HTTP [0-9]{3}): (?=.)")
_Key: TypeAlias = tuple[str, str | None, str]
"""Outcome, type and message."""

_TYPE: Final = re.compile(r"([A-Z]\w*(?:\.\w+)*): (?P<message>.+)", re.DOTALL)


COLUMNS: Final = ("outcome", "error", "function", "experiment")
"""The columns by which failures are counted."""

Failure: TypeAlias = tuple[str | None, ...]
"""The values of these columns."""


def distinct(table: pa.Table, explained: Iterable[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """List the distinct errors of rows whose outcome is not ok, the most frequent first.

    Messages that differ only in identifiers (of requests, addresses, long numbers) are one error.

    Args:
        table: invocations.
        explained: the load generator's events ``failure``, each with the ``invocation`` that it
            explains, a ``trace`` (lines) and the ``output`` of the function.

    Returns:
        Plain JSON values, for each error: ``outcome``, ``type`` (None if the error names none),
        ``message``, ``count``, ``functions``, ``experiments``, and ``trace`` and ``output`` of the
        first of its invocations that is explained (an empty list and None if none is).
    """
    failed = table.filter(pc.invert(columns.is_word(table, "outcome", "ok")))
    errors = _distinct(count(failed))
    _explain(errors, failed, explained)
    return _listed(errors)


def of_counts(counts: Counter[Failure]) -> list[dict[str, Any]]:
    """As `distinct`, of failures that were counted."""
    return _listed(_distinct(counts))


def count(table: pa.Table) -> Counter[Failure]:
    """How often each failure occurs among rows of invocations; those with outcome ok are none."""
    failed = table.filter(pc.invert(columns.is_word(table, "outcome", "ok")))
    groups = (
        pa.table({name: columns.words(failed, name) for name in COLUMNS})
        .group_by(list(COLUMNS))
        .aggregate([([], "count_all")])
        .to_pylist()
    )
    return Counter({tuple(row[name] for name in COLUMNS): row["count_all"] for row in groups})


def _distinct(counts: Counter[Failure]) -> dict[_Key, dict[str, Any]]:
    errors: dict[_Key, dict[str, Any]] = {}
    for (word, text, function, experiment), rows in counts.items():
        kind, message = describe(text or "")
        outcome = str(word)
        error = errors.setdefault(
            (outcome, kind, message),
            {
                "outcome": outcome,
                "type": kind,
                "message": message,
                "count": 0,
                "functions": set(),
                "experiments": set(),
                "trace": [],
                "output": None,
            },
        )
        error["count"] += rows
        error["functions"].add(function)
        if experiment is not None:
            error["experiments"].add(experiment)
    return errors


def _listed(errors: Mapping[_Key, dict[str, Any]]) -> list[dict[str, Any]]:
    result = sorted(errors.values(), key=lambda error: (-error["count"], error["message"]))
    for error in result:
        error["functions"] = sorted(error["functions"])
        error["experiments"] = sorted(error["experiments"])
    return result


def describe(text: str) -> tuple[str | None, str]:
    """Split an error's text into its type, if it names one, and its message without identifiers."""
    text = text.strip()
    for pattern, replacement in _IDS:
        text = pattern.sub(replacement, text)
    match = _TYPE.fullmatch(_PREFIX.sub("", text, count=1))
    # Where the function named no error, only the status says which kind it was.
    return (None, text) if match is None else (match[1], match["message"])


def _explain(
    errors: Mapping[_Key, dict[str, Any]],
    failed: pa.Table,
    explained: Iterable[Mapping[str, Any]],
) -> None:
    """Add trace and output to the errors of the invocations that are explained."""
    by_invocation = {str(event["invocation"]): event for event in explained}
    if not by_invocation:
        return
    known = pa.array(list(by_invocation), pa.utf8())
    rows = failed.filter(pc.is_in(columns.words(failed, "invocation"), value_set=known))
    for name, outcome, text in zip(
        *(columns.words(rows, name).to_pylist() for name in ("invocation", "outcome", "error")),
        strict=True,
    ):
        kind, message = describe(text or "")
        error = errors[(outcome, kind, message)]
        if not error["trace"] and error["output"] is None:
            error["trace"] = list(by_invocation[name].get("trace") or [])
            error["output"] = by_invocation[name].get("output")
