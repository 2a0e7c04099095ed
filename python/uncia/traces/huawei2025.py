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
  sampling rather than a measurement; it stays as it is and is counted in the warnings.
* A value that is empty or NaN is null. The trace holds no failures, so every outcome is ok.

With the cold-start tables given too, a request is a cold start if it caused the start of the very
pod that served it; ``initialization`` is ``totalCost_cold_start``. What caused the start of another
pod is not marked, and neither are warm starts, of which the trace does not tell.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uncia.errors import UnciaError
from uncia.traces import files
from uncia.traces.base import Imported, Issues, plural
from uncia.traces.cells import Bools, Checks, Ints
from uncia.traces.csv import Block, blocks
from uncia.traces.output import Names, Output, Stage, output
from uncia.units import MIB, NS_PER_S

NAME: Final = "huawei2025"
DESCRIPTION: Final = (
    "Huawei Public Cloud Trace 2025: 948 million requests of one day in five regions, with"
    " allocation and usage, and the cold starts of a month. No license is stated beside the data;"
    " https://github.com/sir-lab/data-release/blob/main/README_data_release_2025.md;"
    " cite Joosen et al., Serverless Cold Starts and Where to Find Them, EuroSys 2025."
)
TABLES: Final = ("invocations",)
OPTIONS: Final = ("keep_cut",)

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
_COLD_READ: Final = ("requestID", "totalCost_cold_start", "podID")

_POD: Final = r"^(?P<pool>.+-(?P<cpu>[0-9]{1,6})-(?P<memory>[0-9]{1,7}))-.+$"
_MICRO_PER_MILLI: Final = 1000
_REGION: Final = re.compile(r"^(R[1-9])(?=$|[_.])")

# Bounds within which cores x time fits in int64; no pod has a tenth of it.
_MAX_CORES: Final = 500
_MAX_SECONDS: Final = 10_000_000

_REQUESTS: Final = {
    "platform": pa.int32(),
    "function": pa.int32(),
    "request": pa.utf8(),
    "pod": pa.utf8(),
    "ended": pa.int64(),
    "execution": pa.int64(),
    "nanocores": pa.int64(),
    "memory_avg": pa.int64(),
    "request_bytes": pa.int64(),
    "allocated_cpu": pa.int64(),
    "allocated_memory": pa.int64(),
}
_COLD_STARTS: Final = {"request": pa.utf8(), "pod": pa.utf8(), "initialization": pa.int64()}

_ROWS: Final = """
    SELECT r.*, r.ended - r.execution AS started, {initialization} AS initialization,
           ((r.nanocores::HUGEINT * r.execution + 500000000) // 1000000000)::BIGINT AS cpu_time
    FROM requests r {join}
    ORDER BY coalesce(r.ended - r.execution, r.ended) NULLS LAST, r.row
"""
_JOIN: Final = """
    LEFT JOIN (SELECT request, pod, max(initialization) AS initialization FROM cold_starts
               GROUP BY request, pod) c ON r.request = c.request AND r.pod = c.pod
"""
_CAUSED: Final = """
    SELECT count(*) AS n FROM requests WHERE request IN (SELECT request FROM cold_starts)
"""


def detect(paths: Iterable[Path]) -> bool:
    """Whether every file is of this trace, by its header."""
    return files.detect(paths, FILES)


@dataclass
class _Said:
    """What the warnings count."""

    pods: int = 0
    zero: int = 0
    elsewhere: int = 0

    def warnings(self) -> list[str]:
        said = []
        if self.pods:
            said.append(
                f"{plural(self.pods, 'request')} without a pod that tells pool and allocation:"
                " named funcName---userID, allocation null"
            )
        if self.zero:
            said.append(
                f"{plural(self.zero, 'request')} ran, but used no CPU time by the trace:"
                " too short for its sampling"
            )
        if self.elsewhere:
            said.append(
                f"{plural(self.elsewhere, 'request')} caused the start of another pod than served"
                " them: not marked as cold"
            )
        return said


def convert(
    paths: Iterable[Path | str], out: Path | str, *, strict: bool = False, keep_cut: bool = False
) -> Imported:
    """Write the requests as an invocation table, sorted by ``started``.

    Args:
        paths: request tables, and cold-start tables if wanted, or folders of them. A region that is
            in a file's path (``R2/part.csv``, ``R2_00001.csv``) becomes part of ``platform``.
        out: a folder, or a file ``*.parquet``.
        strict: whether a bad row is an error; otherwise it is kept aside and counted.
        keep_cut: whether the whole rows of a file that is cut off are taken.

    Raises:
        UnciaError: a file is not of this trace or damaged, no request table is given, a cell is
            bad, or nothing can be written.
    """
    sources = files.sort(paths, FILES, NAME)
    requests, starts = sources.of("requests"), sources.of("cold starts")
    if not requests:
        raise UnciaError(
            f"{starts[0]} holds cold starts, which are no invocations by themselves",
            hint="Name the request tables too.",
        )
    issues, said = Issues(strict, keep_cut), _Said()
    with output(Path(out), TABLES, issues) as result:
        reader = _Requests(result.stage("requests", _REQUESTS), said)
        for path in requests:
            for block in blocks(path, _REQUEST_READ, issues):
                reader.add(block, issues)
        if starts:
            _cold_starts(starts, result.stage("cold_starts", _COLD_STARTS), issues)
        reader.write(result, with_starts=bool(starts))
        return result.finish(sources.warnings + said.warnings())


def _platform(path: Path) -> str:
    regions = [match.group(1) for part in path.parts if (match := _REGION.match(part))]
    return f"huawei-{regions[-1]}" if regions else "huawei"


