"""The cold-start tables of Huawei's trace of 2025: instances, and the phases of their starts.

A row of the cold-start tables becomes a row of the table of instances, and its four phases become
spans. Whether ``time`` is the beginning of the start or its end is documented nowhere; here it is
the beginning, ``initialized`` is ``totalCost_cold_start`` later, and the phases follow each other
in the order of their columns. Were it the end, ``started`` would be late by that cost, but still
before every request that the instance served, so that these are found in either case. When an
instance ended, and what it served, the trace does not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from uncia.traces.base import Issues
from uncia.traces.cells import Bools, Checks, Ints
from uncia.traces.csv import Block, blocks
from uncia.traces.huawei.optional_cells import EMPTY, Cells, same
from uncia.traces.huawei.pods import functions, optional
from uncia.traces.huawei.regions import Regions
from uncia.traces.huawei.starts import Keys, Starts, keys
from uncia.traces.output import Output
from uncia.units import MAX_TIME, NS_PER_S

COLUMNS: Final = (
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

_PHASES: Final = {
    "podAllocationCost": "pod allocation",
    "deployCodeCost": "code",
    "deployDependencyCost": "dependencies",
    "schedulingCost": "scheduling",
}
_READ: Final = (
    "time",
    "funcName",
    "userID",
    "requestID",
    "totalCost_cold_start",
    *_PHASES,
    "podID",
)


def read(
    paths: Sequence[Path], result: Output, issues: Issues, regions: Regions, *, wanted: bool
) -> Starts | None:
    """Write instances and spans.

    Args:
        paths: cold-start tables.
        result: where the tables go.
        issues: where bad rows go.
        regions: of the files.
        wanted: whether requests will be compared with the cold starts.

    Returns:
        What they are compared with, if that is wanted and there are any.
    """
    parts: list[Keys] = []
    for path in paths:
        for block in blocks(path, _READ, issues):
            caused = _cold_block(block, result, issues, regions.platform(path))
            if wanted:
                parts.append(keys(regions.number(path), *caused))
    return Starts(parts) if parts else None


def _cold_block(
    block: Block, result: Output, issues: Issues, platform: str
) -> tuple[pa.StringArray, pa.StringArray, Ints]:
    checks = Checks(block)
    cells = Cells(checks)
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
    issues.note(f"requestID: {EMPTY}", int((good & ~with_request).sum()))
    issues.note("pod names no flavour", int((good & pods.without_flavour()).sum()))
    instances = pods.instances()
    columns = {
        "platform": same(platform, len(good)),
        "function": functions(function, user, pods),
        "instance": instances,
        "started": pa.array(started),
        "initialized": optional(started + cost, costed),
        "start": same("cold", len(good)),
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
            "name": same(name, len(begin)),
            "start": pa.array(begin),
            "end": pa.array(end),
            "clock": same("platform", len(begin)),
        }
        result.append("spans", pa.table(columns), _span_start, sort=False)
        begin = end


def _started(batch: pa.Table) -> pa.Array:
    return batch.column("started")


def _span_start(batch: pa.Table) -> pa.Array:
    return batch.column("start")
