"""Between awslambdaric and a handler; laid beside it as ``uncia_main.py``.

The emulator passes on bodies and no headers, so that what is measured travels in the answer; the
server before it takes it out.
"""

import json
import os

import uncia_handler

HANDLER = uncia_handler.load(os.environ["UNCIA_HANDLER"])
USED = uncia_handler.cpu_clock()


def encoded(result):
    """The result itself, if it can be an answer: the client encodes it once more."""
    json.dumps(result)
    return result


def handler(event, context):
    """Serve an event."""
    return uncia_handler.call(HANDLER, event, context, USED, encoded)
