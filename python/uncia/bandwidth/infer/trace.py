"""What a profile saw, run by run, as arrays: when throttles ended and how long they were."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from uncia.bandwidth.profiles import Profile

Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

MS = 1e6  # nanoseconds


@dataclass(frozen=True)
class Run:
    """One run of the probe.

    Attributes:
        end: when each gap ended, ns on the run's own monotonic clock, ascending.
        gap: how long each was, ns.
    """

    end: Floats
    gap: Floats

    @property
    def begin(self) -> Floats:
        """When each gap began, ns."""
        return self.end - self.gap

    @property
    def interval(self) -> Floats:
        """From the end of a gap to the end of the next, ns; one less than gaps."""
        return np.diff(self.end)

    @property
    def cpu(self) -> Floats:
        """CPU time obtained between two gaps, ns; one less than gaps."""
        return np.maximum(np.diff(self.end) - self.gap[1:], 0.0)


@dataclass(frozen=True)
class Trace:
    """The runs of a profile in the order of their clocks; empty ones are left out.

    Attributes:
        runs: those with gaps.
        given: how many there were.
        monotonic: times count from the zero of the machine's monotonic clock.
    """

    runs: tuple[Run, ...]
    given: int
    monotonic: bool = True

    @property
    def events(self) -> int:
        """How many gaps there are in all."""
        return sum(len(run.end) for run in self.runs)

    @property
    def intervals(self) -> int:
        """How many intervals between gaps there are in all."""
        return sum(max(0, len(run.end) - 1) for run in self.runs)


def of(pairs: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]], monotonic: bool = True) -> Trace:
    """A trace of (ends, gaps), ns, one pair of sequences a run."""
    runs: list[Run] = []
    given = 0
    for ends, gaps in pairs:
        given += 1
        end = np.asarray(ends, dtype=np.float64)
        gap = np.asarray(gaps, dtype=np.float64)
        if len(end):
            order = np.argsort(end, kind="stable")
            runs.append(Run(end[order], gap[order]))
    runs.sort(key=lambda run: float(run.end[0]))
    return Trace(tuple(runs), given, monotonic)


def from_profile(profile: Profile) -> Trace:
    """The trace of a profile that was read."""
    pairs = []
    for run in profile.runs:
        events = np.asarray(run.events, dtype=np.float64).reshape(-1, 2)
        pairs.append((events[:, 0], events[:, 1]))
    return of(pairs, profile.monotonic)
