"""Runs the Python blocks of a page, and compares or renews what it says they print.

A block ```python is a cell; a block ```text after it is its output. To renew the outputs::

    python tests/load/notebook.py docs/tutorial/load-notebook.md
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = r"[0-9][0-9,]*(?:\.[0-9]+)?(?:e-?[0-9]+)?"


def cells(page: str) -> list[tuple[str, re.Match[str] | None]]:
    """The code of each cell, and the block of its output."""
    result: list[tuple[str, re.Match[str] | None]] = []
    for block in _BLOCK.finditer(page):
        if block[1] == "python":
            result.append((block[2], None))
        elif result:
            result[-1] = (result[-1][0], block)
    return result


def run(page: str) -> list[tuple[str, str]]:
    """Of each cell, what it should print and what it printed."""
    namespace: dict[str, Any] = {"__name__": "notebook"}
    results = []
    for number, (code, output) in enumerate(cells(page), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"cell {number}", "exec"), namespace)
        results.append(("" if output is None else output[2], printed.getvalue()))
    return results


def roughly(text: str) -> str:
    """A text without what depends on the machine: times, ports, and numbers after "about"."""
    text = re.sub(rf"{_NUMBER}(?= (?:ns|us|ms|s)\b)", "#", text)
    text = re.sub(rf"\babout {_NUMBER}", "about #", text)
    return re.sub(r"[ \t]+", " ", text).strip()


def renew(file: Path) -> None:
    """Write what the cells print into the page."""
    page = file.read_text(encoding="utf-8")
    results = run(page)
    for (_, output), (_, printed) in reversed(list(zip(cells(page), results, strict=True))):
        if output is not None:
            page = page[: output.start(2)] + printed + page[output.end(2) :]
        elif printed:
            raise SystemExit(f"a cell without an output block printed: {printed}")
    file.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    renew(Path(sys.argv[1]))
