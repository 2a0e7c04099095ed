"""Finds functions: by their name in the catalogue, or by their folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.functions import plain
from uncia.functions.form import Function, check_presets
from uncia.paths import data
from uncia.text import did_you_mean

FILE_NAME: Final = "function.yaml"


def names() -> list[str]:
    """Return the names in the catalogue, sorted."""
    return sorted(file.parent.name for file in data("functions").glob(f"*/{FILE_NAME}"))


def list_functions() -> list[Function]:
    """Return every function of the catalogue, sorted by name.

    Raises:
        UnciaError: one of their files is wrong.
    """
    return [load(name) for name in names()]


def load(name: str | os.PathLike[str]) -> Function:
    """Read and check a function.

    Args:
        name: a name in the catalogue; or a folder, given as a path or as text with a ``/`` in it.

    Raises:
        UnciaError: there is no such function, or its ``function.yaml`` is wrong (with file, line
            and key).
    """
    folder = find(name)
    if not (folder / FILE_NAME).is_file():
        function = plain.load(folder)
        function._folder = folder
        return function
    document = yamlio.load(folder / FILE_NAME)
    function = yamlio.validate(Function, document)
    function._folder = folder
    check_presets(function, document)
    for runtime in function.runtime_names:
        if not (folder / runtime).is_dir():
            raise document.error(("runtimes", runtime), f"there is no folder {folder / runtime}")
    if folder.parent == data("functions") and function.name != folder.name:
        raise document.error(("name",), f"the name must be that of the folder, {folder.name}")
    return function


def find(name: str | os.PathLike[str]) -> Path:
    """Return the folder of a function.

    Raises:
        UnciaError: there is no such function.
    """
    text = os.fspath(name)
    if isinstance(name, str) and not _is_path(name):
        catalogue = names()
        if name in catalogue:
            return data("functions") / name
        folder_hint = (
            f" There is a folder {name} here: for that, write ./{name}."
            if Path(name).is_dir()
            else ""
        )
        raise UnciaError(
            f"there is no function {name!r} in the catalogue" + did_you_mean(name, catalogue),
            hint=f"The catalogue has {', '.join(catalogue)}; a folder of yours is named with a /, "
            f"for example ./{name or 'mine'}.{folder_hint}",
        )
    folder = Path(text)
    if not folder.is_dir():
        raise UnciaError(f"there is no folder {folder}")
    if not (folder / FILE_NAME).is_file() and not plain.is_plain(folder):
        raise UnciaError(
            f"the folder {folder} is no function: it has no {FILE_NAME}, and no"
            f" {' or '.join(plain.FILES)}",
            hint="`uncia new function NAME` writes one that works.",
        )
    return folder.resolve()


def _is_path(text: str) -> bool:
    separators = {os.sep, os.altsep or os.sep}
    return any(separator in text for separator in separators) or text in (os.curdir, os.pardir)
