"""Rows to analyse, as invocation tables and instance tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

MB = 1 << 20
GB = 1 << 30
MS = 10**6
S = 10**9

TEXTS = ("platform", "function", "invocation", "outcome", "start", "instance")
INTEGERS = (
    "started",
    "ended",
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
    "throttled_time",
    "cpu_wait",
)
INSTANCE_TEXTS = ("run", "platform", "function", "instance", "end_reason", "start")
INSTANCE_INTEGERS = ("started", "initialized", "ended", "allocated_cpu", "allocated_memory")


def row(**values: Any) -> dict[str, Any]:
    """A warm invocation of 1 s at 1 vCPU and 1 GB that uses half of both, changed at will."""
    usual: dict[str, Any] = dict.fromkeys((*TEXTS, *INTEGERS, "preemptible"))
    usual |= {
        "platform": "p",
        "function": "f",
        "invocation": "i",
        "outcome": "ok",
        "execution": S,
        "allocated_cpu": 10**6,
        "allocated_memory": GB,
        "cpu_user": S // 2,
        "cpu_system": 0,
        "memory_avg": GB // 2,
    }
    assert set(values) <= set(usual), set(values) - set(usual)
    return usual | values


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as an invocation table."""
    columns = {name: pa.array([item[name] for item in rows], pa.utf8()) for name in TEXTS}
    columns |= {name: pa.array([item[name] for item in rows], pa.int64()) for name in INTEGERS}
    columns["preemptible"] = pa.array([item["preemptible"] for item in rows], pa.bool_())
    return pa.table(columns)


def instance(**values: Any) -> dict[str, Any]:
    """An instance of 1 vCPU and 1 GB, started at 0, ready after 1 s, changed at will."""
    usual: dict[str, Any] = dict.fromkeys((*INSTANCE_TEXTS, *INSTANCE_INTEGERS))
    usual |= {"platform": "p", "function": "f", "instance": "a", "start": "cold"}
    usual |= {"started": 0, "initialized": S, "allocated_cpu": 10**6, "allocated_memory": GB}
    assert set(values) <= set(usual), set(values) - set(usual)
    return usual | values


def instances(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as an instance table."""
    columns = {name: pa.array([item[name] for item in rows], pa.utf8()) for name in INSTANCE_TEXTS}
    columns |= {
        name: pa.array([item[name] for item in rows], pa.int64()) for name in INSTANCE_INTEGERS
    }
    return pa.table(columns)
