"""An action of OpenWhisk that calls a function's handler.

Beside it are ``uncia_handler.py`` and ``uncia_action.json``: the handler, the function's name, and
variables of its environment, which OpenWhisk does not have.
"""

import json
import os
import time
from pathlib import Path

import uncia_handler

FOLDER = Path(__file__).resolve().parent
ACTION = json.loads((FOLDER / "uncia_action.json").read_text(encoding="utf-8"))
DEFAULT_DEADLINE_S = 60

os.environ.update(ACTION["environment"])
os.chdir(FOLDER)
HANDLER = uncia_handler.load(ACTION["handler"])


def main(event):
    """Call the handler with an event; an exception is the action's ``error``."""
    deadline = os.environ.get("__OW_DEADLINE", "")
    until = int(deadline) / 1e3 if deadline.isdigit() else time.time() + DEFAULT_DEADLINE_S
    request = os.environ.get("__OW_ACTIVATION_ID", "")
    context = uncia_handler.Context(ACTION["name"], request, until)
    # It writes the answer as JSON itself.
    answer = uncia_handler.call(HANDLER, event, context, uncia_handler.cpu_clock(), lambda it: it)
    if "type" in answer:
        return {"error": f"{answer['type']}: {answer['message']}"}
    return answer["result"]
