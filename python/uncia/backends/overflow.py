"""The error of a number that does not fit in its type."""

from uncia.errors import UnciaError


def beyond(said: str) -> UnciaError:
    """An error for an overflow.

    Args:
        said: the engine's own words.
    """
    return UnciaError(
        "an amount is beyond 64 bits, or a sum beyond 38 digits, so it cannot be right: the table"
        f" holds values that no platform produces ({said})"
    )
