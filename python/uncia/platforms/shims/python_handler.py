"""Runs a function's handler once for each line of its input, bare.

    python python_handler.py MODULE.FUNCTION NAME < EVENTS > ANSWERS

An event is a line of JSON: its ``id``, the ``event``, and the ``deadline`` in Unix seconds. So is
an answer: ``result``, or ``type`` and ``message`` of what was raised; when the handler began and
ended, in Unix ns; and the CPU time in ns that the process used meanwhile. Before the first answer
an empty object says that the function is loaded.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Context:
    """What a handler learns of its invocation, as far as there is anything to say."""

    def __init__(self, name: str, order: dict[str, Any]) -> None:
        self.function_name = name
        self.function_version = "$LATEST"
        self.aws_request_id = order["id"]
        self.log_group_name = self.log_stream_name = ""
        self._deadline = order["deadline"]

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the invocation may go on."""
        return max(0, int((self._deadline - time.time()) * 1_000))


def cpu_clock() -> Callable[[], tuple[int, int]]:
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


def main() -> None:
    """Answer events until there are no more."""
    name, function = sys.argv[1:]
    # What the function prints goes elsewhere than its answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Nor are the events for what it starts.
    events = os.fdopen(os.dup(0), encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.path.insert(0, str(Path.cwd()))
    module, _, attribute = name.rpartition(".")
    handler = getattr(importlib.import_module(module.replace("/", ".")), attribute)
    used = cpu_clock()
    answers.write("{}\n")  # loaded
    answers.flush()
    for line in events:
        order = json.loads(line)
        # The clock first and last, so that one thread's CPU time is not longer than the execution.
        started = time.time_ns()
        user, system = used()
        try:
            answer = {"result": handler(order["event"], Context(function, order))}
            text = json.dumps(answer)
        except Exception as error:  # noqa: BLE001  # whatever a function raises is its answer
            text = json.dumps({"type": type(error).__name__, "message": str(error)})
        after = used()
        ended = time.time_ns()
        times = {
            "started": started,
            "ended": ended,
            "user": after[0] - user,
            "system": after[1] - system,
        }
        answers.write(text[:-1] + ", " + json.dumps(times)[1:] + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
