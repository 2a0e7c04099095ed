"""Where expressions over tables run: DuckDB in this process, or another engine that Ibis speaks.

A module here that defines ``NAME`` and ``open_backend(options)`` is a backend, found by its place.

>>> with connect("duckdb", memory_limit="2GB") as backend:
...     table = backend.table("results/demo")
...     print(backend.collect(table.count().as_table()))
"""

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias, cast

import pyarrow as pa
from ibis.expr import types as ir

from uncia.backends.options import Options
from uncia.errors import UnciaError

__all__ = ["Backend", "Options", "Source", "connect", "names"]

Source: TypeAlias = "pa.Table | ir.Table | str | Path | Sequence[str | Path]"
"""Rows in memory, an expression, or paths: run folders, Parquet files or folders of them, and
Arrow IPC streams."""


class Backend(Protocol):
    """An engine that holds tables and answers expressions over them."""

    name: str

    def table(self, source: Source, name: str = "invocations") -> ir.Table:
        """The rows of a source as an expression of this backend.

        Args:
            source: what to read; an expression is returned as it is.
            name: which table, where the source is a folder that holds several.

        Raises:
            UnciaError: it cannot be read, or holds no such table.
        """

    def has(self, source: Source, name: str) -> bool:
        """Whether a source holds a table of that name."""

    def collect(self, expression: ir.Table) -> pa.Table:
        """The answer, in memory.

        Raises:
            UnciaError: it cannot be computed: memory or disk ran out, or a sum is beyond 38 digits.
        """

    def hold(self, expression: ir.Table) -> ir.Table:
        """The answer as a table that the engine keeps until it is closed, for several questions.

        Raises:
            UnciaError: as `collect`.
        """

    def write(
        self, expression: ir.Table, path: str | Path, partition_by: Sequence[str] = ()
    ) -> None:
        """Write the answer as Parquet: a file, or a folder if it is partitioned.

        Raises:
            UnciaError: it cannot be computed or written; then nothing is left behind.
        """

    def close(self) -> None:
        """Release the engine and what it spilled to disk."""


def names() -> tuple[str, ...]:
    """The backends, by name."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if _is(module)))


def _is(module: pkgutil.ModuleInfo) -> bool:
    return hasattr(importlib.import_module(f"{__name__}.{module.name}"), "NAME")


@contextmanager
def connect(
    name: str = "duckdb",
    *,
    memory_limit: str | None = None,
    temporary: Path | None = None,
    master: str | None = None,
) -> Iterator[Backend]:
    """Open a backend, and close it at the end.

    Args:
        name: one of `names`.
        memory_limit: what it may hold in memory, such as ``4GB``; beyond it the disk is used.
        temporary: the folder for what does not fit; by default the system's.
        master: the address of a cluster, for backends that have one.

    Raises:
        UnciaError: there is no such backend, or it cannot be opened here.
    """
    if name not in names():
        raise UnciaError(f"there is no engine {name!r}", f"The engines are: {', '.join(names())}.")
    module = importlib.import_module(f"{__name__}.{name}")
    options = Options(memory_limit=memory_limit, temporary=temporary, master=master)
    backend = cast(Backend, module.open_backend(options))
    try:
        yield backend
    finally:
        backend.close()
