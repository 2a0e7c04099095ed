"""Noise of profiles: which gaps are probably not throttles.

The probe sees all pauses alike: throttles, preemption by other tasks, time that the host gave to
other machines, and interrupts. Two independent methods estimate how many were not throttles:

* **refills**: a throttle ends when the quota is refilled, and refills come once a period, at the
  same place of each (``sched_cfs_period_timer``, kernel/sched/fair.c). Most gaps of a run end at
  that phase, which shows it; a gap without a refill is not a throttle. This is a lower bound,
  because a pause may contain a refill by chance.
* **baseline**: the same probe without a quota on the same machine shows how many such pauses there
  are per second of CPU time; multiplied by the CPU time under the quota, that is their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from uncia.bandwidth.profiles.model import ProbeRun, Profile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MIN_EVENTS: Final = 8  # events of a run that are needed to find their phase in the period
_WIDEST_NS: Final = 1_000_000
_WINDOW: Final = 20  # of the period
_AGREEING: Final = 0.5  # share of the time in gaps that must end at the same phase


def judge(
    profile: Profile, period_ns: int, baseline: Mapping[str, Any] | None, used_ns: int
) -> dict[str, Any]:
    """Estimate how many gaps are probably not throttles.

    Args:
        profile: the profile.
        period_ns: of the quota.
        baseline: ``jumps`` in ``cpu_ns`` without a quota; None: not measured.
        used_ns: CPU time under the quota.

    Returns:
        ``gaps``; ``without_refill``: gaps without a refill, of ``judged`` that could be judged;
        ``refills``: number of refills in the others, which the kernel counts as ``nr_throttled``;
        ``expected_false``: by the baseline. None if unknown.
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
    """Count the refills in each gap of a run.

    Args:
        run: its events.
        period_ns: of the quota.

    Returns:
        An array as long as the events; None if they are too few, or do not end at one phase of the
        period.
    """
    import numpy as np

    if len(run.events) < _MIN_EVENTS:
        return None
    events = np.asarray(run.events, dtype=np.int64)
    ends = events[:, 0]
    starts = ends - events[:, 1]
    window = min(_WIDEST_NS, period_ns // _WINDOW)
    # Most ends are shortly after the refill: the window with most of them begins there. They count
    # by the length of their gaps, because other pauses may be more, but are shorter.
    order = np.argsort(ends % period_ns, kind="stable")
    phases = (ends % period_ns)[order]
    circle = np.concatenate((phases, phases + period_ns))
    lengths = np.concatenate(([0], np.cumsum(np.tile(events[order, 1], 2))))
    behind = np.searchsorted(circle, phases + window, side="right")
    inside = lengths[behind] - lengths[: len(phases)]
    best = int(inside.argmax())
    if inside[best] < _AGREEING * events[:, 1].sum():
        return None
    refill = int(phases[best])
    # The first end of the window is at the refill, or a moment later.
    slack = window // 2
    last = (ends - refill + slack) // period_ns
    before = (starts - refill + slack) // period_ns
    counts: NDArray[np.int64] = last - before
    return counts
