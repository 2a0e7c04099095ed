"""Shares, written in per cent."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

# Without an exponent: of a large one the number alone would fill the memory.
_NUMBER: Final = re.compile(r"(?=.*[0-9])[0-9]{0,20}(\.[0-9]{0,20})?")


def percent(text: object) -> Fraction:
    """``"5%"`` as 1/20."""
    number = text[:-1].strip() if isinstance(text, str) and text.endswith("%") else ""
    share = Fraction(number) / 100 if _NUMBER.fullmatch(number) else Fraction(-1)
    if not 0 <= share <= 1:
        raise ValueError(f"{text!r} is not a percentage from 0% to 100%, for example '5%'")
    return share


def write_percent(share: Fraction) -> str:
    return f"{float(share * 100):.12g}%"


Percent = Annotated[
    Fraction,
    BeforeValidator(percent),
    PlainSerializer(write_percent, return_type=str),
    WithJsonSchema({"type": "string", "description": "A percentage", "examples": ["5%", "0.1%"]}),
]
"""A share from 0 to 1, read from text such as ``5%``."""
