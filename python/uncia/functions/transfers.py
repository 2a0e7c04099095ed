"""Payloads that functions hand on, as `functions/relay` does (``transfers`` in its form).

Such a function makes ``size`` bytes, and hands them on ``by`` its answer (``inline``), an object of
the store, or either by their size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

PARAMETER: Final = "payload"
"""The parameter that takes what the function before answered under the same key."""

SPAN: Final = "transfer"
"""The span from before a payload was sent or stored until the next function had it."""

USE_STORE: Final = (
    "Use store: hand on a key, and keep what is large in a store (of relay: by: store)."
)
"""What to do about a payload that is too large for a platform."""

# How it was handed on, when, how many bytes, and their digest.
_FRAME_BYTES: Final = len("inline ") + len("1234567890123456789 ") + len("123456789 ") + 65


@dataclass(frozen=True)
class Payload:
    """What a function hands on.

    Attributes:
        size: its bytes.
        inline: how many bytes of an answer it is; 0 of one that is in the store.
    """

    size: int
    inline: int


def payload_of(event: Mapping[str, Any]) -> Payload | None:
    """Return what a function hands on when it is given an event; None if the event leaves it open.

    Args:
        event: with values of all parameters.
    """
    size, by, threshold = (event.get(name) for name in ("size", "by", "threshold"))
    if not isinstance(size, int) or not isinstance(threshold, int):
        return None
    is_inline = by == "inline" or (by == "size" and size <= threshold)
    encoded = -(-size // 3) * 4 + _FRAME_BYTES
    return Payload(size, encoded if is_inline and size else 0)
