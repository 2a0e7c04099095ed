"""What rows call the turns of a stage of a chain."""

from __future__ import annotations


def turns(name: str, repeat: int) -> list[str]:
    """Name the turns of a stage that follows ``repeat`` times on itself; they have numbers then."""
    return [name] if repeat == 1 else [f"{name}-{turn}" for turn in range(1, repeat + 1)]
