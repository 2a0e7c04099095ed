"""Tables of any size as Parquet, quickly: batches as they come, sorted only if they are few."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from uncia import record
from uncia.record import parquet
from uncia.traces.parallel import Background

GROUP_ROWS: Final = 1 << 18
"""Rows of a row group."""

SORTED_ROWS: Final = 1 << 20
"""Rows that are sorted, in memory, unless it was said whether to sort."""

_ZSTD_LEVEL: Final = 1  # the next levels take twice the time for a tenth less
_BATCH_ROWS: Final = 1 << 16  # encoded at once; 1,024, the default, take a seventh longer
_MEMORY: Final = "1GB"  # for sorting; beyond it the disk is used
_LAST: Final = np.iinfo(np.int64).max

Order: TypeAlias = Callable[[pa.Table], pa.Array]
"""What the rows of a batch are sorted by: int64; rows where it is null come last."""


class Parts:
    """A Parquet file that grows by batches, which another thread encodes and writes.

    Rows of the same place in the order stay in the order that they came in.

    Args:
        path: the file.
        table: which table it holds.
        order: what its rows are sorted by: a column of whole numbers, computed from a batch.
        sort: whether they are sorted; None to do so if there are at most `SORTED_ROWS`.
    """

    def __init__(self, path: Path, table: str, order: Order, sort: bool | None) -> None:
        self._path = path
        self._table = table
        self._order = order
        self._sort = sort
        self._waiting: list[pa.Table] = []
        self._rows_waiting = 0
        self._few = sort is not False  # whether all rows are still waiting, to be sorted
        self._writer: parquet.Writer | None = None
        self._background = Background()
        self._last = np.iinfo(np.int64).min
        self.sorted = True
        self.rows = 0

    def write(self, batch: pa.Table) -> None:
        """Append rows: columns of the table; those that are not given are null.

        Raises:
            OSError: rows given before could not be written.
        """
        if not batch.num_rows:
            return
        places = self._places(batch)
        self.sorted &= bool(self._last <= places[0] and (np.diff(places) >= 0).all())
        self._last = int(places[-1])
        self._waiting.append(batch)
        self._rows_waiting += batch.num_rows
        self.rows += batch.num_rows
        self._few &= self.rows <= SORTED_ROWS
        while not self._few and self._rows_waiting >= GROUP_ROWS:
            self._write_group()

    def close(self) -> None:
        """Complete the file."""
        if self._few and not self.sorted:
            everything = _joined(self._waiting).combine_chunks()
            order = np.argsort(self._places(everything), kind="stable")
            self._waiting = [everything.take(pa.array(order))]
            self.sorted = True
        while self._waiting:
            self._write_group()
        self._background.finish()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            if self._sort and not self.sorted:
                self._sort_on_disk()

    def abandon(self) -> None:
        """Close the file as it is."""
        self._waiting = []
        self._background.abandon()
        if self._writer is not None:
            self._writer.abandon()

    def _places(self, batch: pa.Table) -> npt.NDArray[np.int64]:
        places = self._order(batch).fill_null(_LAST)
        positions: npt.NDArray[np.int64] = places.to_numpy(zero_copy_only=False)
        return positions

    def _write_group(self) -> None:
        """Have the rows that wait longest written as one row group; the others go on waiting."""
        group: list[pa.Table] = []
        missing = GROUP_ROWS
        while self._waiting and missing:
            batch = self._waiting.pop(0)
            if batch.num_rows > missing:
                self._waiting.insert(0, batch.slice(missing))
                batch = batch.slice(0, missing)
            group.append(batch)
            missing -= batch.num_rows
        self._rows_waiting -= GROUP_ROWS - missing
        self._background.add(lambda: self._encode(group))

    def _encode(self, group: list[pa.Table]) -> None:
        """Write a row group; in the other thread."""
        rows = record.conform(_joined(group), self._table, epoch=0)
        if self._writer is None:
            self._writer = _writer(self._path, rows.schema)
        self._writer.write(rows, GROUP_ROWS)

    def _sort_on_disk(self) -> None:
        """Sort a file that does not fit in memory."""
        unsorted = self._path.with_name(f"unsorted-{self._path.name}")
        self._path.replace(unsorted)
        again = Parts(self._path, self._table, self._order, sort=False)
        for batch in _by_start(unsorted, self._path.parent / "spill"):
            again.write(batch)
        again.close()
        unsorted.unlink()
        self.sorted = True


def _by_start(path: Path, spill: Path) -> Iterator[pa.Table]:
    names = ", ".join(f'"{name}"' for name in pa.parquet.read_schema(path).names)
    with duckdb.connect(
        config={"memory_limit": _MEMORY, "temp_directory": str(spill)}
    ) as connection:
        relation = connection.sql(
            f"SELECT {names} FROM read_parquet('{str(path).replace(chr(39), chr(39) * 2)}',"
            " file_row_number=true)"
            " ORDER BY coalesce(started, ended) NULLS LAST, file_row_number"
        )
        # Its name until DuckDB 1.4, and since.
        reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        for batch in reader(GROUP_ROWS):
            yield pa.Table.from_batches([batch])


def _joined(batches: list[pa.Table]) -> pa.Table:
    """One table whose columns have one dictionary each, as a row group needs it."""
    return pa.concat_tables(batches).unify_dictionaries()


def _writer(path: Path, schema: pa.Schema) -> parquet.Writer:
    names = {name for name in schema.names if not pa.types.is_nested(schema.field(name).type)}
    few = {name for name in names if _repeats(schema.field(name))}
    texts = {name for name in names - few if pa.types.is_string(schema.field(name).type)}
    numbers = {name for name in names - few if pa.types.is_int64(schema.field(name).type)}
    return parquet.Writer(
        path,
        schema,
        compression_level=_ZSTD_LEVEL,
        write_batch_size=_BATCH_ROWS,
        use_dictionary=sorted(few),
        column_encoding={
            **dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
            **dict.fromkeys(texts, "DELTA_LENGTH_BYTE_ARRAY"),
        },
        write_statistics=sorted(names - texts),  # the least of some hashes helps nobody
    )


def _repeats(field: pa.Field) -> bool:
    """Whether few values are expected: then they are stored once a row group."""
    return pa.types.is_dictionary(field.type) or field.name in (
        "attempt",
        "allocated_cpu",
        "allocated_memory",
    )
