"""Traces of providers, one file each, found by their place in this package.

A module here that has a ``NAME`` reads one trace. It defines

* ``NAME``, by which a person names it, and ``DESCRIPTION``: what it is, its license, its source;
* ``TABLES``: the tables that it becomes;
* ``FILES``: the kinds of files that it consists of, by which ``detect(paths)`` knows them;
* ``convert(paths, out, *, strict=True)``, which writes the tables and returns `base.Imported`.

Nothing else in Uncia reads the files of a trace.
"""

import importlib
import pkgutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, cast

from uncia.errors import UnciaError
from uncia.traces.base import Imported, expand
from uncia.traces.csv import header
from uncia.traces.files import Kind

__all__ = ["Imported", "Trace", "find", "known", "load", "recognise"]


class Trace(Protocol):
    """What a module of a trace defines."""

    NAME: str
    DESCRIPTION: str
    TABLES: tuple[str, ...]
    FILES: tuple[Kind, ...]

    def detect(self, paths: Iterable[Path]) -> bool:
        """Whether every file is of this trace, by its header."""

    def convert(
        self, paths: Iterable[Path | str], out: Path | str, *, strict: bool = True
    ) -> Imported:
        """Write the trace's tables."""


def known() -> dict[str, Trace]:
    """The traces, by name."""
    modules = (
        importlib.import_module(f"{__name__}.{info.name}")
        for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name)
    )
    return {module.NAME: cast(Trace, module) for module in modules if hasattr(module, "NAME")}


def find(name: str) -> Trace:
    """The trace of that name.

    Raises:
        UnciaError: there is none.
    """
    traces = known()
    if name not in traces:
        raise UnciaError(
            f"there is no trace {name!r}", hint=f"The traces are: {', '.join(traces)}."
        )
    return traces[name]


def recognise(paths: Iterable[Path | str]) -> Trace:
    """The trace that all files are of, by their headers.

    Raises:
        UnciaError: a file cannot be read, no trace has such files, or they are of several.
    """
    files = expand(paths)
    owner: dict[Path, Trace] = {}
    for file in files:
        trace = next((trace for trace in known().values() if trace.detect([file])), None)
        if trace is None:
            first = ",".join(header(file)[:6])
            raise UnciaError(
                f"{file} is of no trace that Uncia knows: its columns begin {first!r}",
                hint="`uncia trace list` lists the traces; --format names one.",
            )
        owner[file] = trace
    names = {trace.NAME: file for file, trace in owner.items()}
    if len(names) > 1:
        told = ", ".join(f"{file} is of {name}" for name, file in names.items())
        raise UnciaError(f"the files are of several traces: {told}", hint="Import one at a time.")
    return owner[files[0]]


def load(
    paths: Iterable[Path | str], out: Path | str, *, trace: str | None = None, strict: bool = True
) -> Imported:
    """Write the files of a trace as Uncia's tables.

    Args:
        paths: files, plain or compressed with gzip, or folders of them.
        out: a folder for the tables, or a file ``*.parquet`` if there is only one.
        trace: which trace it is; by default told from the headers.
        strict: whether a bad row is an error; otherwise it is left out and counted.

    Raises:
        UnciaError: a file cannot be read or is not of the trace, a row is bad, or nothing can be
            written; then nothing is.
    """
    paths = list(paths)
    reader = recognise(paths) if trace is None else find(trace)
    return reader.convert(paths, out, strict=strict)
