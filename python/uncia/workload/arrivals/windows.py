"""A process that sends only within some windows of time."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from uncia.units import format_duration
from uncia.workload.arrivals._window import Window, format_window
from uncia.workload.arrivals.base import ArrivalProcess

if TYPE_CHECKING:
    from uncia.workload.arrivals import Arrivals


class Process(ArrivalProcess):
    """The process runs on throughout; its requests outside the windows are left out."""

    kind: Literal["windows"]
    process: Arrivals = Field(description="What is sent within the windows")
    windows: list[Window] = Field(
        min_length=1, description="[from, to) pairs, in order: [[0s, 10s], [1min, 2min]]"
    )

    @field_validator("windows")
    @classmethod
    def _in_order(cls, windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        for index, ((_, end), window) in enumerate(pairwise(windows), start=1):
            if window[0] < end:
                raise ValueError(
                    f"windows[{index}] ({format_window(*window)}) begins before"
                    f" windows[{index - 1}] ends ({format_duration(end)}): write them in order,"
                    " without overlap"
                )
        return windows

    def engine(self) -> dict[str, Any]:
        return {
            "kind": "windows",
            "process": self.process.engine(),
            "windows_ns": [list(window) for window in self.windows],
        }

    def span_ns(self) -> int:
        return min(self.process.span_ns(), self.windows[-1][1] - 1)

    def expected_before(self, ns: int) -> Fraction | float:
        before = self.process.expected_before
        return sum(
            (before(min(end, ns)) - before(begin) for begin, end in self.windows if begin < ns),
            Fraction(0),
        )

    def sentence(self) -> str:
        texts = [format_window(*window) for window in self.windows]
        if len(texts) > 3:
            texts = [*texts[:2], f"{len(texts) - 2} more windows"]
        return f"{self.process.sentence()}; only in {', '.join(texts)}"
