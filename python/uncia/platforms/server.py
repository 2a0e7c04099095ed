"""A running ``uncia-engine serve``: started on a state folder, stopped, and its last words."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from uncia import engine
from uncia.errors import RunFailedError

# The engine verifies its sandbox, sweeps what an earlier one left and copies its runtimes before it
# listens, on however busy a machine. One that cannot start ends before.
_START_TIMEOUT_S: Final = 120.0
# Stopping ends every instance; each gets its grace time, then is killed.
_STOP_TIMEOUT_S: Final = 30.0
_LOG_TAIL_CHARACTERS: Final = 2_000
# The folder and its files are the user's own, as the engine's are.
_PRIVATE_FOLDER: Final = 0o700
_PRIVATE_FILE: Final = 0o600


class Server:
    """A running ``uncia-engine serve``."""

    def __init__(
        self,
        state: Path,
        config: dict[str, Any],
        listen: str = "127.0.0.1:0",
        options: Sequence[str] = (),
        on_start: Callable[[Server], None] | None = None,
    ) -> None:
        """Start the engine on ``state`` and wait until it listens.

        Args:
            state: its state folder, created if missing.
            config: of ``uncia-engine serve``.
            listen: the address to listen on.
            options: more of ``uncia-engine serve``.
            on_start: receives this server once its process runs, before it listens.

        Raises:
            RunFailedError: it does not start; the message ends with its log.
        """
        _make_state_folder(state)
        file = state / "serve.json"
        with open(file, "w", encoding="utf-8", opener=_open_private) as text:
            json.dump(config, text)
        self.log: Final = state / "serve.log"
        with open(self.log, "ab", opener=_open_private) as errors:
            self.process: Final = subprocess.Popen(
                [
                    str(engine.binary()),
                    "serve",
                    "--listen",
                    listen,
                    "--state",
                    str(state),
                    "--config",
                    str(file),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Out of reach of the terminal's Ctrl-C: the run ends it, after collecting.
                start_new_session=True,
            )
        self._is_ready = False
        try:
            if on_start is not None:
                on_start(self)
            ready = self._wait_ready()
        except BaseException:
            self.stop()
            raise
        self._is_ready = True
        self.address: Final[str] = ready["address"]
        self.warnings: Final[list[str]] = list(ready.get("warnings", []))

    def stop(self) -> bool:
        """Ask the engine to end, and wait; kill it if it does not.

        Returns:
            Whether it ended cleanly, that is, removed itself what it had made.
        """
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                pass
            finally:
                self.process.kill()
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        # An engine that refuses to start says so by its exit code, and leaves nothing.
        refused = not self._is_ready and self.process.returncode > 0
        return self.process.returncode == 0 or refused

    def _wait_ready(self) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None, "stdout is a pipe"
        deadline = time.monotonic() + _START_TIMEOUT_S
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise RunFailedError(
                    f"the embedded platform did not start within {_START_TIMEOUT_S:.0f} s"
                    f"{self._log_tail()}"
                )
            read = os.read(stdout.fileno(), 65_536)
            if not read:
                self.process.wait()
                raise RunFailedError(f"the embedded platform did not start{self._log_tail()}")
            line += read
        ready: dict[str, Any] = json.loads(line)
        return ready

    def _log_tail(self) -> str:
        """The end of the engine's log, its error event first."""
        text = self.log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL_CHARACTERS:]
        for line in reversed(text.splitlines()):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and event.get("event") == "error":
                return f": {event.get('message')}"
        return f": {text.strip()}" if text.strip() else ", and said nothing"


def _make_state_folder(folder: Path) -> None:
    """Make a state folder that is closed to others whatever the umask; one that exists stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(_PRIVATE_FOLDER)
    except FileExistsError:
        return
    folder.chmod(_PRIVATE_FOLDER)


def _open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, whatever the umask was when it was created.

    Raises:
        RunFailedError: it cannot be written, or belongs to another user.
    """
    try:
        descriptor = os.open(path, flags, _PRIVATE_FILE)
        try:
            os.fchmod(descriptor, _PRIVATE_FILE)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        raise RunFailedError(
            f"{path} cannot be written: {error.strerror}",
            hint="Make it your own file, or choose another state folder.",
        ) from error
    return descriptor
