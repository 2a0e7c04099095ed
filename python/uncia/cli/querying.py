"""Backends of commands: they show progress on a terminal while their queries run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from uncia.backends import Backend

_DELAY_S: Final = 1.0
"""Commands that are done before show no progress."""


@contextmanager
def open_backend(
    engine: str = "duckdb", *, memory_limit: str | None = None, master: str | None = None
) -> Iterator[Backend]:
    """Open a backend for a command, with a progress bar on standard error if that is a terminal.

    Raises:
        UnciaError: as `uncia.backends.connect`.
    """
    from rich.console import Console

    from uncia.backends import connect

    with connect(engine, memory_limit=memory_limit, master=master) as backend:
        console = Console(stderr=True)
        if not console.is_terminal:
            yield backend
            return
        bar = _QueryBar(console)
        backend.watch(bar.update)
        try:
            yield backend
        finally:
            bar.stop()


class _QueryBar:
    """A line with the number of the query that runs, its progress and the time since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begin = time.monotonic()
        self._progress: Progress | None = None

    def update(self, query: int, percent: float | None) -> None:
        """Show how much of a query is done; None: that is not known yet."""
        if time.monotonic() - self._begin < _DELAY_S:
            return
        if self._progress is None:
            self._progress = self._start(query)
        self._progress.update(
            self._progress.task_ids[0],
            description=f"query {query}",
            completed=percent or 0,
            total=None if percent is None else 100,
        )

    def _start(self, query: int) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        progress = Progress(*columns, console=self._console, transient=True)
        progress.add_task(f"query {query}", total=None)
        progress.start()
        return progress

    def stop(self) -> None:
        """Remove the line."""
        if self._progress is not None:
            self._progress.stop()
