"""The backend DuckDB, embedded in this process: the default."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import duckdb
import ibis
import pyarrow as pa
import pyarrow.parquet
from ibis.expr import types as ir

from uncia.backends.atomic_write import atomic_path, check_no_empty_key
from uncia.backends.errors import overflow_error
from uncia.backends.integers import signed
from uncia.backends.options import Options
from uncia.backends.paths import Part, check_schema, files, holds, is_address, keys_of
from uncia.backends.subqueries import unfused_selects
from uncia.backends.union import typed_keys, union_tables, with_types
from uncia.errors import UnciaError
from uncia.record.parquet import unreadable
from uncia.units import MIB

if TYPE_CHECKING:
    from uncia.backends import Listener

NAME: Final = "duckdb"

_Answer = TypeVar("_Answer")

_INTERRUPT_INTERVAL_S: Final = 0.05

_PROGRESS_INTERVAL_S: Final = 0.1

_MIN_MEMORY: Final = 64 * MIB


class DuckDB:
    """A DuckDB connection, with a temporary folder that it spills to."""

    name = NAME

    def __init__(self, options: Options) -> None:
        if options.master is not None:
            raise UnciaError(
                "DuckDB runs in this process and has no --master", "Add --backend spark."
            )
        memory = options.memory_bytes(_MIN_MEMORY, "DuckDB")
        folder = options.folder()
        self._read: list[str] = []
        self._held: list[str] = []
        self._queries = 0
        self._listener: Listener | None = None
        self._spill = tempfile.TemporaryDirectory(
            prefix="uncia-duckdb-", dir=folder, ignore_cleanup_errors=True
        )
        settings: dict[str, Any] = {"temp_directory": self._spill.name}
        if memory is not None:
            settings["memory_limit"] = f"{memory}B"
        if options.threads is not None:
            settings["threads"] = options.threads
        try:
            self._connection = ibis.duckdb.connect(**settings)
            # A progress bar would be drawn into the command's output.
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
            check_schema(source.schema, name)
            return self._create(with_types(source, name), name)
        sources = files(source, name)
        tables = [self._parquet(part, name) for part in sources.parts]
        if sources.streams:
            tables.append(self.table(sources.read_streams(name), name))
        return union_tables(tables, name)

    def _create(self, rows: pa.Table, name: str) -> ir.Table:
        """Rows in memory as a table of a name of its own."""
        try:
            return self._connection.create_table(ibis.util.gen_name(name), rows, temp=True)
        except duckdb.Error as error:
            raise UnciaError(f"DuckDB cannot hold the table: {_first(error)}") from error

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
            names = ", ".join(paths)
            if part.remote:
                raise UnciaError(f"{names} cannot be read: {_first(error)}") from error
            names = ", ".join(_broken(paths)) or names
            raise unreadable(names, UnciaError(_first(error)), "Parquet") from error
        if not part.remote:
            self._read += paths
        keys = self._keys(paths[0], table) if part.remote else part.keys
        return typed_keys(self._narrowed(table), keys, name)

    def _narrowed(self, table: ir.Table) -> ir.Table:
        """Files as a table, whose integers of 128 bits become int64.

        DuckDB makes these of int64 in some files and uint64 in others; Parquet has none.
        """
        if not any(dtype.is_decimal() for dtype in table.schema().values()):
            return table
        types = self._connection.raw_sql(f'DESCRIBE "{table.op().name}"').fetchall()
        wide = [column for column, dtype, *_ in types if dtype == "HUGEINT"]
        return table.mutate(**{column: signed(table[column]) for column in wide})

    def _keys(self, pattern: str, table: ir.Table) -> list[str]:
        """The partition columns in the folders of an address."""
        escaped = pattern.replace("'", "''")
        rows = self._connection.raw_sql(f"SELECT file FROM glob('{escaped}') LIMIT 1").fetchall()
        folders = rows[0][0].split("/") if rows else []
        return [key for key in keys_of(folders) if key in table.columns]

    def _addresses(self, paths: Sequence[str]) -> list[str]:
        """Addresses as DuckDB wants them; loads the extension that reads them."""
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
                    f" downloaded: {_first(error)}",
                    "Where there is a network, run once: python -c 'import duckdb;"
                    ' duckdb.sql("INSTALL httpfs")\'',
                ) from error

    def has(self, source: Any, name: str) -> bool:
        """See `Backend.has`."""
        return holds(source, name)

    def collect(self, expression: ir.Table) -> pa.Table:
        """See `Backend.collect`."""
        with self._translate_errors():
            return self._run(lambda: self._collect(expression))

    def _collect(self, expression: ir.Table) -> pa.Table:
        if expression.get_backend() is not self._connection:
            return expression.to_pyarrow()
        # What Ibis's `to_pyarrow` does, without its import of pandas.
        self._connection._run_pre_execute_hooks(expression)
        relation = self._connection.con.sql(self._connection.compile(expression))
        return expression.__pyarrow_result__(relation.to_arrow_table())

    def compile(
        self, schema: pa.Schema, query: Callable[[ir.Table], ir.Table]
    ) -> Callable[[pa.Table], pa.Table]:
        """Compile a query once, for many small batches of rows: to plan takes longer than to run.

        Args:
            schema: of the batches.
            query: makes the query of the table that holds a batch.

        Returns:
            A function from a batch to the rows of the query, which raises UnciaError as `collect`.
        """
        table = self.table(schema.empty_table(), "batch")
        expression = query(table)
        with unfused_selects():
            sql = self._connection.compile(expression)
        batches = table.op().name  # `get_name` adds the schema

        def run(batch: pa.Table) -> pa.Table:
            with self._translate_errors():
                connection = self._connection.con
                connection.register(f"{batches}_rows", with_types(batch, "batch"))
                connection.execute(
                    f'CREATE OR REPLACE TEMP TABLE "{batches}" AS FROM "{batches}_rows"'
                )
                answer = connection.sql(sql).to_arrow_table()
            return expression.__pyarrow_result__(answer)

        return run

    def hold(self, expression: ir.Table) -> ir.Table:
        """See `Backend.hold`."""
        with self._translate_errors():
            held = self._run(expression.cache)
        self._held.append(held.op().name)
        return held

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
            with self._translate_errors():
                address = str(path).replace("s3a://", "s3://", 1)
                self._run(lambda: expression.to_parquet(address, **options))
            return
        with (
            atomic_path(Path(path), directory=bool(partition_by)) as partial,
            self._translate_errors(),
        ):
            self._run(lambda: expression.to_parquet(str(partial), **options))
            if partition_by:
                check_no_empty_key(partial)
            for file in partial.rglob("*.parquet") if partition_by else [partial]:
                parquet.seal(file)

    def _run(self, query: Callable[[], _Answer]) -> _Answer:
        """Run a query in a thread, so that a signal ends it at once.

        In the main thread, DuckDB would handle no signal until it is done, maybe minutes later.
        """
        answer: Future[_Answer] = Future()
        thread = threading.Thread(target=_compute, args=(answer, query), daemon=True)
        with unfused_selects():
            self._queries += 1
            try:
                thread.start()
                if self._listener is not None:
                    self._report_progress(answer, self._listener)
                return answer.result()
            finally:
                # A signal may come while the thread starts; DuckDB ignores an interrupt that comes
                # before the query has begun.
                while not (answer.done() or answer.cancel()):
                    self._connection.con.interrupt()
                    wait([answer], timeout=_INTERRUPT_INTERVAL_S)

    def _report_progress(self, answer: Future[_Answer], listener: Listener) -> None:
        """Report how much of a query is done until it ends."""
        listener(self._queries, None)
        while not wait([answer], timeout=_PROGRESS_INTERVAL_S).done:
            percent = self._connection.con.query_progress()
            listener(self._queries, percent if percent >= 0 else None)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn DuckDB's errors into sentences."""
        try:
            yield
        except (duckdb.OutOfRangeException, pa.ArrowInvalid) as error:
            # DuckDB sums 64-bit integers in 128 bits; Arrow refuses such a sum.
            raise overflow_error(_first(error)) from error
        except duckdb.OutOfMemoryException as error:
            raise UnciaError(
                f"out of memory: {_first(error)}", "Give more with --memory-limit."
            ) from error
        except duckdb.Error as error:
            # A sum of 128 bits, of 39 digits at most, is cast to a decimal of 38.
            if isinstance(error, duckdb.ConversionException) and "to DECIMAL(38" in str(error):
                raise overflow_error(_first(error)) from error
            if broken := _broken(self._read):
                message = f"{', '.join(broken)} cannot be read as Parquet"
                raise UnciaError(f"{message}: {_first(error)}") from error
            raise UnciaError(f"DuckDB cannot compute this: {_first(error)}") from error

    def watch(self, listener: Listener) -> None:
        """See `Backend.watch`."""
        # DuckDB measures progress only for its own bar, which may be invisible.
        self._connection.raw_sql("SET enable_progress_bar = true")
        self._connection.raw_sql("SET enable_progress_bar_print = false")
        self._listener = listener

    def close(self) -> None:
        """See `Backend.close`."""
        with ExitStack() as last:
            last.callback(self._spill.cleanup)
            last.callback(self._connection.disconnect)
            # An error that is on its way out has expressions in its traceback: tables that outlive
            # the connection would fail to be dropped, which Python prints.
            for name in self._held:
                self._connection._finalize_cached_table(name)


def open_backend(options: Options) -> DuckDB:
    """Open a DuckDB connection.

    Raises:
        UnciaError: DuckDB has no such option, or does not start.
    """
    return DuckDB(options)


def _compute(answer: Future[_Answer], query: Callable[[], _Answer]) -> None:
    """Compute an answer, unless it has been cancelled."""
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(query())
    except BaseException as error:  # noqa: BLE001 - raised where the answer is waited for
        answer.set_exception(error)


def _first(error: BaseException) -> str:
    """The first line of an error's message; the query follows it."""
    return str(error).strip().partition("\n")[0]


def _is_file(address: str) -> bool:
    return address.endswith((".parquet", ".pq"))


def _broken(paths: Sequence[str]) -> list[str]:
    """The first file that is damaged or no Parquet file, as DuckDB's errors seldom name it."""
    for path in paths:
        try:
            with pa.parquet.ParquetFile(path) as file:
                for _ in file.iter_batches():
                    pass
        except (pa.ArrowException, OSError):
            return [path]
    return []
