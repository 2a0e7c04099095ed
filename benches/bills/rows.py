"""Rows for the benchmarks of bills: an invocation table straight to Parquet, by seed.

They follow the published statistics of the Huawei 2025 request trace (mean execution about 58 ms,
lognormal; 15 flavours and a few rare ones; CPU and memory well below what is allocated) in the
columns that the importer writes. Columns that the trace does not have are not written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP: Final = 1 << 20
MB: Final = 1 << 20

FLAVOURS: Final = (
    (300, 128), (400, 256), (600, 512), (800, 768), (1000, 1024), (1200, 1280), (1400, 1536),
    (1600, 1792), (1800, 2048), (2200, 2560), (2600, 3072), (3000, 3584), (3400, 4096),
    (6600, 8192), (8200, 10240), (500, 128), (1000, 512), (1000, 256), (2000, 4096), (4000, 8192),
)  # fmt: skip
"""Millicores and MB."""


EMPTY: Final = (
    "cpu_system",
    "memory_peak",
    "reserved_cpu",
    "borrowed_cpu_time",
    "lent_cpu_time",
    "lent_memory_avg",
)
"""Columns that the importer writes, and the trace has nothing for."""


def write(folder: Path, rows: int, seed: int, rows_per_file: int = 20_000_000) -> list[Path]:
    """Write ``part-NNN.parquet`` files until there are `rows` rows; what is there is kept.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, start in enumerate(range(0, rows, rows_per_file)):
        path = folder / f"part-{number:03}.parquet"
        count = min(rows_per_file, rows - start)
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            _write_file(unfinished, count, np.random.default_rng([seed, number]))
            unfinished.rename(path)
        paths.append(path)
    return paths


def _write_file(path: Path, count: int, chance: np.random.Generator) -> None:
    writer: pq.ParquetWriter | None = None
    for size in _sizes(count):
        table = batch(size, chance)
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=ROW_GROUP)
    if writer is not None:
        writer.close()


def _sizes(count: int) -> Iterator[int]:
    while count > 0:
        yield min(count, ROW_GROUP)
        count -= ROW_GROUP


def batch(count: int, chance: np.random.Generator) -> pa.Table:
    """Some rows, in the columns of the invocation table that a trace has."""
    flavour = chance.choice(len(FLAVOURS), size=count, p=_popularity())
    milli, memory = (np.array(FLAVOURS, dtype=np.int64)[:, side][flavour] for side in (0, 1))
    # Microseconds, as in the trace: median 15 ms and mean 58 ms are a lognormal of sigma 1.64.
    micros = chance.lognormal(np.log(15_000), 1.64, count).astype(np.int64)
    execution = np.minimum(micros, 3_600_000_000) * 1000
    busy = chance.beta(1.2, 1.8, count) * (chance.random(count) > 0.3)  # three in ten use none
    cpu = (execution * busy * milli / 1000).astype(np.int64)
    used = (memory * MB * chance.beta(2, 3, count)).astype(np.int64)
    cold = chance.random(count) < 0.012
    start = (chance.lognormal(np.log(1_000_000), 1, count)).astype(np.int64) * 1000
    function = chance.zipf(1.5, count) % 2000
    names = pa.array([f"{number}---{number % 97}---pool{number % 27}" for number in range(2000)])
    return pa.table(
        {
            "platform": _text(np.zeros(count, dtype=np.int32), ["huawei R2"]),
            "function": pa.DictionaryArray.from_arrays(pa.array(function.astype(np.int32)), names),
            "outcome": _text(np.zeros(count, dtype=np.int32), ["ok"]),
            "start": _text(np.zeros(count, dtype=np.int32), ["cold"], cold),
            "initialization": pa.array(start, mask=~cold),
            "execution": execution,
            "allocated_cpu": milli * 1000,
            "allocated_memory": memory * MB,
            "cpu_user": cpu,
            "memory_avg": used,
        }
        | dict.fromkeys(EMPTY, pa.nulls(count, pa.int64()))
        | {"preemptible": pa.nulls(count, pa.bool_())}
    )


def _popularity() -> np.ndarray:
    weights = 1 / np.arange(1, len(FLAVOURS) + 1) ** 1.2
    return weights / weights.sum()


def _text(
    codes: np.ndarray, values: list[str], known: np.ndarray | None = None
) -> pa.DictionaryArray:
    mask = None if known is None else ~known
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=mask), pa.array(values))
