"""A timeout between a warm and a cold chain's time, from a run that measured both before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from uncia import record, yamlio
from uncia.errors import UnciaError
from uncia.stats import columns
from uncia.stats.columns import pc
from uncia.suites.forms import Pilot
from uncia.units import NS_PER_S

_ROOM: Final = 1.2
"""How much longer than a warm chain the timeout is at least, since chains vary."""


def timeout_s(folder: Path, pilot: Pilot) -> tuple[int, str]:
    """The timeout in whole seconds, and a sentence that says between what it lies.

    It is in the middle, rounded up: under half of the cold chain's time no request would ever
    succeed, since callers that time out take their instances with them, and only the stages that
    are reached later leave theirs to the next request.

    Args:
        folder: of the run that measured them.
        pilot: which experiments did.

    Raises:
        UnciaError: the run is not there, or no whole number of seconds lies between.
    """
    try:
        table = record.read(folder, "invocations")
    except (UnciaError, OSError) as error:
        raise UnciaError(
            f"the pilot's run {folder} cannot be read",
            hint="It is made before this one; see why it was not.",
        ) from error
    cold, warm = _latencies(table, pilot.cold), _latencies(table, pilot.warm)
    if not cold or not warm:
        raise UnciaError(f"{folder}: the pilot has no chain that ended well")
    longest, usual = max(cold), sorted(warm)[len(warm) // 2]
    times = f"{usual / NS_PER_S:.3f} s warm and {longest / NS_PER_S:.3f} s cold"
    low = max(1, math.ceil(usual * _ROOM / NS_PER_S))
    high = math.ceil(longest / NS_PER_S) - 1
    if low > high:
        raise UnciaError(f"the pilot's chains took {times}: no whole second is a timeout between")
    chosen = min(max(low, math.ceil((longest + usual) / 2 / NS_PER_S)), high)
    return chosen, f"The pilot's chains took {times}: the timeout is {chosen} s."


def with_timeout(document: yamlio.Document, pilot: Pilot, seconds: int) -> yamlio.Document:
    """The experiment file with this timeout of the pilot's functions."""
    functions: Mapping[str, Any] = document.data["functions"]
    changed = {name: {**functions[name], "timeout": f"{seconds}s"} for name in pilot.functions}
    return document.with_data({**document.data, "functions": {**functions, **changed}})


def _latencies(table: pa.Table, experiment: str) -> list[int]:
    rows = table.filter(columns.is_word(table, "experiment", experiment))
    rows = rows.filter(pc.invert(columns.is_hop(rows)))
    ok = rows.filter(columns.is_word(rows, "outcome", "ok"))
    latencies: list[int] = columns.difference(ok, "received", "scheduled").drop_null().to_pylist()
    return latencies
