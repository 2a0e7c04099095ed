"""What tests of simulated tables share: a file, rows of requests, and what comes of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import uncia
from uncia import record
from uncia.record.schema import conform

MS = 10**6
CLUSTER = {"workers": 2, "vcpu": 4, "memory": "1GB"}
POISSON = {"kind": "poisson", "rate": "20/s", "duration": "3s"}
FUNCTIONS = {
    "api": {
        "vcpu": 1,
        "memory": "128MB",
        "arrivals": POISSON,
        "phases": [
            {"drawn": {"distribution": "exponential", "mean": "20ms"}, "memory": "64MB"},
            {"duration": "5ms", "vcpu": 0, "memory": "32MB"},
        ],
    }
}
FILE: dict[str, Any] = {
    "name": "first",
    "seed": 5,
    "cluster": CLUSTER,
    "models": ["sim"],
    "starts": ["40ms", "90ms"],
    "functions": FUNCTIONS,
}


def request_rows(**columns: list[Any]) -> pa.Table:
    count = len(next(iter(columns.values())))
    base: dict[str, list[Any]] = {
        "function": ["f"] * count,
        "invocation": [f"i{number}" for number in range(count)],
        "attempt": [1] * count,
        "outcome": ["ok"] * count,
    }
    return conform(pa.table(base | columns), "invocations")


def simulate_table(
    folder: Path, trace: dict[str, Any], **keys: Any
) -> tuple[dict[str, Any], pa.Table]:
    file = {"name": "traced", "cluster": CLUSTER, "models": ["sim"], "trace": trace, **keys}
    result = uncia.simulate(file, out=folder)
    rows = record.read(folder).sort_by([("scheduled", "ascending")])
    return result["sim"], rows
