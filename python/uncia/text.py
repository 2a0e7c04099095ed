"""Words in messages and in names of files."""

import re


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: ``1 row``, ``1,200 rows``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def file_name(text: str) -> str:
    """Write a word, such as the name of a host, as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)
