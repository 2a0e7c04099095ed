"""What the footers of Parquet files say of whole columns, so that rows need not be asked.

A Parquet file counts the nulls of each column chunk and keeps its least and greatest value. Where
they show that a column holds nothing, has no null, or stays within what is believed, the query
leaves out the checks of it. What is not known is checked row by row; the answer is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from uncia.backends import Source


@dataclass(frozen=True)
class Fact:
    """What is known of a column.

    Attributes:
        empty: every value is null.
        complete: no value is null.
        low: no value is below it; None: not known, or empty.
        high: no value is above it; likewise.
    """

    empty: bool = False
    complete: bool = False
    low: int | str | None = None
    high: int | str | None = None

    def within(self, low: int, high: int) -> bool:
        """Whether every value that is not null lies in these bounds."""
        if self.empty:
            return True
        known = isinstance(self.low, int) and isinstance(self.high, int)
        return known and low <= self.low and self.high <= high  # type: ignore[operator]

    def always(self, value: str) -> bool:
        """Whether every row holds this text."""
        return self.complete and self.low == self.high == value


Facts: TypeAlias = Mapping[str, Fact]
UNKNOWN = Fact()


def read_facts(source: Source) -> dict[str, Fact]:
    """What the footers say of a source's columns; nothing if it is not of local Parquet files.

    A file that cannot be read tells nothing here: the backend says what is wrong with it.
    """
    if not isinstance(source, (str, Path)) and not _is_paths(source):
        return {}
    from uncia.backends.paths import files

    found = files(source, "invocations")
    if found.streams or any(part.remote for part in found.parts):
        return {}
    paths = [path for part in found.parts for path in part.paths]
    try:
        footers = [pq.read_metadata(path) for path in paths]
    except (OSError, pa.ArrowException):
        return {}
    names = set.intersection(*(_columns(one) for one in footers)) if footers else set()
    return {name: _joined(part for one in footers for part in _parts(one, name)) for name in names}


def _is_paths(source: Any) -> bool:
    return isinstance(source, (list, tuple)) and all(isinstance(one, (str, Path)) for one in source)


def _columns(footer: Any) -> set[str]:
    return {footer.schema.column(place).path for place in range(footer.num_columns)}


def _parts(footer: Any, name: str) -> Iterable[Fact]:
    """The fact of each row group that has rows."""
    paths = [footer.schema.column(place).path for place in range(footer.num_columns)]
    place = paths.index(name)
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(place)
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
    )


def _joined(parts: Iterable[Fact]) -> Fact:
    """One fact of all; of no rows at all nothing is known."""
    every = list(parts)
    if not every:
        return UNKNOWN
    held = [part for part in every if not part.empty]
    lows, highs = [part.low for part in held], [part.high for part in held]
    kinds = {type(value) for value in (*lows, *highs)}
    bounded = len(kinds) == 1 and kinds <= {int, str}
    return Fact(
        empty=not held,
        complete=all(part.complete for part in every),
        low=min(lows) if bounded else None,  # type: ignore[type-var]
        high=max(highs) if bounded else None,  # type: ignore[type-var]
    )
