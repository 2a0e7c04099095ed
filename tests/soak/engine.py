"""``uncia-engine serve`` as a process that is killed, and its API without a library between."""

import base64
import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pyarrow as pa
import pyarrow.ipc

_DIRECT = build_opener(ProxyHandler({}))
_REQUEST_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0


class Unanswered(Exception):
    """The connection broke, or nothing came, before the answer was complete."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return self.headers.get("x-amzn-errortype", "")


class Engine:
    """One process of the engine on a state folder; several follow each other there."""

    def __init__(self, binary: Path, state: Path, config: dict[str, Any]) -> None:
        self.state = state
        file = state.with_suffix(".json")
        file.write_text(json.dumps(config))
        self.log = state.with_suffix(".log")
        command = [str(binary), "serve", "--listen", "127.0.0.1:0", "--state", str(state)]
        self._started = time.monotonic()
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, "--config", str(file)], stdout=subprocess.PIPE, stderr=errors
            )
        self.address = ""
        self.start_s = 0.0

    def wait_ready(self) -> None:
        """Wait until it serves.

        Raises:
            AssertionError: it ended instead; with the end of its log.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.start_s = time.monotonic() - self._started
        assert line, f"the engine did not start: {self.log_tail()}"
        self.address = json.loads(line)["address"]

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-2_000:]

    def kill(self) -> None:
        """End it without notice, if it has not ended."""
        self.process.kill()
        self._reap()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        if self.process.poll() is None:
            self.terminate()
        return self._reap()

    def _reap(self) -> int:
        code = self.process.wait(timeout=_STOP_TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """CPU time of the process so far, without that of its children."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def health(self) -> dict[str, Any]:
        with _DIRECT.open(f"http://{self.address}/uncia/v1/health", timeout=60) as answer:
            health: dict[str, Any] = json.load(answer)
        return health

    def rows(self, table: str = "invocations", after: int = 0) -> tuple[list[dict[str, Any]], int]:
        """The rows of a table after an id, and the id of the last."""
        result: list[dict[str, Any]] = []
        more = True
        while more:
            url = f"http://{self.address}/uncia/v1/{table}?after={after}"
            with _DIRECT.open(url, timeout=60) as answer:
                after = int(answer.headers["x-uncia-last-rowid"])
                more = answer.headers["x-uncia-more"] == "true"
                result += pa.ipc.open_stream(answer.read()).read_all().to_pylist()
        return result, after


class Connection:
    """A client's connection: what is sent is sent once, whatever becomes of it."""

    def __init__(self) -> None:
        self._address = ""
        self._http: http.client.HTTPConnection | None = None

    def request(
        self,
        address: str,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        if self._http is None or address != self._address:
            self.close()
            self._address = address
            self._http = http.client.HTTPConnection(address, timeout=_REQUEST_TIMEOUT_S)
        try:
            self._http.request(method, path, body, headers or {})
            response = self._http.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unanswered(str(error)) from error
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, named, content)

    def close(self) -> None:
        if self._http is not None:
            with contextlib.suppress(OSError):
                self._http.close()
        self._http = None


def creation(name: str, zip_file: bytes, **settings: Any) -> bytes:
    """The body of CreateFunction."""
    body = {
        "FunctionName": name,
        "Runtime": "python3.11",
        "Handler": "handler.handler",
        "Role": "arn:aws:iam::000000000000:role/any",
        "Code": {"ZipFile": base64.b64encode(zip_file).decode()},
        "MemorySize": 512,
        "Timeout": 10,
    }
    return json.dumps(body | settings).encode()
