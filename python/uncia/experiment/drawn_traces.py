"""Draws the BB Trace of a seed for a simulation, with as much load as its file says."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pyarrow.compute as pc

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


def draw(file: SimulationFile, trace: TraceOf, seed: int, beside: Path) -> Requests:
    """Draw a BB Trace, and read its requests.

    Args:
        file: what is simulated.
        trace: its key ``trace``, with ``bb``.
        seed: of population, profiles and all else.
        beside: an existing folder for the trace, which is deleted again.

    Raises:
        UnciaError: it cannot be drawn or written, or asks for no CPU where a load is to be offered.
    """
    assert trace.bb is not None, "the caller has a trace to draw"
    choices = trace.bb.model_dump(exclude={"offered_load"})
    settings = bb.Settings(**choices, seed=seed)
    beside.mkdir(parents=True, exist_ok=True)
    # Not in /tmp, which may be small.
    with tempfile.TemporaryDirectory(prefix=WORK, dir=beside) as work:
        if trace.bb.offered_load is not None:
            trial = settings.model_copy(update={"load": settings.load * _TRIAL})
            asked = _asked(_read(trial, trace, Path(work) / "trial"))
            if not asked:
                raise UnciaError(
                    f"trace.bb: the trace of seed {seed} asks for no CPU, so that no load of it is"
                    " trace.bb.offered_load",
                    hint="Draw more functions.",
                )
            there = file.cluster.workers * file.cluster.vcpu * bb.MINUTES * _NS
            load = settings.load * _TRIAL * trace.bb.offered_load * there / asked
            settings = settings.model_copy(update={"load": load})
        return _read(settings, trace, Path(work) / "trace")


def _read(settings: bb.Settings, trace: TraceOf, folder: Path) -> Requests:
    bb_trace.make(settings, folder)
    return read(trace, folder)


def _asked(requests: Requests) -> int:
    """CPU time that all phases ask for, micro-vCPU x ns."""
    phases = requests.table["phases"].combine_chunks().values
    # In vCPU x ns: an hour of many in micro-vCPU may not go into 64 bits.
    threads = pc.divide(phases.field("cpu"), 10**6)
    total = pc.sum(pc.multiply(phases.field("duration"), threads)).as_py()
    return int(total or 0) * 10**6
