"""Backends: the engines that compute expressions over tables, DuckDB in this process or Spark.

A module here that defines ``NAME`` and ``open_backend(options)`` is a backend.

>>> with connect("duckdb", memory_limit="2GB") as backend:
...     table = backend.table("results/demo")
...     print(backend.collect(table.count().as_table()))
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from uncia.backends.options import Options
from uncia.errors import UnciaError

if TYPE_CHECKING:
    import pyarrow as pa
    from ibis.expr import types as ir

__all__ = ["Backend", "Listener", "Options", "Source", "connect", "names", "use"]

Source: TypeAlias = "pa.Table | ir.Table | str | Path | Sequence[str | Path]"
"""Rows in memory, an expression, or paths of run folders, Parquet files or folders of them, and
Arrow IPC streams."""


Listener: TypeAlias = Callable[[int, float | None], None]
"""Is called some times a second while a query runs, with its number from 1, and how much of it is
done: percent, or None if that is not known yet."""


class Backend(Protocol):
    """An engine that holds tables and answers expressions over them."""

    name: str

    def table(self, source: Source, name: str = "invocations") -> ir.Table:
        """Return the rows of a source as an expression of this backend.

        Args:
            source: what to read; an expression is returned unchanged.
            name: which table, of a folder that holds several.

        Raises:
            UnciaError: it cannot be read, or holds no such table.
        """

    def has(self, source: Source, name: str) -> bool:
        """Whether a source holds a table of that name."""

    def collect(self, expression: ir.Table) -> pa.Table:
        """Compute an expression and return its rows.

        Raises:
            UnciaError: memory or disk ran out, or a sum is beyond 38 digits.
        """

    def hold(self, expression: ir.Table) -> ir.Table:
        """Compute an expression once, for several queries; the engine keeps it until it closes.

        Raises:
            UnciaError: as `collect`.
        """

    def write(
        self, expression: ir.Table, path: str | Path, partition_by: Sequence[str] = ()
    ) -> None:
        """Compute an expression and write it as Parquet: a file, or a folder if partitioned.

        Raises:
            UnciaError: it cannot be computed or written; then no file remains.
        """

    def watch(self, listener: Listener) -> None:
        """Report the progress of queries to a listener; an engine may show its own instead."""

    def close(self) -> None:
        """Release the engine and what it spilled to disk."""


def names() -> tuple[str, ...]:
    """The backends, by name."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if _is(module)))


def _is(module: pkgutil.ModuleInfo) -> bool:
    return hasattr(importlib.import_module(f"{__name__}.{module.name}"), "NAME")


def use(backend: Backend | None) -> AbstractContextManager[Backend]:
    """Use the given backend, or open a DuckDB for the duration of the context.

    Raises:
        UnciaError: DuckDB does not start.
    """
    return connect() if backend is None else nullcontext(backend)


@contextmanager
def connect(
    name: str = "duckdb",
    *,
    memory_limit: str | None = None,
    temporary: Path | None = None,
    master: str | None = None,
) -> Iterator[Backend]:
    """Open a backend, and close it when the context ends.

    Args:
        name: one of `names`.
        memory_limit: beyond it, such as ``4GB``, the engine spills to disk.
        temporary: the folder to spill to; by default the system's.
        master: the address of a cluster, for backends that have one.

    Raises:
        UnciaError: there is no such backend, or it cannot be opened here.
    """
    if name not in names():
        raise UnciaError(
            f"there is no backend {name!r}", f"The backends are: {', '.join(names())}."
        )
    module = importlib.import_module(f"{__name__}.{name}")
    options = Options(memory_limit=memory_limit, temporary=temporary, master=master)
    backend = cast(Backend, module.open_backend(options))
    try:
        yield backend
    finally:
        backend.close()
