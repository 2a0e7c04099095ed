"""Serves a function over HTTP by containers of a Docker Engine, each for one request at a time.

    python docker_host.py < CONFIG

The first line of the input is the configuration in JSON; each other line asks what has happened
since the last one, and its end is the order to end, with all containers. Prints ``{"port": N}``
when it listens, on the loopback interface, and for each line that asks ``{"invocations": [...],
"spans": [...], "instances": [...], "problems": {SENTENCE: COUNT}}``; the last one after the
input's end. Times in Unix ns.

Configuration: the ``socket`` of the Engine; the ``function``; ``prefix`` of containers' names; the
``container`` as the Engine creates one, which serves at ``port``; whether to ``connect`` to its
``address`` or to the ``port`` that the Engine publishes; ``concurrency``, the most containers;
whether those that ``idle`` are ``live`` or ``paused``; ``keep_alive`` in s, after which they are
removed (0: each serves one request), or null; ``timeout`` in s; and ``allocated``, columns of rows.
"""

import collections
import concurrent.futures
import contextlib
import json
import queue
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

# As a program it stands beside what it imports.
if TYPE_CHECKING or __package__:
    from uncia.platforms.shims.docker_container import Container, Log, NotServedError
    from uncia.platforms.shims.docker_engine import Engine, EngineError
    from uncia.platforms.shims.native_host import Handler, Server
    from uncia.platforms.shims.python_handler import response, unanswered
else:
    from docker_container import Container, Log, NotServedError
    from docker_engine import Engine, EngineError
    from native_host import Handler, Server
    from python_handler import response, unanswered

REMOVERS = 8
SWEEP_S = 0.02

Answer = tuple[int, dict[str, Any], bytes]


