"""What an import writes: whole tables or nothing.

Everything is written into a hidden folder beside the result, and gets its name when all of it is
complete; an error or Ctrl-C before removes it. What a killed import left, the next one removes that
writes to the same place. Rows that must be sorted, summed or joined wait in that folder as Parquet,
and DuckDB does it with bounded memory, using the disk.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from uncia import record
from uncia.errors import UnciaError
from uncia.record import parquet
from uncia.traces.base import REJECTED_FILE, Imported, Issues
from uncia.traces.parts import SORTED_ROWS, Order, Parts
from uncia.traces.rejected import Rejected
from uncia.traces.workfolder import work_folder

BATCH_ROWS: Final = 1 << 18
"""Rows that are in memory at once, and that are a row group of the result."""

_MEMORY: Final = "1GB"  # for sorting and joining; beyond it the disk is used
_PARQUET: Final = ".parquet"


class Names:
    """Text that repeats, as small numbers from 0 in order of appearance."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def id(self, name: str) -> int:
        """The number of one name."""
        return self._ids.setdefault(name, len(self._ids))

    def ids(self, names: pa.StringArray) -> npt.NDArray[np.int32]:
        """The number of each name."""
        encoded = names.dictionary_encode()
        known = np.array([self.id(name) for name in encoded.dictionary.to_pylist()], np.int32)
        numbers: npt.NDArray[np.int32] = known[encoded.indices.to_numpy(zero_copy_only=False)]
        return numbers

    def column(self, ids: pa.Array, texts: Sequence[str | None] | None = None) -> pa.Array:
        """The names behind numbers, or the text that ``texts`` holds at each; null stays null."""
        values = list(self._ids) if texts is None else list(texts)
        return pa.array(values, pa.utf8()).take(ids.cast(pa.int64()))


class Stage:
    """Rows that wait to be sorted; each gets its position as the column ``row``, from 1."""

    def __init__(self, path: Path, schema: Mapping[str, pa.DataType]) -> None:
        self.path = path
        self.rows = 0
        self._schema = pa.schema([("row", pa.int64()), *schema.items()])
        self._writer = pa.parquet.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, columns: Mapping[str, object]) -> None:
        """Append rows, given as arrays by column."""
        names = self._schema.names[1:]
        arrays = [pa.array(columns[name], self._schema.field(name).type) for name in names]
        rows = len(arrays[0])
        if rows:
            position = pa.array(np.arange(self.rows + 1, self.rows + 1 + rows, dtype=np.int64))
            table = pa.Table.from_arrays([position, *arrays], schema=self._schema)
            self._writer.write_table(table)
            self.rows += rows

    def close(self) -> None:
        """Complete the file."""
        self._writer.close()


class Output:
    """The tables of an import while they are made; see :func:`output`."""

    def __init__(self, target: Path, work: Path, issues: Issues | None = None) -> None:
        self._target = target
        self._work = work
        self._issues = issues
        if issues is not None:
            issues.file = Rejected(work / REJECTED_FILE)
        self._stages: dict[str, Stage] = {}
        self._writers: dict[str, parquet.Writer] = {}
        self._parts: dict[str, dict[str, Parts]] = {}
        self.rows: dict[str, int] = {}

    def stage(self, name: str, schema: Mapping[str, pa.DataType]) -> Stage:
        """A place for rows that :meth:`query` will read under this name."""
        self._stages[name] = Stage(self._work / f"stage-{name}{_PARQUET}", schema)
        return self._stages[name]

    def query(self, sql: str) -> Iterator[pa.RecordBatch]:
        """The result of SQL over the stages, in batches of :data:`BATCH_ROWS`."""
        # It loads pandas, where that is installed, which few commands need.
        from pyarrow import dataset

        for stage in self._stages.values():
            stage.close()
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": _MEMORY,
            "temp_directory": str(self._work / "spill"),
        }
        with duckdb.connect(config=config) as connection:
            for name, stage in self._stages.items():
                connection.register(name, dataset.dataset(stage.path, format="parquet"))
            relation = connection.sql(sql)
            # Its name until DuckDB 1.4, and since.
            old = "fetch_arrow_reader"
            reader = getattr(relation, "to_arrow_reader", None) or getattr(relation, old)
            yield from reader(BATCH_ROWS)

    def write(self, table: str, rows: Mapping[str, object]) -> None:
        """Append rows to a table of the result; columns that are not given are null."""
        data = record.conform(pa.table(dict(rows)), table, epoch=0)
        if table not in self._writers:
            self._writers[table] = parquet.Writer(self._file(table), record.schema(table))
            self.rows[table] = 0
        self._writers[table].write(data)
        self.rows[table] += data.num_rows

    def append(
        self, table: str, batch: pa.Table, order: Order, *, sort: bool | None, part: str = ""
    ) -> None:
        """Append many rows to a table that is written quickly; see `Parts`.

        Args:
            table: which; either this method or :meth:`write` writes it.
            batch: rows; columns that are not given are null.
            order: what they are sorted by.
            sort: whether they are sorted; None to do so if they are few.
            part: a folder for them in the table, such as ``platform=huawei-R1``; the table is then
                a folder of Parquet files.
        """
        parts = self._parts.setdefault(table, {})
        if part not in parts:
            file = self._file(table)
            if part:
                file = file / part / "part-0.parquet"
                file.parent.mkdir(parents=True)
            parts[part] = Parts(file, table, order, sort)
        parts[part].write(batch)
        self.rows[table] = self.rows.get(table, 0) + batch.num_rows

    def order_warnings(self, table: str) -> list[str]:
        """That a table is not sorted; completes what :meth:`append` wrote of it."""
        parts = self._parts.get(table, {}).values()
        for part in parts:
            part.close()
        if all(part.sorted for part in parts):
            return []
        return [
            f"the {table} are in the order of the files, not sorted by their start, because they"
            f" are more than {SORTED_ROWS:,} or it was asked for; --sorted sorts them"
        ]

    def _file(self, table: str) -> Path:
        return self._work / f"{table}{_PARQUET}"

    def commit(self) -> dict[str, Path]:
        """Give the tables that have rows their names, all of them or none.

        Raises:
            UnciaError: no table has a row, or several should go into one file.
        """
        for parts in self._parts.values():
            for part in parts.values():
                part.close()
        for writer in self._writers.values():
            writer.close()
        self.close()
        tables = [table for table, rows in self.rows.items() if rows]
        if not tables:
            raise self._empty()
        places = {table: target_file(self._target, table, tables) for table in tables}
        moves = [(self._file(table), target) for table, target in places.items()]
        if self._rejected():
            moves.append((self._work / REJECTED_FILE, rejected_file(self._target)))
        placed: list[Path] = []
        try:
            for source, target in moves:
                placed.append(target)
                target.parent.mkdir(exist_ok=True)
                source.replace(target)
        except BaseException:
            for target in placed:
                _remove(target)
            raise
        return places

    def finish(self, warnings: Sequence[str] = ()) -> Imported:
        """:meth:`commit`, and what there is to say of the import.

        Args:
            warnings: sentences to which those on rejected rows are added.

        Raises:
            UnciaError: as :meth:`commit`.
        """
        tables = self.commit()
        issues = self._issues or Issues()
        return Imported(
            rows={table: self.rows[table] for table in tables},
            tables=tables,
            warnings=[*warnings, *issues.warnings()],
            skipped=issues.skipped,
            read=issues.read,
            rejected=dict(issues.rejected),
            noted=dict(issues.noted),
            rejected_file=rejected_file(self._target) if self._rejected() else None,
        )

    def _rejected(self) -> bool:
        return self._issues is not None and self._issues.skipped > 0

    def _empty(self) -> UnciaError:
        if self._issues is not None and self._issues.skipped:
            return UnciaError(
                f"no row of the trace is good: {self._issues.reasons()}",
                hint="--strict names the line of the first.",
            )
        return UnciaError("the trace is empty: no row of it is an invocation")

    def close(self) -> None:
        """Close every file, so that the folder can be removed."""
        for stage in self._stages.values():
            stage.close()
        for writer in self._writers.values():
            writer.abandon()
        for parts in self._parts.values():
            for part in parts.values():
                part.abandon()
        if self._issues is not None and self._issues.file is not None:
            self._issues.file.close()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def rejected_file(out: Path) -> Path:
    """Where rejected rows go: into the folder of the tables, or beside the file of the only one."""
    if not _is_file(out):
        return out / REJECTED_FILE
    return out.with_name(f"{out.stem}.{REJECTED_FILE}")


