"""Huawei's public cloud, 2025: every request of one day in five regions, and its cold starts.

A row of the request tables becomes a row of the invocation table:

* ``ended`` is ``time_worker``, and ``execution`` is ``runtimeCost``, both in seconds; ``started``
  is their difference. The release does not say that ``time_worker`` is written when the request
  ends; but the frontend, which a request passes first, has the later time of the two in every row
  shown there, so that neither can be a beginning. The times have milliseconds.
* ``function`` is ``funcName---userID---pool``, as the release forms it. Pool and allocation are
  read from the pod (``pool22-300-128-0000177166``: 300 millicores, 128 MB, as 2^20 bytes).
* ``memory_avg`` is ``memory_usage``, and ``cpu_user`` is ``cpu_usage x runtimeCost``: the trace
  holds the CPU time of user and kernel together, which stands in ``cpu_user`` while ``cpu_system``
  is null. Both are those of the whole pod while the request ran. Whether others ran in it meanwhile
  is not said, so ``shared`` is null. For short requests the trace says 0, which is an error of
  sampling rather than a measurement; it stays as it is and is noted.
* A value that is empty or NaN is null, and noted. The trace holds no failures, so every outcome is
  ok.
* A request whose pod has more than 10,240 MB is rejected unless another bound is given: the
  published analysis leaves those out, because AWS Lambda sells no more. So is what no platform
  produces.

`cold_starts` reads the cold-start tables. With both, a request is a cold start if it caused the
start of the very pod that served it, in its region; ``initialization`` is
``totalCost_cold_start``. What caused the start of another pod is not marked, and neither are warm
starts, which the trace does not record.

A region in a file's path (``R2/part.csv``, ``R2_00001.csv``) becomes part of ``platform``, because
two regions have pods, functions and requests of the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uncia.errors import UnciaError
from uncia.text import plural
from uncia.traces import files
from uncia.traces.base import Collected, Imported, Issues
from uncia.traces.cells import Bools, Checks, Ints
from uncia.traces.csv import Block, parsed
from uncia.traces.huawei import cold_starts
from uncia.traces.huawei.optional_cells import Cells, same
from uncia.traces.huawei.pods import MAX_CORES, MAX_MEMORY, functions, optional
from uncia.traces.huawei.regions import Regions
from uncia.traces.huawei.starts import Starts
from uncia.traces.lines import Lines, read_lines
from uncia.traces.output import output
from uncia.traces.parallel import in_order
from uncia.units import MAX_TIME, MIB, NS_PER_S

NAME: Final = "huawei2025"
DESCRIPTION: Final = (
    "Huawei Public Cloud Trace 2025: 948 million requests of one day in five regions, with"
    " allocation and usage, and the cold starts of a month. No license is stated beside the data;"
    " https://github.com/sir-lab/data-release/blob/main/README_data_release_2025.md;"
    " cite Joosen et al., Serverless Cold Starts and Where to Find Them, EuroSys 2025."
)
TABLES: Final = ("invocations", "instances", "spans")
OPTIONS: Final = ("keep_cut", "max_memory", "sort", "partition_by")

PUBLISHED_MEMORY: Final = 10_240 * MIB
"""What the published analysis keeps: allocations up to the most that AWS Lambda sells."""

_REQUEST_COLUMNS: Final = (
    "time_worker",
    "time_frontend",
    "requestID",
    "clusterName",
    "funcName",
    "podID",
    "userID",
    "totalCost_worker",
    "workerCost",
    "runtimeCost",
    "totalCost_frontend",
    "frontendCost",
    "busCost",
    "readBodyCost",
    "writeRspCost",
    "cpu_usage",
    "memory_usage",
    "requestBodySize",
)
FILES: Final = (
    files.Kind("requests", _REQUEST_COLUMNS, signature=("requestID", "runtimeCost")),
    files.Kind("cold starts", cold_starts.COLUMNS, signature=("requestID", "totalCost_cold_start")),
)

_REQUEST_READ: Final = (
    "time_worker",
    "requestID",
    "funcName",
    "podID",
    "userID",
    "runtimeCost",
    "cpu_usage",
    "memory_usage",
    "requestBodySize",
)
_PLATFORM: Final = "platform"


def detect(paths: Iterable[Path]) -> bool:
    """Whether every file is of this trace, by its header."""
    return files.detect(paths, FILES)


def convert(
    paths: Iterable[Path | str],
    out: Path | str,
    *,
    strict: bool = False,
    keep_cut: bool = False,
    max_memory: int = PUBLISHED_MEMORY,
    sort: bool | None = None,
    partition_by: str = "none",
) -> Imported:
    """Write the requests as invocations, and the cold starts as instances and spans.

    Args:
        paths: request tables, cold-start tables, or both, or folders of them.
        out: a folder; or a file ``*.parquet`` for requests alone.
        strict: whether a bad row is an error; otherwise it is kept aside and counted.
        keep_cut: whether the whole rows of a file that is cut off are taken.
        max_memory: requests whose pod was allocated more are rejected; bytes.
        sort: whether invocations are sorted by ``started``; by default if they are few
            (`parts.SORTED_ROWS`), because to sort hundreds of millions takes longer than the
            import, and bills do not need it.
        partition_by: ``platform`` for a folder of Parquet files, one for each platform; ``none``.

    Raises:
        UnciaError: a file is not of this trace or damaged, no row is good, one is bad and the
            import is strict, or nothing can be written.
    """
    if partition_by not in (_PLATFORM, "none"):
        raise UnciaError(f"--partition-by is platform or none, not {partition_by!r}")
    sources = files.sort(paths, FILES, NAME)
    requests, cold = sources.of("requests"), sources.of("cold starts")
    tables = [*(TABLES[:1] if requests else []), *(TABLES[1:] if cold else [])]
    issues = Issues(strict, keep_cut)
    with output(Path(out), tables, issues) as result:
        regions = Regions([*requests, *cold])
        starts = cold_starts.read(cold, result, issues, regions, wanted=bool(requests))
        reader = _Requests(regions, starts, max_memory)
        for platform, batch in reader.read(requests, issues):
            part = f"{_PLATFORM}={platform}" if partition_by == _PLATFORM else ""
            result.append("invocations", batch, _place, sort=sort, part=part)
        warnings = [
            *sources.warnings,
            *regions.warnings(),
            *reader.warnings(),
            *result.order_warnings("invocations"),
        ]
        return result.finish(warnings)


def _place(batch: pa.Table) -> pa.Array:
    """What invocations are sorted by: their start, or the end where that is not known."""
    return pc.coalesce(batch.column("started"), batch.column("ended"))


@dataclass(frozen=True)
class _Read:
    """What a block of requests became."""

    platform: str
    batch: pa.Table | None
    issues: Collected
    elsewhere: int


class _Requests:
    """Reads request tables."""

    def __init__(self, regions: Regions, starts: Starts | None, max_memory: int) -> None:
        self._regions = regions
        self._starts = starts
        self._max_memory = max_memory
        self._elsewhere = 0

    def read(self, paths: Sequence[Path], issues: Issues) -> Iterator[tuple[str, pa.Table]]:
        """The rows of the invocation table, and of which platform they are, in order."""
        texts = (some for path in paths for some in read_lines(path, issues))
        for read in in_order(texts, self._block):
            read.issues.tell(issues)
            self._elsewhere += read.elsewhere
            if read.batch is not None:
                yield read.platform, read.batch

    def warnings(self) -> list[str]:
        """What is to be said of cold starts."""
        if not self._elsewhere:
            return []
        return [
            f"{plural(self._elsewhere, 'request')} caused the start of another pod than served"
            " them: not marked as cold"
        ]

    def _block(self, some: Lines) -> _Read:
        issues = Collected()
        batches: list[pa.Table] = []
        elsewhere = 0
        for block in parsed(some, _REQUEST_READ, issues):
            batch, more = self._rows(block, issues)
            batches.append(batch)
            elsewhere += more
        batch = pa.concat_tables(batches) if batches else None
        return _Read(self._regions.platform(some.path), batch, issues, elsewhere)

    def _rows(self, block: Block, issues: Issues) -> tuple[pa.Table, int]:
        checks = Checks(block)
        cells = Cells(checks)
        ended = cells.number("time_worker", NS_PER_S, "seconds, 0 or more")
        request = checks.identifier("requestID")
        function, _ = checks.whole("funcName", "a number of a function")
        pods = cells.pods(self._max_memory)
        user, _ = checks.whole("userID", "a number of a user")
        execution = cells.number(
            "runtimeCost", NS_PER_S, "seconds, 0 or more", MAX_TIME, "366 days"
        )
        cores = cells.number(
            "cpu_usage", NS_PER_S, "cores, 0 or more", MAX_CORES * NS_PER_S, "1000 cores"
        )
        memory = cells.number("memory_usage", MIB, "megabytes, 0 or more", MAX_MEMORY, "4 TiB")
        body = cells.whole("requestBodySize", "whole bytes, 0 or more")
        used, trusted = _cpu_time(cores[0], execution[0])
        checks.require("cpu_usage", trusted, "cores that give at most a year of CPU time")
        good = checks.good(issues)
        cells.note(issues, good)
        both = cores[1] & execution[1]
        zero = both & (execution[0] > 0) & (cores[0] == 0)
        issues.note("cpu_usage is zero", int((good & zero).sum()))
        issues.note("pod names no flavour", int((good & pods.without_flavour()).sum()))
        both_ends = ended[1] & execution[1]
        columns = {
            "platform": same(self._regions.platform(block.path), len(good)),
            "attempt": pa.array(np.ones(len(good), dtype=np.int64)),
            "outcome": same("ok", len(good)),
            "function": functions(function, user, pods),
            "invocation": request,
            "request_id": request,
            "instance": pods.instances(),
            "started": optional(ended[0] - execution[0], both_ends),
            "ended": optional(*ended),
            "execution": optional(*execution),
            "request_bytes": optional(*body),
            "allocated_cpu": pods.each(pods.cpu),
            "allocated_memory": pods.each(pods.memory),
            "cpu_user": optional(used, both),
            "memory_avg": optional(*memory),
        }
        elsewhere = 0
        batch = pa.table(columns)
        if not good.all():
            batch = batch.filter(pa.array(good))
        if self._starts is not None:
            batch, elsewhere = self._marked(batch, self._regions.number(block.path))
        return batch, elsewhere

    def _marked(self, batch: pa.Table, region: int) -> tuple[pa.Table, int]:
        """The batch with its cold starts."""
        assert self._starts is not None
        request = batch.column("request_id").combine_chunks()
        pod = batch.column("instance").combine_chunks().cast(pa.utf8())
        rows, costs, elsewhere = self._starts.of(region, request, pod)
        there = np.zeros(batch.num_rows, dtype=bool)
        there[rows] = True
        initialization = np.zeros(batch.num_rows, dtype=np.int64)
        initialization[rows] = costs
        code = pa.array(np.zeros(batch.num_rows, np.int32), mask=~there)
        start = pa.DictionaryArray.from_arrays(code, pa.array(["cold"], pa.utf8()))
        batch = batch.append_column("initialization", optional(initialization, there))
        return batch.append_column("start", start), elsewhere


def _cpu_time(cores: Ints, execution: Ints) -> tuple[Ints, Bools]:
    """nano-cores x ns / 10^9 to the nearest ns, and where it is at most a year.

    The factors are split so that no product exceeds int64.
    """
    seconds, nanos = np.divmod(execution, NS_PER_S)
    trusted = cores.astype(np.float64) * seconds < MAX_TIME
    if not trusted.all():
        seconds, cores = np.where(trusted, seconds, 0), np.where(trusted, cores, 0)
    micro, rest = np.divmod(cores, 1000)  # cores = micro x 1000 + rest
    whole, part = np.divmod(micro * nanos, 10**6)
    used: Ints = cores * seconds + whole + (part * 1000 + rest * nanos + 5 * 10**8) // NS_PER_S
    return used, trusted & (used <= MAX_TIME)
