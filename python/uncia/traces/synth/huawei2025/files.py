"""Synthetic files of Huawei's trace of 2025: request tables and cold starts of five regions.

``R1/requests_0.csv`` to ``R5/...``, and ``R1/cold_starts_0.csv`` beside; with ``parquet`` the
invocation table that an import of these would give.
"""

from contextlib import ExitStack
from typing import IO, Final

import numpy as np
import numpy.typing as npt

from uncia.traces.huawei.requests import FILES
from uncia.traces.synth import spoil
from uncia.traces.synth.base import FileMade, Made, Order, generator, in_processes, opened, spread
from uncia.traces.synth.huawei2025.rows import (
    BLOCK,
    NO_POD,
    NO_USAGE,
    REGIONS,
    USED,
    Block,
    Part,
    block,
    natural,
    rows_by_region,
)
from uncia.traces.synth.huawei2025.table import write_table
from uncia.traces.synth.text import (
    Bytes,
    Ints,
    blank,
    chosen,
    constant,
    decimal,
    hexadecimal,
    lines,
    whole,
)

KIND: Final = "huawei2025"
DESCRIPTION: Final = (
    "Requests of a day in five regions and cold starts of a month, calibrated to what the cost"
    " paper publishes of Huawei's trace of 2025."
)

_REQUESTS, _STARTS = FILES[0].columns, FILES[1].columns
_ROWS_A_FILE: Final = 5_000_000
_PARTS: Final = 200  # of a region of the release

_SPOILERS: Final[dict[str, spoil.Spoiler]] = {
    **spoil.numbers(_REQUESTS.index("runtimeCost")),
    **spoil.SHAPES,
    "unknown_pod": spoil.cell(_REQUESTS.index("podID"), "warm-standby"),
    "memory_above_10240": spoil.cell(_REQUESTS.index("podID"), "pool40-13000-16384-0000000001"),
    "zero_cpu": spoil.cell(_REQUESTS.index("cpu_usage"), "0.000000"),
}


def make(order: Order) -> Made:
    """Write the files of every region."""
    function = write_table if order.parquet else _write_files
    return Made([file for files in in_processes(order, function, parts(order)) for file in files])


