"""Draws the BB Trace of a seed for a simulation, with as much load as its file says."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError
from uncia.experiment import bb_trace
from uncia.experiment.simulated_requests import Requests, read
from uncia.experiment.simulation import SimulationFile, TraceOf
from uncia.traces import bb

WORK: Final = ".uncia-bb-"
"""What the names of folders begin with that last as long as a trace is drawn."""

_TRIAL: Final = 0.1
"""What the counts are multiplied by to see what is asked of the CPUs: a part, as that is faster."""

_NS: Final = 60 * 10**9


def draw(
    file: SimulationFile, trace: TraceOf, seed: int, into: Path, most_memory: int | None
) -> Requests:
    """Draw a BB Trace, and read its requests.

    Args:
        file: what is simulated.
        trace: its key ``trace``, with ``bb``.
        seed: of population, profiles and all else.
        into: the file of requests to write; the trace is drawn beside it, and deleted again.
        most_memory: as in :func:`uncia.experiment.simulated_requests.read`.

    Raises:
        UnciaError: it cannot be drawn or written, or asks for no CPU where a load is to be offered.
    """
    assert trace.bb is not None, "the caller has a trace to draw"
    choices = trace.bb.model_dump(exclude={"offered_load"})
    settings = bb.Settings(**choices, seed=seed)
    # Not in /tmp, which may be small.
    with tempfile.TemporaryDirectory(prefix=WORK, dir=into.parent) as work:
        if trace.bb.offered_load is not None:
            trial = settings.model_copy(update={"load": settings.load * _TRIAL})
            asked = _read(trial, trace, Path(work) / "trial", into, None).cpu
            if not asked:
                raise UnciaError(
                    f"trace.bb: the trace of seed {seed} asks for no CPU, so that no load of it is"
                    " trace.bb.offered_load",
                    hint="Draw more functions.",
                )
            there = file.cluster.workers * file.cluster.vcpu * bb.MINUTES * _NS
            load = settings.load * _TRIAL * trace.bb.offered_load * there / asked
            settings = settings.model_copy(update={"load": load})
        return _read(settings, trace, Path(work) / "trace", into, most_memory)


def _read(
    settings: bb.Settings, trace: TraceOf, folder: Path, into: Path, most_memory: int | None
) -> Requests:
    bb_trace.make(settings, folder)
    return read(trace, folder, into, most_memory)
