"""Monitors on another machine, over ssh: started there, their rows brought here, nothing left."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from uncia import engine
from uncia.doctor import ssh
from uncia.doctor.clocks import Clock, Exchange, Offset, bound_ns, offset
from uncia.doctor.monitors import Asked, end_timeout_s, start_timeout_s
from uncia.doctor.ssh import Address
from uncia.errors import UnciaError
from uncia.version import __version__

_ROUND_TRIPS: Final = 20
_ANSWER_S: Final = 5
"""An answer that takes longer says too little of a clock to wait for it."""
_ASK_EVERY_S: Final = 5
"""Between two measurements meanwhile; the engine there ends after 30 s without any."""
_ROUND_TRIPS_MEANWHILE: Final = 3
"""Of a single one that was late, the error would be the bound of the whole run."""
_START_TIMEOUT_S: Final = 30
"""Of the engine there, which ends after as long without a word; its monitors may take longer."""
_LINES: Final = 20
_ENDED: Final = "ended"
"""Stands for a sentence that is made of an exit code."""


class RemoteMonitors:
    """Monitors on another machine while they watch.

    They end with this process and with the connection, however these end.

    Attributes:
        address: of the machine.
        watching: which of those asked for work there.
        sentences: what a reader of the rows should know.
        facts: of the machine and its clock, as ``run.yaml`` has them.
    """

    def __init__(self, address: Address, program: str | None = None) -> None:
        """Name a machine.

        Args:
            address: its.
            program: the engine that is there; None: a copy of the one here.
        """
        self.address = address
        self.watching: list[str] = []
        self.sentences: list[str] = []
        self.facts: dict[str, Any] = {"address": address.url}
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._copying: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []
        self._lines: list[str] = []
        self._system = ""
        self._error: str | None = None
        self._clock = Clock()
        self._ids = itertools.count()
        self._asked: dict[int, int] = {}
        self._exchanges: dict[int, Exchange] = {}
        self._answered = threading.Condition()
        self._ready = threading.Event()
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._writing = threading.Lock()
        self._before = Offset(0, 0, 0)
        self._last: Offset | None = None
        self._bound_ns = 0
        self._end_timeout_s = 0.0

    def start(self, asked: Sequence[Asked], out: Path, epoch_unix_ns: int, run: str | None) -> None:
        """Start them, and wait until they watch.

        Args:
            asked: which, how often and of which groups.
            out: the stream of their rows (``*.arrows``), which must not exist.
            epoch_unix_ns: Unix time, by the clock here, that times of rows are counted from.
            run: what the rows are of.

        Raises:
            UnciaError: nothing runs there, and why.
        """
        try:
            self._connect()
            before = self._measure()
            if before is None:
                raise self._failure("it does not answer what time it is")
            self._before, self._bound_ns = before, before.error_ns
            self._note_clock(None, None)
            config = {
                "run": run,
                "host": self.address.name,
                # By the clock there, so that times of rows come out as those of the clock here.
                "epoch_unix_ns": epoch_unix_ns + before.offset_ns,
                "monitors": [each.config for each in asked],
            }
            self._end_timeout_s = end_timeout_s(asked)
            self._write(config)
            self._thread(self._copy_rows, out)
            self._await_monitors(start_timeout_s(asked))
        except BaseException:
            self._abandon()
            raise
        self._tell(before)
        self._thread(self._keep_asking)

    def give_up(self) -> None:
        """Have a `start` in another thread fail soon; `stop` ends what had started."""
        self._stopping.set()
        # One that is set later is ended by whoever sets it, who looks for that afterwards.
        for process in (self._copying, self._process):
            if process is not None:
                process.kill()

    def _end_if_given_up(self, process: subprocess.Popen[bytes]) -> None:
        if self._stopping.is_set():
            process.kill()

    def alive(self) -> bool:
        """Whether they still watch."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> list[str]:
        """End them after a last sample; returns their sentences. May be called again."""
        process = self._process
        if process is None:
            return self.sentences
        self._stopping.set()
        was_alive = process.poll() is None
        after = self._measure() if was_alive else None
        if after is not None:
            self._tell(after)
        self._process = None
        self._end(process)
        # Without a last measurement nobody knows what the clock did since the one before.
        known = None if after is None else max(self._bound_ns, bound_ns(self._before, after))
        self._note_clock(after or self._last, known)
        if not was_alive or process.returncode == 255:
            last = f" ({self._lines[-1]})" if self._lines else ""
            self._say(f"the connection was lost{last}; rows after that are missing")
        elif process.returncode != 0 and self._error is None:
            last = f" ({self._lines[-1]})" if self._lines else f" (exit code {process.returncode})"
            self._say(f"the monitors ended early{last}; rows after that are missing")
        return self.sentences

    def _connect(self) -> None:
        """Have the engine run there, ready for questions."""
        binary = engine.binary()
        if self._program is None:
            with binary.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            command = ssh.copy_script(digest)
        else:
            command = ssh.named_script(self._program)
        process = self._process = subprocess.Popen(
            self.address.arguments(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            # A Ctrl-C is for us; it ends when we let it.
            process_group=0,
        )
        self._end_if_given_up(process)
        self._thread(self._listen, process)
        # A host that accepts a connection and then says nothing ends it, and what is waited for.
        timer = threading.Timer(ssh.CONNECT_TIMEOUT_S + _START_TIMEOUT_S, process.kill)
        timer.start()
        try:
            self._system = self._marked()
            folder = self._marked() if self._program is None else ""
        finally:
            timer.cancel()
        if self._program is None:
            self._upload(binary, folder)
            self._write("start")
        self._await_engine()
        if self.facts["engine_version"] != __version__:
            raise self._failure(
                f"the engine there is of version {self.facts['engine_version']}, and this is"
                f" {__version__}: install the same one, or leave {ssh.BY} out to copy this one"
            )

    def _marked(self) -> str:
        """The rest of the next line there that is marked."""
        assert self._process is not None, "it was started"
        assert self._process.stdout is not None, "it is a pipe"
        while line := self._process.stdout.readline():
            text = line.decode(errors="replace").strip()
            if text.startswith(f"{ssh.MARK} "):
                return text.removeprefix(f"{ssh.MARK} ")
        raise self._failure()

    def _upload(self, binary: Path, folder: str) -> None:
        command = self.address.arguments(ssh.upload(folder), "-o", "Compression=yes")
        with (
            binary.open("rb") as file,
            subprocess.Popen(
                command,
                stdin=file,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                process_group=0,
            ) as process,
        ):
            self._copying = process
            self._end_if_given_up(process)
            try:
                _, errors = process.communicate(timeout=ssh.UPLOAD_TIMEOUT_S)
            except BaseException as error:
                process.kill()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                raise UnciaError(
                    f"host {self.address.name}: the engine could not be copied there within"
                    f" {ssh.UPLOAD_TIMEOUT_S} s"
                ) from error
        self._copying = None
        if process.returncode != 0:
            lines = errors.decode(errors="replace").strip().splitlines() or ["ssh failed"]
            raise UnciaError(
                f"host {self.address.name}: the engine could not be copied there: {lines[-1]}"
            )

    def _await_engine(self) -> None:
        if not self._ready.wait(_START_TIMEOUT_S):
            raise self._failure(f"the engine there did not start within {_START_TIMEOUT_S} s")
        if self._error is not None:
            raise self._failure(self._error)

    def _await_monitors(self, limit_s: float) -> None:
        end = time.monotonic() + limit_s
        while not self._started.wait(max(0.0, min(_ASK_EVERY_S, end - time.monotonic()))):
            if time.monotonic() >= end:
                raise self._failure(f"the monitors did not start within {limit_s:g} s")
            # For the engine to hear a word; what is known of its clock is of before and after that.
            self._measure(1)
        if self._error is not None:
            raise self._failure(self._error)

    def _failure(self, sentence: str | None = None) -> UnciaError:
        """What is wrong there; by its exit code and what it printed, unless something is known."""
        if sentence is None or sentence == _ENDED:
            assert self._process is not None, "it was started"
            assert self._process.stdin is not None, "it is a pipe"
            with suppress(OSError):
                self._process.stdin.close()
            try:
                code = self._process.wait(_ANSWER_S)
            except subprocess.TimeoutExpired:
                code = -1
            for thread in self._threads:
                thread.join(_ANSWER_S)
            sentence = ssh.refusal(code, self._system, self._lines, self._program or "")
        return UnciaError(f"host {self.address.name}: {sentence}")

    def _thread(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _write(self, line: Any) -> None:
        """Send a line; one that nobody reads any more is told by what reads the answers."""
        process = self._process
        if process is None or process.stdin is None:
            return
        with self._writing, suppress(OSError, ValueError):
            process.stdin.write((json.dumps(line) + "\n").encode())

    def _measure(self, round_trips: int = _ROUND_TRIPS) -> Offset | None:
        """Measure how far the clock there is ahead; None if it does not answer."""
        exchanges = []
        for _ in range(round_trips):
            number = next(self._ids)
            with self._answered:
                self._asked[number] = self._clock.unix_ns()
                self._write({"clock": number})
                self._answered.wait_for(partial(self._has_answer, number), _ANSWER_S)
            exchange = self._exchanges.pop(number, None)
            if exchange is None:
                break
            exchanges.append(exchange)
        return offset(exchanges)

    def _has_answer(self, number: int) -> bool:
        """Whether the answer to a question is here, or can no longer come."""
        return number in self._exchanges or not self.alive()

    def _tell(self, measured: Offset) -> None:
        """Have rows of an offset written there."""
        self._write({"offset_ns": measured.offset_ns, "error_ns": measured.error_ns})

    def _keep_asking(self) -> None:
        """Ask for the time until the end: a connection of which nothing is heard counts as lost."""
        while not self._stopping.wait(_ASK_EVERY_S) and self.alive():
            measured = self._measure(_ROUND_TRIPS_MEANWHILE)
            if measured is not None and not self._stopping.is_set():
                self._last = measured
                self._bound_ns = max(self._bound_ns, bound_ns(self._before, measured))
                self._tell(measured)

    def _note_clock(self, after: Offset | None, bound: int | None) -> None:
        self.facts["clock"] = {
            "corrected_by_ns": -self._before.offset_ns,
            "before": self._before.data,
            "after": None if after is None else after.data,
            "bound_ns": bound,
        }

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Take what comes on standard error until it ends: events, and words of others."""
        assert process.stderr is not None, "it is a pipe"
        while line := process.stderr.readline():
            returned = self._clock.unix_ns()
            text = line.decode(errors="replace").strip()
            try:
                event = json.loads(text)
                kind = event["event"]
            except (ValueError, KeyError, TypeError):
                if text:
                    self._lines = [*self._lines[1 - _LINES :], text]
                continue
            self._take(kind, event, returned)
        if not self._started.is_set() and self._error is None:
            self._error = _ENDED
        self._ready.set()
        self._started.set()
        with self._answered:
            self._answered.notify_all()

    def _take(self, kind: str, event: dict[str, Any], returned: int) -> None:
        if kind == "clock":
            with self._answered:
                sent = self._asked.pop(event["id"], None)
                if sent is not None:
                    times = event["received_unix_ns"], event["sent_unix_ns"]
                    self._exchanges[event["id"]] = Exchange(sent, *times, returned)
                self._answered.notify_all()
        elif kind == "ready":
            self._take_facts(event)
            self._ready.set()
        elif kind == "started":
            self.watching = list(event["monitors"])
            self._started.set()
        elif kind in ("unsupported", "warning"):
            message = event["message"].replace("on this machine", f"on {self.address.name}")
            self._say(f"monitor {event.get('monitor')}: {message}")
        elif kind == "error":
            self._error = str(event["message"])
            self._say(self._error)

    def _take_facts(self, event: dict[str, Any]) -> None:
        self.facts |= {key: event[key] for key in ("hostname", "kernel", "cpus")}
        self.facts["system"] = self._system
        self.facts["engine"] = self._program or "a copy of the engine here"
        self.facts["engine_version"] = event["version"]

    def _copy_rows(self, out: Path) -> None:
        """Keep what comes on standard output: the stream of rows, whole or cut off."""
        assert self._process is not None, "it was started"
        assert self._process.stdout is not None, "it is a pipe"
        source = self._process.stdout.fileno()
        try:
            with out.open("xb", buffering=0) as file:
                while chunk := os.read(source, 1 << 16):
                    file.write(chunk)
            # One that ended before it began is no table, and no others would be read beside it.
            if not _has_schema(out):
                out.unlink()
        except OSError as error:
            self._say(f"its rows cannot be written: {error}")

    def _say(self, sentence: str) -> None:
        self.sentences.append(f"host {self.address.name}: {sentence}")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end of ssh, and with it of what runs there."""
        assert process.stdin is not None, "it is a pipe"
        with self._writing, suppress(OSError):
            process.stdin.close()
        try:
            process.wait(self._end_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._say(f"the monitors did not end within {self._end_timeout_s:g} s")
        for thread in self._threads:
            thread.join(_ANSWER_S)

    def _abandon(self) -> None:
        """End what was begun there."""
        self._stopping.set()
        process, self._process = self._process, None
        if process is not None:
            self._end_timeout_s = _ANSWER_S
            self._end(process)


def _has_schema(path: Path) -> bool:
    """Whether a stream of rows goes as far as to say which columns it has."""
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file):
            return True
    except (pa.ArrowInvalid, OSError):
        return False
