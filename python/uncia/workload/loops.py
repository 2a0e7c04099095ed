"""Closed loops: clients that wait for their answers, the same in experiment and workload files."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from uncia.forms import Form
from uncia.text import plural
from uncia.units import Duration, format_duration, parse_duration

MAX_CLIENTS: Final = 1_000_000
MAX_REQUESTS: Final = (1 << 63) - 1
"""The engine's integers are of 64 bits."""


class ThinkTime(Form):
    """The time from an answer to the next request, drawn evenly from ``min`` to ``max``."""

    min: Duration
    max: Duration

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise ValueError(
                f"max ({format_duration(self.max)}) is below min ({format_duration(self.min)})"
            )
        return self

    @property
    def most_ns(self) -> int | None:
        """The upper bound; None if it is always the same."""
        return None if self.max == self.min else self.max

    def words(self) -> str:
        """``10ms``, or ``10ms to 20ms``."""
        if self.max == self.min:
            return format_duration(self.min)
        return f"{format_duration(self.min)} to {format_duration(self.max)}"


def _think(value: object) -> object:
    """One duration stands for both bounds."""
    if isinstance(value, ThinkTime | dict):
        return value
    duration = parse_duration(value)
    return ThinkTime.model_construct(min=duration, max=duration)


def _write_think(think: ThinkTime) -> str | dict[str, str]:
    if think.max == think.min:
        return format_duration(think.min)
    return {"min": format_duration(think.min), "max": format_duration(think.max)}


NO_THOUGHT: Final = ThinkTime.model_construct(min=0, max=0)
Think = Annotated[
    ThinkTime,
    BeforeValidator(_think),
    PlainSerializer(_write_think, return_type=Any),
    WithJsonSchema(
        {
            "description": "A duration, or {min, max} between which it is drawn at random",
            "examples": ["10ms", {"min": "10ms", "max": "20ms"}],
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"min": {"type": "string"}, "max": {"type": "string"}},
                    "required": ["min", "max"],
                    "additionalProperties": False,
                },
            ],
        }
    ),
]


class Closed(Form):
    """A closed loop: each client waits for its answer, thinks, and sends again."""

    clients: int = Field(ge=1, le=MAX_CLIENTS, description="How many send at once")
    think: Think = Field(NO_THOUGHT, description="From an answer to the next request")
    duration: Duration | None = Field(None, gt=0, description="No request begins after this time")
    requests: int | None = Field(
        None, ge=1, le=MAX_REQUESTS, description="How many in all, at most"
    )
    together: bool = Field(
        False, description="Bursts back to back: each waits for all answers of the one before"
    )
    one_replica: bool = Field(
        False,
        description="With together: a burst goes to one replica, and bursts visit them in turn",
    )

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.duration is None and self.requests is None:
            raise ValueError("a closed loop needs a duration or a number of requests, or both")
        if self.one_replica and not self.together:
            raise ValueError("one_replica is of bursts, and needs together")
        return self

    def expected_requests(self) -> int:
        """The most requests that it sends; 0 when only the answers decide."""
        return self.requests or 0

    def span_ns(self) -> int:
        """How long clients send at least: they may have sent all before the duration ends."""
        if self.requests is None:
            return self.duration or 0
        thought = (self.requests - 1) // self.clients * self.think.min
        return thought if self.duration is None else min(thought, self.duration)

    def sentence(self, what: str = "requests") -> str:
        """The loop in a few words; ``what`` it is of."""
        clients = plural(self.clients, "client")
        parts = [f"closed loop of {clients}"]
        if self.together:
            parts = [f"bursts of {self.clients:,} back to back"]
        if self.one_replica:
            parts.append("each to one replica")
        if self.think.max:
            parts.append(f"thinking {self.think.words()}")
        if self.duration is not None:
            parts.append(f"for {format_duration(self.duration)}")
        if self.requests is not None:
            parts.append(f"at most {self.requests:,} {what}")
        return ", ".join(parts)
