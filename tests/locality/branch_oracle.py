"""Predictors in plain Python, after their papers alone, and traces as words."""

import struct
from collections.abc import Iterable, Sequence

Branch = tuple[int, bool]
"""Its address, and whether it was taken."""


def words(branches: Iterable[Branch], instructions: int = 5) -> bytes:
    """A trace, with so many instructions up to each branch."""
    return b"".join(
        struct.pack("<Q", instructions << 48 | address << 1 | taken) for address, taken in branches
    )


def read(trace: bytes) -> list[tuple[int, int, bool]]:
    """Instructions, address and outcome of each word."""
    values = struct.unpack(f"<{len(trace) // 8}Q", trace)
    return [(value >> 48, value >> 1 & (1 << 47) - 1, bool(value & 1)) for value in values]


def gshare(branches: Sequence[Branch], kilobytes: int) -> list[bool]:
    """GShare with that much of two-bit counters."""
    entries = kilobytes * 1024 * 8 // 2
    table: dict[int, int] = {}
    recent: list[bool] = []
    predictions = []
    for address, taken in branches:
        history = sum(bit << age for age, bit in enumerate(reversed(recent)))
        index = (address ^ history) % entries
        counter = table.get(index, 2)
        predictions.append(counter > 1)
        table[index] = min(3, counter + 1) if taken else max(0, counter - 1)
        recent = [*recent, taken][-(entries.bit_length() - 1) :]
    return predictions


def bimodal(branches: Sequence[Branch], kilobytes: int) -> list[bool]:
    """Two-bit counters by address."""
    table: dict[int, int] = {}
    predictions = []
    for address, taken in branches:
        index = address % (kilobytes * 1024 * 8 // 2)
        counter = table.get(index, 2)
        predictions.append(counter > 1)
        table[index] = min(3, counter + 1) if taken else max(0, counter - 1)
    return predictions
