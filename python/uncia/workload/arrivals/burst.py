"""Bursts: at every interval so many requests at once, the sizes taken in turn."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from uncia.units import Duration, format_duration
from uncia.workload.arrivals.base import ArrivalProcess


class Process(ArrivalProcess):
    """Burst b (from 0) is at b x interval and has sizes[b mod number of sizes] requests."""

    kind: Literal["burst"]
    sizes: list[Annotated[int, Field(ge=1, le=100_000)]] = Field(
        min_length=1, description="Requests in a burst; several sizes are taken in turn"
    )
    interval: Duration | None = Field(None, description="From one burst to the next")
    bursts: int = Field(1, ge=1, description="How many bursts in all")

    @model_validator(mode="after")
    def _needs_interval(self) -> Self:
        if self.bursts > 1 and not self.interval:
            raise ValueError(
                f"{self.bursts} bursts need an interval between them, for example '5s'"
            )
        return self

    def engine(self) -> dict[str, Any]:
        return {
            "kind": "burst",
            "sizes": list(self.sizes),
            "interval_ns": self.interval or 0,
            "bursts": self.bursts,
        }

    def span_ns(self) -> int:
        return (self.bursts - 1) * (self.interval or 0)

    def expected_requests(self) -> int:
        rounds, rest = divmod(self.bursts, len(self.sizes))
        return rounds * sum(self.sizes) + sum(self.sizes[:rest])

    def sentence(self) -> str:
        sizes = ", ".join(map(str, self.sizes))
        if self.bursts == 1:
            return f"one burst of {sizes}"
        return f"{self.bursts} bursts of {sizes} every {format_duration(self.interval or 0)}"
