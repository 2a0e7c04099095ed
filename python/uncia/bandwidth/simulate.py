"""The simulator of the kernel's bandwidth control: its settings, and calls of it.

The model, and what it leaves out, is described in ``crates/bandwidth/src/sim``.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from uncia import engine
from uncia.bandwidth import engine as cpu
from uncia.forms import Form

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import pyarrow as pa

    Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

Ns = Annotated[int, Field(ge=0)]
Step = dict[Literal["run_ns", "kernel_ns", "sleep_ns"], Ns]


class Probe(Form):
    """Algorithm 1: threads that read the clock and note jumps of ``threshold_ns`` and more."""

    kind: Literal["probe"] = "probe"
    duration_ns: Ns
    threshold_ns: Ns = 500_000
    threads: int = 1


class Task(Form):
    """One thread that runs tasks of given CPU times, in turn, and sleeps before each."""

    kind: Literal["task"] = "task"
    cpu_ns: list[Ns]
    gap_ns: tuple[Ns, Ns] | None = None
    """Bounds of the sleep, drawn evenly; unless given, 3 to 4 periods."""
    sleeps_ns: list[Ns] = Field(default_factory=list)
    """Sleeps, instead of bounds; one is drawn before each task."""
    sleeps_in_turn: bool = False
    """Take the sleeps in turn instead of drawing them."""
    before_ns: list[Ns] = Field(default_factory=list)
    """CPU times used between wake-up and the begin of the task, in turn."""
    fresh: bool = False
    """Run each task in a new group, without debt and with its own timer."""
    threshold_ns: Ns = 0


class Pattern(Form):
    """Threads that each repeat steps: ``run_ns`` (user mode), ``kernel_ns``, ``sleep_ns``."""

    kind: Literal["pattern"] = "pattern"
    duration_ns: Ns
    threads: list[list[Step]]
    threshold_ns: Ns = 500_000


class Setting(Form):
    """A control, a kernel and the work of a group; times in ns. See the simulator."""

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
    kept_ns: Ns = 1_000_000
    """Runtime that a CPU keeps at most when the group falls asleep there."""
    remaining_ns: Ns = 0
    """Runtime that each CPU has when a run begins; 1 ns once debts are paid."""
    cpus: int = 1
    weight: int = 1024
    neighbours: list[list[Step]] = Field(default_factory=list)
    """Threads outside the group, with their steps."""
    wake_delay_ns: Ns = 0
    wake_jitter_ns: Ns = 0
    runs: int = 1
    """Number of probes, patterns or tasks."""
    starts_ns: list[Ns] = Field(default_factory=list)
    """When runs begin on the simulation's clock, in turn; by default at random times."""
    work: Annotated[Probe | Task | Pattern, Field(discriminator="kind")]


@dataclass(frozen=True)
class Simulated:
    """The result of a simulation: rows of ``invocations`` and of ``spans``.

    The column ``function`` is the setting's name; a span ``throttle`` is a time in which a thread
    could have run but did not. Times are ns on the simulation's clock.
    """

    invocations: pa.Table
    spans: pa.Table
    ticks: int
    """Ticks that were simulated; idle CPUs have none."""

    def durations(self, name: str | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Select the wall-clock times of a setting's runs in ns; without a name, of all runs."""
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
        summary = engine.run(["cpu", "simulate", "--config", "-"], config=config)
        tables = []
        for name in ("invocations", "spans"):
            with pa.ipc.open_stream(pa.OSFile(str(Path(folder) / f"{name}.arrows"))) as stream:
                tables.append(stream.read_all())
    return Simulated(invocations=tables[0], spans=tables[1], ticks=int(summary.get("ticks", 0)))


def durations(
    settings: Sequence[Setting], quotas_ns: Sequence[int | None] | None = None, seed: int = 0
) -> list[Ints]:
    """Simulate only the wall-clock times of many tasks or runs, which is faster than `simulate`.

    Args:
        settings: the settings.
        quotas_ns: quotas to simulate each setting with, None for no quota; by default the
            setting's. All use the same random numbers.
        seed: of the random numbers.

    Returns:
        An array for each setting, ns; shape (quotas, tasks or runs).

    Raises:
        UnciaError: a setting is wrong: which, and what about it.
    """
    if not settings:
        return []
    rows = _swept(settings, "durations", seed, quotas_ns)
    quotas = rows.num_rows // len(settings)
    executions = rows["execution"]
    return [
        _values(executions.slice(first, quotas)).reshape(quotas, -1)
        for first in range(0, rows.num_rows, quotas)
    ]


def throttles(settings: Sequence[Setting], seed: int = 0) -> list[list[tuple[Ints, Ints]]]:
    """Simulate only the throttles of many settings, which is faster than `simulate`.

    Args:
        settings: the settings.
        seed: of the random numbers.

    Returns:
        A list for each setting, with a pair for each run of a thread: begins and ends of its
        throttles, ns on the simulation's clock, shape (throttles,) each.

    Raises:
        UnciaError: a setting is wrong: which, and what about it.
    """
    rows = _swept(settings, "throttles", seed)
    by_setting: list[list[tuple[Ints, Ints]]] = [[] for _ in settings]
    pairs = zip(*(_lists(rows[name]) for name in ("start", "end")), strict=True)
    for setting, pair in zip(rows["setting"].to_pylist(), pairs, strict=True):
        by_setting[setting].append(pair)
    return by_setting


def _swept(
    settings: Sequence[Setting],
    kind: Literal["durations", "throttles"],
    seed: int,
    quotas_ns: Sequence[int | None] | None = None,
) -> pa.Table:
    config = {
        "seed": seed,
        "settings": [setting.model_dump() for setting in settings],
        "quotas_ns": None if quotas_ns is None else list(quotas_ns),
        "of": kind,
    }
    return cpu.table("sweep", config)


def _values(column: pa.ChunkedArray) -> Ints:
    """Concatenate the values of a column of lists."""
    import numpy as np

    return np.concatenate([_ints(chunk.flatten()) for chunk in column.chunks])


def _lists(column: pa.ChunkedArray) -> list[Ints]:
    """Convert each list of a column to an array."""
    lists: list[Ints] = []
    for chunk in column.chunks:
        values, ends = _ints(chunk.values), chunk.offsets.to_pylist()
        lists += [values[first:last] for first, last in itertools.pairwise(ends)]
    return lists


def _ints(array: pa.Array) -> Ints:
    """View an array of 64-bit integers without nulls as numpy, without a copy.

    `to_numpy` would load pandas first, which takes longer than most simulations.
    """
    import numpy as np

    if not len(array):
        return np.empty(0, dtype=np.int64)
    values = np.frombuffer(array.buffers()[1], dtype=np.int64)
    return values[array.offset : array.offset + len(array)]
