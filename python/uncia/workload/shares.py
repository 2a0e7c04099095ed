"""Shares, written in per cent."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema


def percent(text: object) -> Fraction:
    """``"5%"`` as 1/20."""
    number = text[:-1].strip() if isinstance(text, str) and text.endswith("%") else ""
    try:
        share = Fraction(number) / 100
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if "/" in number or not 0 <= share <= 1:
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
