"""Which jumps of a profile are probably no throttles.

The probe sees every pause alike: throttles, but also preemption by other tasks, time that the host
gave to other machines, and interrupts. Two independent ways tell how many of them were no throttle:

* **refills**: a throttle ends when the quota is refilled, and refills come once a period, at the
  same place of each (``sched_cfs_period_timer``, kernel/sched/fair.c). Most gaps of a run end at
  that place, which gives it; a gap in which no refill lies is no throttle. A pause that a refill
  happens to fall into is not recognised, so that this is a lower bound.
* **baseline**: the same probe without a quota on the same machine shows how many such pauses there
  are in a second of running; it ran for so and so many seconds under the quota.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from uncia.bandwidth.profiles.model import ProbeRun, Profile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FEWEST: Final = 8  # events of a run from which on their place in the period is told
_WIDEST_NS: Final = 1_000_000
_WINDOW: Final = 20  # of the period
_AGREEING: Final = 0.5  # share of the time in gaps that must end at the same place


def judge(
    profile: Profile, period_ns: int, baseline: Mapping[str, Any] | None, used_ns: int
) -> dict[str, Any]:
    """How many gaps are probably no throttles.

    Args:
        profile: what was seen.
        period_ns: of the quota.
        baseline: ``jumps`` in ``cpu_ns`` without a quota; None: not measured.
        used_ns: CPU time under the quota.

    Returns:
        ``gaps``; ``without_refill``: those in which no refill lies, of ``judged`` that could be
        judged; ``refills``: how many lie in the others, which is what the kernel counts as
        ``nr_throttled``; ``expected_false``: by the baseline; None where not known.
    """
    judged = without = refills = 0
    for run in profile.runs:
        inside = refills_inside(run, period_ns)
        if inside is not None:
            judged += len(inside)
            without += int((inside == 0).sum())
            refills += int(inside.sum())
    ran = 0 if baseline is None else baseline["cpu_ns"]
    return {
        "gaps": profile.events,
        "judged": judged,
        "without_refill": without if judged else None,
        "refills": refills if judged else None,
        "expected_false": baseline["jumps"] * used_ns / ran if baseline and ran else None,
    }


def refills_inside(run: ProbeRun, period_ns: int) -> NDArray[np.int64] | None:
    """For each gap of a run, how many refills lie in it.

    Args:
        run: its events.
        period_ns: of the quota.

    Returns:
        An array as long as the events; None if they are too few, or do not end at one place of the
        period.
    """
    import numpy as np

    if len(run.events) < _FEWEST:
        return None
    events = np.asarray(run.events, dtype=np.int64)
    ends = events[:, 0]
    starts = ends - events[:, 1]
    window = min(_WIDEST_NS, period_ns // _WINDOW)
    # Ends gather behind the refill: the window with most of them begins there. They count by the
    # length of their gaps, for pauses may be more than throttles, but are short.
    order = np.argsort(ends % period_ns, kind="stable")
    places = (ends % period_ns)[order]
    circle = np.concatenate((places, places + period_ns))
    lengths = np.concatenate(([0], np.cumsum(np.tile(events[order, 1], 2))))
    behind = np.searchsorted(circle, places + window, side="right")
    inside = lengths[behind] - lengths[: len(places)]
    best = int(inside.argmax())
    if inside[best] < _AGREEING * events[:, 1].sum():
        return None
    refill = int(places[best])
    # The first end of the window is at the refill, or a moment behind it.
    slack = window // 2
    last = (ends - refill + slack) // period_ns
    before = (starts - refill + slack) // period_ns
    found: NDArray[np.int64] = last - before
    return found
