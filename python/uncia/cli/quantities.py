"""Options that are quantities: read as everywhere, refused with the option's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from uncia.errors import UnciaError

Value = TypeVar("Value")


def quantity(option: str, text: str, parse: Callable[[str], Value], hint: str = "") -> Value:
    """What an option says.

    Args:
        option: its name, for the message.
        text: what was given.
        parse: one of the parsers of `uncia.units`.
        hint: what to write instead.

    Raises:
        UnciaError: it is no such quantity.
    """
    from uncia.units import UnitError

    try:
        return parse(text)
    except UnitError as error:
        raise UnciaError(f"{option}: {error}", hint or None) from error
