"""One rate after the other, each for its own time."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

from pydantic import Field, field_validator

from uncia.forms import Form
from uncia.units import (
    NS_PER_S,
    Duration,
    RateOrZero,
    format_duration,
    format_rate,
    rate_per_second_text,
)
from uncia.workload.arrivals._profile import RateProfile


class Step(Form):
    """A rate, and how long it is held."""

    rate: RateOrZero = Field(description="Requests per second, minute or hour; 0/s is a pause")
    duration: Duration = Field(gt=0, description="How long it is held")


class Process(RateProfile):
    """The rates follow each other; what is begun in one step is carried into the next."""

    kind: Literal["steps"]
    steps: list[Step] = Field(min_length=1, description="In their order")

    @field_validator("steps")
    @classmethod
    def _send_something(cls, steps: list[Step]) -> list[Step]:
        if all(step.rate == 0 for step in steps):
            raise ValueError("steps that are all at 0/s send nothing")
        return steps

    def engine(self) -> dict[str, Any]:
        return {
            "kind": "steps",
            "steps": [
                {"rate_per_s": rate_per_second_text(step.rate), "duration_ns": step.duration}
                for step in self.steps
            ],
            "placement": self.placement,
        }

    def span_ns(self) -> int:
        return sum(step.duration for step in self.steps)

    def integral(self, ns: int) -> Fraction:
        total, remaining_ns = Fraction(0), ns
        for step in self.steps:
            part_ns = min(remaining_ns, step.duration)
            total += step.rate * part_ns / NS_PER_S
            remaining_ns -= part_ns
        return total

    def sentence(self) -> str:
        texts = [f"{format_rate(s.rate)} for {format_duration(s.duration)}" for s in self.steps]
        if len(texts) > 4:
            between = f"{len(texts) - 3} more steps"
            texts = [*texts[:2], between, texts[-1]]
        return f"at {', then '.join(texts)}{self.placed()}"
