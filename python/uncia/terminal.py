"""Tables in terminals that are narrower than the tables."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Column, Table

_TEXT: Final = 24
"""Characters that a column of text keeps at least, where it has so many: prose needs them."""

_LEAST: Final = 8
"""Characters of what says what a row is of."""

_ANY_WIDTH: Final = 10_000
"""Of a console on which everything fits, to measure by."""


def show(console: Console, table: Table, keys: int = 1) -> None:
    """Print a table, below each other what does not fit side by side.

    Headings, names and numbers stay whole; columns of text are folded. Where that is still too
    wide, the columns are printed in several parts, each of which begins with the first ones.

    Args:
        console: whose width counts.
        table: with its rows.
        keys: how many of its columns say what a row is of.
    """
    wide = console.options.update(width=_ANY_WIDTH)
    closer = copy.copy(table)
    closer.padding = (0, 1, 0, 0)
    for fitting in (table, closer) if table.box is None else (table,):
        if console.measure(fitting, options=wide).maximum <= console.width:
            console.print(fitting)
            return
    room = console.width - _around(table)
    needed = [_needed(console, column) for column in table.columns]
    needed[:keys] = _capped(needed[:keys], room - max(needed[keys:], default=0), _between(table))
    for number, part in enumerate(_parts(needed, room, keys, _between(table))):
        if number:
            console.print()
        columns = [_kept(table.columns[it], needed[it], is_key=it < keys) for it in part]
        some = copy.copy(table)
        some.columns = [replace(column, _index=index) for index, column in enumerate(columns)]
        some.title = None if number else table.title
        console.print(some)


def _parts(widths: Sequence[int], room: int, keys: int, between: int) -> list[list[int]]:
    """The columns of each part, by their positions."""
    first = list(range(min(keys, len(widths))))
    parts = [list(first)]
    for index in range(len(first), len(widths)):
        width = sum(widths[it] + between for it in [*parts[-1], index])
        if width > room and len(parts[-1]) > len(first):
            parts.append(list(first))
        parts[-1].append(index)
    return parts


def _capped(widths: Sequence[int], room: int, between: int) -> list[int]:
    """The widths of what says what a row is of, the widest less, so that they fit with a value."""
    most = max(widths, default=0)
    while most > _LEAST and sum(min(it, most) + between for it in widths) + between > room:
        most -= 1
    return [min(it, most) for it in widths]


def _needed(console: Console, column: Column) -> int:
    """The characters without which a column cannot be read."""
    wide = console.options.update(width=_ANY_WIDTH)
    sizes = [console.measure(cell, options=wide) for cell in (column.header, *column.cells)]
    longest = max(size.maximum for size in sizes)
    if column.no_wrap or column.justify == "right":
        return longest
    words = [] if column.overflow == "fold" else [size.minimum for size in sizes]
    return min(longest, max([_TEXT, *words]))


def _kept(column: Column, needed: int, *, is_key: bool) -> Column:
    """The column, no narrower than that; what names a row is as wide, and folded."""
    if is_key:
        return replace(column, width=needed, overflow="fold", no_wrap=False)
    return replace(column, min_width=needed, no_wrap=column.no_wrap or column.justify == "right")


def _between(table: Table) -> int:
    """The characters beside each column."""
    _, right, _, left = table.padding
    return right + left + (0 if table.box is None else 1)


def _around(table: Table) -> int:
    return 0 if table.box is None else 1
