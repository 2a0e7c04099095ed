"""What every arrival process can say of itself."""

from __future__ import annotations

from abc import abstractmethod
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
        """How long after its start the last request can be scheduled, in nanoseconds."""

    @abstractmethod
    def expected_requests(self) -> int:
        """How many requests this makes: exactly, or on average where the process is random."""

    @abstractmethod
    def sentence(self) -> str:
        """The process in a few words, for plans and reports."""
