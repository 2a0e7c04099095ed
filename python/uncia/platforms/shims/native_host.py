"""Serves a function over HTTP by bare processes: one for each request, or some that stay.

    python native_host.py < CONFIG

The first line of the input is the configuration in JSON; its end is the order to end, so that the
server ends with whoever started it. Prints ``{"port": N}`` when it listens, on the loopback
interface.

Configuration: ``mode`` (start, warm), ``processes`` that run at once at most, the ``command`` of a
process, its ``environment`` and ``folder``, ``timeout`` in s, and ``groups``: files through which
this process joins its control groups.
"""

import collections
import concurrent.futures
import contextlib
import http.server
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

# As a program it stands beside what it imports.
if TYPE_CHECKING or __package__:
    from uncia.platforms.shims import reaper
    from uncia.platforms.shims.python_handler import response, unanswered
else:
    import reaper
    from python_handler import response, unanswered

MOST_BODY = 64 << 20
STARTED_TIMEOUT_S = 60


class Process:
    """A process of the function: it answers events, one after the other."""

    IS_LATE = False
    """Whether it is started by its first event."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.began = time.time_ns()
        self.name = uuid.uuid4().hex
        self.is_fresh = True
        self.spent = reaper.Spent()
        self.child = reaper.start(
            config["command"],
            spent=self.spent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=config["folder"],
            env=config["environment"],
        )

    def ask(self, order: dict[str, Any], timeout_s: float) -> Any:
        """The answer; None if none comes in time, or the process has ended."""
        assert self.child.stdin is not None, "it is a pipe"
        try:
            self.child.stdin.write(json.dumps(order).encode() + b"\n")
            self.child.stdin.flush()
        except OSError:
            return None
        return self.line(timeout_s)

    def line(self, timeout_s: float) -> Any:
        """What it says next: that it has loaded the function, or an answer; None as in `ask`."""
        assert self.child.stdout is not None, "it is a pipe"
        deadline, line = time.monotonic() + timeout_s, b""
        while not line.endswith(b"\n"):
            rest = max(0.0, deadline - time.monotonic())
            if not select.select([self.child.stdout], [], [], rest)[0]:
                return None
            read = os.read(self.child.stdout.fileno(), 1 << 16)
            if not read:
                return None
            line += read
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            # What a child of the function's has printed between the answers.
            return None

    def end(self) -> tuple[int, int] | None:
        """Kill it with all that it has started; user and system CPU time in ns of their lives.

        Of the reaper above them, what it takes to end is in it. None if that is not known.
        """
        if self.child.returncode is not None:
            return None  # it was ended before
        user, system = reaper.end_tree(self.child.pid)
        spent_user, spent_system = self.spent.times()
        for pipe in (self.child.stdin, self.child.stdout):
            with contextlib.suppress(OSError):  # what it was not given is lost with it
                if pipe is not None:
                    pipe.close()
        self.child.wait()
        # The kernel divides times into both by samples: what one has too little is in the other.
        user, system = user - spent_user, system - spent_system
        return max(0, user + min(0, system)), max(0, system + min(0, user))


class Places:
    """Places that are given to those who wait for one, in order.

    `queue.Queue` gives one to whoever comes first when it is free, before those who wait.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.free: collections.deque[Process | None] = collections.deque()
        self.waiting: collections.deque[queue.SimpleQueue[Process | None]] = collections.deque()

    def get(self) -> Process | None:
        """A place, when it is this caller's turn."""
        with self.lock:
            if self.free:
                return self.free.popleft()
            turn: queue.SimpleQueue[Process | None] = queue.SimpleQueue()
            self.waiting.append(turn)
        return turn.get()

    def put(self, place: Process | None) -> None:
        """Give a place back."""
        with self.lock:
            if self.waiting:
                self.waiting.popleft().put(place)
            else:
                self.free.append(place)


