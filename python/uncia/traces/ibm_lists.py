"""The lists in the cells of IBM's frames: numbers and texts, some at a time, exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from uncia.traces import cells
from uncia.traces.unpickle import Items, Kept

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_STEPS: Final = (1, 1_000, 1_000_000, 1_000_000_000)
_EXACT: Final = 2.0**53  # above, not every integer is a float


@dataclass(frozen=True)
class Cell:
    """A list of the frame."""

    values: Items | npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    def numbers(self, start: int, stop: int) -> tuple[Floats, Bools]:
        """Some of the items as numbers, NaN where there is none, and whether each is one or none.

        Both of shape (stop - start,).
        """
        if isinstance(self.values, np.ndarray):
            some = self.values[start:stop].ravel()
            if some.dtype.kind in "fiu":
                return some.astype(np.float64), np.ones(len(some), dtype=bool)
            return _floats(some.tolist())
        pieces = [
            _floats(part)
            if isinstance(part, list)
            else (part.values(low, high), np.full(high - low, part.texts is None))
            for part, low, high in _within(self.values, start, stop)
        ]
        if not pieces:
            return np.empty(0), np.empty(0, dtype=bool)
        return np.concatenate([array for array, _ in pieces]), np.concatenate(
            [ok for _, ok in pieces]
        )

    def texts(self, start: int, stop: int) -> tuple[pa.StringArray, Bools]:
        """Some of the items as texts, null where there is none, and whether each is one or none."""
        if isinstance(self.values, np.ndarray):
            return _strings(self.values[start:stop].ravel().tolist())
        pieces: list[tuple[pa.Array, Bools]] = []
        for part, low, high in _within(self.values, start, stop):
            if isinstance(part, list):
                pieces.append(_strings(part))
            elif part.texts is None:
                nothing = pa.nulls(high - low, pa.utf8())
                pieces.append((nothing, np.zeros(high - low, dtype=bool)))
            else:
                codes = pa.array(part.values(low, high).astype(np.int64))
                taken = pa.array(part.texts, pa.utf8()).take(codes)
                pieces.append((taken, np.ones(high - low, dtype=bool)))
        if not pieces:
            return pa.array([], pa.utf8()), np.empty(0, dtype=bool)
        return pa.concat_arrays([array for array, _ in pieces]), np.concatenate(
            [ok for _, ok in pieces]
        )


def _within(items: Items, start: int, stop: int) -> list[tuple[list[Any] | Kept, int, int]]:
    """The parts of a list between two positions; of a spilled part, where it is to be read."""
    pieces: list[tuple[list[Any] | Kept, int, int]] = []
    at = 0
    for part in items.parts:
        low, high = max(start - at, 0), min(stop - at, len(part))
        at += len(part)
        if low < high:
            pieces.append((part[low:high] if isinstance(part, list) else part, low, high))
        if at >= stop:
            break
    return pieces


def _floats(values: list[Any]) -> tuple[Floats, Bools]:
    ok = np.array([_is_number(value) or _is_nothing(value) for value in values], dtype=bool)
    numbers = [float(value) if _is_number(value) else np.nan for value in values]
    return np.array(numbers, np.float64), ok


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**63 or isinstance(value, float)


def _is_nothing(value: Any) -> bool:
    return value is None


def _strings(values: list[Any]) -> tuple[pa.StringArray, Bools]:
    missing = [value is None or value != value or value == "" for value in values]
    texts = [value if isinstance(value, str) and value else None for value in values]
    ok = np.array(
        [text is not None or none for text, none in zip(texts, missing, strict=True)], dtype=bool
    )
    return pa.array(texts, pa.utf8()), ok


def scaled(values: Floats, factor: int) -> Ints:
    """``values x factor`` to the nearest integer, of the decimal numbers that the floats stand for.

    A float stands for the shortest decimal number that is read as it, which is what was written;
    so 0.1 s is 100,000,000 ns, though the float is a little more.

    Args:
        values: finite, shape (n,); at most `cells.MAX_QUANTITY` / factor.
        factor: a power of ten, from 10^6 to 10^9.
    """
    result = np.zeros(len(values), dtype=np.int64)
    left = np.ones(len(values), dtype=bool)
    for step in _STEPS:
        if step > factor or not left.any():
            break
        # If the quotient of two exact floats is the float, that decimal number is its shortest.
        whole = np.rint(values * step)
        fits = left & (np.abs(whole) < _EXACT) & (whole / step == values)
        result[fits] = whole[fits].astype(np.int64) * (factor // step)
        left &= ~fits
    for index in np.flatnonzero(left):
        number = cells.scaled(repr(float(values[index])), factor)
        assert number is not None  # it is finite and within bounds
        result[index] = number
    return result