class Pool:
    """The containers of a function; a request waits for one, in order."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.engine = Engine(config["socket"])
        self.log = Log(config["function"], config["allocated"])
        self.lock = threading.Lock()
        self.idle: list[Container] = []
        """What was used last is last, and is used first."""
        self.waiting: collections.deque[queue.SimpleQueue[Container | None]] = collections.deque()
        self.places = config["concurrency"]
        """How many more containers there may be."""
        self.numbers = 0
        self.has_ended = False
        self.workers = concurrent.futures.ThreadPoolExecutor(REMOVERS)
        # With 0 s nothing is idle: see `give`.
        if config["keep_alive"]:
            threading.Thread(target=self.sweep, daemon=True).start()

    def take(self) -> Container | None:
        """A container, when it is this caller's turn; None: it is to start one."""
        with self.lock:
            # Where what was used last is too old, all is, and about to be removed.
            if self.idle and not self.is_old(self.idle[-1]):
                return self.idle.pop()
            if self.places:
                self.places -= 1
                return None
            turn: queue.SimpleQueue[Container | None] = queue.SimpleQueue()
            self.waiting.append(turn)
        return turn.get()

    def give(self, container: Container | None) -> None:
        """Give a container back, or the place of one that is gone."""
        with self.lock:
            is_spent = self.config["keep_alive"] == 0 and not self.has_ended
            if container is not None and is_spent:
                # Whoever waits has a fresh one, and its place only when this one is gone.
                self.later(self.drop, container)
                return
            if self.waiting:
                self.waiting.popleft().put(container)
                return
            if container is None:
                self.places += 1
                return
            container.idle_since = time.monotonic()
            self.idle.append(container)
            if self.config["idle"] == "paused":
                self.later(self.pause, container)

    def later(self, what: Callable[[Container], None], container: Container) -> None:
        """Have a worker do something with a container; its caller has the lock.

        After the end there are no workers, and all containers are removed.
        """
        if not self.has_ended:
            self.workers.submit(what, container)

    def is_old(self, container: Container) -> bool:
        """Whether a container has been idle for too long."""
        keep_alive = self.config["keep_alive"]
        return keep_alive is not None and container.idle_since <= time.monotonic() - keep_alive

    def pause(self, container: Container) -> None:
        """Pause a container, unless it serves again."""
        with container.lock:
            with self.lock:
                if container not in self.idle:
                    return
            try:
                container.pause()
            except EngineError as error:
                self.log.problem(error)

    def sweep(self) -> None:
        """Remove what has been idle for too long, until the end."""
        while not self.has_ended:
            with self.lock:
                old = [it for it in self.idle if self.is_old(it)]
                self.idle = [it for it in self.idle if it not in old]
                for container in old:
                    self.later(self.drop, container)
            time.sleep(SWEEP_S)

    def drop(self, container: Container) -> None:
        """Remove a container that was idle, and give its place back."""
        try:
            with container.lock:
                self.end_one(container, "keep_alive")
        finally:
            self.give(None)

    def end_one(self, container: Container, reason: str) -> None:
        """Remove a container; what keeps it is noted."""
        try:
            container.remove(reason)
        except EngineError as error:
            self.log.problem(error)

    def start(self, invocation: str | None) -> Container:
        """Start a container for an invocation.

        Raises:
            EngineError: the Engine does not.
            NotServedError: it does not serve.
        """
        with self.lock:
            if self.has_ended:
                raise NotServedError("the platform ends")
            self.numbers += 1
            container = Container(self.engine, self.config, self.log, self.numbers)
        try:
            container.start(invocation)
        except BaseException:
            self.end_one(container, "init_error")
            raise
        return container

    def serve(self, event: Any, invocation: str | None) -> Answer:
        """Status, headers and body of the answer to an event."""
        arrived = time.time_ns()
        container = self.take()
        kept: Container | None = None
        try:
            began = time.time_ns()
            start = "cold"
            if container is None:
                container = self.start(invocation)
            else:
                with container.lock:
                    start = "thawed" if container.thaw(invocation) else "warm"
            kept, answer = self.served(container, event, start, (arrived, began), invocation)
            return answer
        except (EngineError, NotServedError) as error:
            self.log.problem(error)
            if container is not None:
                self.end_one(container, "crash")
            self.log.invocation(invocation, {}, "function_error")
            return 503, {}, unanswered("NotStarted", str(error))
        except BaseException:
            # Nobody else knows of the container, which would stay beside the next one.
            if container is not None:
                self.end_one(container, "crash")
            self.log.invocation(invocation, {}, "function_error")
            raise
        finally:
            self.give(kept)

    def served(
        self,
        container: Container,
        event: Any,
        start: str,
        times: tuple[int, int],
        invocation: str | None,
    ) -> tuple[Container | None, Answer]:
        """The container, if it stays, and its answer; ``times``: of arrival and of the start."""
        arrived, began = times
        timeout_s = self.config["timeout"]
        order = {"id": str(uuid.uuid4()), "event": event, "deadline": time.time() + timeout_s}
        container.begins()
        asked = time.monotonic()
        answer = container.ask(order, timeout_s)
        headers: dict[str, Any] = {"x-uncia-instance": container.id, "x-uncia-start": start}
        headers |= {
            f"x-uncia-{name.replace('_', '-')}": value
            for name, value in self.config["allocated"].items()
        }
        container.ends(is_answered=answer is not None)
        if answer is None:
            headers["x-uncia-queued-ns"] = began - arrived
            if time.monotonic() - asked >= timeout_s:
                headers["x-uncia-outcome"] = "timeout"
                self.end_one(container, "timeout")
                message = unanswered("Timeout", f"no answer within {timeout_s} s")
                self.log.invocation(invocation, headers, "timeout")
                return None, (504, headers, message)
            reason, sentence = container.ending()
            self.end_one(container, reason)
            message = unanswered("Exited", sentence)
            self.log.invocation(invocation, headers, "function_error")
            return None, (502, headers, message)
        reached = answer["started"]
        if start == "cold":
            headers["x-uncia-queued-ns"] = began - arrived
            headers["x-uncia-initialization-ns"] = max(0, reached - began)
        else:
            headers["x-uncia-queued-ns"] = max(0, reached - arrived)
        if "result" in answer:
            answer["result"] = json.dumps(answer["result"])
        status, measured, body = response(answer)
        outcome = "ok" if status == 200 else "function_error"
        self.log.invocation(invocation, headers | measured, outcome)
        return container, (status, headers | measured, body)

    def end(self) -> None:
        """Remove all containers, also those that serve."""
        with self.lock:
            self.has_ended = True
            self.idle = []
        list(self.workers.map(lambda it: self.end_one(it, "shutdown"), self.log.living()))
        self.workers.shutdown()


class Requests(Handler):
    """Passes each request's body on, as the event, with the client's name of the invocation."""

    containers: Pool

    def served(self, event: Any) -> Answer:
        """The answer to an event."""
        return self.containers.serve(event, self.headers.get("x-uncia-invocation"))


def main() -> None:
    """Serve by containers until the input ends."""
    pool = Pool(json.loads(sys.stdin.readline()))
    Requests.containers = pool
    server = Server(("127.0.0.1", 0), Requests)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for _ in sys.stdin:
            print(json.dumps(pool.log.new()), flush=True)
    finally:
        server.shutdown()
        pool.end()
    # Whoever would read it may be gone.
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(pool.log.new()), flush=True)
        sys.stdout.close()


if __name__ == "__main__":
    main()
