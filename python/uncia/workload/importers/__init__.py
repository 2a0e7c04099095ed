"""Importers: experiment files of other tools as Uncia's, one module each, found by place.

A module here defines ``NAME``, ``DESCRIPTION``, ``recognises(data)`` and ``convert(document,
options)``. What the original silently ignored, and what Uncia does otherwise, becomes a warning;
what cannot be carried over is an error, because half of an experiment is another experiment.
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
    """What a module of this package is."""

    NAME: str
    DESCRIPTION: str

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file looks like this tool's."""

    def convert(self, document: Any, options: Options) -> Imported:
        """The file as Uncia's; raises UnciaError with file, line and key."""


def importers() -> dict[str, Importer]:
    """All importers by name."""
    found = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        if info.name != "base":
            module = cast(Importer, importlib.import_module(f"{__name__}.{info.name}"))
            found[module.NAME] = module
    return found


def convert(path: Path, *, name: str | None = None, options: Options | None = None) -> Imported:
    """Read a file of another tool and give it as Uncia's.

    Args:
        path: the file.
        name: whose it is; None finds out.
        options: what the file itself does not say.

    Raises:
        UnciaError: it is not JSON, belongs to no tool that is known, has unknown keys or bad values
            (file, line, key), or asks for what Uncia does not have.
    """
    known = importers()
    if name is not None and name not in known:
        raise UnciaError(f"there is no importer {name!r} (known: {', '.join(known)})")
    document = read(path)
    if not isinstance(document.data, dict):
        raise UnciaError(f"{path}: this is not a JSON object")
    if name is None:
        fitting = [one for one, importer in known.items() if importer.recognises(document.data)]
        if len(fitting) != 1:
            raise UnciaError(
                f"{path}: it cannot be told which tool's file this is",
                hint=f"Say it: --from {' or --from '.join(known)}.",
            )
        name = fitting[0]
    return known[name].convert(document, options or Options())
