"""A folder and processes that are gone when the work is over, however it ends.

A shell waits for the end of its input, which comes when this process ends, even by SIGKILL; it then
ends what still runs, and removes the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from uncia.errors import RunFailedError
from uncia.interrupt import end_with_parent
from uncia.locality.targets import Target

# Lines of its input are process groups; an empty one says that they have ended.
_GUARD: Final = """
groups=
while read -r line; do
  if [ -n "$line" ]; then groups="$groups $line"; else groups=; fi
done
for group in $groups; do kill -9 "-$group" 2>/dev/null; done
rm -rf -- "$1"
"""
_LAST_LINES: Final = 3
_CHUNK: Final = 1 << 16


class Work:
    """The folder of some measurement, and the processes that it starts.

    Attributes:
        folder: to write into.
        deadline: by `time.monotonic`, when processes that still run are given up.
    """

    def __init__(self, timeout_s: float) -> None:
        self.deadline = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._is_stopped = False

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="uncia-branches-"))
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "uncia-branches", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._tell("\n")
        assert self._guard.stdin is not None, "it is a pipe"
        self._guard.stdin.close()
        self._guard.wait()

    def _tell(self, line: str) -> None:
        assert self._guard.stdin is not None, "it is a pipe"
        self._guard.stdin.write(line.encode())
        self._guard.stdin.flush()

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
        errors: IO[bytes] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, with pipes for its input and output.

        The thread that calls must outlive it.

        Raises:
            RunFailedError: it cannot be started, or everything was stopped.
        """
        with self._lock:
            if self._is_stopped:
                raise RunFailedError("the measurement was stopped")
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL if errors is None else errors,
                    cwd=cwd,
                    env=environment,
                    pass_fds=descriptors,
                    start_new_session=True,
                    preexec_fn=end_with_parent(os.getpid(), signal.SIGKILL),
                )
            except OSError as error:
                raise RunFailedError(
                    f"cannot run {command[0]}: {error.strerror or error}"
                ) from error
            self._processes.append(process)
            self._tell(f"{process.pid}\n")
            return process

    def stop(self) -> None:
        """End all processes, with what they have started in their sessions."""
        with self._lock:
            self._is_stopped = True
            for process in self._processes:
                # One that was waited for has given its number back.
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)

    def invoke(
        self,
        target: Target,
        command: Sequence[str],
        invocations: int,
        descriptors: Sequence[int] = (),
        *,
        on_start: Callable[[subprocess.Popen[bytes]], None] | None = None,
        on_part: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Start a function's process; returns what invokes it so often, and waits for its end.

        Args:
            target: the function.
            command: of its process, which may have something before that of the function.
            invocations: how many, one after the other, with the target's event.
            descriptors: what the process is given besides.
            on_start: called with the process.
            on_part: called when the function is loaded, and when it has answered.

        Raises:
            RunFailedError: it cannot be started; and from what is returned, the function could not
                be loaded, raised an error, gave a wrong answer or none, or has ended.
        """
        path = self.folder / f"errors-{uuid.uuid4().hex}"
        with path.open("wb") as errors:
            process = self.start(
                command,
                cwd=target.folder,
                environment=target.environment,
                descriptors=descriptors,
                errors=errors,
            )

        if on_start is not None:
            on_start(process)

        def converse() -> None:
            assert process.stdin is not None, "it is a pipe"
            if self._line(target, process) is None:
                raise self._ended(target, process, path, "before it was loaded")
            if on_part is not None:
                on_part()
            for number in range(1, invocations + 1):
                deadline = time.time() + self._rest_s()
                order = {"id": str(uuid.uuid4()), "event": target.event, "deadline": deadline}
                try:
                    process.stdin.write(json.dumps(order).encode() + b"\n")
                    process.stdin.flush()
                except OSError:
                    answer = None
                else:
                    answer = self._line(target, process)
                if answer is None:
                    raise self._ended(target, process, path, f"in invocation {number}")
                if on_part is not None:
                    on_part()
                target.check(answer)
            process.stdin.close()
            try:
                code = process.wait(self._rest_s())
            except subprocess.TimeoutExpired:
                raise self._late(target) from None
            if code:
                raise self._ended(target, process, path, "at its end")

        return converse

    def _line(self, target: Target, process: subprocess.Popen[bytes]) -> Any:
        """The next line of JSON that a process writes; None if it ends first.

        Raises:
            RunFailedError: it writes none in time, or it is no JSON.
        """
        assert process.stdout is not None, "it is a pipe"
        line = b""
        while not line.endswith(b"\n"):
            rest = self.deadline - time.monotonic()
            if rest <= 0 or not select.select([process.stdout], [], [], rest)[0]:
                raise self._late(target)
            read = os.read(process.stdout.fileno(), _CHUNK)
            if not read:
                return None
            line += read
        try:
            return json.loads(line)
        except ValueError as error:
            message = f"an answer of {target.label} is no JSON: {line[:80]!r}"
            raise RunFailedError(message) from error

    def _rest_s(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def _late(self, target: Target) -> RunFailedError:
        return RunFailedError(
            f"{target.label} was not ready within {self._timeout_s:g} s",
            hint="It is ten and more times slower here than alone: give it longer with --timeout.",
        )

    def _ended(
        self, target: Target, process: subprocess.Popen[bytes], errors: Path, when: str
    ) -> RunFailedError:
        # It has closed its output, and may run on.
        try:
            code = process.wait(self._rest_s())
        except subprocess.TimeoutExpired:
            return self._late(target)
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last_lines = "".join(f"\n{line}" for line in lines[-_LAST_LINES:])
        return RunFailedError(f"the process of {target.label} ended {when}, {how}{last_lines}")

    def converse_all(
        self, conversations: Sequence[Callable[[], None]], meanwhile: Callable[[], None]
    ) -> None:
        """Invoke functions beside each other, and do something meanwhile.

        Args:
            conversations: as `invoke` returns them.
            meanwhile: what this thread does; it ends when the processes have.

        Raises:
            UnciaError: the first error of any; everything is stopped then.
        """
        failures: list[BaseException] = []

        def talk(converse: Callable[[], None]) -> None:
            try:
                converse()
            except BaseException as error:  # noqa: BLE001  # the thread that waits raises it
                failures.append(error)
                self.stop()

        threads = [
            threading.Thread(target=talk, args=(each,), daemon=True) for each in conversations
        ]
        for thread in threads:
            thread.start()
        try:
            meanwhile()
        except RunFailedError as error:
            # Of what was stopped, the reason is more to the point.
            failures.append(error)
        finally:
            # When this thread was interrupted or has failed; else they have ended.
            if sys.exc_info()[0] is not None or failures:
                self.stop()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]
