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
* A request whose pod has more than 10,240 MB is rejected unless told otherwise: the published
  analysis leaves those out, because AWS Lambda sells no more. So is what no platform produces.

A row of the cold-start tables becomes a row of the table of instances, and its four phases become
spans. Whether ``time`` is the beginning of the start or its end is documented nowhere; here it is
the beginning, ``initialized`` is ``totalCost_cold_start`` later, and the phases follow each other
in the order of their columns. Were it the end, ``started`` would be late by that cost, but still
before every request that the instance served, so that these are found in either case. When an
instance ended, and what it served, the trace does not say.

With both, a request is a cold start if it caused the start of the very pod that served it, in its
region; ``initialization`` is ``totalCost_cold_start``. What caused the start of another pod is not
marked, and neither are warm starts, of which the trace does not tell.

A region in a file's path (``R2/part.csv``, ``R2_00001.csv``) becomes part of ``platform``, because
two regions have pods, functions and requests of the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uncia.errors import UnciaError
from uncia.traces import files
from uncia.traces.base import Collected, Imported, Issues, plural
from uncia.traces.cells import Bools, Checks, Ints
from uncia.traces.csv import Block, Lines, lines, parsed
from uncia.traces.huawei.pods import MAX_CORES, MAX_MEMORY, Pods, functions, optional
from uncia.traces.huawei.starts import Keys, Starts, keys
from uncia.traces.output import Output, output
from uncia.traces.parallel import in_order
from uncia.units import MIB, NS_PER_S

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