def target_file(out: Path, table: str, tables: Sequence[str]) -> Path:
    """Where a table goes: ``out`` itself if it is a Parquet file, else a file in that folder.

    Raises:
        UnciaError: there are several tables for one file.
    """
    if not _is_file(out):
        return out / f"{table}{_PARQUET}"
    if len(tables) > 1:
        raise UnciaError(
            f"{out} is one file, but the trace becomes the tables {' and '.join(tables)}",
            hint="Name a folder with --out.",
        )
    return out


def _is_file(out: Path) -> bool:
    return out.suffix == _PARQUET and not out.is_dir()


@contextmanager
def output(out: Path, tables: Sequence[str], issues: Issues | None = None) -> Iterator[Output]:
    """Where an import writes its tables; what is not committed is removed.

    Args:
        out: a folder, made if it does not exist, or a file ``*.parquet`` for a single table.
        tables: the tables that the import may make.
        issues: whose rejected rows are kept in a file beside the tables.

    Raises:
        UnciaError: a table is there already, or nothing can be written there.
    """
    for file in (*(target_file(out, table, tables) for table in tables), rejected_file(out)):
        if file.exists():
            raise UnciaError(
                f"{file} exists already", hint="Name another place with --out, or remove it."
            )
    made: list[Path] = []
    try:
        folder = out if out.is_dir() else out.parent
        for missing in _missing(folder):
            missing.mkdir()
            made.append(missing)
        working = ExitStack()
        work = working.enter_context(work_folder(folder))
    except OSError as error:
        _remove_empty(made)
        raise _unwritable(out, error) from error
    was_there = out.exists()
    result = Output(out, work, issues)
    try:
        with _allocator():
            yield result
    except (OSError, duckdb.IOException, duckdb.OutOfMemoryException) as error:
        raise _unwritable(out, error) from error
    finally:
        with suppress(OSError):  # a full disk, which the error that led here names
            result.close()
        working.close()
        _remove_empty([*made, *([] if was_there or _is_file(out) else [out])])


@contextmanager
def _allocator() -> Iterator[None]:
    """Let Arrow allocate with the C library, on Linux, as long as an import runs.

    Arrow's usual allocator soon returns freed memory to the kernel, which clears each page before
    it hands it out again. In an import, whose blocks all need the same sizes, that took a sixth of
    the CPU time.
    """
    usual = pa.default_memory_pool()
    if sys.platform == "linux":
        pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(usual)


def _missing(folder: Path) -> list[Path]:
    """The folders to make so that ``folder`` exists, outermost first."""
    parents = [folder, *folder.parents]
    return [path for path in reversed(parents) if not path.exists()]


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove those folders that nothing was put into, innermost first."""
    for folder in reversed(folders):
        with suppress(OSError):  # it holds a result, or was never made
            folder.rmdir()


def _unwritable(out: Path, error: Exception) -> UnciaError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UnciaError(f"cannot write {out}: {reason}", exit_code=1)
