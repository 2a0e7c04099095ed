"""The sections of a run's report, each a file of this folder, found by its place.

A file says where in the page its section stands (`POSITION`), which rows it needs (`ROWS`), and
makes the section from the run and those rows. A section says what it shows even when there is
little to show; it returns None only where nobody would miss it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from uncia.stats import columns
from uncia.stats.columns import pc

if TYPE_CHECKING:
    import pyarrow as pa

    from uncia.report.data import RunData
    from uncia.report.page import Section


@dataclass(frozen=True)
class Rows:
    """Rows of a table of the run.

    Attributes:
        table: its name.
        where: the word that a column must hold; None: nothing.
        required: whether there is no section without any row.
    """

    table: str
    where: dict[str, str | None] = field(default_factory=dict)
    required: bool = False

    def of(self, run: RunData) -> pa.Table:
        """The rows of a run."""
        rows: pa.Table = getattr(run, self.table)
        for name, word in self.where.items():
            if word is None:
                rows = rows.filter(pc.is_null(columns.words(rows, name)))
            else:
                rows = rows.filter(columns.is_word(rows, name, word))
        return rows


class Maker(Protocol):
    """What a file of this folder has."""

    POSITION: int
    ROWS: Rows

    def section(self, run: RunData, rows: pa.Table) -> Section | None:
        """The section of a run, made of the rows that it needs."""


def of(run: RunData) -> Iterator[Section]:
    """The sections of a run, in the order of the page."""
    for maker in _makers():
        rows = maker.ROWS.of(run)
        if rows.num_rows or not maker.ROWS.required:
            section = maker.section(run, rows)
            if section is not None:
                yield section


@cache
def _makers() -> tuple[Maker, ...]:
    modules = [
        cast(Maker, importlib.import_module(f"{__name__}.{module.name}"))
        for module in pkgutil.iter_modules(__path__)
    ]
    return tuple(sorted(modules, key=lambda module: module.POSITION))
