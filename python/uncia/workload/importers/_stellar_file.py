"""The file of STeLLAR's client: its keys, which Go reads in any spelling of their case."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from uncia import yamlio
from uncia.forms import Form
from uncia.units import INT64_MAX, NS_PER_H, NS_PER_MIN, NS_PER_MS, NS_PER_S, NS_PER_US
from uncia.workload.importers.base import Number

# Of Go's time.ParseDuration, in ns; the micro sign and the Greek letter are both taken.
_UNITS: Final = {
    "ns": 1,
    "us": NS_PER_US,
    "\u00b5s": NS_PER_US,
    "\u03bcs": NS_PER_US,
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": NS_PER_MIN,
    "h": NS_PER_H,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([^0-9.]+)")

Count = Annotated[int, Field(le=INT64_MAX)]
"""A whole number as Go reads it: of 64 bits."""


class SubExperiment(Form):
    """One entry of ``SubExperiments``."""

    Title: str = ""
    Function: str = "producer-consumer"
    Handler: str | None = None
    Runtime: str | None = None
    PackageType: Literal["Zip", "Container", "Image"] = "Zip"
    PackagePattern: str | None = None
    Bursts: Count = Field(0, ge=0)
    BurstSizes: list[Count] = Field(default_factory=list)
    IATSeconds: Number = Fraction(0)
    IATType: Literal["stochastic", "deterministic", "step"] = "stochastic"
    DesiredServiceTimes: list[str] = Field(default_factory=list)
    PayloadLengthBytes: Count = Field(0, ge=0)
    Parallelism: Count = Field(1, ge=0)
    FunctionMemoryMB: Count = Field(0, ge=0)
    FunctionImageSizeMB: Number = Fraction(0)
    DataTransferChainLength: Count = Field(1, ge=0)
    StorageTransfer: bool = False
    SnapStartEnabled: bool = False
    CPUBoostEnabled: bool = False
    Visualization: str | None = None
    RepurposeIdentifier: Any = None
    ID: Any = None
    BusySpinIncrements: Any = None
    Endpoints: Any = None
    Routes: Any = None

    @property
    def is_chain(self) -> bool:
        """Whether its functions invoke one another."""
        return self.DataTransferChainLength > 1

    @property
    def has_payload(self) -> bool:
        """Whether the functions of its chain hand a payload on."""
        return self.is_chain and self.PayloadLengthBytes > 0


class Config(Form):
    """The whole file."""

    Sequential: bool = False
    Provider: str = "aws"
    Runtime: str | None = None
    Function: Any = None
    SubExperiments: list[SubExperiment] = Field(min_length=1)


def nanoseconds_of(text: str) -> int:
    """Read a duration as Go's ``time.ParseDuration`` does, such as ``1m30s``, ``.5s`` or ``0``.

    Raises:
        ValueError: it is none, or negative, or beyond 64 bits; a sentence.
    """
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    parts = _PART.findall(unsigned)
    if unsigned != "0" and (not parts or "".join(map("".join, parts)) != unsigned):
        raise ValueError(f"{text!r} is no duration of Go, such as '50ms' or '1m30s'")
    unknown = [unit for _, unit in parts if unit not in _UNITS]
    if unknown:
        allowed = ", ".join(unit for unit in _UNITS if unit.isascii())
        raise ValueError(f"{text!r}: there is no unit {unknown[0]!r} (allowed: {allowed})")
    total = sum(int(Fraction(number) * _UNITS[unit]) for number, unit in parts)
    if total > INT64_MAX:
        raise ValueError(f"{text!r} is beyond the range of a 64-bit nanosecond count")
    if total and text.startswith("-"):
        raise ValueError(f"{text!r}: a service time is not negative")
    return total


def spelled(document: yamlio.Document, warnings: list[str]) -> yamlio.Document:
    """Return the document with STeLLAR's spelling of keys, because Go ignores their case.

    A key in two spellings is there twice, of which the last counts: a warning. One that is null is
    as one that is left out, which is how Go reads it.
    """

    def respell(data: Any, form: type[Form], place: str = "") -> Any:
        if not isinstance(data, dict):
            return data
        known: dict[str, str] = {key.lower(): key for key in form.model_fields}
        result: dict[str, Any] = {}
        for key, value in data.items():
            name = known[key.lower()] if key.lower() in known else str(key)
            if value is None and name in form.model_fields:
                continue
            if name in result:
                warnings.append(f"{place}{name}: the key is there again as {key}, which counts")
            result[name] = value
        return result

    data = respell(document.data, Config)
    if isinstance(data.get("SubExperiments"), list):
        data["SubExperiments"] = [
            respell(sub, SubExperiment, f"SubExperiments[{index}].")
            for index, sub in enumerate(data["SubExperiments"])
        ]
    return document.with_data(data)
