"""Samples the noise during a run, once a second, as rows of the ``machine`` table."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Final, NamedTuple, Self

from uncia.doctor.host import Host
from uncia.doctor.noise import (
    BACKGROUND_PERCENT,
    PRESSURE_PERCENT,
    STEAL_PERCENT,
    Reading,
    read,
    shares,
)

INTERVAL_S: Final = 1.0
_SHORTEST_S: Final = (
    0.2  # the kernel counts CPU time in ticks of 10 ms; below this they are too coarse
)

STEAL: Final = "cpu.steal_percent"
BACKGROUND: Final = "cpu.background_percent"
BUSY: Final = "cpu.busy_percent"
IOWAIT: Final = "cpu.iowait_percent"
LOAD: Final = "load.1m"
AVAILABLE: Final = "memory.available_bytes"


class MachineRow(NamedTuple):
    """A row of the ``machine`` table, without its run.

    Attributes:
        time: ns since the run's epoch, at the end of the second that the value is of.
        counter: its name, which ends in the unit.
        cgroup: None, because these are the whole machine's.
        value: in the unit; shares are per cent of all CPUs' time.
    """

    time: int
    counter: str
    cgroup: str | None
    value: float


class NoiseMonitor:
    """Samples steal, background CPU, pressure and load in a thread of its own.

    Used as a context manager, or by :meth:`start` and :meth:`stop`. Where the machine has no
    ``/proc/stat`` there are no rows.

    Args:
        epoch_unix_ns: the run's epoch; times of rows are counted from it.
        ours: further processes that, with their descendants, are not background; this process and
            its descendants never are.
        interval_s: the time between samples.
        host: the machine; by default this one.
    """

    def __init__(
        self,
        epoch_unix_ns: int,
        *,
        ours: Iterable[int] = (),
        interval_s: float = INTERVAL_S,
        host: Host | None = None,
    ) -> None:
        self._epoch = epoch_unix_ns
        self._ours = {os.getpid(), *ours}
        self._interval = interval_s
        self._host = host or Host()
        self._rows: list[MachineRow] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def include(self, pid: int) -> None:
        """Count a process and its descendants as ours from now on, not as background."""
        with self._lock:
            self._ours.add(pid)

    def start(self) -> None:
        """Start sampling.

        Raises:
            RuntimeError: it was started before.
        """
        if self._thread is not None:
            raise RuntimeError("a noise monitor is started once")
        self._thread = threading.Thread(target=self._watch, name="uncia-noise", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling, after a last sample of the interval so far; may be called again."""
        self._stop.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def rows(self) -> list[MachineRow]:
        """Return the samples so far, in the order of time."""
        with self._lock:
            return list(self._rows)

    def warnings(self) -> list[str]:
        """Return a sentence for each kind of noise that exceeded its threshold on average."""
        means = {
            counter: sum(values) / len(values)
            for counter in {row.counter for row in self.rows()}
            if (values := [row.value for row in self.rows() if row.counter == counter])
        }
        peaks = {
            counter: max(row.value for row in self.rows() if row.counter == counter)
            for counter in means
        }
        sentences = []
        if means.get(STEAL, 0.0) > STEAL_PERCENT:
            sentences.append(
                f"During the run the host kept {means[STEAL]:.1f} % of the CPU time for others "
                f"(steal; {peaks[STEAL]:.0f} % in the worst second). Tail latencies are longer "
                "than the platform's own."
            )
        if means.get(BACKGROUND, 0.0) > BACKGROUND_PERCENT:
            sentences.append(
                f"During the run other processes used {means[BACKGROUND]:.1f} % of the CPU time "
                f"({peaks[BACKGROUND]:.0f} % in the worst second). They competed with the "
                "functions and with the load generator."
            )
        for resource, name in (("memory", "memory"), ("io", "input and output")):
            counter = pressure_counter(resource)
            if means.get(counter, 0.0) > PRESSURE_PERCENT:
                sentences.append(
                    f"During the run tasks waited for {name} {means[counter]:.1f} % of the time "
                    f"({peaks[counter]:.0f} % in the worst second)."
                )
        return sentences

    def _watch(self) -> None:
        before = self._read()
        due = time.monotonic()
        while before is not None:
            due += self._interval
            stopping = self._stop.wait(max(0.0, due - time.monotonic()))
            if stopping and time.monotonic() - before.time_s < _SHORTEST_S:
                return
            after = self._read()
            if after is None:
                return
            self._add_rows(before, after)
            before = after
            if stopping:
                return

    def _read(self) -> Reading | None:
        with self._lock:
            ours = set(self._ours)
        return read(self._host, ours)

    def _add_rows(self, before: Reading, after: Reading) -> None:
        time_ns = time.time_ns() - self._epoch
        measured = shares(before, after)
        load = (self._host.read("/proc/loadavg") or "").split()
        values: dict[str, float | None] = {
            STEAL: measured.steal_percent,
            BACKGROUND: measured.background_percent,
            BUSY: measured.busy_percent,
            IOWAIT: measured.iowait_percent,
            LOAD: float(load[0]) if load else None,
            AVAILABLE: self._host.memory("MemAvailable"),
        }
        for resource, percent in sorted(measured.pressure_percent.items()):
            values[pressure_counter(resource)] = percent
        rows = [
            MachineRow(time_ns, counter, None, float(value))
            for counter, value in values.items()
            if value is not None
        ]
        with self._lock:
            self._rows += rows


def pressure_counter(resource: str) -> str:
    """Return the counter of the time in which tasks waited for ``cpu``, ``memory`` or ``io``."""
    return f"pressure.{resource}_percent"