class Pool:
    """The places in which processes run; a request waits for one, in order."""

    def __init__(self, config: dict[str, Any], kind: type[Process] = Process) -> None:
        self.config = config
        self.kind = kind
        self.places = Places()
        # To the kernel a process' parent is the thread that started it: one that stays is not of a
        # thread that ends with its client's connection.
        self.starter = concurrent.futures.ThreadPoolExecutor(1)
        is_warm = config["mode"] == "warm"
        places = [self.start() if is_warm else None for _ in range(config["processes"])]
        for place in places:
            if place is not None:
                place.line(STARTED_TIMEOUT_S)
            self.places.put(place)

    def start(self) -> Process:
        """A process that stays."""
        return self.starter.submit(self.kind, self.config).result()

    def renew(self) -> None:
        """Give back a place with another process in it, when that has loaded the function."""
        process = None
        try:
            process = self.start()
            process.line(STARTED_TIMEOUT_S)
        except OSError:
            pass  # it is tried again with the next request
        finally:
            self.places.put(process)

    def serve(self, event: Any) -> tuple[int, dict[str, Any], bytes]:
        """Status, headers and body of the answer to an event."""
        arrived = time.time_ns()
        process = self.places.get()
        try:
            kept, answer = self.served(process, event, arrived)
        except BaseException:
            # The place must not be lost with what could not be started.
            if process is not None:
                process.end()
            self.places.put(None)
            raise
        if kept is None and self.config["mode"] == "warm":
            threading.Thread(target=self.renew, daemon=True).start()
        else:
            self.places.put(kept)
        return answer

    def served(
        self, process: Process | None, event: Any, arrived: int
    ) -> tuple[Process | None, tuple[int, dict[str, Any], bytes]]:
        """The process that stays, if any, and the answer to an event that came at ``arrived``."""
        taken = time.time_ns()
        is_new = process is None
        process = process or (
            self.start() if self.config["mode"] == "warm" else self.kind(self.config)
        )
        timeout_s = self.config["timeout"]
        if is_new:
            process.line(STARTED_TIMEOUT_S)
        order = {"id": str(uuid.uuid4()), "event": event, "deadline": time.time() + timeout_s}
        begun = time.monotonic()
        answer = process.ask(order, timeout_s)
        is_late = answer is None and time.monotonic() - begun >= timeout_s
        headers: dict[str, Any] = {
            "x-uncia-instance": process.name,
            "x-uncia-queued-ns": taken - arrived,
        }
        # Where a runtime is started by the first request, that is its start.
        is_cold = is_new or (process.is_fresh and process.IS_LATE)
        began = process.began if is_new else taken
        headers["x-uncia-start"] = "cold" if is_cold else "warm"
        kept = process if self.config["mode"] == "warm" and answer is not None else None
        life: tuple[int, int] | None = None
        if kept is None:
            life = process.end()
        if answer is None:
            if life is not None and process.is_fresh:
                # What it used for events before is not known apart.
                headers |= {"x-uncia-cpu-user-ns": life[0], "x-uncia-cpu-system-ns": life[1]}
            if is_late:
                headers["x-uncia-outcome"] = "timeout"
                message = f"no answer within {timeout_s} s"
                return kept, (504, headers, unanswered("Timeout", message))
            message = "the process ended without an answer"
            return kept, (502, headers, unanswered("Exited", message))
        process.is_fresh = False
        if is_cold:
            headers["x-uncia-initialization-ns"] = max(0, answer["started"] - began)
        if "result" in answer:
            answer["result"] = json.dumps(answer["result"])
        status, measured, body = response(answer)
        return kept, (status, headers | measured, body)

    def end(self) -> None:
        """End those that wait for a request."""
        with self.places.lock:
            free = list(self.places.free)
        for process in free:
            if process is not None:
                process.end()


class Handler(http.server.BaseHTTPRequestHandler):
    """Passes each request's body on, as the event."""

    protocol_version = "HTTP/1.1"
    # One write for an answer's head and body.
    wbufsize = -1
    pool: ClassVar[Pool]

    def do_POST(self) -> None:
        """Serve a request, whatever its method."""
        try:
            length = int(self.headers.get("content-length") or 0)
        except ValueError:
            length = -1
        if length < 0:
            self.close_connection = True
            self.answer(400, {}, unanswered("NoLength", "content-length is no whole number"))
            return
        if length > MOST_BODY or "chunked" in self.headers.get("transfer-encoding", ""):
            self.close_connection = True
            message = f"at most {MOST_BODY} bytes, not chunked"
            self.answer(413, {}, unanswered("TooLarge", message))
            return
        body = self.rfile.read(length)
        try:
            event = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            self.answer(400, {}, unanswered("NoJson", "the body is no JSON"))
            return
        try:
            answer = self.served(event)
        except OSError as error:  # no process can be started
            answer = (503, {}, unanswered("NotStarted", str(error)))
        self.answer(*answer)

    do_GET = do_PUT = do_POST

    def served(self, event: Any) -> tuple[int, dict[str, Any], bytes]:
        """The answer to an event."""
        return self.pool.serve(event)

    def answer(self, status: int, headers: dict[str, Any], body: bytes) -> None:
        """Send an answer; headers that are None are left out."""
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, str(value))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: rows say it."""


class Server(http.server.ThreadingHTTPServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 1024

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take a connection on which nothing waits for more to send."""
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address


def join(config: dict[str, Any]) -> None:
    """Join the control groups of a configuration."""
    for file in config["groups"]:
        Path(file).write_text("0", encoding="ascii")


def serve(pool: Pool) -> None:
    """Serve by these processes until the input ends."""
    Handler.pool = pool
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: reaper.leave())
    sys.stdin.read()
    server.shutdown()
    pool.end()
    reaper.leave()  # with the processes of requests that are being served


def main() -> None:
    """Serve by bare processes until the input ends."""
    config = json.loads(sys.stdin.readline())
    join(config)
    reaper.adopt()
    serve(Pool(config))


if __name__ == "__main__":
    main()
