"""JSON files of records, one a line, as the logs' exports have them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from uncia.traces.synth.base import FileMade, Order, opened, spoiled_rows

Spoiler: TypeAlias = Callable[[str], str]
"""Makes the text of a record another."""

_BLOCK: Final = 4096


def replaced(old: str, new: str) -> Spoiler:
    """Another text in the place of one that the record has."""

    def spoil(record: str) -> str:
        result = record.replace(old, new, 1)
        assert result != record, record
        return result

    return spoil


def cut(record: str) -> str:
    """A record whose end is missing."""
    return record[: len(record) // 2]


def write(
    order: Order,
    number: int,
    name: str,
    head: str,
    groups: Iterator[list[str]],
    tail: str,
    spoilers: Mapping[str, Spoiler],
) -> FileMade:
    """Write groups of records that belong together, of which the last may be spoiled.

    Args:
        order: what is asked for.
        number: the number of the file, which decides which groups are spoiled.
        name: its name.
        head: its first line.
        groups: records as text, without line breaks.
        tail: its last line.
        spoilers: what is done to the last record of a group, by kind; the kinds take turns.

    Returns:
        The file; its planted lines count ``head``.
    """
    made = FileMade("", 0)
    kinds, turn, line, first = list(spoilers), number, 2, True
    bad: set[int] = set()
    with opened(order, name) as (file, made.path):
        file.write(head.encode() + b"\n")
        for index, group in enumerate(groups):
            if index % _BLOCK == 0:
                bad = set(spoiled_rows(order, _BLOCK, number, index // _BLOCK).tolist())
            records = list(group)
            line += len(records)
            if index % _BLOCK in bad:
                kind = kinds[turn % len(kinds)]
                records[-1] = spoilers[kind](records[-1])
                made.planted.setdefault(kind, []).append(line - 1)
                turn += 1
            file.write(("" if first else ",\n").encode() + ",\n".join(records).encode())
            first = False
            made.rows += 1
        file.write(b"\n" + tail.encode() + b"\n")
    return made
