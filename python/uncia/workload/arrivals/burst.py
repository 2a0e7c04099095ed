"""Bursts of requests at intervals, with one size or several in turn."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from uncia.text import plural
from uncia.units import Duration, format_duration
from uncia.workload.arrivals._gap import Gap
from uncia.workload.arrivals.base import ArrivalProcess


class Process(ArrivalProcess):
    """Burst b (from 0) has sizes[b mod number of sizes] requests.

    The first is at 0; the next follow at a fixed interval, or at gaps drawn at random. Its requests
    are sent at once, or spread at random over the jitter.
    """

    kind: Literal["burst"]
    sizes: list[Annotated[int, Field(ge=1, le=100_000)]] = Field(
        min_length=1, description="Requests in a burst; several sizes are taken in turn"
    )
    interval: Duration | None = Field(None, description="From one burst to the next")
    gap: Gap | None = Field(None, description="From one burst to the next, if drawn at random")
    bursts: int = Field(1, ge=1, description="How many bursts in all")
    jitter: Duration = Field(0, description="The requests of a burst are spread over this time")

    @model_validator(mode="after")
    def _needs_interval(self) -> Self:
        if self.interval is not None and self.gap is not None:
            raise ValueError("bursts have an interval or a gap between them, not both")
        if self.bursts > 1 and not self.interval and self.gap is None:
            raise ValueError(
                f"{self.bursts} bursts need an interval between them, for example '5s'"
            )
        return self

    def engine(self) -> dict[str, Any]:
        between = (
            {"interval_ns": self.interval or 0} if self.gap is None else {"gap": self.gap.engine()}
        )
        return {
            "kind": "burst",
            "sizes": list(self.sizes),
            **between,
            "bursts": self.bursts,
            "jitter_ns": self.jitter,
        }

    def span_ns(self) -> int:
        return round((self.bursts - 1) * self._between_ns()) + self.jitter

    def expected_before(self, ns: int) -> Fraction:
        """Every gap taken as its mean, where gaps are random."""
        between = Fraction(self._between_ns())

        def begun_before(time: int) -> int:
            if time <= 0:
                return 0
            # Burst b has begun if b x between < time.
            return min(self.bursts, -(-time // between)) if between else self.bursts

        whole = begun_before(ns - self.jitter)
        partly = Fraction(0)
        for burst in range(whole, begun_before(ns)):
            share = min(Fraction(1), (ns - burst * between) / self.jitter)
            partly += self.sizes[burst % len(self.sizes)] * share
        return self._requests_of(whole) + partly

    def expected_requests(self) -> int:
        return self._requests_of(self.bursts)

    def sentence(self) -> str:
        sizes = ", ".join(map(str, self.sizes))
        spread = f", each over {format_duration(self.jitter)}" if self.jitter else ""
        if self.bursts == 1:
            return f"one burst of {sizes}{spread}"
        between = (
            f"every {format_duration(self.interval or 0)}"
            if self.gap is None
            else f"at gaps {self.gap.sentence()}"
        )
        return f"{plural(self.bursts, 'burst')} of {sizes} {between}{spread}"

    def _between_ns(self) -> float:
        return (self.interval or 0) if self.gap is None else self.gap.mean_ns()

    def _requests_of(self, bursts: int) -> int:
        """How many requests the first `bursts` bursts have together."""
        rounds, rest = divmod(bursts, len(self.sizes))
        return rounds * sum(self.sizes) + sum(self.sizes[:rest])
