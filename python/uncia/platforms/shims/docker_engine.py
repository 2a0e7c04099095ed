"""The Engine API of Docker at a unix socket: JSON in, JSON out.

Requests name no version of the API, so that the Engine takes its latest. Podman's compatible
service is such an Engine, too. Source: docs.docker.com/reference/api/engine.
"""

import contextlib
import http.client
import json
import os
import socket
import time
import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TIMEOUT_S = 60.0
"""Between two bytes of an answer."""
MOST_ANSWER = 64 << 20
BLOCK = 1 << 16
_ROOM_S = 0.01
"""Between two attempts to connect to an Engine whose queue of connections is full."""
_START = "Start it (systemctl start docker), or name its socket: DOCKER_HOST, or the option socket."


class EngineError(OSError):
    """What went wrong between this process and the Engine: a sentence, and what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RefusedError(EngineError):
    """The Engine answers that it cannot do what it was asked."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Connection(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("docker", timeout=timeout_s)
        self._path = Path(path).absolute()
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connect, by way of the socket's folder, since an address has room for 107 bytes."""
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            near = Path(f"/proc/self/fd/{folder}")
            is_linux = near.exists()
            connection.settimeout(self._timeout_s)
            self._await(connection, str(near / self._path.name if is_linux else self._path))
        except BaseException:
            connection.close()
            raise
        finally:
            os.close(folder)
        self.sock = connection

    def _await(self, connection: socket.socket, address: str) -> None:
        """Connect as soon as there is room for it."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                connection.connect(address)
            except BlockingIOError as error:
                # A socket with a time limit does not wait by itself for a place in the queue.
                if time.monotonic() > deadline:
                    message = f"it took no connection for {self._timeout_s:g} s"
                    raise TimeoutError(message) from error
                time.sleep(_ROOM_S)
            else:
                return


class Engine:
    """An Engine, by its socket; each request has a connection of its own."""

    def __init__(self, path: str, timeout_s: float = TIMEOUT_S) -> None:
        self.path = path
        self.timeout_s = timeout_s

    def version(self) -> dict[str, Any]:
        """What the Engine says of itself.

        Raises:
            EngineError: none answers there.
        """
        answer = self.ask("GET", "/version")
        if not isinstance(answer, dict) or "ApiVersion" not in answer:
            raise self._garbage("its version is none")
        return answer

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        blocks: Iterable[bytes] | None = None,
    ) -> Any:
        """Send a request; what the answer says, a list of what it said where it said several.

        Args:
            method: such as ``POST``.
            path: without a version.
            body: sent as JSON, if it is not None.
            query: its parameters; what is no text is sent as JSON.
            blocks: an archive, sent instead of a body.

        Raises:
            RefusedError: the Engine cannot do it.
            EngineError: no Engine answers.
        """
        return self._documents(self.raw(method, path, query, body, blocks))

    def raw(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        blocks: Iterable[bytes] | None = None,
    ) -> bytes:
        """Send a request as `ask` does; the bytes of the answer.

        Raises:
            EngineError: as `ask`.
        """
        given = {
            key: it if isinstance(it, str) else json.dumps(it) for key, it in (query or {}).items()
        }
        target = f"{path}?{urllib.parse.urlencode(given)}" if given else path
        connection = _Connection(self.path, self.timeout_s)
        try:
            status, content = self._exchange(connection, method, target, body, blocks)
        finally:
            connection.close()
        if status >= 400:
            raise RefusedError(status, _message(status, content))
        return content

    def _exchange(
        self,
        connection: _Connection,
        method: str,
        target: str,
        body: Any,
        blocks: Iterable[bytes] | None,
    ) -> tuple[int, bytes]:
        """Status and body of an answer.

        Raises:
            EngineError: there is none.
        """
        try:
            connection.connect()
        except FileNotFoundError as error:
            raise EngineError(
                f"no Docker Engine is at {self.path}: no such file", _START
            ) from error
        except ConnectionRefusedError as error:
            message = f"no Docker Engine listens at {self.path}: the connection was refused"
            raise EngineError(message, _START) from error
        except PermissionError as error:
            message = f"this user may not use the Docker Engine at {self.path}"
            hint = "Become a member of the group that its socket belongs to, or run as root."
            raise EngineError(message, hint) from error
        except OSError as error:
            reason = error.strerror or error
            message = f"the Docker Engine at {self.path} cannot be reached: {reason}"
            raise EngineError(message, _START) from error
        try:
            # What refuses before it has read all may have said why.
            with contextlib.suppress(BrokenPipeError):
                _send(connection, method, target, body, blocks)
            answer = connection.getresponse()
            content = answer.read(MOST_ANSWER)
            # Of a part that was asked for, it does not check that.
            if answer.length:
                raise http.client.IncompleteRead(content, answer.length)
        except TimeoutError as error:
            message = f"the Docker Engine at {self.path} was silent for {self.timeout_s:g} s"
            raise EngineError(f"{message} ({method} {target})") from error
        except (ConnectionError, http.client.IncompleteRead) as error:
            message = f"the Docker Engine at {self.path} broke off"
            raise EngineError(f"{message} ({method} {target})", _START) from error
        except http.client.HTTPException as error:
            raise self._garbage(f"{type(error).__name__}: {str(error)[:100].strip()}") from error
        return answer.status, content

    def _documents(self, content: bytes) -> Any:
        text = content.decode(errors="replace").strip()
        if not text:
            return None
        try:
            return json.loads(text)
        except ValueError:
            pass
        try:
            return [json.loads(line) for line in text.splitlines()]
        except ValueError as error:
            raise self._garbage("the answer is no JSON") from error

    def _garbage(self, reason: str) -> EngineError:
        return EngineError(f"what answers at {self.path} is no Docker Engine ({reason})", _START)


def _send(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: Any,
    blocks: Iterable[bytes] | None,
) -> None:
    if blocks is None:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        connection.request(method, target, content, headers)
    else:
        headers = {"content-type": "application/x-tar", "transfer-encoding": "chunked"}
        connection.request(method, target, blocks, headers, encode_chunked=True)


def _message(status: int, content: bytes) -> str:
    """What an answer says is wrong."""
    try:
        return str(json.loads(content)["message"]).strip()
    except (ValueError, KeyError, TypeError):
        return f"status {status}: {content[:200].decode(errors='replace').strip()}"


def containers(engine: Engine, label: str) -> list[str]:
    """The ids of containers with a label ``KEY=VALUE``, whether they run or not."""
    query = {"all": "true", "filters": {"label": [label]}}
    return [str(it["Id"]) for it in engine.ask("GET", "/containers/json", query=query) or []]


def images(engine: Engine, label: str) -> list[str]:
    """The ids of images with a label ``KEY=VALUE``."""
    query = {"filters": {"label": [label]}}
    return [str(it["Id"]) for it in engine.ask("GET", "/images/json", query=query) or []]


def remove_container(engine: Engine, name: str) -> None:
    """Kill a container and remove it with its volumes; it may be gone, or be paused.

    Raises:
        EngineError: it cannot be removed.
    """
    query = {"force": "true", "v": "true"}
    try:
        engine.ask("DELETE", f"/containers/{name}", query=query)
    except RefusedError as error:
        if error.status == 404:
            return
        # Engines refuse to kill what is paused, with various codes.
        try:
            engine.ask("POST", f"/containers/{name}/unpause")
        except RefusedError:
            raise error from None
        engine.ask("DELETE", f"/containers/{name}", query=query)


def remove_image(engine: Engine, name: str) -> None:
    """Remove an image with all its names; it may be gone.

    Raises:
        EngineError: it cannot be removed.
    """
    try:
        engine.ask("DELETE", f"/images/{name}", query={"force": "true"})
    except RefusedError as error:
        if error.status != 404:
            raise
