"""Starts the servers of a framework that serve a function, and ends with its input.

    python server_host.py < CONFIG

The first line of the input is the configuration in JSON; its end is the order to end. Prints
``{"port": N}`` when the function is served, on the loopback interface; or ``{"error": SENTENCE}``.
After the input's end it prints ``{"ended": SENTENCE}`` if a server had ended before.

Configuration: the ``servers``, each before the one that is named before it (``command`` and
``environment``, in which ``{port}``, ``{other_port}`` and ``{upstream_port}`` are replaced;
``variables`` besides, as they are; ``ready``: a path, or null; ``files`` in the ``folder``, each
with the text that stands for the port there); ``folder``; ``groups`` as in native_host.py;
``isolated``: whether they need a network namespace; ``timeout`` in s; ``path``, where requests go;
and ``serial``: how many are started that take one request at a time, 0 if they take several.
"""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

# As a program it stands beside what it imports.
if TYPE_CHECKING or __package__:
    from uncia.platforms.shims import reaper
    from uncia.platforms.shims.native_host import Pool, Process, join, serve
else:
    import reaper
    from native_host import Pool, Process, join, serve

READY_TIMEOUT_S = 60.0
POLL_S = 0.02
LAST_BYTES = 2_000
BLOCK = 1 << 16
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


class NotServed(OSError):
    """The servers do not serve; says why."""


def free_port() -> int:
    """A port of the loopback interface on which nobody listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Servers:
    """The servers of a framework, each before the one that was started before it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.children: list[subprocess.Popen[bytes]] = []
        self.port = 0
        for number, server in enumerate(config["servers"]):
            self.start(server, Path(config["folder"]) / f".uncia-{number}.log")

    def start(self, server: dict[str, Any], log: Path) -> None:
        """Start a server before the last one, and wait until it serves."""
        upstream, self.port = self.port, free_port()
        names = {"port": self.port, "other_port": free_port(), "upstream_port": upstream}

        def filled(text: str) -> str:
            for name, value in names.items():
                text = text.replace(f"{{{name}}}", str(value))
            return text

        for name, stands_for_port in server["files"].items():
            path = Path(self.config["folder"]) / name
            text = path.read_text(encoding="utf-8").replace(stands_for_port, str(self.port))
            path.write_text(text, encoding="utf-8")
        with log.open("ab") as file:
            child = reaper.start(
                [filled(text) for text in server["command"]],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=self.config["folder"],
                env={
                    **server["variables"],
                    **{name: filled(text) for name, text in server["environment"].items()},
                },
            )
        self.children.append(child)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self.answers(server["ready"]):
            if child.poll() is not None or time.monotonic() > deadline:
                self.end()
                output = log.read_bytes()[-LAST_BYTES:].decode(errors="replace").strip()
                raise NotServed(f"{server['name']} does not serve: {output or 'it said nothing'}")
            time.sleep(POLL_S)

    def answers(self, path: str | None) -> bool:
        """Whether the last server does: to a request, or its port."""
        try:
            if path is None:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return True
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            with contextlib.closing(connection):
                connection.request("GET", path)
                return 200 <= connection.getresponse().status < 300
        except (OSError, http.client.HTTPException):
            return False

    def ended(self) -> str:
        """A sentence on a server that has ended; empty if all run."""
        for server, child in zip(self.config["servers"], self.children, strict=True):
            if child.poll() is not None:
                return f"{server['name']} ended with exit code {child.returncode}"
        return ""

    def end(self) -> None:
        """End all with what they have started, the last one first."""
        for child in reversed(self.children):
            if child.poll() is None:  # else nothing is left of it
                reaper.end_tree(child.pid)
                child.wait()


class Serial(Process):
    """Servers that take one request at a time."""

    IS_LATE = True

    def __init__(self, config: dict[str, Any]) -> None:
        self.began = time.time_ns()
        self.name = os.urandom(16).hex()
        self.is_fresh = True
        self.servers = Servers(config)
        self.path = config["path"]

    def line(self, timeout_s: float) -> Any:
        """It serves: what it takes to load the function is of the first request."""
        return {}

    def ask(self, order: dict[str, Any], timeout_s: float) -> Any:
        """The answer; None if none comes in time, or it is not the shim's."""
        port = self.servers.port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        headers = {"content-type": "application/json"}
        try:
            with contextlib.closing(connection):
                connection.request("POST", self.path, json.dumps(order["event"]).encode(), headers)
                answer = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            return None
        return answer if isinstance(answer, dict) and "started" in answer else None

    def end(self) -> tuple[int, int] | None:
        """End it; what the processes that it has started used is not known."""
        self.servers.end()
        return None


async def relay(listener: socket.socket, port: int) -> None:
    """Pass on what comes to a socket of another network namespace, to a port of this one."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(BLOCK):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, upstream[1]), copy(upstream[0], writer))

    server = await asyncio.start_server(accepted, sock=listener)
    loop = asyncio.get_running_loop()
    ended = loop.create_task(server.serve_forever())
    await loop.run_in_executor(None, sys.stdin.read)
    ended.cancel()


def isolate() -> None:
    """Give this process a network namespace with nothing but a loopback interface.

    Raises:
        NotServed: it may not.
    """
    import fcntl  # Not on every system, where this module can be imported all the same.

    if reaper.LIBC.unshare(CLONE_NEWNET):
        raise NotServed("a network namespace needs root, and the framework needs that")
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", IFF_UP)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)


def run(config: dict[str, Any]) -> None:
    """Serve until the input ends.

    Raises:
        NotServed: a server does not.
    """
    listener = None
    if config["isolated"]:
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        isolate()
    servers = Servers(config)
    port = servers.port if listener is None else listener.getsockname()[1]
    print(json.dumps({"port": port}), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: reaper.leave())
    if listener is None:
        sys.stdin.read()
    else:
        asyncio.run(relay(listener, servers.port))
    print(json.dumps({"ended": servers.ended()}), flush=True)
    servers.end()


def main() -> None:
    """Serve as the first line of the input says."""
    config = json.loads(sys.stdin.readline())
    join(config)
    reaper.adopt()
    try:
        if config["serial"]:
            serve(Pool(config | {"mode": "warm", "processes": config["serial"]}, Serial))
        run(config)
    except OSError as error:  # a program that cannot be started, too
        print(json.dumps({"error": str(error)}), flush=True)
    reaper.leave()


if __name__ == "__main__":
    main()
