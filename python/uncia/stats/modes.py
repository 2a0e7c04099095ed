"""Modes of a load (Shahrad et al., MICRO'19, section 4.1): over, under, or balanced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from uncia.stats import columns, slopes
from uncia.stats.columns import pc
from uncia.stats.slopes import Slope, Verdict

Mode = Literal["over-invoked", "under-invoked", "balanced"]
_Bools = npt.NDArray[np.bool_]

STARTS: Final = ("cold", "restored", "thawed")
"""What meets an instance that does not run: none, or a paused one."""

UNDER: Final = 0.05
"""More than this share of such requests, after the first starts: instances are not kept busy."""

_FIRST: Final = 4
"""Starts that end in the first quarter of the schedule are the first ones."""


@dataclass(frozen=True)
class Load:
    """What a load was to what served it.

    Attributes:
        verdict: whether the rate was sustained.
        slope: of latency along the schedule, in seconds a second; None: the run is too short.
        start_share: of requests after the first starts that met a cold or paused instance; None:
            nobody says.
        mode: None where it cannot be said.
        rate: at which these requests were due: (n - 1) a second of their span; None: it is none.
    """

    verdict: Verdict
    slope: Slope | None
    start_share: float | None
    mode: Mode | None
    rate: float | None = None

    def data(self) -> dict[str, Any]:
        """As plain data, for ``summary.json``."""
        slope = self.slope
        return {
            "mode": self.mode,
            "sustained": self.verdict,
            "slope": None if slope is None else slope.value,
            "slope_low": None if slope is None else slope.low,
            "slope_high": None if slope is None else slope.high,
            "start_share": self.start_share,
        }


def of_rows(rows: pa.Table) -> Load | None:
    """The load of an experiment, by its requests of an open loop; None: it has none.

    A rate is sustained if the platform fails none of its requests (those that the function itself
    failed count as served) and latency does not grow (`uncia.stats.slopes`).
    """
    sent = pc.and_(columns.column(rows, "open_loop", pa.bool_()), columns.is_request(rows))
    rows = rows.filter(pc.fill_null(sent, False)).sort_by("scheduled")
    if not rows.num_rows:
        return None
    scheduled = columns.integers(rows, "scheduled").to_numpy()
    latency = columns.latency(rows)
    outcomes = columns.words(rows, "outcome").to_numpy(zero_copy_only=False)
    later, met, known = _starts(rows)
    answered = later & latency.is_valid().to_numpy()
    gained = latency.fill_null(0).to_numpy()
    slope = slopes.of_rows(scheduled[answered], gained[answered])
    verdict: Verdict = "undecided" if slope is None else slope.verdict()
    if not np.isin(outcomes, ("ok", "function_error")).all():
        verdict = "not"
    share = float(met.sum() / known.sum()) if known.any() else None
    span_s = float(scheduled[-1] - scheduled[0]) / slopes.BLOCK_NS
    rate = (scheduled.size - 1) / span_s if span_s > 0 else None
    return Load(verdict, slope, share, _mode(verdict, share), rate)


def waking(rows: pa.Table) -> tuple[int, int]:
    """How many requests after the first starts met a cold or paused instance, and of how many.

    Args:
        rows: of a load of either loop; those that are no requests do not count.
    """
    rows = rows.filter(columns.is_request(rows))
    rows = rows.filter(pc.is_valid(columns.due(rows)))
    _, met, known = _starts(rows.take(pc.sort_indices(columns.due(rows))))
    return int(met.sum()), int(known.sum())


def _starts(rows: pa.Table) -> tuple[_Bools, _Bools, _Bools]:
    """Which requests came after the first starts, met no warm instance, and are known to or not.

    Args:
        rows: requests, in the order in which they were due.

    Returns:
        Three of shape (rows,); the latter two are within the first.
    """
    starts = columns.words(rows, "start").to_numpy(zero_copy_only=False)
    known = np.array([start is not None for start in starts], dtype=bool)
    due = columns.due(rows).to_numpy()
    if not due.size:
        return known, known, known
    ends = pc.coalesce(columns.integers(rows, "received"), columns.due(rows)).to_numpy()
    waking = np.isin(starts, STARTS)
    first = waking & (ends <= due[0] + (due[-1] - due[0]) // _FIRST)
    later = due >= ends[first].max(initial=due[0])
    return later, later & waking, later & known


def _mode(verdict: Verdict, start_share: float | None) -> Mode | None:
    if verdict == "not":
        return "over-invoked"
    if verdict == "undecided" or start_share is None:
        return None
    return "under-invoked" if start_share > UNDER else "balanced"
