"""A number of requests for each bucket of time, as traces by the minute have them."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from uncia.text import plural
from uncia.units import Duration, format_duration
from uncia.workload.arrivals.base import ArrivalProcess


class Process(ArrivalProcess):
    """Exactly counts[i] requests in the i-th bucket (from 0); only where in it is a choice."""

    kind: Literal["counts"]
    counts: list[Annotated[int, Field(ge=0)]] = Field(
        min_length=1, description="Requests in each bucket"
    )
    bucket: Duration = Field(gt=0, description="How long a bucket is")
    placement: Literal["equidistant", "uniform", "exponential"] = Field(
        "exponential",
        description="Within a bucket: evenly, at independent random times, or at exponential gaps",
    )
    phase: bool = Field(
        True,
        description="Equidistant requests begin at a random phase of each bucket, so that functions"
        " do not send at the same moments",
    )

    @field_validator("counts")
    @classmethod
    def _send_something(cls, counts: list[int]) -> list[int]:
        if not any(counts):
            raise ValueError("counts that are all 0 send nothing")
        return counts

    def engine(self) -> dict[str, Any]:
        return {
            "kind": "counts",
            "counts": list(self.counts),
            "bucket_ns": self.bucket,
            "placement": self.placement,
            "phase": self.phase,
        }

    def span_ns(self) -> int:
        return len(self.counts) * self.bucket

    def expected_before(self, ns: int) -> Fraction:
        whole, rest = divmod(min(ns, self.span_ns()), self.bucket)
        within = Fraction(self.counts[whole] * rest, self.bucket) if rest else Fraction(0)
        return sum(self.counts[:whole]) + within

    def sentence(self) -> str:
        return (
            f"{plural(sum(self.counts), 'request')} in {plural(len(self.counts), 'bucket')} of"
            f" {format_duration(self.bucket)}, placed {self._placed()}"
        )

    def _placed(self) -> str:
        words = {"equidistant": "evenly", "uniform": "uniformly", "exponential": "exponentially"}
        return words[self.placement]
