"""Which files of a log are read, and the form of each, detected from its first characters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from uncia.traces.json_lines import Text, opened

_PLAIN: Final = (".json", ".jsonl", ".ndjson", ".csv", ".log", ".txt")
SUFFIXES: Final = (*_PLAIN, ".gz", ".bz2", ".xz")
"""How the names of a log's files end in a folder."""

_SNIFFED: Final = 1 << 16
_JSON: Final = re.compile(r"\s*(\{|\[\s*([\[{\]]|$))")


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
