"""Options that hold a quantity with a unit, such as a size or a duration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from uncia.errors import UnciaError

Value = TypeVar("Value")


def quantity(option: str, text: str, parse: Callable[[str], Value], hint: str = "") -> Value:
    """Parse the quantity of an option; errors name the option.

    Args:
        option: its name, for the message.
        text: its value, as typed.
        parse: one of the parsers of `uncia.units`.
        hint: what to write instead.

    Raises:
        UnciaError: the text is no such quantity.
    """
    from uncia.units import UnitError

    try:
        return parse(text)
    except UnitError as error:
        raise UnciaError(f"{option}: {error}", hint or None) from error
