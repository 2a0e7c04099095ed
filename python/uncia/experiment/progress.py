"""Shows a person how a run goes on: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from uncia.text import plural

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, TaskID

    from uncia.experiment.plan import ExperimentPlan

# Plain lines go into logs, which are read later: often enough to see life, rarely enough to read.
_PLAIN_EVERY_S: Final = 10.0
# A load of its own is watched while it goes on.
_LOAD_EVERY_S: Final = 1.0

_IN_FLIGHT: Final = "in flight"
_LATENCY: Final = "latency"
_ERRORS: Final = "errors"
_NO_ERRORS: Final = ""
# Functions with the same arrivals, and different arrivals, that a line names.
_FUNCTIONS: Final = 3
_SENTENCES: Final = 8
# Labels that a line does without, because the value says it.
_SPEAK_ALONE: Final = frozenset({"rate", _LATENCY, _NO_ERRORS})


class Reporter(Protocol):
    """Receives the progress of a run."""

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


class _ShownLines:
    """The lines that were shown, where runs repeat and each has the same."""

    def __init__(self, *, repeats: bool) -> None:
        self._lines: set[str] | None = set() if repeats else None

    def is_repeated(self, line: str) -> bool:
        """Whether an earlier run had this line; remembers it."""
        if self._lines is None:
            return False
        repeated = line in self._lines
        self._lines.add(line)
        return repeated


class Plain:
    """Lines without any control characters, for logs and pipes."""

    def __init__(self, every_s: float = _PLAIN_EVERY_S, *, repeats: bool = False) -> None:
        self._every_s = every_s
        self._repeats = repeats
        self._shown = _ShownLines(repeats=repeats)
        self._last = 0.0
        self._began = 0.0

    def note(self, line: str) -> None:
        if not self._shown.is_repeated(line):
            print(line, file=sys.stderr, flush=True)

    def begin(self, name: str, sends: str, expected: int) -> None:
        del expected
        self._last = self._began = time.monotonic()
        self.note(f"{name}: {sends}")

    def event(self, event: dict[str, Any]) -> None:
        now = time.monotonic()
        if event.get("event") == "warning":
            self.note(f"    warning: {event['message']}")
        elif event.get("event") == "progress" and now - self._last >= self._every_s:
            self._last = now
            self.note(f"    {status(event)}")

    def end(self, name: str, done: dict[str, Any]) -> None:
        # What is sent, which begins with the name, is not shown of later runs.
        which = f"{name}: " if self._repeats else ""
        seconds = time.monotonic() - self._began
        print(f"    {which}{outcomes(done)} in {seconds:.1f} s", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class Live:
    """A bar, and below it what the generator is doing: rates, in flight, latency, lag, errors."""

    def __init__(self, console: Console, *, repeats: bool = False) -> None:
        from rich.live import Live as Screen
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = console
        self._shown = _ShownLines(repeats=repeats)
        self._progress: Progress = Progress(
            TextColumn("[bold]{task.fields[name]:<16}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._task: TaskID | None = None
        self._began = 0.0
        self._below: list[tuple[str, str]] = []
        self._screen = Screen(
            get_renderable=self._view, console=console, transient=True, refresh_per_second=4
        )
        self._screen.start()

    def note(self, line: str) -> None:
        if not self._shown.is_repeated(line):
            self._console.print(line, highlight=False, markup=False, style="dim")

    def begin(self, name: str, sends: str, expected: int) -> None:
        from rich.markup import escape

        self._began = time.monotonic()
        self._task = self._progress.add_task("", total=max(1, expected), name=escape(name))
        self._below = [("sends", sends)]

    def event(self, event: dict[str, Any]) -> None:
        if event.get("event") == "warning":
            self.note(f"warning: {event['message']}")
        elif self._task is not None and event.get("event") == "progress":
            # A closed loop does not know beforehand how many requests there will be.
            total = float(event["scheduled"] or event["sent"] or 1)
            self._progress.update(self._task, completed=float(event["done"]), total=total)
            self._below = figures(event)

    def end(self, name: str, done: dict[str, Any]) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        self._below = []
        seconds = time.monotonic() - self._began
        self._console.print(
            f"  {name:<24} {outcomes(done)} in {seconds:.1f} s", highlight=False, markup=False
        )

    def close(self) -> None:
        self._below = []
        self._screen.stop()

    def _view(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", justify="right", min_width=16)
        grid.add_column()
        for label, value in self._below:
            grid.add_row(label, Text(value, style="red" if label == _ERRORS else ""))
        return Group(self._progress, grid) if self._below else Group(self._progress)


def reporter(
    *, quiet: bool = False, every_s: float = _PLAIN_EVERY_S, repeats: bool = False
) -> Reporter:
    """The reporter that suits standard error: live on a terminal, plain lines elsewhere.

    Args:
        quiet: one that says nothing.
        every_s: how often plain lines come, at most.
        repeats: it is of several runs, and shows a line that each has once.
    """
    if quiet:
        return Silent()
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        return Live(console, repeats=repeats)
    return Plain(every_s, repeats=repeats)


@contextmanager
def loading(
    name: str, sends: str, expected: int, *, quiet: bool
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Reports a load; gives what takes the engine's events.

    Args:
        name: what is driven, a URL or a file.
        sends: which requests, in words.
        expected: about how many; 0 when nobody knows beforehand.
        quiet: say nothing.
    """
    shown = reporter(quiet=quiet, every_s=_LOAD_EVERY_S)
    done: dict[str, Any] = {}

    def event(content: dict[str, Any]) -> None:
        if content.get("event") == "done":
            done.update(content)
        shown.event(content)

    shown.begin(name, sends, expected)
    try:
        yield event
    finally:
        if done:
            shown.end(name, done)
        shown.close()


