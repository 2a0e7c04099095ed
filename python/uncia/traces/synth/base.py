"""What the makers of all synthetic traces share: what is asked, what was made, files, processes."""

import gzip
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Final, TypeVar

import numpy as np
import numpy.typing as npt

from uncia.errors import UnciaError
from uncia.traces.base import ACCOUNT

_MAX_ROWS: Final = 1 << 43
_MAX_SEED: Final = (1 << 63) - 1
_MAX_FILES: Final = 100_000
_ROWS_WORTH_A_PROCESS: Final = 2_000_000
_GZIP_LEVEL: Final = 1

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Order:
    """What is asked for; see :func:`uncia.traces.synth.make`."""

    out: Path
    rows: int
    seed: int = 1
    files: int | None = None
    malformed: float = 0
    gzip: bool = False
    parquet: bool = False
    jobs: int | None = None


@dataclass
class FileMade:
    """A file, and what is in it.

    Attributes:
        path: relative to the folder.
        rows: rows of data; of a file that is no table, its records.
        natural: rows by what the published trace has of them too, such as missing data.
        planted: lines (or records), from 1, that were spoiled, by what was done to them.
    """

    path: str
    rows: int
    natural: dict[str, int] = field(default_factory=dict)
    planted: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """What was written."""

    files: list[FileMade]

    @property
    def natural(self) -> dict[str, int]:
        """Rows of all files by what the published trace has of them too."""
        total: Counter[str] = Counter()
        for file in self.files:
            total.update(file.natural)
        return dict(total)

    @property
    def planted(self) -> dict[str, int]:
        """Spoiled rows of all files, by what was done to them."""
        total: Counter[str] = Counter()
        for file in self.files:
            total.update({kind: len(lines) for kind, lines in file.planted.items()})
        return dict(total)


def checked(order: Order, kind: str) -> Order:
    """The order, held to what can be made.

    Raises:
        UnciaError: a number is out of range, or the folder holds something.
    """
    for name, value, low, high in (
        ("rows", order.rows, 1, _MAX_ROWS),
        ("seed", order.seed, 0, _MAX_SEED),
        ("files", 1 if order.files is None else order.files, 1, _MAX_FILES),
        ("jobs", 1 if order.jobs is None else order.jobs, 1, 1024),
        ("malformed", order.malformed, 0, 1),
    ):
        if not low <= value <= high:
            raise UnciaError(f"--{name} {value} is not from {low} to {high:,}")
    if order.parquet and kind != "huawei2025":
        raise UnciaError(
            f"--parquet is for huawei2025, not for {kind}",
            hint="Make its files, and import them with uncia trace import.",
        )
    if order.parquet and (order.malformed or order.gzip):
        raise UnciaError("--parquet writes a clean table: --malformed and --gzip are of raw files")
    if order.out.exists() and (not order.out.is_dir() or any(order.out.iterdir())):
        raise UnciaError(f"{order.out} exists already", hint="Name an empty or a new folder.")
    return order


def generator(seed: int, *key: int) -> np.random.Generator:
    """Random numbers for a part of a trace, independent of those of other parts."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


@contextmanager
def opened(order: Order, name: str) -> Iterator[tuple[IO[bytes], str]]:
    """A file of the trace for writing, compressed if that is asked; and its name."""
    name += ".gz" * order.gzip
    path = order.out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as raw:
        if not order.gzip:
            yield raw, name
            return
        # Without name and time in its header, the same rows are the same bytes.
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as packed:
            yield packed, name  # type: ignore[misc]


def spread(total: int, parts: int) -> list[tuple[int, int]]:
    """``total`` rows divided into parts as equal as can be: first row and number of each."""
    edges = [total * i // parts for i in range(parts + 1)]
    return [(low, high - low) for low, high in pairwise(edges) if high > low]


def spoiled_rows(order: Order, rows: int, *key: int) -> npt.NDArray[np.int64]:
    """Which of a block's rows to spoil: each with the probability that is asked."""
    if not order.malformed:
        return np.zeros(0, dtype=np.int64)
    rng = generator(order.seed, *key, 1 << 20)
    return np.flatnonzero(rng.random(rows) < order.malformed)


def in_processes(
    order: Order, function: Callable[[Task], Result], tasks: Sequence[Task]
) -> list[Result]:
    """The results of the tasks, in their order, computed by as many processes as are asked for."""
    wanted = order.jobs or os.cpu_count() or 1
    if order.jobs is None and order.rows < _ROWS_WORTH_A_PROCESS:
        wanted = 1
    if min(wanted, len(tasks)) <= 1:
        return [function(task) for task in tasks]
    # A forked process would inherit the locks of threads that it does not have.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(wanted, len(tasks)), mp_context=context) as pool:
        return list(pool.map(function, tasks))


def write_account(order: Order, kind: str, made: Made) -> None:
    """Write :data:`ACCOUNT` beside the files."""
    account = {
        "kind": kind,
        "seed": order.seed,
        "rows": order.rows,
        "natural": made.natural,
        "planted": made.planted,
        "status": "complete",  # by which a reader of logs knows that this is no event
        "files": [
            {
                "path": file.path,
                "rows": file.rows,
                "natural": file.natural,
                "planted": file.planted,
            }
            for file in made.files
        ],
    }
    (order.out / ACCOUNT).write_text(json.dumps(account, indent=1) + "\n", encoding="ascii")
