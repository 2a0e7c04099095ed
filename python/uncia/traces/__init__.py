"""Traces of providers, one file each, found by their place in this package.

A module here that has a ``NAME`` reads one trace. It defines

* ``NAME``, by which a person names it, and ``DESCRIPTION``: what it is, its license, its source;
* ``TABLES``: the tables that it becomes;
* ``detect(paths)``: whether files are of this trace; it raises `UnciaError`, or says no, where it
  cannot read them;
* ``convert(paths, out, *, strict=False)``, which writes the tables and returns `base.Imported`;

and, if need be,

* ``SUFFIXES``: how the names of its files end (by default those of CSV, `base.SUFFIXES`);
* ``OPTIONS``: the names of further keywords of ``convert``.

A provider's traces that share code are a package here, whose ``TRACES`` are such modules.

Nothing else in Uncia reads the files of a trace.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol, cast

from uncia.errors import UnciaError
from uncia.traces.base import SUFFIXES, Imported, expand

__all__ = ["AUTO", "Imported", "Trace", "find", "known", "load", "recognise"]

AUTO: Final = "auto"
"""In place of a trace's name: detect it from the files."""


class Trace(Protocol):
    """What a module of a trace defines."""

    NAME: str
    DESCRIPTION: str
    TABLES: tuple[str, ...]

    def detect(self, paths: Iterable[Path]) -> bool:
        """Whether every file is of this trace."""

    def convert(
        self, paths: Iterable[Path | str], out: Path | str, *, strict: bool = False, **options: Any
    ) -> Imported:
        """Write the trace's tables."""


def known() -> dict[str, Trace]:
    """The traces, by name."""
    return {reader.NAME: reader for reader in _readers()}


def _readers(name: str = "") -> Iterator[Trace]:
    """The traces in order of their modules, but first those of modules that begin a name.

    Each module is imported when its turn comes.
    """
    modules = sorted(info.name for info in pkgutil.iter_modules(__path__))
    for module in sorted(modules, key=lambda module: not name.startswith(_plain(module))):
        content = importlib.import_module(f"{__name__}.{module}")
        for reader in getattr(content, "TRACES", (content,)):
            if hasattr(reader, "NAME"):
                yield cast(Trace, reader)


def find(name: str) -> Trace:
    """The trace of that name; case, ``-`` and ``_`` do not matter.

    Raises:
        UnciaError: there is none.
    """
    for trace in _readers(_plain(name)):
        if _plain(trace.NAME) == _plain(name):
            return trace
    raise UnciaError(
        f"there is no trace {name!r}",
        hint=f"The traces are: {', '.join(known())}; {AUTO} detects it from the files."
        " Others come with pip install 'uncia[extras]'.",
    )


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def recognise(paths: Iterable[Path | str]) -> Trace:
    """The trace that all files are of.

    Raises:
        UnciaError: a file cannot be read, no trace has such files, or they are of several.
    """
    traces = known()
    suffixes = {suffix for trace in traces.values() for suffix in _suffixes(trace)}
    files = expand(paths, tuple(sorted(suffixes)))
    owner = {file: _owner(file, traces) for file in files}
    names = {trace.NAME: file for file, trace in owner.items()}
    if len(names) > 1:
        listed = ", ".join(f"{file} is of {name}" for name, file in names.items())
        raise UnciaError(f"the files are of several traces: {listed}", hint="Import one at a time.")
    return owner[files[0]]


def _suffixes(trace: Trace) -> tuple[str, ...]:
    return getattr(trace, "SUFFIXES", SUFFIXES)


def _owner(file: Path, traces: dict[str, Trace]) -> Trace:
    unreadable: UnciaError | None = None
    for trace in traces.values():
        try:
            if trace.detect([file]):
                return trace
        except UnciaError as error:
            unreadable = unreadable or error
    if unreadable is not None:
        raise unreadable
    from uncia.traces.lines import header

    first = ",".join(header(file)[:6])
    raise UnciaError(
        f"{file} is of no trace that Uncia knows: its columns begin {first!r}",
        hint="`uncia trace list` lists the traces; its name in place of `auto` says which it is.",
    )


def load(
    paths: Iterable[Path | str],
    out: Path | str,
    *,
    trace: str | None = None,
    strict: bool = False,
    **options: Any,
) -> Imported:
    """Write the files of a trace as Uncia's tables.

    Args:
        paths: files, plain or compressed with gzip, or folders of them.
        out: a folder for the tables, or a file ``*.parquet`` if there is only one.
        trace: which trace it is; by default, and if ``auto``, detected from the files.
        strict: whether the first bad row is an error; otherwise such rows are counted by reason and
            kept in ``rejected.csv`` beside the tables.
        **options: what only some traces know (the ``OPTIONS`` of its module); None is not given.

    Raises:
        UnciaError: a file cannot be read or is not of the trace, no row is good (or one is bad, if
            strict), an option is none of this trace's, or nothing can be written; then nothing is.
    """
    paths = list(paths)
    reader = recognise(paths) if trace is None or _plain(trace) == AUTO else find(trace)
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in getattr(reader, "OPTIONS", ()):
            raise UnciaError(f"--{name.replace('_', '-')} is no option of the trace {reader.NAME}")
    return reader.convert(paths, out, strict=strict, **given)
