"""Packages whose functions invoke others: what is added to them, by language.

`functions/_calls/LANGUAGE` is laid over the package: a client of the provider's API, and what that
needs. A language is one that has such a folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError
from uncia.functions import dependencies, npm
from uncia.paths import data

NODE_FOLDER: Final = "uncia-calls"
"""In packages of Node.js the client and what it needs, apart from what the function requires."""

_SDK: Final = "boto3"
_GO_LINE: Final = re.compile(r"^go\s+(\d+)\.(\d+)(\S*)\s*$", re.MULTILINE)


def languages() -> list[str]:
    """The languages in which functions can invoke others."""
    return sorted(folder.name for folder in (data("functions") / "_calls").iterdir())


def folder(language: str) -> Path:
    """Where the files lie that are added to packages of a language.

    Raises:
        UnciaError: functions in this language invoke none.
    """
    if language not in languages():
        raise UnciaError(
            f"functions in {language} cannot invoke the next stage of a chain",
            hint=f"Those in {', '.join(languages())} can; in a sequence the platform invokes.",
        )
    return data("functions") / "_calls" / language


def node_lock() -> Path:
    """The lock of what Node.js' client requires."""
    return folder("node") / NODE_FOLDER / npm.LOCK_NAME


def lock(path: Path | None) -> Path | None:
    """The lock of what Python's client requires, unless a function's own lock has it already.

    Raises:
        UnciaError: the function's lock cannot be read.
    """
    if path is not None and any(pin.startswith(f"{_SDK}==") for pin in dependencies.pinned(path)):
        return None
    return folder("python") / dependencies.LOCK_NAME


def merge_go_module(module: str, added: str) -> str:
    """A function's ``go.mod`` with the requirements of the client, and the newer Go of the two.

    Args:
        module: the text of the function's file.
        added: the client's.
    """
    versions = [_go_version(text) for text in (module, added)]
    newest = max((0, 0), *versions)
    text = _GO_LINE.sub(f"go {newest[0]}.{newest[1]}", module, count=1)
    return f"{text.rstrip()}\n\n{added[added.index('require') :]}"


def merge_go_sums(sums: str, added: str) -> str:
    """The lines of both ``go.sum`` files, each once."""
    return "".join(f"{line}\n" for line in dict.fromkeys([*sums.splitlines(), *added.splitlines()]))


def _go_version(text: str) -> tuple[int, int]:
    match = _GO_LINE.search(text)
    return (0, 0) if match is None else (int(match[1]), int(match[2]))
