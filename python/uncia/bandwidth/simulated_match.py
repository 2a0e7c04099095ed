"""The distance between a measured profile and a simulated one on the same grids.

How a group is throttled depends on the offset of its period timer from the ticks, which is random
for each group since Linux 6.4. A profile shows it: throttles begin at ticks and end at refills.
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

_MIN_GAP_NS: Final = 1_000_000  # shorter gaps are often not throttles
_GRID_TOLERANCE: Final = 0.06  # of a grid's step, around its most frequent phase
_BINS: Final = 400
MIN_SAMPLE: Final = 10
"""The smallest sample whose distance is meaningful."""

KINDS: Final = ("interval", "throttle", "cpu")


@dataclass(frozen=True)
class Grids:
    """The phases of ticks and refills, in ns from whole steps of the profile's clock."""

    tick: int
    refill: int


def grids(profile: Profile, period_ns: int, tick_ns: int) -> Grids | None:
    """Find the grids of a profile; None if it has too few throttles.

    Args:
        profile: the runs of one group, on one clock.
        period_ns: the known period.
        tick_ns: length of a tick.
    """
    events = [event for run in profile.runs for event in run.events if event[1] >= _MIN_GAP_NS]
    if len(events) < MIN_SAMPLE:
        return None
    ends = np.asarray([end for end, _ in events], dtype=np.float64)
    begins = np.asarray([end - gap for end, gap in events], dtype=np.float64)
    return Grids(tick=_mode(begins, tick_ns), refill=_mode(ends, period_ns))


def _mode(times: Floats, step: int) -> int:
    """Find the phase within a step that most times have; gaps of another cause do not matter."""
    counts, edges = np.histogram(times % step, bins=_BINS, range=(0, step))
    # Neighbours are added, so that a phase on the edge of two bins is not missed (on a circle).
    smooth = counts + np.roll(counts, 1) + np.roll(counts, -1)
    mode = (edges[int(smooth.argmax())] + edges[int(smooth.argmax()) + 1]) / 2
    away = (times - mode + step / 2) % step - step / 2
    close = away[np.abs(away) <= step * _GRID_TOLERANCE]
    return int(mode + float(np.median(close))) % step


def throttles(spans: pa.Table) -> dict[str, Floats]:
    """Compute intervals between the ends of throttles, throttles, and CPU times between, in ns.

    A run's first throttle only begins an interval, as the cost paper counts them (section 4.3).

    Args:
        spans: rows of the table ``spans``; those named ``throttle`` count.
    """
    by_kind: dict[str, list[int]] = {kind: [] for kind in KINDS}
    before: dict[str, int] = {}
    columns = ("invocation", "name", "start", "end")
    for row in spans.select(columns).sort_by("end").to_pylist():
        if row["name"] != "throttle":
            continue
        last = before.get(row["invocation"])
        if last is not None:
            by_kind["interval"].append(row["end"] - last)
            by_kind["throttle"].append(row["end"] - row["start"])
            by_kind["cpu"].append(row["start"] - last)
        before[row["invocation"]] = row["end"]
    return {kind: np.asarray(values, dtype=np.float64) for kind, values in by_kind.items()}


def compare(profile: Profile, setting: Setting, seed: int = 0) -> dict[str, float | None]:
    """Compute the Wasserstein-1 distance of a simulated probe from a profile, by kind, in ns.

    Args:
        profile: the runs of one group, on one clock.
        setting: the setting of the profile; its grids are those of the profile, if it shows them.
        seed: of the simulation.

    Raises:
        UnciaError: the setting is wrong.
    """
    shown = grids(profile, setting.period_ns, 1_000_000_000 // setting.hz)
    if shown is not None:
        offsets = {"tick_offset_ns": shown.tick, "timer": {"offset": shown.refill}}
        setting = setting.model_copy(update=offsets)
    measured = dict(zip(KINDS, profile.arrays(), strict=True))
    simulated = throttles(simulate([setting], seed).spans)
    return {
        kind: distance(measured[kind], simulated[kind])
        if min(len(measured[kind]), len(simulated[kind])) >= MIN_SAMPLE
        else None
        for kind in KINDS
    }
