"""The embedded platform in the foreground, as ``uncia serve`` runs it: its process and its rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, Self

from uncia import engine
from uncia.interrupt import end_with_parent
from uncia.platforms import wire
from uncia.platforms.inquiries import fetch_page

_CONTROL: Final = "control.sock"
"""The socket in the state folder: whoever may use that shows no credentials here."""

_POLL_S: Final = 0.25
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def become_worker(
    url: str,
    name: str | None,
    state: Path,
    config: dict[str, Any],
    credentials: Path | None,
    messages: Literal["text", "json"],
) -> NoReturn:
    """Become a worker of a controller: the engine takes this process's place.

    Args:
        url: the controller's address.
        name: what rows call the worker; None for the machine's name.
        state: the folder for packages and root file systems.
        config: of ``uncia-engine serve``.
        credentials: a file with the token that lets in at the controller, if it asks for one.
        messages: the form of what the engine writes to standard error.
    """
    file = _open_config(config)
    os.set_inheritable(file, True)
    arguments = [str(engine.binary()), "serve", "--join", url, "--state", str(state)]
    arguments += ["--config", f"/dev/fd/{file}", "--messages", messages]
    arguments += [] if name is None else ["--name", name]
    arguments += [] if credentials is None else ["--credentials", str(credentials)]
    os.execv(arguments[0], arguments)


def _open_config(config: dict[str, Any]) -> int:
    """Return an open file without a name that holds the configuration: nothing is left behind."""
    file = os.memfd_create("uncia-serve-config", 0)
    os.write(file, json.dumps(config).encode())
    os.lseek(file, 0, os.SEEK_SET)
    return file


class Foreground:
    """An ``uncia-engine serve`` that ends with this process, whatever ends it.

    Ctrl-C and SIGTERM are passed on: the first stops the platform, the second at once.

    Attributes:
        ready: the platform's event ``listening``; None if it did not start and has said why.
        newest: the id of the last invocation before it started.
        control: the unix socket by which it is asked, as `uncia.platforms.wire` writes it.
    """

    def __init__(
        self,
        listen: str,
        state: Path,
        config: dict[str, Any],
        options: Sequence[str],
        messages: Literal["text", "json"],
        log: Callable[[str], object],
    ) -> None:
        """Start the platform and wait until it listens.

        Args:
            listen: address and port.
            state: the folder of functions and logs.
            config: of ``uncia-engine serve``.
            options: more of ``uncia-engine serve``.
            messages: the form of what the engine writes to standard error.
            log: receives a line for rows that are missing because the disk is full.

        Raises:
            RunFailedError: it listens, and does not answer.
        """
        file = _open_config(config)
        self._handlers = {number: signal.signal(number, self._pass_on) for number in _SIGNALS}
        self._early: list[int] = []
        self._passed_on: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Final = log
        control = Path(state).absolute() / _CONTROL
        self.control: Final = f"{wire.UNIX}{control}"
        process = subprocess.Popen(
            [
                *(str(engine.binary()), "serve", "--listen", listen, "--state", str(state)),
                *("--config", f"/dev/fd/{file}", "--messages", messages, "--traces"),
                *("--socket", str(control), *options),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=(file,),
            # Of the terminal's Ctrl-C it would hear twice: from there and from here.
            start_new_session=True,
            preexec_fn=end_with_parent(os.getpid(), signal.SIGTERM),
        )
        os.close(file)
        self._process = process
        for number in self._early:
            process.send_signal(number)
        assert process.stdout is not None, "stdout is a pipe"
        line = process.stdout.readline()
        self.ready: Final[dict[str, Any] | None] = json.loads(line) if line else None
        self.newest = 0
        if self.ready is not None:
            # Before anybody learns the address, so that no invocation is missed.
            _, self.newest, _ = fetch_page(self.control, "invocations", "newest", log)
        self._after = self.newest

    def rows(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the invocations that ended since the last time, every quarter of a second.

        Ends with the platform.

        Raises:
            RunFailedError: the platform runs, and its rows cannot be fetched.
        """
        assert self.ready is not None, "it listens"
        more = False
        while more or not self._ended(_POLL_S):
            try:
                page, self._after, more = fetch_page(
                    self.control, "invocations", self._after, self._log
                )
            except Exception:
                if self._ended(_POLL_S):
                    return
                raise
            if page.num_rows:
                yield page.to_pylist()

    def wait(self) -> int:
        """Wait for the platform to end, and return its exit code as shells report it."""
        assert self._process is not None, "it was started"
        code = self._process.wait()
        return 128 - code if code < 0 else code

    @property
    def is_stopping(self) -> bool:
        """Whether a signal was passed on to the platform."""
        return bool(self._passed_on)

    def last_words(self) -> str | None:
        """Say what the platform, which has ended, cannot say itself: which signal has killed it.

        None if it ended by itself, or by a signal that was passed on; or if it runs.
        """
        assert self._process is not None, "it was started"
        # It answers no more a moment before its end is seen.
        number = -(self._process.returncode or 0) if self._ended(_POLL_S) else 0
        if number <= 0 or number in self._passed_on:
            return None
        try:
            name = signal.Signals(number).name
        except ValueError:  # a real-time signal has none
            name = f"signal {number}"
        return (
            f"the platform's process (uncia-engine, {self._process.pid}) was killed by {name}: "
            "requests in flight are lost; start it again, with the same state folder"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop the platform if it runs, and wait for it."""
        assert self._process is not None, "it was started"
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _ended(self, timeout_s: float) -> bool:
        assert self._process is not None, "it was started"
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _pass_on(self, number: int, frame: object) -> None:
        del frame
        self._passed_on.add(number)
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)
