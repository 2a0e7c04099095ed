"""Requests to analyse, with what may be missing or wrong, and the paper's golden ones."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa

MB = 1 << 20
GB = 1 << 30
US = 10**3
MS = 10**6
S = 10**9
MICRO = 10**6

TEXTS = ("platform", "function", "invocation", "outcome", "start")
INTEGERS = (
    "initialization",
    "execution",
    "allocated_cpu",
    "allocated_memory",
    "cpu_user",
    "cpu_system",
    "memory_avg",
    "memory_peak",
)
FLAVOURS = ((300, 128), (400, 256), (600, 512), (1000, 1024), (1800, 2048))


def request(**values: Any) -> dict[str, Any]:
    """A warm request of 10 ms at 300 millicores and 128 MB, changed at will."""
    usual: dict[str, Any] = dict.fromkeys((*TEXTS, *INTEGERS))
    usual |= {
        "platform": "huawei R2",
        "function": "f",
        "outcome": "ok",
        "start": "warm",
        "execution": 10 * MS,
        "allocated_cpu": 300_000,
        "allocated_memory": 128 * MB,
        "cpu_user": 2 * MS,
        "memory_avg": 50 * MB,
    }
    assert set(values) <= set(usual), set(values) - set(usual)
    return usual | values


def requests(count: int, seed: int, *, spoilt: bool = True) -> list[dict[str, Any]]:
    """Requests of a few flavours; some of them cold, and some without what is needed."""
    draw = random.Random(seed)
    rows = []
    for index in range(count):
        mc, mb = draw.choice(FLAVOURS)
        execution = round(draw.lognormvariate(9.5, 1.5)) * US
        used = execution * mc * min(1.0, draw.lognormvariate(-1, 0.8)) / 1000
        row = request(
            function=draw.choice("fgh"),
            invocation=str(index),
            execution=execution,
            allocated_cpu=mc * 1000,
            allocated_memory=mb * MB,
            cpu_user=round(used) + 1,
            memory_avg=round(mb * MB * min(1.0, draw.lognormvariate(-1, 0.5))),
        )
        if draw.random() < 0.2:
            row |= {"start": "cold", "initialization": draw.randrange(1, 400 * MS)}
        if spoilt and draw.random() < 0.2:
            row |= draw.choice(SPOILT)
        rows.append(row)
    return rows


SPOILT: tuple[dict[str, Any], ...] = (
    {"cpu_user": 0},
    {"cpu_user": None},
    {"memory_avg": None},
    {"outcome": "throttled", "execution": None},
    {"execution": None},
    {"execution": -1},
    {"execution": 0},
    {"allocated_cpu": None},
    {"allocated_memory": None},
    {"allocated_memory": 16_384 * MB},
    {"start": "cold", "initialization": None},
)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as an invocation table."""
    columns = {
        name: pa.array([row[name] for row in rows], pa.utf8()).dictionary_encode() for name in TEXTS
    }
    columns |= {name: pa.array([row[name] for row in rows], pa.int64()) for name in INTEGERS}
    return pa.table(columns)


def is_comparable(row: dict[str, Any], *, paper: bool = False) -> bool:
    """Whether billed and used can be compared over a row."""
    ran = row["outcome"] != "throttled" and row["execution"] is not None and row["execution"] >= 0
    known = bool(row["cpu_user"]) and row["memory_avg"] is not None
    if not paper:
        return ran and known and row["allocated_memory"] is not None
    sized = row["allocated_cpu"] is not None and row["allocated_memory"] is not None
    return ran and known and sized and row["allocated_memory"] <= 10_240 * MB


def up(value: int, step: int) -> int:
    return -(-value // step) * step


class Golden(NamedTuple):
    """A request of the trace, and vCPU-ms and MB-ms under each tariff as published."""

    flavour: tuple[int, int]
    us: int
    cpu: str
    memory: str
    vcpu_ms: dict[str, str]
    mb_ms: dict[str, str]


def _golden(flavour: tuple[int, int], us: int, cpu: str, memory: str, vcpu: str, mb: str) -> Golden:
    names = ("huawei-functiongraph", "gcp-run-request", "azure-consumption", "cloudflare-workers")
    return Golden(
        flavour,
        us,
        cpu,
        memory,
        dict(zip(names, vcpu.split(), strict=True)),
        dict(zip(names, [*mb.split(), "0"], strict=True)),
    )


GOLDEN = (
    _golden((600, 512), 58_268, "0.6", "313.1875", "35.4 60 60 35", "30208 51200 38400"),
    _golden((300, 128), 334_085, "0.098253", "49.40625", "100.5 120 100.5 33", "42880 51200 42880"),
    _golden(
        (1000, 1024), 183_630, "0.174525", "51.027344", "184 200 184 33", "188416 204800 23552"
    ),
    _golden((600, 512), 47_347, "0.43365", "307.1875", "28.8 60 60 21", "24576 51200 38400"),
    _golden((300, 128), 184_775, "0.152065", "45.28125", "55.5 60 55.5 29", "23680 25600 23680"),
)


def golden_rows() -> list[dict[str, Any]]:
    """The golden requests as rows, one function each."""
    return [
        request(
            function=str(index),
            execution=item.us * US,
            allocated_cpu=item.flavour[0] * 1000,
            allocated_memory=item.flavour[1] * MB,
            cpu_user=round(Fraction(item.cpu) * item.us * US),
            memory_avg=round(Fraction(item.memory) * MB),
        )
        for index, item in enumerate(GOLDEN)
    ]