def parts(order: Order) -> list[Part]:
    """The files to write, each of whole blocks if there are more blocks than files."""
    parts = []
    for region, rows in rows_by_region(order.rows).items():
        count = order.files or min(_PARTS, max(1, rows // _ROWS_A_FILE))
        unit = BLOCK if rows >= count * BLOCK else 1
        for number, (first, some) in enumerate(spread(-(-rows // unit), count)):
            last = min((first + some) * unit, rows)
            parts.append(Part(order, region, number, first * unit, last - first * unit))
    return parts


def _write_files(part: Part) -> list[FileMade]:
    """Write a part's requests, and its cold starts if it has any."""
    order, made = part.order, [FileMade("", part.rows)]
    requests, starts = made[0], FileMade("", 0)
    line, turn = 2, part.number
    with ExitStack() as files:

        def begin(table: str, into: FileMade, columns: tuple[str, ...]) -> IO[bytes]:
            name = f"{part.region}/{table}_{part.number}.csv"
            file, into.path = files.enter_context(opened(order, name))
            file.write(",".join(columns).encode() + b"\n")
            return file

        file = begin("requests", requests, _REQUESTS)
        for number, low, high in part.blocks():
            data, rows = block(order.seed, part.region, number), slice(low, high)
            cells = _request_cells(data, order.seed, rows)
            text = lines([cells[name] for name in _REQUESTS])
            spoiled = _spoiled(order, data, rows)
            file.write(spoil.spoil(text, spoiled, line, turn, _SPOILERS, requests.planted))
            line, turn = line + high - low, turn + len(spoiled)
            for name, count in natural(data, rows).items():
                requests.natural[name] = requests.natural.get(name, 0) + count
            started_here = (data.starts.row >= low) & (data.starts.row < high)
            if started_here.any():
                if not starts.rows:
                    made.append(starts)
                    cold = begin("cold_starts", starts, _STARTS)
                started = _start_cells(data, started_here)
                cold.write(lines([started[name] for name in _STARTS]))
                starts.rows += int(started_here.sum())
    return made


def _spoiled(order: Order, data: Block, rows: slice) -> Ints:
    """Which rows to spoil, of those without a flaw, so that it is that share of all."""
    if not order.malformed:
        return np.zeros(0, dtype=np.int64)
    rng = generator(order.seed, REGIONS.index(data.region), data.number, 2)
    sound = data.kind == USED
    share = min(1.0, order.malformed * BLOCK / max(int(sound.sum()), 1))
    return np.flatnonzero((sound & (rng.random(BLOCK) < share))[rows])


def _request_cells(data: Block, seed: int, rows: slice) -> dict[str, list[Bytes]]:
    """The cells of the request table, by column."""
    region = REGIONS.index(data.region)
    rng = generator(seed, region, data.number, 1)
    # Chosen, about the example row of the release's documentation: a few hundred us each.
    spent = {
        name: rng.integers(low, high, BLOCK, dtype=np.uint16).astype(np.int64)[rows]
        for name, low, high in (
            ("worker", 60, 220),
            ("frontend", 150, 700),
            ("bus", 300, 3000),
            ("read", 8, 40),
            ("write", 4, 20),
            ("between", 50, 900),
        )
    }
    kind, pod, execution = data.kind[rows], data.pod[rows], data.execution[rows]
    ended, without_usage = data.ended[rows], kind == NO_USAGE
    in_worker = execution + spent["worker"]
    around = sum(spent[name] for name in ("frontend", "bus", "read", "write", "between"))
    functions = [str(function) for function, _ in data.names]
    users = [str(user) for _, user in data.names]
    clusters = [str(1 + function % 4) for function, _ in data.names]
    return {
        "time_worker": decimal(ended, 3),
        "time_frontend": decimal(ended + 1 + spent["between"] // 500, 3),
        "requestID": [hexadecimal(data.identifier[rows])],
        "clusterName": [chosen(clusters, pod)],
        "funcName": [chosen(functions, pod)],
        "podID": blank([chosen(data.pods, pod)], kind == NO_POD),
        "userID": [chosen(users, pod)],
        "totalCost_worker": decimal(in_worker, 6),
        "workerCost": decimal(spent["worker"], 6),
        "runtimeCost": decimal(execution, 6),
        "totalCost_frontend": decimal(in_worker + around, 6),
        "frontendCost": decimal(spent["frontend"], 6),
        "busCost": decimal(spent["bus"], 6),
        "readBodyCost": decimal(spent["read"], 6),
        "writeRspCost": decimal(spent["write"], 6),
        "cpu_usage": blank(decimal(data.cpu[rows], 6), without_usage),
        "memory_usage": blank(decimal(data.memory[rows], 6), without_usage),
        "requestBodySize": [whole(data.body[rows]), constant(len(kind), b".0")],
    }


def _start_cells(data: Block, chosen_starts: npt.NDArray[np.bool_]) -> dict[str, list[Bytes]]:
    """The cells of the cold-start table, by column."""
    starts = data.starts
    kept = np.flatnonzero(chosen_starts)
    names = [starts.names[i] for i in kept.tolist()]
    total = starts.total[kept]
    parts = {
        "podAllocationCost": starts.allocation[kept],
        "deployCodeCost": starts.code[kept],
        "deployDependencyCost": starts.dependency[kept],
    }
    index = np.arange(len(kept))
    return {
        "day": [whole(starts.day[kept])],
        "time": decimal(starts.time[kept], 3),
        "clusterName": [chosen([str(1 + function % 4) for function, _ in names], index)],
        "funcName": [chosen([str(function) for function, _ in names], index)],
        "userID": [chosen([str(user) for _, user in names], index)],
        "requestID": [hexadecimal(starts.identifier[kept])],
        "totalCost_cold_start": decimal(total, 6),
        **{name: decimal(cost, 9) for name, cost in parts.items()},
        "schedulingCost": decimal(1000 * total - sum(parts.values()), 9),
        "podID": [chosen([starts.pods[i] for i in kept.tolist()], index)],
    }
