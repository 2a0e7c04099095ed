"""Importers of other tools' experiment files, one module each.

A module of this package defines ``NAME``, ``DESCRIPTION``, ``recognises(data)`` and
``convert(document, options)``. What the original silently ignored, and what Uncia does otherwise,
becomes a warning; what Uncia does not have is an error, because a part of an experiment would
measure something else.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any, Protocol, cast

from uncia.errors import UnciaError
from uncia.workload.importers.base import Imported, Options, read

__all__ = ["Imported", "Importer", "Options", "convert", "importers"]


class Importer(Protocol):
    """What a module of this package defines."""

    NAME: str
    DESCRIPTION: str

    def recognises(self, data: dict[str, Any]) -> bool:
        """Return whether a file looks like this tool's."""

    def convert(self, document: Any, options: Options) -> Imported:
        """Convert the file to Uncia's; raises UnciaError with file, line and key."""


def importers() -> dict[str, Importer]:
    """Return all importers by name."""
    modules = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        if info.name != "base" and not info.name.startswith("_"):
            module = cast(Importer, importlib.import_module(f"{__name__}.{info.name}"))
            modules[module.NAME] = module
    return modules


def convert(path: Path, *, name: str | None = None, options: Options | None = None) -> Imported:
    """Convert a file of another tool to Uncia's.

    Args:
        path: the file.
        name: the tool's name; by default it is recognised from the file.
        options: what the file itself does not say.

    Raises:
        UnciaError: it is not JSON, is not of a known tool, has unknown keys or bad values
            (file, line, key), or asks for what Uncia does not have.
    """
    modules = importers()
    if name is not None and name not in modules:
        raise UnciaError(f"there is no importer {name!r} (known: {', '.join(modules)})")
    document, warnings = read(path)
    if not isinstance(document.data, dict):
        raise UnciaError(f"{path}: this is not a JSON object")
    if name is None:
        fitting = [tool for tool, importer in modules.items() if importer.recognises(document.data)]
        if len(fitting) != 1:
            raise UnciaError(
                f"{path}: the tool of this file is not recognised",
                hint=f"Name the tool: --from {' or --from '.join(modules)}.",
            )
        name = fitting[0]
    imported = modules[name].convert(document, options or Options())
    imported.warnings[:0] = warnings
    return imported
