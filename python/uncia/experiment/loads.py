"""A load that is kept as a run: a folder with its rows, bills, summary and report."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from uncia import record
from uncia.errors import UnciaError
from uncia.experiment.conclude import conclude
from uncia.experiment.describe import Content, Description
from uncia.experiment.expect import FAILURES
from uncia.experiment.noise import MachineWatch
from uncia.experiment.progress import Reporter
from uncia.experiment.runner import new_run_id
from uncia.platforms import processes
from uncia.platforms.journal import Journal, Resource
from uncia.runs.folder import RunFolder
from uncia.runs.versions import versions
from uncia.units import format_cpu, format_duration, format_size
from uncia.workload.client import Stream
from uncia.workload.collect import PARQUET, STREAM
from uncia.workload.fleet import Ended
from uncia.workload.monitoring import asked_of
from uncia.workload.resolve import PLATFORM, Prepared

_ROWS: Final = f"invocations{PARQUET}"
_FILE: Final = re.compile(r"\.[A-Za-z]\w*")
_SECRET: Final = re.compile(r"auth|cookie|key|secret|token", re.IGNORECASE)
# Longer bodies are named by their size: run.yaml is for reading.
_MAX_BODY: Final = 1_000


def is_folder(out: Path) -> bool:
    """Whether rows go into the folder of a run; else into a file.

    Raises:
        UnciaError: it is named like a file of another form.
    """
    if out.suffix in (PARQUET, STREAM):
        return False
    if _FILE.fullmatch(out.suffix) and not out.is_dir():
        raise UnciaError(
            f"{out}: rows are written as *.parquet or *.arrows, or into a folder",
            hint="A folder's name has no ending such as this.",
        )
    return True


@dataclass
class KeptLoad:
    """A load while it is sent, and the folder that it is kept in.

    Attributes:
        folder: of the run.
        prepared: the load, whose rows carry the run's id.
        rows: the file of its rows.
    """

    folder: RunFolder
    prepared: Prepared
    rows: Path
    _description: Description
    _journal: Journal
    _machine: MachineWatch = field(default_factory=MachineWatch)

    def on_start(self, process: int) -> None:
        """Write a generator process down, so that ``uncia clean`` can end it after a crash."""
        identity = processes.identify(process)
        if identity is not None:
            self._journal.created(Resource("local", "process", str(process), identity.detail()))

    def conclude(self, ended: Ended, failures: list[str], reporter: Reporter) -> dict[str, Any]:
        """Write the tables of the machine and the bills, the summary and the report.

        Args:
            ended: how the load ended.
            failures: what makes it a failed run, a sentence each.
            reporter: receives progress updates.

        Returns:
            The content of ``summary.json``.

        Raises:
            UnciaError: something could not be computed or written; the rows are there all the same.
        """
        description = self._description
        description.warnings += [*ended.warnings, *self._machine.stop()]
        description.explained = ended.explained
        description.round_trips = {str(self.prepared.load.experiment): [*ended.rtt]}
        description.failures = failures
        description.ended_unix_ns = time.time_ns()
        description.status = "failed" if failures else "complete"
        if ended.interrupted:
            description.status = "interrupted"
        epoch = description.epoch_unix_ns
        parts = [record.read(part, "machine") for part in self.folder.parts("machine")]
        machine = record.merge(parts, "machine")
        machine = record.conform(machine, "machine", epoch)
        record.write(machine, self.folder.path / "machine.parquet", "machine")
        for part in self.folder.parts("machine"):
            part.unlink()
        rows = record.read(self.rows)
        return conclude(self.folder, description, {"invocations": rows}, reporter)


@contextmanager
def kept(
    prepared: Prepared, out: Path, *, overwrite: bool, allow_failures: bool
) -> Iterator[KeptLoad]:
    """Make the folder of a load; a load that sends nothing leaves none.

    Args:
        prepared: the load.
        out: the folder.
        overwrite: whether an earlier run in it may be replaced.
        allow_failures: whether failed requests are as expected.

    Raises:
        UnciaError: the folder or the journal cannot be written.
    """
    run = new_run_id(prepared.load.run)
    epoch = time.time_ns()
    folder = RunFolder.create(out, overwrite=overwrite)
    journal = Journal(run, out)
    rows = folder.path / _ROWS
    part: KeptLoad | None = None
    try:
        description = Description(
            run=run,
            content=_content(prepared, allow_failures=allow_failures),
            seed=prepared.load.seed,
            epoch_unix_ns=epoch,
            versions=versions(),
        )
        load = replace(prepared.load, run=run, epoch_unix_ns=epoch)
        part = KeptLoad(folder, replace(prepared, load=load), rows, description, journal)
        part._machine.start(description, folder, asked_of(prepared.workload.monitors))
        folder.write_run(description.data())
        yield part
    except BaseException:
        folder.mark_failed()
        raise
    finally:
        if part is not None:
            part._machine.stop()
        # What the machine did is of no use without rows.
        streams = {*folder.path.glob(f"*{STREAM}")} - {*folder.parts("machine")}
        if not rows.exists() and not streams:
            folder.remove()
        for resource in journal.outstanding:
            # Generators never outlive the call that sends.
            journal.removed(resource)
        journal.close()


def _content(prepared: Prepared, *, allow_failures: bool) -> Content:
    """What is sent, as the run's description has it."""
    load = prepared.load
    experiment = {
        "description": prepared.sends(),
        "functions": sorted({stream.function for stream in load.streams}),
        "wait_ns": 0,
        "expect": dict.fromkeys(FAILURES, "allowed") if allow_failures else {},
        "timeout_ns": load.total_timeout_ns,
        "streams": [_stream(load.streams, stream) for stream in load.streams],
    }
    workload = prepared.workload
    name = str(load.experiment)
    return Content(
        workload.name,
        workload.description,
        {"kind": PLATFORM},
        {name: experiment},
        _without_secrets(workload.model_dump(mode="json", exclude_none=True)),
    )


def _stream(streams: list[Stream] | Any, stream: Stream) -> dict[str, Any]:
    settings = {
        "memory": None if stream.allocated_memory is None else format_size(stream.allocated_memory),
        "vcpu": None if stream.allocated_cpu is None else format_cpu(stream.allocated_cpu),
        "execution": stream.execution,
    }
    described: dict[str, Any] = {
        "function": stream.function,
        "deployment": stream.function,
        "start": format_duration(stream.start_ns),
        "event": {},
        "settings": {key: value for key, value in settings.items() if value is not None},
    }
    if stream.arrivals is not None:
        described["sends"] = stream.arrivals.sentence()
    elif stream.closed is not None:
        described["sends"] = f"closed loop of {stream.closed.clients:,} clients"
    else:
        described["after"] = [streams[index].stage for index in stream.after]
    if stream.stage is not None:
        described["stage"] = stream.stage
    return described


def _without_secrets(value: Any, name: str = "") -> Any:
    """The workload as data, without what may be secret and without long bodies."""
    if isinstance(value, Mapping):
        return {key: _without_secrets(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item, name) for item in value]
    if isinstance(value, str) and _SECRET.search(name):
        return "(not kept)"
    if isinstance(value, str) and name in ("text", "base64", "template") and len(value) > _MAX_BODY:
        return f"({len(value):,} characters)"
    return value
