"""The simulator of the kernel's bandwidth control, from Python.

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
    """One thread that does tasks of so much CPU time, in turn, and sleeps before each."""

    kind: Literal["task"] = "task"
    cpu_ns: list[Ns]
    gap_ns: tuple[Ns, Ns] | None = None
    """Bounds of the sleep, drawn evenly; unless given, 3 to 4 periods."""
    sleeps_ns: list[Ns] = Field(default_factory=list)
    """Instead of bounds, sleeps of which one is drawn before each task..."""
    sleeps_in_turn: bool = False
    """...or which are taken in turn."""
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
    kept_ns: Ns = 1_000_000
    """What a CPU keeps at most of its runtime when the group falls asleep there."""
    remaining_ns: Ns = 0
    """Runtime that each CPU has when a run begins; 1 ns where debts have been paid."""
    cpus: int = 1
    weight: int = 1024
    neighbours: list[list[Step]] = Field(default_factory=list)
    """Threads outside the group, with their steps."""
    wake_delay_ns: Ns = 0
    wake_jitter_ns: Ns = 0
    runs: int = 1
    """How many probes or patterns run, or how many tasks are done."""
    starts_ns: list[Ns] = Field(default_factory=list)
    """When runs begin on the simulation's clock, in turn; unless given, at random times."""
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


def durations(
    settings: Sequence[Setting], quotas_ns: Sequence[int | None] | None = None, seed: int = 0
) -> list[Ints]:
    """Wall-clock times of many tasks or runs, and of nothing else.

    Args:
        settings: to simulate.
        quotas_ns: the quotas under which each setting is simulated, None for none; by default its
            own alone. All meet the same random numbers.
        seed: of the random numbers.

    Returns:
        One array a setting, ns; shape (quotas, tasks or runs).

    Raises:
        UnciaError: a setting is wrong: which, and what about it.
    """
    if not settings:
        return []
    rows = _swept(settings, "durations", seed, quotas_ns)
    quotas = rows.num_rows // len(settings)
    found = rows["execution"]
    return [
        _values(found.slice(first, quotas)).reshape(quotas, -1)
        for first in range(0, rows.num_rows, quotas)
    ]


def throttles(settings: Sequence[Setting], seed: int = 0) -> list[list[tuple[Ints, Ints]]]:
    """When the runs of many settings were throttled, and nothing else.

    Args:
        settings: to simulate.
        seed: of the random numbers.

    Returns:
        A list a setting, in it a pair for each run of a thread: begins and ends of its throttles,
        ns on the simulation's clock, shape (throttles,) each.

    Raises:
        UnciaError: a setting is wrong: which, and what about it.
    """
    rows = _swept(settings, "throttles", seed)
    found: list[list[tuple[Ints, Ints]]] = [[] for _ in settings]
    pairs = zip(*(_lists(rows[name]) for name in ("start", "end")), strict=True)
    for setting, pair in zip(rows["setting"].to_pylist(), pairs, strict=True):
        found[setting].append(pair)
    return found


def _swept(
    settings: Sequence[Setting],
    of: Literal["durations", "throttles"],
    seed: int,
    quotas_ns: Sequence[int | None] | None = None,
) -> pa.Table:
    config = {
        "seed": seed,
        "settings": [setting.model_dump() for setting in settings],
        "quotas_ns": None if quotas_ns is None else list(quotas_ns),
        "of": of,
    }
    return cpu.table("sweep", config)


def _values(column: pa.ChunkedArray) -> Ints:
    """All values of a column of lists, in a row."""
    import numpy as np

    return np.concatenate([_ints(chunk.flatten()) for chunk in column.chunks])


def _lists(column: pa.ChunkedArray) -> list[Ints]:
    """The lists of a column, an array each."""
    found: list[Ints] = []
    for chunk in column.chunks:
        values, ends = _ints(chunk.values), chunk.offsets.to_pylist()
        found += [values[first:last] for first, last in itertools.pairwise(ends)]
    return found


def _ints(array: pa.Array) -> Ints:
    """The values of an array of 64-bit integers without nulls, where they are: `to_numpy` would
    load pandas first, which takes longer than most simulations."""
    import numpy as np

    if not len(array):
        return np.empty(0, dtype=np.int64)
    values = np.frombuffer(array.buffers()[1], dtype=np.int64)
    return values[array.offset : array.offset + len(array)]
