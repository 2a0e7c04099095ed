"""Runs several generator processes that send one load together.

Each has its share of the schedule and its own table. If one fails, the others are stopped; none of
them outlives this process.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from uncia import engine
from uncia.errors import UnciaError
from uncia.interrupt import end_with_parent
from uncia.workload import tally
from uncia.workload.client import Load, as_written

Event = dict[str, Any]

_BAD_INPUT: Final = 2
_ENDED: Final = "process ended"


@dataclass
class Ended:
    """How a load ended.

    Attributes:
        done: the counts of all processes together; empty if none reported any.
        rtt: the events with measured round trips.
        warnings: the generator's warnings, each once.
        stopped: the stop rule that ended the load and its message, or None.
        interrupted: a signal ended the load.
        failure: the error that ended the load, or None.
        explained: the events that explain why invocations failed.
    """

    done: Event = field(default_factory=dict)
    rtt: list[Event] = field(default_factory=list)
    explained: list[Event] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    stopped: dict[str, Any] | None = None
    interrupted: bool = False
    failure: UnciaError | None = None


def run(
    loads: Sequence[Load],
    on_event: Callable[[Event], None] | None = None,
    on_start: Callable[[int], None] | None = None,
) -> Ended:
    """Send loads, each by its own process, and wait for all of them.

    SIGINT (KeyboardInterrupt) is passed on: requests in flight are awaited and every row is kept; a
    second one ends the processes at once.

    Args:
        loads: parts of one load: same streams, seed and start, different shares and files.
        on_event: gets the combined events of all processes (see `uncia.workload.tally.total`).
        on_start: gets the number of each process as soon as it runs.

    Returns:
        How the load ended. Failures and stop rules are reported there, not raised, because there
        are rows.

    Raises:
        UnciaError: the engine is missing.
    """
    return _Fleet(loads, on_event or _ignore, on_start or _ignore).run()


def _ignore(_: object) -> None:
    """Take what nobody asked for."""


class _Process:
    """An engine's process, and its events so far."""

    def __init__(
        self, number: int, load: Load, inbox: queue.SimpleQueue[tuple[int, Event]]
    ) -> None:
        self.number = number
        self.last: dict[str, Event] = {}
        self.error: str | None = None
        self.code: int | None = None
        self._inbox = inbox
        self.process = subprocess.Popen(
            [str(engine.binary()), "load", "--config", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A Ctrl-C reaches it only once, through this process; the end of this process always.
            process_group=0,
            preexec_fn=end_with_parent(os.getpid()),
        )
        threading.Thread(target=self._read, name=f"uncia-events-{number}", daemon=True).start()

    def configure(self, text: str) -> None:
        assert self.process.stdin is not None, "its standard input is a pipe"
        try:
            with self.process.stdin as pipe:
                pipe.write(text)
        except BrokenPipeError:
            pass  # the process ended early, and reports why

    def signal(self, number: int) -> None:
        if self.code is None:
            self.process.send_signal(number)

    def _read(self) -> None:
        assert self.process.stderr is not None, "its standard error is a pipe"
        for line in self.process.stderr:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if not isinstance(event, dict):
                event = {"event": "error", "message": line.strip()}
            self._inbox.put((self.number, as_written(event)))
        self._inbox.put((self.number, {"event": _ENDED, "code": self.process.wait()}))


class _Fleet:
    def __init__(
        self,
        loads: Sequence[Load],
        on_event: Callable[[Event], None],
        on_start: Callable[[int], None],
    ) -> None:
        self._loads = loads
        self._on_event = on_event
        self._on_start = on_start
        self._inbox: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()
        self._processes: list[_Process] = []
        self._ended = Ended()
        self._stopping = False

    def run(self) -> Ended:
        try:
            configurations = [json.dumps(load.engine()) for load in self._loads]
            for number, load in enumerate(self._loads):
                self._processes.append(_Process(number, load, self._inbox))
                self._on_start(self._processes[-1].process.pid)
            for process, text in zip(self._processes, configurations, strict=True):
                process.configure(text)
            while any(process.code is None for process in self._processes):
                try:
                    self._take(*self._inbox.get())
                except KeyboardInterrupt:
                    self._ended.interrupted = True
                    self._stop(signal.SIGINT)
            self._conclude()
        finally:
            for process in self._processes:
                if process.process.poll() is None:
                    process.process.kill()
                    process.process.wait()
        return self._ended

    def _take(self, number: int, event: Event) -> None:
        """Record an event of one process, and pass it on as an event of all."""
        process = self._processes[number]
        kind = str(event.get("event"))
        process.last[kind] = event
        match kind:
            case "error":
                process.error = str(event.get("message"))
            case "warning":
                self._warn(str(event.get("message")))
            case "rtt":
                self._ended.rtt.append(event)
                self._on_event(event)
            case "failure":
                self._ended.explained.append(event)
            case "start":
                self._started(process, event)
            case "progress":
                self._progress(number)
            case _ if kind == _ENDED:
                process.code = int(event["code"])
                self._check(process)

    def _warn(self, message: str) -> None:
        if message not in self._ended.warnings:
            self._ended.warnings.append(message)
            self._on_event({"event": "warning", "message": message})

    def _started(self, process: _Process, event: Event) -> None:
        late = time.time_ns() - int(event["start_unix_ns"])
        if late > 0:
            self._warn(
                f"{self._name(process)} was ready {late / 1e6:,.0f} ms after the start:"
                " its first requests went out late, which shows as lag"
            )
        started = [item.last["start"] for item in self._processes if "start" in item.last]
        if len(started) == len(self._processes):
            self._on_event(tally.total(started))

    def _progress(self, number: int) -> None:
        """Report progress when the first running process does, with the others' last events."""
        running = [process.number for process in self._processes if process.code is None]
        if number == min(running, default=number):
            events = [p.last["progress"] for p in self._processes if "progress" in p.last]
            self._on_event(tally.total(events))

    def _check(self, process: _Process) -> None:
        """Stop the others if a process ended by itself with an error."""
        done = process.last.get("done", {})
        if process.code == 0 or (self._stopping and process.code in (130, 143)):
            return
        if done.get("interrupted"):
            # The signal came from elsewhere.
            self._ended.interrupted = True
        elif done.get("stopped"):
            self._ended.stopped = self._ended.stopped or dict(done["stopped"])
        elif self._ended.failure is None:
            self._ended.failure = self._failure(process)
        self._stop(signal.SIGTERM)

    def _failure(self, process: _Process) -> UnciaError:
        message = process.error or f"{engine.NAME} load ended with exit code {process.code}"
        if process.code is not None and process.code < 0:
            message = process.error or f"{engine.NAME} load was killed by signal {-process.code}"
        if len(self._processes) > 1:
            message = f"{self._name(process)}: {message}"
        return UnciaError(message, exit_code=_BAD_INPUT if process.code == _BAD_INPUT else 1)

    def _name(self, process: _Process) -> str:
        if len(self._processes) == 1:
            return "the generator"
        return f"generator process {process.number + 1} of {len(self._processes)}"

    def _stop(self, number: int) -> None:
        self._stopping = True
        for process in self._processes:
            process.signal(number)

    def _conclude(self) -> None:
        done = [process.last["done"] for process in self._processes if "done" in process.last]
        if done:
            self._ended.done = tally.total(done)
            if len(self._processes) > 1:
                self._ended.done["processes"] = len(self._processes)
            self._on_event(self._ended.done)
