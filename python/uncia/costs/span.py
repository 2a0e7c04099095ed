"""How long the rows of a bill span, beside the month that a free tier is for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

from uncia.backends.integers import signed
from uncia.costs.warmups import without_warmups
from uncia.errors import UnciaError
from uncia.units import NS_PER_H, NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa
    from ibis.expr import types as ir

    from uncia.backends import Backend

_DAY_NS: Final = 24 * NS_PER_H
_MIN_MONTH_NS: Final = 27 * _DAY_NS
"""Of 28 days, whose first and last request are not at their very ends."""
_MAX_MONTH_NS: Final = 31 * _DAY_NS
_NO_EPOCH: Final = 0


def span_note(paths: Sequence[str | Path], rows: ir.Table, backend: Backend) -> str | None:
    """Say how long rows span, where that is no month: free tiers are a month's, taken off once.

    The times of a table count from its own epoch, so that tables with several are put in order by
    their epochs, and nothing is said where one of them tells none.

    Args:
        paths: of the tables.
        rows: those of the tables that are billed.
        backend: reads them.

    Returns:
        None: it is a month, or not known.
    """
    by_epoch = _by_epoch(paths)
    if len(by_epoch) < 2:
        ends = _ends(rows, backend)
    elif _NO_EPOCH in by_epoch:
        return None
    else:
        ends = []
        for epoch, files in by_epoch.items():
            table, _ = without_warmups(backend, backend.table(files))
            ends += [epoch + end for end in _ends(table, backend)]
    if not ends:
        return None
    span = max(ends) - min(ends)
    if _MIN_MONTH_NS < span <= _MAX_MONTH_NS:
        return None
    return (
        f"The rows began within {_words(span)}, and the free tier of a whole month is taken off"
        " once, as if they were a month's."
    )


def _ends(rows: ir.Table, backend: Backend) -> list[int]:
    """The first and the last start, ns since their epoch; empty if none is known."""
    if "started" not in rows.columns or not rows.schema()["started"].is_integer():
        return []
    started = signed(rows["started"])
    ends = rows.aggregate(first=started.min(), last=started.max())
    (row,) = backend.collect(ends).to_pylist()
    return [] if row["first"] is None else [int(row["first"]), int(row["last"])]


def _by_epoch(paths: Sequence[str | Path]) -> Mapping[int, Sequence[str | Path]]:
    """The files of tables by their epoch, Unix time in ns; that of addresses is not known."""
    import pyarrow.parquet as pq

    from uncia import record
    from uncia.backends.paths import files

    sources = files(paths, "invocations")
    result: dict[int, list[str | Path]] = defaultdict(list)
    for part in sources.parts:
        for path in part.paths:
            result[_NO_EPOCH if part.remote else _epoch(pq.read_schema(path))].append(path)
    for folder in sources.streams:
        first = next(record.scan(folder, ["started"]), None)
        if first is not None:  # None: no rows, which span nothing
            result[_epoch(first.schema)].append(folder)
    return result


def _epoch(schema: pa.Schema) -> int:
    from uncia import record

    try:
        return record.epoch_unix_ns(schema.empty_table())
    except UnciaError:  # a bill has no use for it, so that a wrong one is as good as none
        return _NO_EPOCH


def _words(span: int) -> str:
    """A time for readers, without exponents: in days, or below a day in seconds."""
    unit, noun, places = (_DAY_NS, "days", 2) if span >= _DAY_NS else (NS_PER_S, "s", 3)
    # Rounded up, as rows began within it.
    steps = -(-span * 10**places // unit)
    number = f"{float(Fraction(steps, 10**places)):,.{places}f}".rstrip("0").rstrip(".")
    return f"{number} {noun}"
