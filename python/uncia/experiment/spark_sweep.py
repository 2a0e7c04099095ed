"""The points of a sweep on a Spark cluster: a task each, which is a process on an executor.

Executors have the same version of Uncia, and see the sweep's folder, and the tables that it reads,
under the same paths.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from uncia.backends.options import Options
from uncia.backends.spark import Spark
from uncia.errors import UnciaError
from uncia.experiment.sweep_task import Task, content_digest
from uncia.runs.versions import versions

# Of these the same rows come; another Python or kernel changes none.
_DECISIVE: Final = ("uncia", "engine", "architecture")
_TASKS_PER_SLOT: Final = 3


@dataclass(frozen=True)
class _Host:
    """What an executor says of itself."""

    name: str
    versions: dict[str, str]
    sees_folder: bool
    digests: dict[Path, str]


def run(tasks: Sequence[Task], master: str) -> Iterator[tuple[int, str | None]]:
    """Simulate points on a cluster.

    Args:
        tasks: a point each.
        master: the address of the cluster.

    Yields:
        The number of each point, and why it failed, if it did.

    Raises:
        UnciaError: the cluster cannot be reached, its executors have another version of Uncia, or
            do not see the sweep's folder or the tables that it reads.
    """
    folder = tasks[0].folder.parent
    with contextlib.closing(Spark(Options(master=master))) as spark:
        _check(spark, folder, {path: it for task in tasks for path, it in task.inputs.items()})
        errors = spark.map(Task.simulate, tasks)
    for task, error in zip(tasks, errors, strict=True):
        yield task.number, error


def _check(spark: Spark, folder: Path, inputs: Mapping[Path, str]) -> None:
    """Check that executors are as this machine, before anything is simulated.

    Args:
        spark: the cluster.
        folder: of the sweep.
        inputs: digests of the tables that are read, by path.

    Raises:
        UnciaError: one is not.
    """
    mark = folder / f".uncia-sweep-{secrets.token_hex(8)}"
    mark.mkdir()
    try:
        question = (mark, tuple(inputs))
        hosts = spark.map(_host, [question] * (_TASKS_PER_SLOT * spark.slots))
    finally:
        mark.rmdir()
    here = versions()
    for host in hosts:
        for part in _DECISIVE:
            if host.versions[part] != here[part]:
                raise UnciaError(
                    f"the executor on {host.name} has {part} {host.versions[part]}, and this"
                    f" machine {here[part]}: the points would not be comparable",
                    hint="Install the same version of Uncia on all.",
                )
        if not host.sees_folder:
            raise UnciaError(
                f"the executor on {host.name} does not see the folder {folder}",
                hint="Choose one that all share, under the same path, with --out.",
            )
        for path, digest in inputs.items():
            if host.digests.get(path) != digest:
                raise UnciaError(
                    f"the executor on {host.name} does not see the same table under {path}:"
                    " its content is another one, or it is not there",
                    hint="Put it where all see it, under the same path.",
                )


def _host(question: tuple[Path, tuple[Path, ...]]) -> _Host:
    mark, inputs = question
    digests = {}
    for path in inputs:
        # What may not be read has no digest, which is none that is asked for.
        with contextlib.suppress(UnciaError, OSError):
            digests[path] = content_digest(path)
    return _Host(socket.gethostname(), versions(), mark.is_dir(), digests)
