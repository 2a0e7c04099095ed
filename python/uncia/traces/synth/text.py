"""Rows of text from columns of integers, without a Python object a row.

A block of rows is a matrix of bytes, a line a row, every cell as wide as its widest; what a cell
does not need is NUL, and the NULs are deleted at the end. Integers become digits three at a time by
table.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_FILL: Final = b"\0"


def _table(digits: int) -> npt.NDArray[np.void]:
    """The numbers below 10^digits as text of that many digits, an entry each."""
    texts = "".join(f"{n:0{digits}d}" for n in range(10**digits)).encode()
    return np.frombuffer(texts, dtype=f"V{digits}")


_PADDED: Final = {digits: _table(digits) for digits in (1, 2, 3, 4)}


def padded(numbers: Ints, digits: int) -> Bytes:
    """Numbers from 0 with leading zeros; shape (rows, digits)."""
    out = np.empty((len(numbers), digits), dtype=np.uint8)
    right, rest = digits, numbers
    while right > 0:
        width = min(4, right)
        rest, low = (rest, rest) if right == width else np.divmod(rest, 10**width)
        part = _PADDED[width].take(low).view(np.uint8).reshape(-1, width)
        out[:, right - width : right] = part
        right -= width
    return out


def whole(numbers: Ints) -> Bytes:
    """Numbers from 0 without leading zeros, filled up on the left."""
    digits = len(str(int(numbers.max(initial=0))))
    out = padded(numbers, digits)
    for column in range(digits - 1):
        out[numbers < 10 ** (digits - 1 - column), column] = 0
    return out


def decimal(numbers: Ints, places: int) -> list[Bytes]:
    """``numbers / 10^places`` with all decimals, as the parts of a cell."""
    high, low = np.divmod(numbers, 10**places)
    return [whole(high), constant(len(numbers), b"."), padded(low, places)]


def constant(rows: int, text: bytes) -> Bytes:
    """The same text in every row."""
    return np.broadcast_to(np.frombuffer(text, dtype=np.uint8), (rows, len(text)))


def chosen(texts: Sequence[str], indices: Ints) -> Bytes:
    """``texts[i]`` for each index."""
    width = max(map(len, texts))
    table = np.frombuffer(
        b"".join(text.encode().ljust(width, _FILL) for text in texts), f"V{width}"
    )
    return table.take(indices).view(np.uint8).reshape(-1, width)


def blank(parts: list[Bytes], rows: npt.NDArray[np.bool_]) -> list[Bytes]:
    """The cell with nothing in it where ``rows`` says so."""
    if not rows.any():
        return parts
    emptied = [np.array(part) for part in parts]
    for part in emptied:
        part[rows] = 0
    return emptied


def lines(cells: Sequence[list[Bytes]]) -> bytes:
    """The rows, cells separated by commas, each ending in a newline."""
    rows = len(cells[0][0])
    comma, newline = constant(rows, b","), constant(rows, b"\n")
    parts: list[Bytes] = []
    for cell in cells:
        parts += [*cell, comma]
    parts[-1] = newline
    matrix = np.empty((rows, sum(part.shape[1] for part in parts)), dtype=np.uint8)
    left = 0
    for part in parts:
        matrix[:, left : left + part.shape[1]] = part
        left += part.shape[1]
    return matrix.tobytes().translate(None, _FILL)


_BYTES: Final = np.frombuffer("".join(f"{n:04x}" for n in range(65536)).encode(), dtype=np.uint32)


def hexadecimal(numbers: npt.NDArray[np.uint64]) -> Bytes:
    """Numbers below 2^48 as 12 hexadecimal digits each."""
    out = np.empty((len(numbers), 3), dtype=np.uint32)
    for column in range(3):
        part = (numbers >> np.uint64(16 * (2 - column))) & np.uint64(0xFFFF)
        out[:, column] = _BYTES.take(part.astype(np.int64))
    return out.view(np.uint8).reshape(-1, 12)
