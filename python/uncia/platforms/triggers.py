"""Triggers of a running platform: what it begins for every change of a document below a prefix."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from uncia.errors import RunFailedError
from uncia.platforms import wire

PATH: Final = "/uncia/v1/triggers"
_TIMEOUT_S: Final = 30.0


def put(address: str, name: str, definition: Mapping[str, Any]) -> None:
    """Make a trigger, or change the one of this name.

    Args:
        address: where the platform listens.
        name: of the trigger.
        definition: ``prefix``, ``changes``, ``function`` or ``machine``, ``event``, ``stage``.

    Raises:
        RunFailedError: the platform refuses, or does not answer.
    """
    body = json.dumps(definition).encode()
    _ask(address, f"{PATH}/{quote(name, safe='')}", f"the trigger {name} is refused", body, "PUT")


def remove(address: str, name: str) -> None:
    """Remove a trigger.

    Raises:
        RunFailedError: there is none, or the platform does not answer.
    """
    path = f"{PATH}/{quote(name, safe='')}"
    _ask(address, path, f"the trigger {name} is not removed", None, "DELETE")


def is_settled(address: str) -> bool:
    """Whether no change waits for its triggers, and nothing that one began runs.

    Raises:
        RunFailedError: the platform does not answer, or cannot ask the documents' server.
    """
    answer = json.loads(_ask(address, PATH, "triggers cannot be listed", None, "GET"))
    return bool(answer["settled"])


def _ask(address: str, path: str, failure: str, body: bytes | None, method: str) -> bytes:
    try:
        with wire.open_path(address, path, _TIMEOUT_S, body=body, method=method) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        with error:
            message = _message(error.read()) or str(error)
        raise RunFailedError(f"{failure}: {message}") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
        raise RunFailedError(f"{failure}: {error}") from error


def _message(body: bytes) -> str | None:
    """What an error of the platform's says."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return None
