"""Rows to advise on: invocations of functions at sizes, with times that a test chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from uncia.costs.advice.sample import Sample

MB = 1 << 20
MS = 10**6
S = 10**9

INTEGERS = (
    "execution",
    "initialization",
    "allocated_memory",
    "allocated_cpu",
    "cpu_user",
    "cpu_system",
    "memory_avg",
    "memory_peak",
    "started",
    "ended",
)
TEXTS = ("function", "invocation", "platform", "outcome", "start", "parent")

AWS_GB_S = Fraction("0.0000166667")
AWS_FEE = Fraction("0.0000002")


def rows(
    function: str,
    executions: Iterable[int],
    *,
    memory: int | None = 1769,
    cpu: int | None = None,
    platform: str | None = "aws",
    **more: Any,
) -> list[dict[str, Any]]:
    """Rows of one function at one size.

    Args:
        function: its name.
        executions: ns.
        memory: allocated, MB.
        cpu: allocated, micro-vCPU; by default what AWS gives with the memory.
        platform: where.
        more: other columns: a value for all rows, or a sequence of one for each.
    """
    made = []
    if cpu is None and memory is not None and platform == "aws":
        cpu = memory * 10**6 // 1769
    for index, execution in enumerate(executions):
        result: dict[str, Any] = dict.fromkeys((*INTEGERS, *TEXTS))
        result |= {
            "function": function,
            "invocation": f"{function}-{platform}-{memory}-{cpu}-{index}",
            "platform": platform,
            "outcome": "ok",
            "execution": execution,
            "allocated_memory": None if memory is None else memory * MB,
            "allocated_cpu": cpu,
        }
        for name, value in more.items():
            many = isinstance(value, Sequence) and not isinstance(value, str)
            result[name] = value[index] if many else value
        made.append(result)
    return made


def table(*parts: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as an invocation table, text dictionary-encoded as in the record."""
    every = [item for part in parts for item in part]
    columns: dict[str, pa.Array] = {}
    for name in TEXTS:
        text = pa.array([item[name] for item in every], pa.utf8())
        columns[name] = text if name in ("invocation", "parent") else text.dictionary_encode()
    for name in INTEGERS:
        columns[name] = pa.array([item[name] for item in every], pa.int64())
    return pa.table(columns)


def aws_per_million(executions: Sequence[int], memory: int) -> Fraction:
    """What AWS Lambda (x86) bills for a million rows like these, by hand."""
    billed_ms = sum(-(-execution // MS) for execution in executions)
    cost = Fraction(memory, 1024) * Fraction(billed_ms, 1000) * AWS_GB_S
    return (cost / len(executions) + AWS_FEE) * 10**6


def sample(
    execution: Sequence[int],
    *,
    cpu_time: Sequence[int] | None = None,
    average: Sequence[int] | None = None,
) -> Sample:
    """A sample of rows; what is not given is unknown."""
    count = len(execution)
    none = [-1] * count
    return Sample(
        total=count,
        execution=np.array(execution, np.int64),
        initialization=np.array(none, np.int64),
        cpu_time=np.array(none if cpu_time is None else cpu_time, np.int64),
        peak=np.array(none, np.int64),
        average=np.array(none if average is None else average, np.int64),
        unknown_start=np.zeros(count, bool),
    )
