"""Which files of a log are read, and what form each has, told from its first characters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError
from uncia.traces.json_lines import Text, opened

_PLAIN: Final = (".json", ".jsonl", ".ndjson", ".csv", ".log", ".txt")
SUFFIXES: Final = (*_PLAIN, ".gz", ".bz2", ".xz")
"""How the names of a log's files end in a folder."""

_SNIFFED: Final = 1 << 16
_JSON: Final = re.compile(r"\s*(\{|\[\s*([\[{\]]|$))")


def expand(paths: Iterable[Path | str], suffixes: tuple[str, ...]) -> list[Path]:
    """The files that ``paths`` name, folders searched to the bottom, in a stable order.

    Raises:
        UnciaError: a path does not exist, a folder holds no such file, or a file is named twice.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(
                file
                for file in path.rglob("*")
                if file.name.lower().endswith(suffixes)
                and file.is_file()
                and file.name != "rejected.csv"  # what an import wrote
                and not any(part.startswith(".") for part in file.relative_to(path).parts)
            )
            if not inside:
                listed = ", ".join(f"*{suffix}" for suffix in suffixes)
                raise UnciaError(f"{path} holds no file of a trace ({listed})")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise UnciaError(f"{path} does not exist")
    if not found:
        raise UnciaError("no file of a trace was named")
    seen: set[Path] = set()
    for file in found:
        if file.resolve() in seen:
            raise UnciaError(f"{file} is named twice, so its rows would count twice")
        seen.add(file.resolve())
    return found


def beginning(path: Path) -> str:
    """The first characters of the file's text, unpacked.

    Raises:
        UnciaError: the file cannot be read, or is an archive.
    """
    with opened(path) as file:
        text = Text(path, file)
        while len(text.buffer) < _SNIFFED and text.more():
            pass
        return text.buffer[:_SNIFFED]


def is_json(start: str) -> bool:
    """Whether a text that begins so is JSON: an object, or a list of objects or lists."""
    return _JSON.match(start) is not None
