"""Between functions-framework and a handler; laid beside it as ``uncia_main.py``."""

import json
import os
import time

import flask
import uncia_handler

FUNCTION = os.environ["UNCIA_FUNCTION"]
TIMEOUT_S = float(os.environ["UNCIA_TIMEOUT_S"])
HANDLER = uncia_handler.load(os.environ["UNCIA_HANDLER"])


def serve(request):
    """Serve a request: its body is the event."""
    if request.path == os.environ["UNCIA_READY"]:
        return "", 204
    try:
        event = json.loads(request.get_data(cache=False) or b"{}")
    except (ValueError, RecursionError):
        return {"errorType": "NoJson", "errorMessage": "the body is no JSON"}, 400
    context = uncia_handler.Context(FUNCTION, os.urandom(16).hex(), time.time() + TIMEOUT_S)
    # Requests are served by threads of one process: what this one used is the request's.
    answer = uncia_handler.call(HANDLER, event, context, uncia_handler.thread_cpu)
    status, headers, body = uncia_handler.response(answer)
    headers |= {"x-uncia-start": "warm", "x-uncia-instance": uncia_handler.NAME}
    return flask.Response(body, status, headers, content_type="application/json")