def sends(experiment: ExperimentPlan) -> str:
    """What an experiment sends, in a few words; streams of the same words are counted.

    Of many functions with the same arrivals, and of many arrivals, only the first are named.
    """
    names: dict[str, Counter[str]] = {}
    for stream in experiment.streams:
        words = stream.pace()
        if words is not None and experiment.measured is not None:
            words = f"{words.partition(',')[0]}, while {experiment.measured} is measured"
        if words is not None:
            names.setdefault(words, Counter())[stream.subject()] += 1
    sentences = [_of_functions(words, counts) for words, counts in names.items()]
    if len(sentences) > _SENTENCES:
        rest = sum(sum(counts.values()) for counts in [*names.values()][_SENTENCES:])
        sentences[_SENTENCES:] = [f"and {rest:,} more streams"]
    return "; ".join(sentences)


def _of_functions(words: str, counts: Counter[str]) -> str:
    """Say of which functions or chains the arrivals in ``words`` are."""
    if len(counts) > _FUNCTIONS:
        first, *_, last = counts
        return f"{len(counts):,} functions ({first} to {last}) {words}"
    return "; ".join(
        f"{name} {words}".lstrip() if count == 1 else f"{count:,} times {name} {words}"
        for name, count in counts.items()
    )


def status(event: dict[str, Any]) -> str:
    """A progress event in one line."""
    parts = []
    for label, value in figures(event):
        if label == _IN_FLIGHT:
            parts.append(f"{value} {label}")
        else:
            parts.append(value if label in _SPEAK_ALONE else f"{label} {value}")
    return ", ".join(parts)


def figures(event: dict[str, Any]) -> list[tuple[str, str]]:
    """A progress event as labels and values, in the order in which they are shown.

    Latency and lag of several processes are those of the worst of them: quantiles cannot be added.
    """
    target = event.get("target_rate")
    rate = f"{event['rate']:,.0f}/s"
    if target is not None:
        rate += f" of {target:,.0f}/s"
    worst = f" (worst of {event['processes']} processes)" if event.get("processes", 1) > 1 else ""
    latency = [
        f"{name} {_ms(event[key])}"
        for name, key in (("p50", "p50_ms"), ("p99", "p99_ms"))
        if event.get(key) is not None
    ]
    shown = [("rate", rate), (_IN_FLIGHT, f"{event['in_flight']:,}")]
    if latency:
        shown.append((_LATENCY, ", ".join(latency) + worst))
    if event.get("lag_p99_us") is not None:
        shown.append(("lag p99", _ms(event["lag_p99_us"] / 1e3) + worst))
    errors = [f"{count:,} {word}" for word, count in event["failed"].items() if count]
    shown.append((_ERRORS, ", ".join(errors)) if errors else (_NO_ERRORS, "no errors"))
    return shown


def _ms(value: float) -> str:
    """Milliseconds with three digits that mean something."""
    if value >= 100:
        return f"{value:,.0f} ms"
    return f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def outcomes(done: dict[str, Any]) -> str:
    """The counts of a ``done`` event: ``120 requests: 118 ok, 2 throttled``."""
    if not done:
        return "no result"
    counts = [f"{done['ok']:,} ok"] if done["ok"] else []
    counts += [f"{count:,} {word}" for word, count in done["failed"].items()]
    return f"{plural(done['rows'], 'request')}: {', '.join(counts) or 'none answered'}"
