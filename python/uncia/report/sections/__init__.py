"""The sections of a run's report: every module of this package is one.

A module names the section's position in the page (`POSITION`) and the rows it needs (`ROWS`), and
makes the section from the run and those rows. It returns None if the run has nothing to show, such
as no bursts; where a result is missing, the section says why.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from uncia import record
from uncia.stats import columns
from uncia.stats.columns import pc

if TYPE_CHECKING:
    import pyarrow as pa

    from uncia.report.data import RunData
    from uncia.report.page import Section


@dataclass(frozen=True)
class Rows:
    """The rows of a run that a section needs.

    Attributes:
        table: name of their table.
        where: column -> the text that it must hold; None: null.
        required: leave the section out if there are no such rows.
    """

    table: str
    where: dict[str, str | None] = field(default_factory=dict)
    required: bool = False

    def select(self, run: RunData) -> pa.Table:
        """Select the rows of a run.

        Raises:
            TypeError: the table has no such column.
        """
        names = {column.name for column in record.columns(self.table)} if self.where else set()
        if unknown := sorted(set(self.where) - names):
            raise TypeError(f"rows of {self.table} have no column {unknown[0]}")
        rows: pa.Table = getattr(run, self.table)
        for name, word in self.where.items():
            if word is None:
                rows = rows.filter(pc.is_null(columns.words(rows, name)))
            else:
                rows = rows.filter(columns.is_word(rows, name, word))
        return rows


class Maker(Protocol):
    """The contents of a module of this package."""

    POSITION: int
    ROWS: Rows

    def section(self, run: RunData, rows: pa.Table) -> Section | None:
        """Make the section of a run from the rows that it needs."""


def make_all(run: RunData) -> Iterator[Section]:
    """Make the sections of a run, in the order of the page."""
    for maker in _makers():
        rows = maker.ROWS.select(run)
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
