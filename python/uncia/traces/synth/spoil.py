"""Bad rows, planted: every way in which a line of a table can be wrong, in turn.

Which lines, and what was done to each, is returned, so that the counts of an import can be checked.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Spoiler: TypeAlias = Callable[[list[bytes]], list[bytes]]
"""Makes the cells of a line others; the last cell it returns may end in a carriage return."""


def cell(index: int, text: str) -> Spoiler:
    """Another text in a cell."""

    def spoil(cells: list[bytes]) -> list[bytes]:
        return [*cells[:index], text.encode(), *cells[index + 1 :]]

    return spoil


def too_few(cells: list[bytes]) -> list[bytes]:
    """A line without its last cell."""
    return cells[:-1]


def too_many(cells: list[bytes]) -> list[bytes]:
    """A line with a cell more."""
    return [*cells, b"0"]


def crlf(cells: list[bytes]) -> list[bytes]:
    """A line that ends in CR LF, among lines that do not: nothing is wrong with its cells."""
    return [*cells[:-1], cells[-1] + b"\r"]


SHAPES: Final[dict[str, Spoiler]] = {
    "too_few_cells": too_few,
    "too_many_cells": too_many,
    "crlf": crlf,
}
"""What can happen to a line of any table."""


def numbers(index: int) -> dict[str, Spoiler]:
    """What can happen to a cell that should hold a number from 0."""
    return {
        "nan": cell(index, "NaN"),
        "empty": cell(index, ""),
        "negative": cell(index, "-0.012345"),
        "absurd": cell(index, "99999999999999.000000"),
        "text": cell(index, "12ms"),
    }


def spoil(
    text: bytes,
    chosen: npt.NDArray[np.int64],
    first_line: int,
    turn: int,
    spoilers: Mapping[str, Spoiler],
    planted: dict[str, list[int]],
) -> bytes:
    """Spoil lines of a table.

    Args:
        text: whole lines, each ending in a newline.
        chosen: which, by position in ``text``.
        first_line: the number of its first line in the file.
        turn: how many lines of the trace were chosen before these; the kinds take turns.
        spoilers: what is done, by kind.
        planted: where the line numbers are added, by kind.
    """
    if not len(chosen):
        return text
    rows = text.split(b"\n")
    kinds: Sequence[str] = list(spoilers)
    for position, row in enumerate(chosen.tolist(), start=turn):
        kind = kinds[position % len(kinds)]
        rows[row] = b",".join(spoilers[kind](rows[row].split(b",")))
        planted.setdefault(kind, []).append(first_line + row)
    return b"\n".join(rows)
