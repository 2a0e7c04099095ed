"""Runs a function's handler once for each line of its input, bare.

    python python_handler.py MODULE.FUNCTION NAME < EVENTS > ANSWERS
    python python_handler.py MODULE.FUNCTION NAME PORT

With a port, in a container, events come and answers go on the first connection to it.
An event is a line of JSON: its ``id``, the ``event``, and the ``deadline`` in Unix seconds. So is
an answer: ``result``, or ``type`` and ``message`` of what was raised; when the handler began and
ended, in Unix ns; and the CPU time in ns that the process used meanwhile. Before the first answer
an empty object says that the function is loaded.

Frameworks that serve functions have it beside the handler, as ``uncia_handler.py``, and call it
from their shims.
"""

import base64
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

NAME = os.urandom(16).hex()
"""Of this process."""
MOST_MESSAGE = 500

Cpu = Callable[[], tuple[int, int]]


class Context:
    """What a handler learns of its invocation, as far as there is anything to say."""

    def __init__(self, name: str, request_id: str, deadline: float) -> None:
        self.function_name = name
        self.function_version = "$LATEST"
        self.aws_request_id = request_id
        self.log_group_name = self.log_stream_name = ""
        self._deadline = deadline

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the invocation may go on."""
        return max(0, int((self._deadline - time.time()) * 1_000))


def cpu_clock() -> Cpu:
    """A function that reads user and system CPU time in ns: of this process and its children.

    Of the latter, those that it has waited for.
    """
    import resource  # Not on every system, where this module can be imported all the same.

    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)

    def used() -> tuple[int, int]:
        usages = [resource.getrusage(each) for each in whose]
        return (
            round(sum(usage.ru_utime for usage in usages) * 1e9),
            round(sum(usage.ru_stime for usage in usages) * 1e9),
        )

    return used


def thread_cpu() -> tuple[int, int]:
    """User and system CPU time in ns of this thread."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return round(usage.ru_utime * 1e9), round(usage.ru_stime * 1e9)


def load(name: str) -> Callable[[Any, Any], Any]:
    """The handler ``MODULE.FUNCTION`` of this folder."""
    sys.path.insert(0, str(Path.cwd()))
    module, _, attribute = name.rpartition(".")
    handler: Callable[[Any, Any], Any] = getattr(
        importlib.import_module(module.replace("/", ".")), attribute
    )
    return handler


def call(
    handler: Callable[[Any, Any], Any],
    event: Any,
    context: Any,
    used: Cpu,
    encode: Callable[[Any], Any] = json.dumps,
) -> dict[str, Any]:
    """Call a handler; its answer, with the ``result`` as ``encode`` makes it."""
    # The clock first and last, so that one thread's CPU time is not longer than the execution.
    started = time.time_ns()
    user, system = used()
    answer: dict[str, Any]
    try:
        answer = {"result": encode(handler(event, context))}
    except Exception as error:  # noqa: BLE001  # whatever a function raises is its answer
        answer = {"type": type(error).__name__, "message": str(error)}
    after = used()
    ended = time.time_ns()
    times = {"started": started, "ended": ended}
    return answer | times | {"user": after[0] - user, "system": after[1] - system}


def unanswered(kind: str, message: str) -> bytes:
    """The body of what is no answer of the function's."""
    return json.dumps({"errorType": kind, "errorMessage": message}).encode()


def response(answer: dict[str, Any]) -> tuple[int, dict[str, Any], bytes]:
    """Status, headers and body of an answer whose result is a text of JSON."""
    headers: dict[str, Any] = {
        "x-uncia-cpu-user-ns": answer["user"],
        "x-uncia-cpu-system-ns": answer["system"],
        "x-uncia-started-unix-ns": answer["started"],
        "x-uncia-ended-unix-ns": answer["ended"],
        "x-uncia-execution-ns": max(0, answer["ended"] - answer["started"]),
    }
    if "type" not in answer:
        return 200, headers, answer["result"].encode()
    headers["x-uncia-outcome"] = "function_error"
    short = unanswered(answer["type"][:MOST_MESSAGE], answer["message"][:MOST_MESSAGE])
    headers["x-uncia-error"] = base64.b64encode(short).decode()
    return 502, headers, unanswered(answer["type"], answer["message"])


def pipes() -> tuple[TextIO, TextIO]:
    """This process' input and output, out of the function's reach."""
    # What the function prints goes elsewhere than its answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Nor are the events for what it starts.
    events = os.fdopen(os.dup(0), encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return events, answers


def connection(port: int) -> tuple[TextIO, TextIO]:
    """Both directions of the first connection to a port."""
    import socket  # Here alone, as loading it takes as long as many a function.

    with socket.create_server(("", port)) as listener:
        accepted, _ = listener.accept()
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return accepted.makefile("r", encoding="utf-8"), accepted.makefile("w", encoding="utf-8")


def main() -> None:
    """Answer events until there are no more."""
    name, function, *port = sys.argv[1:]
    if port:
        handler = load(name)
        events, answers = connection(int(port[0]))
    else:
        events, answers = pipes()
        handler = load(name)
    used = cpu_clock()
    answers.write("{}\n")  # loaded
    answers.flush()
    for line in events:
        order = json.loads(line)
        context = Context(function, order["id"], order["deadline"])
        answer = call(handler, order["event"], context, used)
        result = answer.pop("result", None)
        text = json.dumps(answer)
        answers.write(text if result is None else f'{{"result": {result}, {text[1:]}')
        answers.write("\n")
        answers.flush()


if __name__ == "__main__":
    main()
