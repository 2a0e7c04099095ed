"""The page of the embedded platform, from the side of whoever computes the bills that it shows."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Mapping
from typing import Any, Final

from uncia.errors import RunFailedError
from uncia.platforms import wire

_TIMEOUT_S: Final = 60.0


def wait_for_viewers(address: str, wait_s: int) -> int:
    """Wait until somebody has the page open, and return how many do; 0 if nobody came.

    Args:
        address: a unix socket on which the platform listens; it takes bills from no other.
        wait_s: the longest wait in seconds, at most 60. It ends with the platform, too.

    Raises:
        RunFailedError: the platform does not answer.
    """
    answer = _ask(address, f"viewers?wait={wait_s}", None, wait_s + _TIMEOUT_S)
    return int(json.loads(answer)["viewers"])


def show_bills(address: str, bills: Mapping[str, Any]) -> None:
    """Show bills on the page, instead of those before.

    Raises:
        RunFailedError: the platform does not answer, or refuses them.
    """
    _ask(address, "bills", json.dumps(bills).encode(), _TIMEOUT_S)


def _ask(address: str, path: str, body: bytes | None, timeout_s: float) -> bytes:
    method = "GET" if body is None else "PUT"
    try:
        with wire.open_path(
            address, f"/uncia/v1/{path}", timeout_s, body=body, method=method
        ) as answer:
            content: bytes = answer.read()
            return content
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise RunFailedError(f"the platform's page cannot be reached: {error}") from error
