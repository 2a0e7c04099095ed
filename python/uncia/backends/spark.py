"""The backend Apache Spark, on this machine or a cluster: ``pip install 'uncia[spark]'``."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import ibis
import pyarrow as pa
import pyarrow.parquet
from ibis.expr import types as ir

from uncia.backends import java
from uncia.backends.atomic_write import atomic_path, empty_key_error
from uncia.backends.integers import signed
from uncia.backends.options import Options
from uncia.backends.paths import Part, check_schema, files, holds, is_address, keys_of
from uncia.backends.spark_errors import translate_errors
from uncia.backends.subqueries import unfused_selects
from uncia.backends.union import typed_keys, union_tables, with_types
from uncia.errors import UnciaError
from uncia.units import MIB

if TYPE_CHECKING:
    from uncia.backends import Listener

NAME: Final = "spark"

_MIN_MEMORY: Final = 512 * MIB
_CONNECT_TIMEOUT_S: Final = 5
_WORKERS_TIMEOUT_S: Final = 60
_MASTER: Final = re.compile(
    r"local|local\[(\d+|\*)(,\d+)?\]|local-cluster\[\d+,\d+,\d+\]|spark://.+|yarn|k8s://.+"
)

_UNSIGNED: Final = "Int(bitWidth=64, isSigned=false)"

# Settings under which Spark computes what DuckDB computes; set again in a session of others.
_SEMANTICS: Final = {
    # An overflow is an error; without this it is null.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # `tariffs.exact.quotient` loses digits at the end, not at the front.
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


class Spark:
    """A Spark session.

    A process has at most one Spark. If this process runs one already, its session is used and left
    running; otherwise one is started, and stopped with all its processes on close.
    """

    name = NAME

    def __init__(self, options: Options) -> None:
        self._machine: java.Machine | None = None
        self._session: Any = None
        self._interrupt = signal.getsignal(signal.SIGINT)
        _check_pyspark()
        _hush()
        # Spark writes to its folders until its process has ended.
        self._folder = tempfile.TemporaryDirectory(
            prefix="uncia-spark-", dir=options.folder(), ignore_cleanup_errors=True
        )
        try:
            self._open(options)
        except BaseException:
            self.close()
            raise

    def _open(self, options: Options) -> None:
        from pyspark import SparkContext

        running = SparkContext._active_spark_context
        if running is None:
            self._start(options)
        else:
            self._borrow(running, options)
        for key, value in _SEMANTICS.items():
            self._session.conf.set(key, value)
        # Files at an address have their pages verified by Spark, which reads them.
        self._session.conf.set("parquet.page.verify-checksum.enabled", "true")
        self._ibis = ibis.pyspark.connect(self._session)
        # Ibis would convert through pandas, where a column of integers and nulls becomes double.
        self._ibis._register_in_memory_table = lambda op: self._view(
            op.data.to_pyarrow(op.schema), op.name
        )

    def _borrow(self, running: Any, options: Options) -> None:
        from pyspark.sql import SparkSession

        if options.master not in (None, running.master):
            raise UnciaError(
                f"this process runs Spark on {running.master} already, so it cannot use"
                f" {options.master}"
            )
        if options.memory_limit is not None:
            raise UnciaError("this process runs Spark already, so its memory cannot be limited")
        self._local = _is_local(running.master)
        self._session = SparkSession(running).newSession()

    def _start(self, options: Options) -> None:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        master = options.master or "local[*]"
        self._local = _is_local(master)
        settings = self._settings(master, options)
        _check_reachable(master)
        java.find()
        machine = self._machine = java.Machine(settings, Path(self._folder.name) / "spark.log")
        with translate_errors(machine):
            SparkContext._ensure_initialized(gateway=machine.gateway)
            conf = SparkConf().setAll(list(settings.items()))
            try:
                context = SparkContext(conf=conf)
            finally:
                # PySpark's own handler calls Java in the middle of another call to it.
                if self._interrupt is not None:
                    _set_handler(self._interrupt)
            self._session = SparkSession(context)
            if master != "local" and not master.startswith("local["):
                self._wait_for_workers(context, master)

    def _settings(self, master: str, options: Options) -> dict[str, str]:
        folder = Path(self._folder.name)
        settings = {
            "spark.master": master,
            "spark.app.name": "uncia",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": str(folder / "spill"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.driver.maxResultSize": "0",
            # Without it, a driver that is out of memory goes on for minutes.
            "spark.driver.defaultJavaOptions": "-XX:+ExitOnOutOfMemoryError",
            **_SEMANTICS,
        }
        if self._local or "//127.0.0.1" in master or "//localhost" in master:
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        if self._local:
            settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
        memory = options.memory_bytes(_MIN_MEMORY, "Spark")
        if memory is not None:
            settings["spark.driver.memory"] = f"{memory // MIB}m"
            if not self._local:
                settings["spark.executor.memory"] = f"{memory // MIB}m"
        return settings

    def _wait_for_workers(self, context: Any, master: str) -> None:
        """Wait for the first executor; without one, a job would wait for ever.

        Raises:
            UnciaError: none registered in time.
        """
        deadline = time.monotonic() + _WORKERS_TIMEOUT_S
        while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver is one
            if time.monotonic() > deadline:
                raise UnciaError(
                    f"{master} gave no worker within {_WORKERS_TIMEOUT_S} s",
                    "Its workers are busy, or have less memory than was asked for.",
                )
            time.sleep(0.1)

    def table(self, source: Any, name: str = "invocations") -> ir.Table:
        """See `Backend.table`."""
        if isinstance(source, ir.Table):
            return source
        if isinstance(source, pa.Table):
            check_schema(source.schema, name)
            return self._view(with_types(source, name), ibis.util.gen_name(name))
        sources = files(source, name)
        tables: list[ir.Table] = []
        for part in sources.parts:
            with translate_errors(self._machine):
                tables += self._address(part, name) if part.remote else self._parquet(part, name)
        if sources.streams:
            tables.append(self.table(sources.read_streams(name), name))
        return union_tables(tables, name)

    def _view(self, data: pa.Table, view: str) -> ir.Table:
        """Register rows in memory as a view: through a file that workers share, or by sending."""
        data = _plain(data)
        with translate_errors(self._machine):
            if self._local and data.num_columns:
                path = Path(self._folder.name) / f"{view}.parquet"
                pa.parquet.write_table(data, path, row_group_size=1 << 18)
                frame = self._session.read.parquet(f"file:{path}")
            else:
                frame = self._session.createDataFrame(data)
            frame.createOrReplaceTempView(view)
        return self._ibis.table(view)

    def _parquet(self, part: Part, name: str) -> list[ir.Table]:
        """Read files, each schema as its own table, as Spark does not widen types."""
        tables = []
        for schema, paths in _by_schema(part.paths).items():
            reader = self._session.read.option("__globPaths__", "false")
            if part.root is not None:
                reader = reader.option("basePath", f"file:{part.root.absolute()}")
            frame = reader.parquet(*(f"file:{Path(path).absolute()}" for path in paths))
            view = ibis.util.gen_name(name)
            frame.createOrReplaceTempView(view)
            table = self._ibis.table(view)
            changed = {
                column: ibis.null() if logical == "Null" else signed(table[column])
                for column, _, logical in schema
                if logical in ("Null", _UNSIGNED)
            }
            changed |= {
                key: table[key].substitute(names)
                for index, key in enumerate(part.keys)
                if (names := _misread(paths, index - len(part.keys) - 1))
            }
            table = table.mutate(**changed) if changed else table
            tables.append(typed_keys(table, part.keys, name))
        return tables

    def _address(self, part: Part, name: str) -> list[ir.Table]:
        (path,) = part.paths
        path = path.replace("s3://", "s3a://", 1)
        frame = self._session.read.option("mergeSchema", "true").parquet(path)
        first = next(iter(frame.inputFiles()), "")
        view = ibis.util.gen_name(name)
        frame.createOrReplaceTempView(view)
        table = self._ibis.table(view)
        keys = [key for key in keys_of(first.split("/")) if key in table.columns]
        return [typed_keys(table, keys, name)]

    def has(self, source: Any, name: str) -> bool:
        """See `Backend.has`."""
        return holds(source, name)

    def collect(self, expression: ir.Table) -> pa.Table:
        """See `Backend.collect`."""
        with translate_errors(self._machine):
            return expression.__pyarrow_result__(self._frame(expression).toArrow())

    def hold(self, expression: ir.Table) -> ir.Table:
        """See `Backend.hold`."""
        with translate_errors(self._machine), unfused_selects():
            return expression.cache()

    def _frame(self, expression: ir.Table) -> Any:
        self._ibis._run_pre_execute_hooks(expression)
        with unfused_selects():
            query = self._ibis.compile(expression)
        return self._session.sql(query)

    def write(
        self, expression: ir.Table, path: str | Path, partition_by: Sequence[str] = ()
    ) -> None:
        """See `Backend.write`."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        with translate_errors(self._machine):
            frame = self._frame(expression)
            # Spark writes empty text into the folder of null.
            seen = Observation()
            texts = [column for column in partition_by if expression.schema()[column].is_string()]
            counted = [f.count(f.lit(1)).alias("rows")]
            counted += [f.count_if(f.col(f"`{column}`") == "").alias(f"empty {column}")
                        for column in texts]  # fmt: skip
            frame = frame.observe(seen, *counted)
            if is_address(path):
                address = str(path).replace("s3://", "s3a://", 1)
                for column in texts:  # checked first, as files at an address are not removed
                    if not frame.filter(f.col(f"`{column}`") == "").isEmpty():
                        raise empty_key_error(column)
                self._save(frame, address, partition_by)
                return
            target = Path(path)
            with atomic_path(target, directory=bool(partition_by)) as partial:
                self._save_here(frame, target, partial, partition_by)
                answer = seen.get
                for column in texts:
                    if answer[f"empty {column}"]:
                        raise empty_key_error(column)
                _check_rows(partial, answer["rows"], target)

    def _save(self, frame: Any, target: str, partition_by: Sequence[str]) -> None:
        writer = frame.write.partitionBy(*partition_by) if partition_by else frame.write
        try:
            writer.parquet(target)
        except KeyboardInterrupt:
            self.close()  # otherwise its tasks would write into a folder that is being removed
            raise

    def _save_here(
        self, frame: Any, target: Path, partial: Path, partition_by: Sequence[str]
    ) -> None:
        if partition_by:
            self._save(frame, f"file:{partial.absolute()}", partition_by)
            for extra in (*partial.rglob(".*.crc"), *partial.glob("_SUCCESS")):
                extra.unlink()
            return
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", suffix=".partial", dir=target.parent
        ) as folder:
            self._save(frame.coalesce(1), f"file:{Path(folder).absolute() / 'parts'}", ())
            parts = sorted(Path(folder).glob("parts/*.parquet"))
            if len(parts) != 1:
                raise _not_shared(target)
            parts[0].replace(partial)

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Call a function on the cluster, a task for each item; results in the items' order.

        A task whose executor is lost is run again on another.

        Args:
            function: of a module that can be imported on the executors.
            items: what it is called with, each of them pickled.

        Raises:
            UnciaError: Spark failed, or the function cannot be imported there.
        """
        with translate_errors(self._machine):
            context = self._session.sparkContext
            context.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)
            try:
                return list(context.parallelize(items, len(items)).map(function).collect())
            except KeyboardInterrupt:
                self.close()  # otherwise its tasks would go on
                raise

    @property
    def slots(self) -> int:
        """Tasks that run at the same time."""
        return int(self._session.sparkContext.defaultParallelism)

    def watch(self, listener: Listener) -> None:
        """Do nothing: Spark's progress is not measured."""

    def close(self) -> None:
        """See `Backend.close`."""
        if self._machine is not None:
            application = _application(self._session)
            self._machine.stop(self._session)
            self._machine = None
            _remove_work(application)
        self._folder.cleanup()
        logging.getLogger().removeFilter(_is_not_of_py4j)


