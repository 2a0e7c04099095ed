"""The texts of a tariff's form: prices, dates, ids and addresses, and how wrong ones are told."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

MAX_DECIMALS: Final = 24
"""Decimals of a price; the finest public price has ten."""

_MONEY: Final = re.compile(r"(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,24})?")


def _parse_money(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(
            f'a price is decimal text in quotes, for example "0.0000166667"; {value!r} is not text'
        )
    if _MONEY.fullmatch(value) is None:
        raise ValueError(
            f"{value!r} is no price: write plain decimal digits, at most {MAX_DECIMALS} after the"
            ' point, for example "0.0000166667"'
        )
    return value


def _parse_date(value: object) -> date:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise ValueError(f"{value!r} is not a date: write year-month-day, for example 2025-05-15")


Money = Annotated[
    str,
    BeforeValidator(_parse_money),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^{_MONEY.pattern}$",
            "description": "US dollars as decimal text",
            "examples": ["0.0000166667", "0.034"],
        }
    ),
]
Date = Annotated[
    date,
    BeforeValidator(_parse_date),
    PlainSerializer(date.isoformat, return_type=str),
    WithJsonSchema({"type": "string", "format": "date", "examples": ["2025-05-15"]}),
]
TariffId = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
Url = Annotated[str, Field(pattern=r"^https?://\S+$")]
