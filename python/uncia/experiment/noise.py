"""The machine during a run: examined before, watched throughout, kept as the machine table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from uncia import doctor, record
from uncia.doctor import monitor
from uncia.doctor.everywhere import Everywhere
from uncia.doctor.monitors import Asked
from uncia.errors import UnciaError
from uncia.experiment.describe import Description
from uncia.runs.folder import RunFolder

if TYPE_CHECKING:
    import pyarrow as pa

# Long enough to see a neighbour that steals CPU time, short beside any run.
_EXAMINE_S: Final = 0.5


class MachineWatch:
    """Watches the machine from :meth:`start` to :meth:`stop`, with all monitors of the run."""

    def __init__(self) -> None:
        self._monitors: Everywhere | None = None
        self._description: Description | None = None
        self._rows: Path | None = None
        self._stopped = False

    def start(
        self, description: Description, folder: RunFolder, asked: Sequence[Asked] = ()
    ) -> list[str]:
        """Examine the machine, note what impairs results, and begin to watch it.

        Args:
            description: of the run.
            folder: its, into which rows are written.
            asked: further monitors.

        Returns:
            What does not work here of what was asked for, a sentence each.

        Raises:
            UnciaError: what was asked for cannot be started.
        """
        # It would watch the scheduler of a run that is about to be measured. A monitor `schedule`
        # that is asked for says itself whether it works.
        report = doctor.examine(_EXAMINE_S, is_bpf_tried=False)
        machine = report.machine()
        noise = machine.pop("noise", None)
        description.machine = machine
        description.noise = {} if noise is None else noise
        description.warnings.extend(report.warnings())
        rows = folder.part("machine", 0, "monitors")

        def part(host: int) -> Path:
            return folder.part("machine", host, "host") if host else rows

        try:
            self._monitors = Everywhere.start(
                [monitor.ASKED, *asked],
                part,
                description.epoch_unix_ns,
                run=description.run,
                ours=[os.getpid()],
            )
        except UnciaError as error:
            if asked:
                raise
            description.warnings.append(f"The machine was not watched: {error.message}")
            return []
        self._rows = rows
        self._description = description
        description.hosts = self._monitors.facts
        return list(self._monitors.sentences)

    def stop(self) -> list[str]:
        """End watching; returns what a reader of the results should know. May be called again."""
        if self._monitors is None or self._stopped:
            return []
        self._stopped = True
        sentences = self._monitors.stop()
        if self._description is not None:
            self._description.hosts = self._monitors.facts
        if self._rows is not None and self._rows.exists():
            sentences += monitor.warnings(record.read(self._rows, "machine"))
        return sentences

    def unseen(self, rows: pa.Table) -> list[str]:
        """A sentence for each monitor that was to watch control groups and saw none.

        Args:
            rows: of the table ``machine``.
        """
        return [] if self._monitors is None else self._monitors.unseen(rows)
