"""How a run goes on, told to a person: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from uncia.experiment.plan import ExperimentPlan
    from uncia.workload.arrivals import ArrivalProcess

# Plain lines go into logs, which are read later: often enough to see life, rarely enough to read.
_PLAIN_EVERY_S: Final = 10.0


class Reporter(Protocol):
    """Is told how a run goes on."""

    def note(self, line: str) -> None:
        """One line about what happens now."""

    def begin(self, name: str, sends: str, expected: int) -> None:
        """Requests are about to be sent: by what name, which, and about how many."""

    def event(self, event: dict[str, Any]) -> None:
        """An event of the load generator."""

    def end(self, name: str, done: dict[str, Any]) -> None:
        """The last request is answered; ``done`` has the engine's counts."""

    def close(self) -> None:
        """Nothing more comes."""


class Silent:
    """Says nothing."""

    def note(self, line: str) -> None:
        del line

    def begin(self, name: str, sends: str, expected: int) -> None:
        del name, sends, expected

    def event(self, event: dict[str, Any]) -> None:
        del event

    def end(self, name: str, done: dict[str, Any]) -> None:
        del name, done

    def close(self) -> None:
        pass


class Plain:
    """Lines without any control characters, for logs and pipes."""

    def __init__(self) -> None:
        self._last = 0.0
        self._began = 0.0

    def note(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def begin(self, name: str, sends: str, expected: int) -> None:
        del expected
        self._last = self._began = time.monotonic()
        self.note(f"{name}: {sends}")

    def event(self, event: dict[str, Any]) -> None:
        now = time.monotonic()
        if event.get("event") == "warning":
            self.note(f"    warning: {event['message']}")
        elif event.get("event") == "progress" and now - self._last >= _PLAIN_EVERY_S:
            self._last = now
            self.note(f"    {status(event)}")

    def end(self, name: str, done: dict[str, Any]) -> None:
        del name
        self.note(f"    {outcomes(done)} in {time.monotonic() - self._began:.1f} s")

    def close(self) -> None:
        pass


class Live:
    """A progress bar per run, with rate, p99 and errors so far."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = console
        self._progress: Progress = Progress(
            TextColumn("[bold]{task.fields[name]:<16}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[status]}"),
            console=console,
            transient=True,
            refresh_per_second=4,
        )
        self._task: TaskID | None = None
        self._began = 0.0
        self._progress.start()

    def note(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, style="dim")

    def begin(self, name: str, sends: str, expected: int) -> None:
        self._began = time.monotonic()
        self._task = self._progress.add_task("", total=max(1, expected), name=name, status=sends)

    def event(self, event: dict[str, Any]) -> None:
        if event.get("event") == "warning":
            self.note(f"warning: {event['message']}")
        elif self._task is not None and event.get("event") == "progress":
            self._progress.update(
                self._task,
                completed=float(event["done"]),
                total=float(event["scheduled"]),
                status=status(event),
            )

    def end(self, name: str, done: dict[str, Any]) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        seconds = time.monotonic() - self._began
        self._console.print(
            f"  {name:<24} {outcomes(done)} in {seconds:.1f} s", highlight=False, markup=False
        )

    def close(self) -> None:
        self._progress.stop()


def reporter(*, quiet: bool = False) -> Reporter:
    """The reporter that suits standard error: live on a terminal, plain lines elsewhere."""
    if quiet:
        return Silent()
    from rich.console import Console

    console = Console(stderr=True)
    return Live(console) if console.is_terminal else Plain()


@contextmanager
def one(
    url: str, arrivals: ArrivalProcess, *, quiet: bool
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Reports a load on a single URL; gives what takes the engine's events."""
    told = reporter(quiet=quiet)
    done: dict[str, Any] = {}

    def event(happened: dict[str, Any]) -> None:
        if happened.get("event") == "done":
            done.update(happened)
        told.event(happened)

    told.begin(url, arrivals.sentence(), arrivals.expected_requests())
    try:
        yield event
        told.end(url, done)
    finally:
        told.close()


def sends(experiment: ExperimentPlan) -> str:
    """What an experiment sends, in a few words."""
    return "; ".join(
        f"{stream.alias} {stream.arrivals.sentence()}" for stream in experiment.streams
    )


def status(event: dict[str, Any]) -> str:
    """A progress event in a few words: rate, p99 and errors so far."""
    parts = [f"{event['rate']:.0f}/s"]
    if event["p99_ms"] is not None:
        parts.append(f"p99 {event['p99_ms']:.1f} ms")
    parts.append(f"{sum(event['failed'].values()):,} errors")
    return ", ".join(parts)


def outcomes(done: dict[str, Any]) -> str:
    """The counts of a ``done`` event: ``120 requests: 118 ok, 2 throttled``."""
    if not done:
        return "no result"
    counts = [f"{done['ok']:,} ok"] if done["ok"] else []
    counts += [f"{count:,} {word}" for word, count in done["failed"].items()]
    return f"{done['rows']:,} requests: {', '.join(counts) or 'none answered'}"
