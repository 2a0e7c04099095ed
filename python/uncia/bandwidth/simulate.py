"""The simulator of the kernel's bandwidth control, from Python.

The model, and what it leaves out, is described in ``crates/bandwidth/src/sim``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from uncia import engine
from uncia.forms import Form

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Ns = Annotated[int, Field(ge=0)]
Step = dict[Literal["run_ns", "kernel_ns", "sleep_ns"], Ns]


class Probe(Form):
    """Algorithm 1: threads that read the clock and note jumps of ``threshold_ns`` and more."""

    kind: Literal["probe"] = "probe"
    duration_ns: Ns
    threshold_ns: Ns = 500_000
    threads: int = 1


class Task(Form):
    """One thread that does tasks of so much CPU time, in turn, and sleeps before each."""

    kind: Literal["task"] = "task"
    cpu_ns: list[Ns]
    gap_ns: tuple[Ns, Ns] | None = None
    """Bounds of the sleep, drawn evenly; unless given, 3 to 4 periods."""
    sleeps_ns: list[Ns] = Field(default_factory=list)
    """Instead of bounds, sleeps of which one is drawn before each task."""
    before_ns: list[Ns] = Field(default_factory=list)
    """CPU time that is used after the wake-up and before the task counts as begun, in turn."""
    fresh: bool = False
    """Each task in a group of its own, without debts and with a timer of its own."""
    threshold_ns: Ns = 0


class Pattern(Form):
    """Threads that each repeat steps: ``run_ns`` (user mode), ``kernel_ns``, ``sleep_ns``."""

    kind: Literal["pattern"] = "pattern"
    duration_ns: Ns
    threads: list[list[Step]]
    threshold_ns: Ns = 500_000


class Setting(Form):
    """A control, a kernel and the work of a group; times in ns. See the simulator for each."""

    name: str = "simulated"
    period_ns: Ns
    quota_ns: Ns | None
    """CPU time in each period; None: no limit."""
    burst_ns: Ns = 0
    hz: int = 250
    tick_offset_ns: Ns = 0
    scheduler: Literal["cfs", "eevdf"] = "cfs"
    throttling: Literal["group", "task"] = "group"
    """Whole queues are throttled (to Linux 6.17), or threads on their way to user mode (6.18)."""
    timer: Literal["absolute", "random"] | dict[Literal["offset"], Ns] = "absolute"
    """The period timer expires at whole periods of the clock (to Linux 6.3), or at an offset."""
    slice_ns: Ns = 5_000_000
    cpus: int = 1
    weight: int = 1024
    neighbours: list[list[Step]] = Field(default_factory=list)
    """Threads outside the group, with their steps."""
    wake_delay_ns: Ns = 0
    wake_jitter_ns: Ns = 0
    runs: int = 1
    """How many probes or patterns run, or how many tasks are done."""
    work: Annotated[Probe | Task | Pattern, Field(discriminator="kind")]


@dataclass(frozen=True)
class Simulated:
    """What came of settings: rows of ``invocations`` and of ``spans``.

    The column ``function`` is the setting's name; a span ``throttle`` is a time in which a thread
    could have run but did not. Times are ns on the simulation's clock.
    """

    invocations: pa.Table
    spans: pa.Table
    ticks: int
    """Ticks that were simulated; idle CPUs have none."""

    def durations(self, name: str | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Wall-clock times of the runs of a setting (of all, without a name), in ns."""
        import numpy as np
        import pyarrow.compute as pc

        rows = self.invocations
        if name is not None:
            rows = rows.filter(pc.field("function") == name)
        return np.asarray(rows["execution"].to_numpy(), dtype=np.int64)


def simulate(settings: Sequence[Setting], seed: int = 0) -> Simulated:
    """Simulate settings; the same seed gives the same tables on every machine.

    Raises:
        UnciaError: a setting is wrong: which, and what about it.
    """
    import pyarrow as pa

    with tempfile.TemporaryDirectory(prefix="uncia-simulate-") as folder:
        config = {
            "seed": seed,
            "settings": [setting.model_dump() for setting in settings],
            "output": folder,
        }
        done = engine.run(["cpu", "simulate", "--config", "-"], config=config)
        tables = []
        for name in ("invocations", "spans"):
            with pa.ipc.open_stream(pa.OSFile(str(Path(folder) / f"{name}.arrows"))) as stream:
                tables.append(stream.read_all())
    return Simulated(invocations=tables[0], spans=tables[1], ticks=int(done.get("ticks", 0)))
