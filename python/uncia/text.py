"""Words in messages."""


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: ``1 row``, ``1,200 rows``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
