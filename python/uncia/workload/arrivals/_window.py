"""Windows of time."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from uncia.units import Duration, format_duration


def _pair(value: object) -> object:
    """A file has lists and no tuples."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("a window is written [from, to], for example [10s, 1min]")
    return tuple(value)


def _not_empty(window: tuple[int, int]) -> tuple[int, int]:
    if window[1] <= window[0]:
        raise ValueError(f"the window {format_window(*window)} is empty")
    return window


Window = Annotated[tuple[Duration, Duration], BeforeValidator(_pair), AfterValidator(_not_empty)]
"""``[from, to)`` in nanoseconds, not empty."""


def format_window(begin: int, end: int) -> str:
    """The window in words: ``10s to 60s``."""
    return f"{format_duration(begin)} to {format_duration(end)}"
