"""JSON files that describe results of suites and histories: read, with what is wrong in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from uncia.errors import UnciaError

_WORDS: Final = {
    bool: "true or false",
    dict: "an object",
    int: "a number",
    list: "a list",
    str: "a text",
}


def read(path: Path, keys: Mapping[str, type]) -> dict[str, Any]:
    """Read a file that has these keys.

    Args:
        path: of the file.
        keys: the type of each one's value.

    Raises:
        UnciaError: it cannot be read, or a key is missing or has another value.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnciaError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UnciaError(f"{path} is damaged: it is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UnciaError(f"{path} is damaged: it is not an object with keys")
    for key, kind in keys.items():
        if key not in content:
            raise UnciaError(f"{path} is damaged: the key {key} is missing")
        if type(content[key]) is not kind:
            raise UnciaError(f"{path} is damaged: {key} is not {_WORDS[kind]}")
    return content