def open_backend(options: Options) -> Spark:
    """Start Spark, or use the one that runs in this process.

    Raises:
        UnciaError: PySpark or Java is missing, the master cannot be reached, or Spark refused.
    """
    return Spark(options)


def _check_pyspark() -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pyspark
    except ImportError as error:
        raise UnciaError(
            "the backend spark needs PySpark, which is not installed",
            "Install it: pip install 'uncia[spark]'",
        ) from error
    if int(pyspark.__version__.split(".")[0]) < 4:
        raise UnciaError(
            f"the backend spark needs PySpark 4 or newer, and this is {pyspark.__version__}",
            "Install it: pip install 'uncia[spark]'",
        )


def _hush() -> None:
    """Keep PySpark's warnings and logs from standard error."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    # This logger repeats each error with its stack.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    # Py4J logs what it raises, and failures while a connection closes, also to the root logger.
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _is_local(master: str) -> bool:
    """Whether Spark's workers are processes of this machine, which see its files."""
    return master.startswith("local")


def _check_reachable(master: str) -> None:
    """Connect to a standalone cluster once, as Spark itself would try for a minute.

    Raises:
        UnciaError: it is no address of a master, or no master can be reached.
    """
    if not _MASTER.fullmatch(master):
        raise UnciaError(
            f"{master!r} is no address of a Spark master",
            "Write local[*], local[2], spark://host:7077, yarn or k8s://...",
        )
    if not master.startswith("spark://"):
        return
    failed = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise UnciaError(f"{master!r} names no port", "Write, for instance, spark://host:7077.")
        try:
            with socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S):
                return
        except (OSError, OverflowError) as error:
            failed.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    raise UnciaError(f"no Spark master can be reached at {master} ({'; '.join(failed)})")


