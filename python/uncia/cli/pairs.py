"""Options that hold a name and a value, such as ``NAME=VALUE``, and may be repeated."""

from __future__ import annotations

from collections.abc import Sequence

from uncia.errors import UnciaError


def parse_pairs(
    option: str, texts: Sequence[str], form: str = "NAME=VALUE", separator: str = "="
) -> dict[str, str]:
    """Parse the values of a repeatable option into a mapping.

    Args:
        option: its name, for the message.
        texts: its values, as typed.
        form: what a value is to look like, for the message.
        separator: between name and value.

    Raises:
        UnciaError: a value has another form, or a name is there twice.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, middle, value = text.partition(separator)
        if not middle or not name:
            raise UnciaError(f"{option}: {text!r} is not {form}")
        if name in pairs:
            raise UnciaError(f"{option}: {name} is given twice")
        pairs[name] = value
    return pairs
