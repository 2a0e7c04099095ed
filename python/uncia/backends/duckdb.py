"""DuckDB, embedded in this process: the default."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import ibis
import pyarrow as pa
from ibis.expr import types as ir

from uncia.backends.options import Options
from uncia.backends.paths import files
from uncia.errors import UnciaError

NAME: Final = "duckdb"


class DuckDB:
    """A connection of its own, with a folder of its own for what does not fit in memory."""

    name = NAME

    def __init__(self, options: Options) -> None:
        if options.master is not None:
            raise UnciaError("DuckDB runs in this process and has no --master")
        self._spill = tempfile.TemporaryDirectory(prefix="uncia-duckdb-", dir=options.temporary)
        settings: dict[str, Any] = {"temp_directory": self._spill.name}
        if options.memory_limit is not None:
            settings["memory_limit"] = options.memory_limit
        try:
            self._connection = ibis.duckdb.connect(**settings)
        except duckdb.Error as error:
            self._spill.cleanup()
            raise UnciaError(f"DuckDB does not start: {error}") from error

    def table(self, source: Any, name: str = "invocations") -> ir.Table:
        """See `Backend.table`."""
        if isinstance(source, ir.Table):
            return source
        if isinstance(source, pa.Table):
            return self._connection.create_table(ibis.util.gen_name(name), source, temp=True)
        found = files(source, name)
        if found.streams:
            from uncia.record import merge, read

            paths = (*map(Path, found.parquet), *found.streams)
            return self.table(merge((read(path, name) for path in paths), name), name)
        try:
            return self._connection.read_parquet(
                list(found.parquet), union_by_name=True, hive_partitioning=True
            )
        except duckdb.Error as error:
            said = ", ".join(found.parquet)
            raise UnciaError(f"{said} cannot be read as Parquet: {error}") from error

    def has(self, source: Any, name: str) -> bool:
        """See `Backend.has`."""
        if isinstance(source, (ir.Table, pa.Table)):
            return False
        paths = [source] if isinstance(source, (str, Path)) else list(source)
        return all((Path(path) / f"{name}.parquet").exists() for path in paths)

    def collect(self, expression: ir.Table) -> pa.Table:
        """See `Backend.collect`."""
        try:
            return expression.to_pyarrow()
        except (duckdb.OutOfRangeException, duckdb.ConversionException) as error:
            raise UnciaError(
                "the sums are beyond 38 digits, so they cannot be right: the table holds values"
                " that no platform produces"
            ) from error
        except duckdb.OutOfMemoryException as error:
            raise UnciaError(
                f"the memory does not suffice: {error}", "Give more with --memory-limit."
            ) from error
        except duckdb.Error as error:
            raise UnciaError(f"DuckDB cannot compute this: {error}") from error

    def write(
        self, expression: ir.Table, path: str | Path, partition_by: Sequence[str] = ()
    ) -> None:
        """See `Backend.write`."""
        try:
            if partition_by:
                expression.to_parquet(path, partition_by=tuple(partition_by))
            else:
                expression.to_parquet(path)
        except duckdb.Error as error:
            raise UnciaError(f"cannot write {path}: {error}", exit_code=1) from error

    def close(self) -> None:
        """See `Backend.close`."""
        self._connection.disconnect()
        self._spill.cleanup()


def open_backend(options: Options) -> DuckDB:
    """A new connection.

    Raises:
        UnciaError: an option is none of DuckDB's, or it does not start.
    """
    return DuckDB(options)
