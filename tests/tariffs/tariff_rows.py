"""Rows to bill: the columns that bills are made from, and nothing else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

MB = 1 << 20
GB = 1 << 30
MS = 10**6
S = 10**9

INTEGERS = (
    "initialization",
    "execution",
    "allocated_cpu",
    "allocated_memory",
    "cpu_user",
    "cpu_system",
    "memory_avg",
    "memory_peak",
    "reserved_cpu",
    "borrowed_cpu_time",
    "lent_cpu_time",
    "lent_memory_avg",
)
TEXTS = ("experiment", "function", "invocation", "outcome", "start")


def row(**values: Any) -> dict[str, Any]:
    """A warm invocation of 1 s at 1 vCPU and 1769 MB that uses half of both, changed at will."""
    usual: dict[str, Any] = dict.fromkeys((*TEXTS, *INTEGERS, "preemptible"))
    usual |= {
        "function": "f",
        "invocation": "i",
        "outcome": "ok",
        "start": "warm",
        "execution": S,
        "allocated_cpu": 10**6,
        "allocated_memory": 1769 * MB,
        "cpu_user": S // 2 - 1000,
        "cpu_system": 1000,
        "memory_avg": 1769 * MB // 2,
        "memory_peak": 1000 * MB,
    }
    unknown = set(values) - set(usual)
    assert not unknown, unknown
    return usual | values


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as an invocation table, text dictionary-encoded as in the record."""
    columns: dict[str, pa.Array] = {}
    for name in TEXTS:
        text = pa.array([item[name] for item in rows], pa.utf8())
        columns[name] = text if name == "invocation" else text.dictionary_encode()
    for name in INTEGERS:
        columns[name] = pa.array([item[name] for item in rows], pa.int64())
    columns["preemptible"] = pa.array([item["preemptible"] for item in rows], pa.bool_())
    return pa.table(columns)
