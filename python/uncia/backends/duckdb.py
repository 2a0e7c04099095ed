"""DuckDB, embedded in this process: the default."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
import ibis
import pyarrow as pa
import pyarrow.parquet
from ibis.expr import types as ir

from uncia.backends.options import Options
from uncia.backends.overflow import beyond
from uncia.backends.paths import Part, files, holds, is_address, keys_of
from uncia.backends.subqueries import step_by_step
from uncia.backends.together import together, typed_keys, with_types
from uncia.backends.written import appearing, no_empty_key
from uncia.errors import UnciaError
from uncia.units import MIB

NAME: Final = "duckdb"

_Answer = TypeVar("_Answer")

_PATIENCE: Final = 0.05  # s between one interrupt and the next

_LEAST_MEMORY: Final = 64 * MIB


class DuckDB:
    """A connection of its own, with a folder of its own for what does not fit in memory."""

    name = NAME

    def __init__(self, options: Options) -> None:
        if options.master is not None:
            raise UnciaError(
                "DuckDB runs in this process and has no --master", "Add --engine spark."
            )
        memory = options.memory_bytes(_LEAST_MEMORY, "DuckDB")
        folder = options.folder()
        self._read: list[str] = []
        self._spill = tempfile.TemporaryDirectory(
            prefix="uncia-duckdb-", dir=folder, ignore_cleanup_errors=True
        )
        settings: dict[str, Any] = {"temp_directory": self._spill.name}
        if memory is not None:
            settings["memory_limit"] = f"{memory}B"
        try:
            self._connection = ibis.duckdb.connect(**settings)
            # A bar would be drawn into what the command prints.
            self._connection.raw_sql("SET enable_progress_bar = false")
        except duckdb.Error as error:
            self._spill.cleanup()
            raise UnciaError(f"DuckDB does not start: {_first(error)}") from error
        except BaseException:
            self._spill.cleanup()
            raise

    def table(self, source: Any, name: str = "invocations") -> ir.Table:
        """See `Backend.table`."""
        if isinstance(source, ir.Table):
            return source
        if isinstance(source, pa.Table):
            return self._connection.create_table(
                ibis.util.gen_name(name), with_types(source, name), temp=True
            )
        found = files(source, name)
        tables = [self._parquet(part, name) for part in found.parts]
        if found.streams:
            from uncia.record import merge, read

            rows = merge((read(path, name) for path in found.streams), name)
            tables.append(self.table(rows, name))
        return together(tables, name)

    def _parquet(self, part: Part, name: str) -> ir.Table:
        paths = list(part.paths)
        try:
            if part.remote:
                paths = self._addresses(paths)
            table = self._connection.read_parquet(
                paths,
                union_by_name=True,
                hive_partitioning=part.remote or bool(part.keys),
                hive_types_autocast=False,
            )
        except duckdb.Error as error:
            said = ", ".join(paths)
            if part.remote:
                raise UnciaError(f"{said} cannot be read: {_first(error)}") from error
            said = ", ".join(_broken(paths)) or said
            raise UnciaError(f"{said} cannot be read as Parquet: {_first(error)}") from error
        if not part.remote:
            self._read += paths
        keys = self._keys(paths[0], table) if part.remote else part.keys
        return typed_keys(table, keys, name)

    def _keys(self, pattern: str, table: ir.Table) -> list[str]:
        """The partition columns in the folders of an address."""
        said = pattern.replace("'", "''")
        first = self._connection.raw_sql(f"SELECT file FROM glob('{said}') LIMIT 1").fetchall()
        folders = first[0][0].split("/") if first else []
        return [key for key in keys_of(folders) if key in table.columns]

    def _addresses(self, paths: Sequence[str]) -> list[str]:
        """The addresses as DuckDB wants them, with the extension that reads them at hand."""
        self._load_httpfs(paths[0])
        named = [path if "*" in path or _is_file(path) else f"{path.rstrip('/')}/**/*.parquet"
                 for path in paths]  # fmt: skip
        return [path.replace("s3a://", "s3://", 1) for path in named]

    def _load_httpfs(self, path: str | Path) -> None:
        if str(path).startswith("file:"):
            return
        try:
            self._connection.raw_sql("LOAD httpfs")
        except duckdb.Error:
            try:
                self._connection.raw_sql("INSTALL httpfs")
                self._connection.raw_sql("LOAD httpfs")
            except duckdb.Error as error:
                raise UnciaError(
                    f"{path} needs DuckDB's extension httpfs, which is not installed and cannot be"
                    f" had: {_first(error)}",
                    "Where there is a network, run once: python -c 'import duckdb;"
                    ' duckdb.sql("INSTALL httpfs")\'',
                ) from error

    def has(self, source: Any, name: str) -> bool:
        """See `Backend.has`."""
        return holds(source, name)

    def collect(self, expression: ir.Table) -> pa.Table:
        """See `Backend.collect`."""
        with self._told():
            return self._run(lambda: self._collect(expression))

    def _collect(self, expression: ir.Table) -> pa.Table:
        if expression.get_backend() is not self._connection:
            return expression.to_pyarrow()
        # What Ibis does, which moreover imports pandas at this place.
        self._connection._run_pre_execute_hooks(expression)
        relation = self._connection.con.sql(self._connection.compile(expression))
        return expression.__pyarrow_result__(relation.to_arrow_table())

    def hold(self, expression: ir.Table) -> ir.Table:
        """See `Backend.hold`."""
        with self._told():
            return self._run(expression.cache)

    def write(
        self, expression: ir.Table, path: str | Path, partition_by: Sequence[str] = ()
    ) -> None:
        """See `Backend.write`."""
        from uncia.record import parquet

        options: dict[str, Any] = {
            "compression": "zstd",
            "kv_metadata": {parquet.CHECKSUM_KEY: parquet.UNSEALED},
        }
        if partition_by:
            options["partition_by"] = tuple(partition_by)
        if is_address(path):
            self._load_httpfs(path)
            with self._told():
                address = str(path).replace("s3a://", "s3://", 1)
                self._run(lambda: expression.to_parquet(address, **options))
            return
        with appearing(Path(path), folder=bool(partition_by)) as partial, self._told():
            self._run(lambda: expression.to_parquet(str(partial), **options))
            if partition_by:
                no_empty_key(partial)
            for file in partial.rglob("*.parquet") if partition_by else [partial]:
                parquet.seal(file)

    def _run(self, query: Callable[[], _Answer]) -> _Answer:
        """Run a query in a thread of its own, so that a signal ends it at once.

        While DuckDB computes it answers no signal, which may be for minutes.
        """
        with step_by_step(), ThreadPoolExecutor(max_workers=1) as threads:
            answer = threads.submit(query)
            try:
                return answer.result()
            finally:
                # Before the query has begun an interrupt is forgotten, so it is said until heard.
                while not answer.done():
                    self._connection.con.interrupt()
                    wait([answer], timeout=_PATIENCE)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn DuckDB's errors into sentences."""
        try:
            yield
        except (duckdb.OutOfRangeException, pa.ArrowInvalid) as error:
            # Arrow refuses a sum of 64-bit integers, which DuckDB keeps in 128 bits.
            raise beyond(_first(error)) from error
        except duckdb.OutOfMemoryException as error:
            raise UnciaError(
                f"the memory does not suffice: {_first(error)}", "Give more with --memory-limit."
            ) from error
        except duckdb.Error as error:
            if broken := _broken(self._read):
                said = f"{', '.join(broken)} cannot be read as Parquet"
                raise UnciaError(f"{said}: {_first(error)}") from error
            raise UnciaError(f"DuckDB cannot compute this: {_first(error)}") from error

    def close(self) -> None:
        """See `Backend.close`."""
        try:
            self._connection.disconnect()
        finally:
            self._spill.cleanup()


def open_backend(options: Options) -> DuckDB:
    """A new connection.

    Raises:
        UnciaError: an option is none of DuckDB's, or it does not start.
    """
    return DuckDB(options)


def _first(error: BaseException) -> str:
    """The first line that an error says; DuckDB goes on with the query."""
    return str(error).strip().partition("\n")[0]


def _is_file(address: str) -> bool:
    return address.endswith((".parquet", ".pq"))


def _broken(paths: Sequence[str]) -> list[str]:
    """The first of some files that is no whole Parquet file, as an error seldom says which."""
    for path in paths:
        try:
            with pa.parquet.ParquetFile(path) as file:
                for _ in file.iter_batches():
                    pass
        except (pa.ArrowException, OSError):
            return [path]
    return []
