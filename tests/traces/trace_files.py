"""Files in the formats of the traces, small, and what tests look for in a folder."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

AZURE2021 = ("app", "func", "end_timestamp", "duration")
OWNER, APP, FUNCTION = "HashOwner", "HashApp", "HashFunction"
MINUTES = tuple(str(minute) for minute in range(1, 1441))
INVOCATIONS = (OWNER, APP, FUNCTION, "Trigger", *MINUTES)
DURATIONS = (
    OWNER,
    APP,
    FUNCTION,
    "Average",
    "Count",
    "Minimum",
    "Maximum",
    *(f"percentile_Average_{p}" for p in (0, 1, 25, 50, 75, 99, 100)),
)
MEMORY = (
    OWNER,
    APP,
    "SampleCount",
    "AverageAllocatedMb",
    *(f"AverageAllocatedMb_pct{p}" for p in (1, 5, 25, 50, 75, 95, 99, 100)),
)
REQUESTS = (
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
COLD_STARTS = (
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


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """A CSV file, compressed if its name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(map(str, row)) for row in [header, *rows]]
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def counts(cells: Mapping[int, object]) -> list[object]:
    """The 1440 cells of a day: those of ``cells`` (by minute from 1), else 0."""
    return [cells.get(minute, 0) for minute in range(1, 1441)]


def request(**cells: object) -> list[object]:
    """A row of Huawei's request table, in the order of its columns."""
    row: dict[str, object] = {
        "time_worker": "2592000.020",
        "time_frontend": "2592000.021",
        "requestID": "b54cf4cd",
        "clusterName": 3,
        "funcName": 411,
        "podID": "pool22-300-128-0000177166",
        "userID": 301,
        "totalCost_worker": "0.000931",
        "workerCost": "0.000103",
        "runtimeCost": "0.000829",
        "totalCost_frontend": "0.002367",
        "frontendCost": "0.000531",
        "busCost": "0.000585",
        "readBodyCost": "0.000025",
        "writeRspCost": "0.000009",
        "cpu_usage": "0.059806",
        "memory_usage": "34.238280",
        "requestBodySize": "2.0",
    }
    return list((row | cells).values())


def cold_start(request_id: str, pod: str, cost: str) -> list[object]:
    """A row of Huawei's cold-start table."""
    return [30, "2592000.1", 3, 411, 301, request_id, cost, "0.027", "0.045", "0.454", "1.713", pod]


def left_over(folder: Path) -> list[str]:
    """Everything below a folder that an import that failed should not have left."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.suffix == ".parquet"
        or path.name.startswith(".uncia")
        or "out" in path.name
        or "rejected" in path.name
    )
