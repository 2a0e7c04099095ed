"""Facts about whole columns, from the footers of Parquet files, that make checks of rows needless.

A footer has the number of nulls, the minimum and the maximum of each column chunk. Where they show
that a column is empty, has no null, or stays within plausible bounds, the query omits the checks of
it. Everything else is checked row by row; the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from uncia.backends import Source


_RARE: Final = 50
"""A column in which at most one row in so many has a value is rare."""


@dataclass(frozen=True)
class Fact:
    """What is known of a column.

    Attributes:
        empty: every value is null.
        complete: no value is null.
        low: a lower bound of the values; None if unknown or empty.
        high: an upper bound; likewise.
        values: how many are not null; None if unknown.
        rows: how many there are, null or not; None if unknown.
    """

    empty: bool = False
    complete: bool = False
    low: int | str | None = None
    high: int | str | None = None
    values: int | None = field(default=None, compare=False)
    rows: int | None = field(default=None, compare=False)

    @property
    def rare(self) -> bool:
        """Whether few rows are known to have a value."""
        return (
            self.values is not None and self.rows is not None and (self.values * _RARE <= self.rows)
        )

    def within(self, low: int, high: int) -> bool:
        """Whether every value that is not null is known to lie in these bounds."""
        if self.empty:
            return True
        known = isinstance(self.low, int) and isinstance(self.high, int)
        return known and low <= self.low and self.high <= high  # type: ignore[operator]

    def always(self, value: str) -> bool:
        """Whether every row is known to hold this text."""
        return self.complete and self.low == self.high == value


Facts: TypeAlias = Mapping[str, Fact]
UNKNOWN = Fact()


def read_facts(source: Source) -> dict[str, Fact]:
    """Read facts about a source's columns; none unless all its files are local Parquet files.

    A file that cannot be read gives no facts here; the backend reports what is wrong with it.
    """
    if not isinstance(source, (str, Path)) and not _is_paths(source):
        return {}
    from uncia.backends.paths import files

    sources = files(source, "invocations")
    if sources.streams or any(part.remote for part in sources.parts):
        return {}
    try:
        footers = [pq.read_metadata(path) for part in sources.parts for path in part.paths]
    except (OSError, pa.ArrowException):
        return {}
    positions = [_positions(footer) for footer in footers]
    shared = set.intersection(*map(set, positions)) if positions else set()
    return {
        name: _combined(
            fact
            for footer, position in zip(footers, positions, strict=True)
            for fact in _chunk_facts(footer, position[name])
        )
        for name in shared
    }


def _is_paths(source: Any) -> bool:
    return isinstance(source, (list, tuple)) and all(
        isinstance(path, (str, Path)) for path in source
    )


def _positions(footer: Any) -> dict[str, int]:
    return {footer.schema.column(index).path: index for index in range(footer.num_columns)}


def _chunk_facts(footer: Any, column: int) -> Iterator[Fact]:
    """The fact of a column in each row group that has rows."""
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(column)
        if chunk.num_values:
            yield _fact(chunk)


def _fact(chunk: Any) -> Fact:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_null_count:
        return UNKNOWN
    nulls = statistics.null_count
    low, high = (statistics.min, statistics.max) if statistics.has_min_max else (None, None)
    same = type(low) is type(high) and type(low) in (int, str)
    return Fact(
        empty=nulls == chunk.num_values,
        complete=nulls == 0,
        low=low if same else None,
        high=high if same else None,
        values=chunk.num_values - nulls,
        rows=chunk.num_values,
    )


def _combined(facts: Iterable[Fact]) -> Fact:
    """Combine the facts of chunks; without rows nothing is known."""
    chunks = list(facts)
    if not chunks:
        return UNKNOWN
    nonempty = [fact for fact in chunks if not fact.empty]
    lows, highs = [fact.low for fact in nonempty], [fact.high for fact in nonempty]
    kinds = {type(value) for value in (*lows, *highs)}
    bounded = len(kinds) == 1 and kinds <= {int, str}
    counted = all(fact.rows is not None for fact in chunks)
    return Fact(
        empty=not nonempty,
        complete=all(fact.complete for fact in chunks),
        low=min(lows) if bounded else None,  # type: ignore[type-var]
        high=max(highs) if bounded else None,  # type: ignore[type-var]
        values=sum(fact.values or 0 for fact in chunks) if counted else None,
        rows=sum(fact.rows or 0 for fact in chunks) if counted else None,
    )
