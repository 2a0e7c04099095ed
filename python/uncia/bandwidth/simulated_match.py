"""A simulated probe beside a measured one: the same grids of ticks and refills, and how far apart.

How a group is throttled depends on where its period timer stands among the ticks, which from Linux
6.4 on is random for each group. A profile shows it: throttles begin at ticks and end at refills.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from uncia.bandwidth.distance import distance
from uncia.bandwidth.profiles import Profile
from uncia.bandwidth.simulate import Setting, simulate

if TYPE_CHECKING:
    import pyarrow as pa

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

_LEAST: Final = 1_000_000  # ns; shorter gaps are often no throttles
_NEAR: Final = 0.06  # of a grid's step, around its most frequent place
_BINS: Final = 400
FEWEST: Final = 10
"""Values from which on the distance of a sample means something."""

KINDS: Final = ("interval", "throttle", "cpu")


@dataclass(frozen=True)
class Grids:
    """Where ticks and refills stand, in ns from whole steps of the profile's clock."""

    tick: int
    refill: int


def grids(profile: Profile, period_ns: int, tick_ns: int) -> Grids | None:
    """The grids that a profile shows; None if it has too few throttles.

    Args:
        profile: the runs of one group, on one clock.
        period_ns: the period, which is known.
        tick_ns: length of a tick.
    """
    events = [event for run in profile.runs for event in run.events if event[1] >= _LEAST]
    if len(events) < FEWEST:
        return None
    ends = np.asarray([end for end, _ in events], dtype=np.float64)
    begins = np.asarray([end - gap for end, gap in events], dtype=np.float64)
    return Grids(tick=_place(begins, tick_ns), refill=_place(ends, period_ns))


def _place(times: Floats, step: int) -> int:
    """The place within a step where most times are: robust against those of another cause."""
    counts, edges = np.histogram(times % step, bins=_BINS, range=(0, step))
    # Over neighbours, so that a place on the edge of two bins is not missed; a step is a circle.
    smooth = counts + np.roll(counts, 1) + np.roll(counts, -1)
    mode = (edges[int(smooth.argmax())] + edges[int(smooth.argmax()) + 1]) / 2
    away = (times - mode + step / 2) % step - step / 2
    near = away[np.abs(away) <= step * _NEAR]
    return int(mode + float(np.median(near))) % step


def throttles(spans: pa.Table) -> dict[str, Floats]:
    """Intervals between the ends of throttles, throttles, and CPU times between them, in ns.

    A run's first throttle only begins an interval, as the cost paper counts them (section 4.3).

    Args:
        spans: rows of the table ``spans``; those named ``throttle`` count.
    """
    found: dict[str, list[int]] = {kind: [] for kind in KINDS}
    before: dict[str, int] = {}
    columns = ("invocation", "name", "start", "end")
    for row in spans.select(columns).sort_by("end").to_pylist():
        if row["name"] != "throttle":
            continue
        last = before.get(row["invocation"])
        if last is not None:
            found["interval"].append(row["end"] - last)
            found["throttle"].append(row["end"] - row["start"])
            found["cpu"].append(row["start"] - last)
        before[row["invocation"]] = row["end"]
    return {kind: np.asarray(values, dtype=np.float64) for kind, values in found.items()}


def compare(profile: Profile, setting: Setting, seed: int = 0) -> dict[str, float | None]:
    """How far a simulated probe is from a profile: Wasserstein-1 of each kind, in ns.

    Args:
        profile: the runs of one group, on one clock.
        setting: what it was made with; its grids are taken from the profile if that shows them.
        seed: of the simulation.

    Raises:
        UnciaError: the setting is wrong.
    """
    found = grids(profile, setting.period_ns, 1_000_000_000 // setting.hz)
    if found is not None:
        places = {"tick_offset_ns": found.tick, "timer": {"offset": found.refill}}
        setting = setting.model_copy(update=places)
    measured = dict(zip(KINDS, profile.arrays(), strict=True))
    simulated = throttles(simulate([setting], seed).spans)
    return {
        kind: distance(measured[kind], simulated[kind])
        if min(len(measured[kind]), len(simulated[kind])) >= FEWEST
        else None
        for kind in KINDS
    }
