"""The base of all arrival processes."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import Any

from uncia.forms import Form


class ArrivalProcess(Form):
    """When requests are sent, fixed before the run (open loop: no answer is ever waited for)."""

    kind: str

    @abstractmethod
    def engine(self) -> dict[str, Any]:
        """The process as ``uncia-engine load`` takes it: nanoseconds, rates as decimal text."""

    @abstractmethod
    def span_ns(self) -> int:
        """How long after its start the last request can be scheduled, in nanoseconds.

        Where nothing bounds it (bursts at random gaps), when it is scheduled on average.
        """

    @abstractmethod
    def expected_before(self, ns: int) -> Fraction | float:
        """How many requests are due before `ns` after the start.

        Exactly where the process is not random, else on average.
        """

    def expected_requests(self) -> int:
        """How many requests this makes: exactly, or on average where the process is random."""
        return round(self.expected_before(self.span_ns() + 1))

    @abstractmethod
    def sentence(self) -> str:
        """The process in a few words, for plans and reports."""
