"""The machine during a run: examined before, watched throughout, kept as the machine table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from uncia import doctor, record
from uncia.doctor import monitor
from uncia.doctor.everywhere import Everywhere
from uncia.doctor.monitors import INSTANCES, Asked
from uncia.errors import UnciaError
from uncia.experiment.describe import Description
from uncia.runs.folder import RunFolder
from uncia.workload.monitoring import asked_of

if TYPE_CHECKING:
    import pyarrow as pa

    from uncia.workload.monitoring import MonitorForm

# Long enough to see a neighbour that steals CPU time, short beside any run.
_EXAMINE_S: Final = 0.5

_PARTS: Final = 1000
"""Numbers of streams for the monitors of each experiment, after those of the run."""


def of_run(forms: Sequence[MonitorForm], groups: Sequence[str]) -> list[Asked]:
    """The monitors that a file names, of a run's control groups unless it says whose.

    Args:
        forms: the monitors.
        groups: patterns of the run's own groups, which are on this machine; none: it has none.
    """
    return [
        watch
        for it in asked_of(forms)
        for watch in (_of_groups(it, groups) if groups and tuple(it.groups) == INSTANCES else [it])
    ]


def _of_groups(asked: Asked, groups: Sequence[str]) -> list[Asked]:
    here = [host for host in asked.hosts if host.url is None]
    there = [host for host in asked.hosts if host.url is not None]
    if not there:
        return [replace(asked, groups=groups)]
    split = [replace(asked, hosts=there)]
    return [replace(asked, groups=groups, hosts=here), *split] if here else split


class MachineWatch:
    """Watches the machine from :meth:`start` to :meth:`stop`, with all monitors of the run."""

    def __init__(self) -> None:
        self._monitors: Everywhere | None = None
        self._during: list[Everywhere] = []
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
        self._description = description

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
        description.hosts = self._monitors.facts
        return list(self._monitors.sentences)

    @contextmanager
    def during(
        self, experiment: str, number: int, folder: RunFolder, asked: Sequence[Asked]
    ) -> Iterator[list[str]]:
        """Watch with further monitors while one experiment is measured.

        Args:
            experiment: its name.
            number: its position in the run.
            folder: the run's.
            asked: the monitors.

        Yields:
            What does not work here of what was asked for, a sentence each.

        Raises:
            UnciaError: what was asked for cannot be started.
        """
        description = self._description
        if not asked or description is None:
            yield []
            return
        first = _PARTS * (number + 1)
        watching = Everywhere.start(
            [it.within(experiment) for it in asked],
            lambda host: folder.part("machine", first + host, experiment),
            description.epoch_unix_ns,
            run=description.run,
            ours=[os.getpid()],
        )
        self._during.append(watching)
        sentences = list(watching.sentences)
        try:
            yield sentences
        finally:
            description.warnings.extend(it for it in watching.stop() if it not in sentences)
            # Where the run's own monitors watch, their clocks were compared for longer.
            description.hosts = {**watching.facts, **description.hosts}

    def stop(self) -> list[str]:
        """End watching; returns what a reader of the results should know. May be called again."""
        if self._monitors is None or self._stopped:
            return []
        self._stopped = True
        sentences = self._monitors.stop()
        if self._description is not None:
            self._description.hosts = {**self._description.hosts, **self._monitors.facts}
        if self._rows is not None and self._rows.exists():
            sentences += monitor.warnings(record.read(self._rows, "machine"))
        return sentences

    def unseen(self, rows: pa.Table) -> list[str]:
        """A sentence for each monitor that was to watch control groups and saw none.

        Args:
            rows: of the table ``machine``.
        """
        watching = [*([] if self._monitors is None else [self._monitors]), *self._during]
        return [sentence for each in watching for sentence in each.unseen(rows)]
