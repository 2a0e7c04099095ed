"""A rate that rises or falls steadily."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from uncia.units import (
    NS_PER_S,
    Duration,
    RateOrZero,
    format_duration,
    format_rate,
    rate_per_second_text,
)
from uncia.workload.arrivals._profile import RateProfile


class Process(RateProfile):
    """The rate goes in a straight line from one value to the other over the duration."""

    kind: Literal["ramp"]
    from_: RateOrZero = Field(alias="from", description="The rate at the start")
    to: RateOrZero = Field(description="The rate at the end")
    duration: Duration = Field(gt=0, description="How long requests are scheduled")

    @model_validator(mode="after")
    def _sends_something(self) -> Self:
        if self.from_ == 0 and self.to == 0:
            raise ValueError("a ramp from 0/s to 0/s sends nothing")
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # `from` is a word of Python, so the attribute has another name than the key.
        written: dict[str, Any] = dump(self)
        return {{"from_": "from"}.get(key, key): value for key, value in written.items()}

    def engine(self) -> dict[str, Any]:
        return {
            "kind": "ramp",
            "from_per_s": rate_per_second_text(self.from_),
            "to_per_s": rate_per_second_text(self.to),
            "duration_ns": self.duration,
            "placement": self.placement,
        }

    def span_ns(self) -> int:
        return self.duration

    def integral(self, ns: int) -> Fraction:
        time = Fraction(ns, NS_PER_S)
        slope = (self.to - self.from_) * NS_PER_S / self.duration
        return self.from_ * time + slope * time * time / 2

    def sentence(self) -> str:
        return (
            f"from {format_rate(self.from_)} to {format_rate(self.to)} over"
            f" {format_duration(self.duration)}{self.placed()}"
        )