def _set_handler(handler: Any) -> None:
    try:
        signal.signal(signal.SIGINT, handler)
    except ValueError:
        return  # not the main thread, in which PySpark sets no handler either


def _plain(data: pa.Table) -> pa.Table:
    """Cast a table to types that Spark reads: no dictionaries, no unsigned 64-bit integers."""
    from uncia.record.schema import signed as signed_column

    columns = []
    for column in data.columns:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
            column = column.cast(pa.string())
        elif pa.types.is_unsigned_integer(column.type):
            column = signed_column(column)
        columns.append(column)
    return pa.table(columns, data.column_names)


def _by_schema(paths: Sequence[str]) -> dict[tuple[tuple[str, str, str], ...], list[str]]:
    """Group files by their columns: name, physical and logical type.

    Raises:
        UnciaError: a file is not Parquet.
    """
    groups: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for path in paths:
        try:
            schema = pa.parquet.read_metadata(path).schema
        except (pa.ArrowException, OSError) as error:
            raise UnciaError(f"{path} cannot be read as Parquet: {error}") from error
        leaves = [schema.column(index) for index in range(len(schema))]
        key = tuple((leaf.path, leaf.physical_type, str(leaf.logical_type)) for leaf in leaves)
        groups.setdefault(key, []).append(path)
    return groups


