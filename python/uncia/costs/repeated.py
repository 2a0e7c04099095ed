"""Rows that a table has more than once, of which a bill charges for each.

Only tables of at most `MAX_ROWS` rows of files on this machine are searched: of larger ones, that
would take longer than to bill them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from uncia.backends.paths import is_local

if TYPE_CHECKING:
    from ibis.expr import types as ir

    from uncia.backends import Backend, Source

MAX_ROWS: Final = 1_000_000
"""Rows that are compared with one another, which takes DuckDB less than a second."""


@dataclass(frozen=True)
class Kind:
    """What rows of a table are told apart by.

    Attributes:
        noun: what a row is of.
        needed: the columns that tell rows apart, the one with the most values first; rows in which
            one is null are no copies of others.
        places: columns within which they do, as far as the table has them.
    """

    noun: str
    needed: tuple[str, ...]
    places: tuple[str, ...]


INVOCATIONS: Final = Kind(
    "invocation",
    ("invocation", "attempt"),
    ("run", "experiment", "platform", "function"),
)
INSTANCES: Final = Kind("instance", ("instance", "started"), ("run", "platform", "function"))


def repeated_note(source: Source, table: ir.Table, kind: Kind, backend: Backend) -> str | None:
    """Say how many rows are there more than once; None if none are, or nobody looks.

    Args:
        source: where the rows are from.
        table: the rows.
        kind: what they are of.
        backend: where they are.

    Raises:
        UnciaError: the table cannot be read.
    """
    if not is_local(source) or not set(kind.needed) <= set(table.columns):
        return None
    if _numbers(table.aggregate(rows=table.count()), backend)["rows"] > MAX_ROWS:
        return None
    rows = table.filter([table[name].notnull() for name in kind.needed])
    names = rows[kind.needed[0]]
    # Where each has a name of its own, which is usual and quickly told, no two are the same.
    told = _numbers(rows.aggregate(rows=rows.count(), names=names.nunique()), backend)
    if told["rows"] == told["names"]:
        return None
    keys = [*(name for name in kind.places if name in rows.columns), *kind.needed]
    rows = rows.select(*keys, moment=_moment(rows))
    counts = rows.group_by([*keys, "moment"]).aggregate(n=rows.count())
    several = counts.filter(counts["n"] > 1)
    counts = _numbers(several.aggregate(copied=several.count(), rows=several["n"].sum()), backend)
    if not counts["copied"]:
        return None
    are = f"1 {kind.noun} is" if counts["copied"] == 1 else f"{counts['copied']:,} {kind.noun}s are"
    return (
        f"{are} there more than once, in {counts['rows']:,} rows of the same"
        f" {', '.join(keys[:-1])} and {keys[-1]}, and each row is billed."
    )


def _moment(rows: ir.Table) -> Any:
    """When rows of no run started, as names are unique within a run alone: null for others."""
    import ibis

    if "started" not in rows.columns:
        return ibis.null("int64")
    started = rows["started"]
    if "run" not in rows.columns:
        return started
    return ibis.ifelse(rows["run"].isnull(), started, ibis.null(started.type()))


def _numbers(query: ir.Table, backend: Backend) -> dict[str, int]:
    (row,) = backend.collect(query).to_pylist()
    values: dict[str, Any] = row
    return {name: int(value or 0) for name, value in values.items()}