MAX_TIME: Final = 366 * 24 * 3600 * NS_PER_S
"""Longest time that is believed, ns: a year, as bills believe."""

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
_COLD_COLUMNS: Final = (
    "day",
    "time",
    "clusterName",
    "funcName",
    "userID",
    "requestID",
    "totalCost_cold_start",
    "podAllocationCost",
    "deployCodeCost",
    "deployDependencyCost",
    "schedulingCost",
    "podID",
)
FILES: Final = (
    files.Kind("requests", _REQUEST_COLUMNS, signature=("requestID", "runtimeCost")),
    files.Kind("cold starts", _COLD_COLUMNS, signature=("requestID", "totalCost_cold_start")),
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
_PHASES: Final = {
    "podAllocationCost": "pod allocation",
    "deployCodeCost": "code",
    "deployDependencyCost": "dependencies",
    "schedulingCost": "scheduling",
}
_COLD_READ: Final = (
    "time",
    "funcName",
    "userID",
    "requestID",
    "totalCost_cold_start",
    *_PHASES,
    "podID",
)
_REGION: Final = re.compile(r"^(R[1-9])(?=$|[_.-])")
_PLATFORM: Final = "platform"
_EMPTY: Final = "empty or NaN"


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
        starts = _cold_starts(cold, result, issues, regions, wanted=bool(requests))
        reader = _Requests(regions, starts, max_memory)
        for platform, batch in reader.read(requests, issues):
            part = f"{_PLATFORM}={platform}" if partition_by == _PLATFORM else ""
            result.append("invocations", batch, _place, sort=sort, part=part)
        said = [
            *sources.warnings,
            *regions.warnings(),
            *reader.warnings(),
            *result.order_warnings("invocations"),
        ]
        return result.finish(said)


class Regions:
    """The regions of files, by their paths."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._platforms = {path: _platform(path) for path in paths}
        self._numbers = {name: at for at, name in enumerate(sorted(set(self._platforms.values())))}

    def platform(self, path: Path) -> str:
        """What the column ``platform`` says."""
        return self._platforms[path]

    def number(self, path: Path) -> int:
        """The region's number, the same for all files of the region."""
        return self._numbers[self.platform(path)]

    def warnings(self) -> list[str]:
        """That some files have a region and others none."""
        without = [path for path in self._paths if self.platform(path) == "huawei"]
        if not without or len(without) == len(self._paths):
            return []
        return [
            f"{without[0]}"
            + (f" and {plural(len(without) - 1, 'other file')}" if len(without) > 1 else "")
            + " name no region (R1 to R5) in their path, and others do: the same pod, function or"
            " request is not found in both"
        ]


def _platform(path: Path) -> str:
    regions = [match.group(1) for part in path.parts if (match := _REGION.match(part))]
    return f"huawei-{regions[-1]}" if regions else "huawei"


def _place(batch: pa.Table) -> pa.Array:
    """What invocations are sorted by: their start, or the end where that is not known."""
    return pc.coalesce(batch.column("started"), batch.column("ended"))


def _started(batch: pa.Table) -> pa.Array:
    return batch.column("started")


def _span_start(batch: pa.Table) -> pa.Array:
    return batch.column("start")


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
        texts = (some for path in paths for some in lines(path, issues))
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
        cells = _Cells(checks)
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
        used, believed = _cpu_time(cores[0], execution[0])
        checks.require("cpu_usage", believed, "cores that give at most a year of CPU time")
        good = checks.good(issues)
        cells.note(issues, good)
        both = cores[1] & execution[1]
        zero = both & (execution[0] > 0) & (cores[0] == 0)
        issues.note("cpu_usage is zero", int((good & zero).sum()))
        issues.note("pod tells no flavour", int((good & pods.without_flavour()).sum()))
        both_ends = ended[1] & execution[1]
        columns = {
            "platform": _same(self._regions.platform(block.path), len(good)),
            "attempt": pa.array(np.ones(len(good), dtype=np.int64)),
            "outcome": _same("ok", len(good)),
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


class _Cells:
    """Cells that may be empty, which is noted, with their bounds."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._there: dict[str, Bools] = {}

    def number(
        self, column: str, factor: int, expected: str, most: int | None = None, bound: str = ""
    ) -> tuple[Ints, Bools]:
        """A quantity from 0, and where there is one."""
        numbers, there = self._checks.quantity(column, factor, expected, optional=True)
        if most is not None:
            self._checks.require(
                column,
                numbers <= most,
                f"{expected}, and at most {bound}",
                f"{column}: above {bound}",
            )
        self._there[column] = there
        return numbers, there

    def whole(self, column: str, expected: str) -> tuple[Ints, Bools]:
        """A whole number from 0, and where there is one."""
        numbers, there = self._checks.whole(column, expected, optional=True)
        self._there[column] = there
        return numbers, there

    def pods(self, max_memory: int | None, *, optional: bool = True) -> Pods:
        """The pods, whose names and allocations are checked."""
        texts = self._checks.block.cells["podID"]
        there = ~self._checks.absent("podID")
        pods = Pods.of(texts, there)
        self._checks.names("podID", pods.names, pods.codes, optional=optional)
        self._there["podID"] = there
        most = MAX_MEMORY if max_memory is None else max_memory
        size = f"{most // MIB} MB" if most % MIB == 0 else f"{most} bytes"
        pods.require(self._checks, most, f"memory above {size}")
        return pods

    def note(self, issues: Issues, good: Bools) -> None:
        """Note what is empty in good rows, by column."""
        for column, there in self._there.items():
            if not there.all():
                issues.note(f"{column}: {_EMPTY}", int((good & ~there).sum()))


def _cpu_time(cores: Ints, execution: Ints) -> tuple[Ints, Bools]:
    """nano-cores x ns / 10^9 to the nearest ns, and where it is at most a year.

    The factors are split so that no product exceeds int64.
    """
    seconds, nanos = np.divmod(execution, NS_PER_S)
    believed = cores.astype(np.float64) * seconds < MAX_TIME
    if not believed.all():
        seconds, cores = np.where(believed, seconds, 0), np.where(believed, cores, 0)
    micro, rest = np.divmod(cores, 1000)  # cores = micro x 1000 + rest
    whole, part = np.divmod(micro * nanos, 10**6)
    used: Ints = cores * seconds + whole + (part * 1000 + rest * nanos + 5 * 10**8) // NS_PER_S
    return used, believed & (used <= MAX_TIME)


def _same(text: str, rows: int) -> pa.DictionaryArray:
    codes = pa.array(np.zeros(rows, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array([text], pa.utf8()))


def _cold_starts(
    paths: Sequence[Path], result: Output, issues: Issues, regions: Regions, *, wanted: bool
) -> Starts | None:
    """Write instances and spans; returns what requests are compared with, if that is wanted."""
    found: list[Keys] = []
    for path in paths:
        for some in lines(path, issues):
            for block in parsed(some, _COLD_READ, issues):
                caused = _cold_block(block, result, issues, regions.platform(path))
                if wanted:
                    found.append(keys(regions.number(path), *caused))
    return Starts(found) if found else None


def _cold_block(
    block: Block, result: Output, issues: Issues, platform: str
) -> tuple[pa.StringArray, pa.StringArray, Ints]:
    checks = Checks(block)
    cells = _Cells(checks)
    started, _ = checks.quantity("time", NS_PER_S, "seconds, 0 or more")
    function, _ = checks.whole("funcName", "a number of a function")
    user, _ = checks.whole("userID", "a number of a user")
    request = checks.identifier("requestID", optional=True)
    with_request = ~checks.absent("requestID")
    bounds = ("seconds, 0 or more", MAX_TIME, "366 days")
    cost, costed = cells.number("totalCost_cold_start", NS_PER_S, *bounds)
    phases = {name: cells.number(column, NS_PER_S, *bounds) for column, name in _PHASES.items()}
    pods = cells.pods(None, optional=False)
    good = checks.good(issues)
    cells.note(issues, good)
    issues.note("requestID: " + _EMPTY, int((good & ~with_request).sum()))
    issues.note("pod tells no flavour", int((good & pods.without_flavour()).sum()))
    instances = pods.instances()
    columns = {
        "platform": _same(platform, len(good)),
        "function": functions(function, user, pods),
        "instance": instances,
        "started": pa.array(started),
        "initialized": optional(started + cost, costed),
        "start": _same("cold", len(good)),
        "allocated_cpu": pods.each(pods.cpu),
        "allocated_memory": pods.each(pods.memory),
    }
    batch = pa.table(columns).filter(pa.array(good))
    result.append("instances", batch, _started, sort=False)
    invocation = pc.if_else(pa.array(with_request), request, None)
    _spans(result, invocation, instances, started, phases, good)
    usable = good & with_request & costed
    kept = pa.array(usable)
    return request.filter(kept), instances.filter(kept).cast(pa.utf8()), cost[usable]


def _spans(
    result: Output,
    invocation: pa.Array,
    instance: pa.Array,
    started: Ints,
    phases: Mapping[str, tuple[Ints, Bools]],
    good: Bools,
) -> None:
    """A span for each phase; where one is unknown, none, because its begin would be unknown."""
    known = good.copy()
    for _, there in phases.values():
        known &= there
    rows = pa.array(known)
    invocation, instance = invocation.filter(rows), instance.filter(rows)
    begin = started[known]
    for name, (costs, _) in phases.items():
        end = begin + costs[known]
        columns = {
            "invocation": invocation,
            "instance": instance,
            "name": _same(name, len(begin)),
            "start": pa.array(begin),
            "end": pa.array(end),
            "clock": _same("platform", len(begin)),
        }
        result.append("spans", pa.table(columns), _span_start, sort=False)
        begin = end
