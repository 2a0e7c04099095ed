"""The error of an overflow, in the same words on every backend."""

from uncia.errors import UnciaError


def overflow_error(reason: str) -> UnciaError:
    """Return the error of a number that does not fit its type; `reason` is the engine's message."""
    return UnciaError(
        "an amount is beyond 64 bits, or a sum beyond 38 digits, so it cannot be right: the table"
        f" holds values that no platform produces ({reason})"
    )