def _misread(paths: Sequence[str], position: int) -> dict[str, str]:
    """Map partition values that Spark misreads to the right ones.

    DuckDB escapes folder names as bytes of UTF-8 (``%C3%A4``), and Spark reads each as a letter.
    """
    names = {Path(path).parts[position].partition("=")[2] for path in paths}
    read = {escaped: re.sub("%([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), escaped)
            for escaped in names if "%" in escaped}  # fmt: skip
    return {seen: unquote(escaped) for escaped, seen in read.items() if seen != unquote(escaped)}


def _check_rows(written: Path, rows: int, target: Path) -> None:
    files = [written] if written.is_file() else written.rglob("*.parquet")
    if sum(pa.parquet.read_metadata(file).num_rows for file in files) != rows:
        raise _not_shared(target)


def _not_shared(path: Path) -> UnciaError:
    return UnciaError(
        f"cannot write {path}: rows that Spark's workers wrote are missing here, so they do not"
        " share this machine's files",
        "Write to an address that all of them reach, such as s3a://bucket/table.",
        exit_code=1,
    )


def _application(session: Any) -> str | None:
    try:
        return None if session is None else str(session.sparkContext.applicationId)
    except Exception:  # noqa: BLE001  # whatever PySpark raises once Java has ended
        return None


def _remove_work(application: str | None) -> None:
    """Remove what the workers of a ``local-cluster`` leave in Spark's folder."""
    if application is None:
        return
    from pyspark.find_spark_home import _find_spark_home

    work = Path(_find_spark_home()) / "work"
    shutil.rmtree(work / application, ignore_errors=True)
    if work.is_dir() and not any(work.iterdir()):
        work.rmdir()