class _Requests:
    """Reads request tables into a stage, and writes the invocation table from it."""

    def __init__(self, stage: Stage, said: _Said) -> None:
        self._stage = stage
        self._said = said
        self._functions = Names()
        self._platforms = Names()

    def add(self, block: Block, issues: Issues) -> None:
        """Add the rows of a block."""
        checks = Checks(block)
        ended = _optional(*checks.quantity("time_worker", NS_PER_S, "seconds", optional=True))
        request = checks.identifier("requestID")
        function, _ = checks.whole("funcName", "a number of a function")
        pod_there = ~checks.absent("podID")
        pod = checks.identifier("podID", optional=True)
        user, _ = checks.whole("userID", "a number of a user")
        execution, execution_there = checks.quantity(
            "runtimeCost", NS_PER_S, "seconds, 0 or more", optional=True
        )
        checks.require(
            "runtimeCost",
            execution <= _MAX_SECONDS * NS_PER_S,
            f"seconds, from 0 to {_MAX_SECONDS:,}",
        )
        cores, cores_there = checks.quantity("cpu_usage", 10**9, "cores, 0 or more", optional=True)
        checks.require("cpu_usage", cores <= _MAX_CORES * 10**9, f"cores, from 0 to {_MAX_CORES}")
        memory = _optional(
            *checks.quantity("memory_usage", MIB, "megabytes, 0 or more", optional=True)
        )
        body = _optional(*checks.whole("requestBodySize", "whole bytes, 0 or more", optional=True))
        good = checks.good(issues)
        kept = pa.array(good)
        flavour = pc.extract_regex(pod, _POD)
        self._said.pods += int((good & _null(flavour)).sum())
        ran = execution_there & (execution > 0) & cores_there & (cores == 0)
        self._said.zero += int((good & ran).sum())
        names = _names(function, user, pc.struct_field(flavour, "pool"), _null(flavour))
        columns: dict[str, pa.Array] = {
            "request": request,
            "pod": pc.if_else(pa.array(pod_there), pod, pa.scalar(None, pa.utf8())),
            "ended": ended,
            "execution": _optional(execution, execution_there),
            "nanocores": _optional(cores, cores_there),
            "memory_avg": memory,
            "request_bytes": body,
            "allocated_cpu": _times(flavour, "cpu", _MICRO_PER_MILLI),
            "allocated_memory": _times(flavour, "memory", MIB),
        }
        rows = int(good.sum())
        platform = self._platforms.id(_platform(block.path))
        self._stage.write(
            {
                "platform": np.full(rows, platform, dtype=np.int32),
                "function": self._functions.ids(names.filter(kept)),
                **{name: column.filter(kept) for name, column in columns.items()},
            }
        )

    def write(self, result: Output, *, with_starts: bool) -> None:
        """Write the table, by start; with cold starts if their stage is there."""
        sql = _ROWS.format(
            initialization="c.initialization" if with_starts else "NULL::BIGINT",
            join=_JOIN if with_starts else "",
        )
        caused = 0
        if with_starts:
            caused = sum(batch.column("n")[0].as_py() for batch in result.query(_CAUSED))
        for batch in result.query(sql):
            row = dict(zip(batch.schema.names, batch.columns, strict=True))
            cold = pc.is_valid(row["initialization"])
            caused -= pc.sum(cold).as_py() or 0
            result.write("invocations", self._columns(row, cold))
        self._said.elsewhere = caused

    def _columns(self, row: Mapping[str, pa.Array], cold: pa.Array) -> dict[str, pa.Array]:
        rows = len(cold)
        same = (
            "ended",
            "execution",
            "started",
            "initialization",
            "memory_avg",
            "request_bytes",
            "allocated_cpu",
            "allocated_memory",
        )
        return {
            "platform": self._platforms.column(row["platform"]),
            "function": self._functions.column(row["function"]),
            "invocation": row["request"],
            "request_id": row["request"],
            "attempt": pa.repeat(pa.scalar(1, pa.int64()), rows),
            "outcome": pa.repeat(pa.scalar("ok", pa.utf8()), rows),
            "start": pc.if_else(cold, "cold", pa.scalar(None, pa.utf8())),
            "instance": row["pod"],
            "cpu_user": row["cpu_time"],
            **{name: row[name] for name in same},
        }


def _cold_starts(paths: Iterable[Path], stage: Stage, issues: Issues) -> None:
    for path in paths:
        for block in blocks(path, _COLD_READ, issues):
            checks = Checks(block)
            request, pod = checks.identifier("requestID"), checks.identifier("podID")
            cost, _ = checks.quantity("totalCost_cold_start", NS_PER_S, "seconds, 0 or more")
            good = checks.good(issues)
            kept = pa.array(good)
            stage.write(
                {
                    "request": request.filter(kept),
                    "pod": pod.filter(kept),
                    "initialization": cost[good],
                }
            )


def _optional(numbers: Ints, there: Bools) -> pa.Array:
    return pa.array(numbers, pa.int64(), mask=~there)


def _null(array: pa.Array) -> Bools:
    found: Bools = pc.is_null(array).to_numpy(zero_copy_only=False).astype(bool)
    return found


def _times(flavour: pa.StructArray, name: str, factor: int) -> pa.Array:
    text = pc.struct_field(flavour, name)
    return pc.multiply(text.cast(pa.int64()), factor)


def _names(function: Ints, user: Ints, pool: pa.Array, without_pool: Bools) -> pa.Array:
    ids = [pa.array(function).cast(pa.utf8()), pa.array(user).cast(pa.utf8())]
    return pc.if_else(
        pa.array(without_pool),
        pc.binary_join_element_wise(*ids, "---"),
        pc.binary_join_element_wise(*ids, pool, "---", null_handling="replace"),
    )
