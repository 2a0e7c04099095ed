"""The machine during a run: examined before, watched throughout, kept as the machine table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from uncia import doctor, record
from uncia.experiment.describe import Description

if TYPE_CHECKING:
    from uncia.doctor import NoiseMonitor

# Long enough to see a neighbour that steals CPU time, short beside any run.
_EXAMINE_S: Final = 0.5


class NoiseWatch:
    """Watches the machine from :meth:`start` to :meth:`stop`."""

    def __init__(self) -> None:
        self._monitor: NoiseMonitor | None = None

    def start(self, description: Description) -> None:
        """Examine the machine, note what impairs results, and begin to watch it."""
        report = doctor.examine(_EXAMINE_S)
        machine = report.machine()
        noise = machine.pop("noise", None)
        description.machine = machine
        description.noise = {} if noise is None else noise
        description.warnings.extend(report.warnings())
        self._monitor = doctor.NoiseMonitor(description.epoch_unix_ns)
        self._monitor.start()

    def stop(self) -> list[str]:
        """End watching; returns what a reader of the results should know."""
        if self._monitor is None:
            return []
        self._monitor.stop()
        return self._monitor.warnings()

    def table(self, epoch_unix_ns: int, run: str) -> pa.Table:
        """The samples as the ``machine`` table."""
        rows = [] if self._monitor is None else self._monitor.rows()
        return record.conform(
            pa.table(
                {
                    "run": pa.array([run] * len(rows), pa.utf8()),
                    "time": pa.array([row.time for row in rows], pa.int64()),
                    "counter": pa.array([row.counter for row in rows], pa.utf8()),
                    "cgroup": pa.array([row.cgroup for row in rows], pa.utf8()),
                    "value": pa.array([row.value for row in rows], pa.float64()),
                }
            ),
            "machine",
            epoch_unix_ns,
        )
