"""Several processes at the same time."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from uncia.workload.arrivals.base import ArrivalProcess

if TYPE_CHECKING:
    from uncia.workload.arrivals import Arrivals


class Process(ArrivalProcess):
    """The requests of all parts together; each part draws random numbers of its own."""

    kind: Literal["superposition"]
    processes: list[Arrivals] = Field(min_length=1, description="The parts")

    def engine(self) -> dict[str, Any]:
        return {
            "kind": "superposition",
            "processes": [process.engine() for process in self.processes],
        }

    def span_ns(self) -> int:
        return max(process.span_ns() for process in self.processes)

    def expected_before(self, ns: int) -> Fraction | float:
        return sum((process.expected_before(ns) for process in self.processes), Fraction(0))

    def expected_requests(self) -> int:
        return sum(process.expected_requests() for process in self.processes)

    def sentence(self) -> str:
        return " and ".join(f"({process.sentence()})" for process in self.processes)
