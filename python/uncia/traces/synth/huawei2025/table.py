"""The invocation table of a synthetic Huawei trace, without the files between.

The values are those that `uncia.traces.huawei.requests` reads from the files of the same order; its
rows are in the order of the files, not of time.
"""

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from uncia import record
from uncia.record import parquet
from uncia.traces.synth.base import FileMade
from uncia.traces.synth.huawei2025.rows import NO_POD, NO_USAGE, Block, Part, block, natural
from uncia.traces.synth.text import Ints, hexadecimal
from uncia.units import MIB, NS_PER_MS, NS_PER_US

_TEXT: Final = pa.dictionary(pa.int32(), pa.utf8())
_MILLI: Final = 1000  # micro-vCPU in a millicore


def write_table(part: Part) -> list[FileMade]:
    """Write ``invocations.parquet/R1_0.parquet`` and so on, a row group a block."""
    made = FileMade(f"invocations.parquet/{part.region}_{part.number}.parquet", part.rows)
    path = part.order.out / made.path
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = record.schema("invocations")
    with parquet.Writer(path, schema, **_settings(schema)) as writer:
        for number, low, high in part.blocks():
            data = block(part.order.seed, part.region, number)
            rows = slice(low, high)
            writer.write(table(data, rows, schema), high - low)
            for name, count in natural(data, rows).items():
                made.natural[name] = made.natural.get(name, 0) + count
    return [made]


def _settings(schema: pa.Schema) -> dict[str, object]:
    """Dictionaries where values repeat; identifiers and times are stored as they are."""
    names = {"invocation", "request_id"}
    plain = {*names, "started", "ended", "execution", "cpu_user", "memory_avg"}
    return {
        "compression_level": 1,
        "use_dictionary": [name for name in schema.names if name not in plain],
        # Of numbers, and of what bills need not read where all rows have the same.
        "write_statistics": [
            field.name
            for field in schema
            if pa.types.is_integer(field.type) or field.name in ("outcome", "start")
        ],
    }


def table(data: Block, rows: slice, schema: pa.Schema) -> pa.Table:
    """Rows of a block as rows of the invocation table."""
    kind, pod = data.kind[rows], data.pod[rows]
    n = len(kind)
    execution, cold = NS_PER_US * data.execution[rows], data.cold[rows]
    ended = NS_PER_MS * data.ended[rows]
    no_pod, no_usage = kind == NO_POD, kind == NO_USAGE
    warm = cold < 0
    identifier = _identifiers(hexadecimal(data.identifier[rows]))
    millicores, megabytes = _allocations(data)
    columns = {
        "platform": _same(f"huawei-{data.region}", n),
        "function": _functions(data, pod, no_pod),
        "invocation": identifier,
        "request_id": identifier,
        "attempt": pa.array(np.ones(n, dtype=np.int64)),
        "request_bytes": pa.array(data.body[rows]),
        "outcome": _same("ok", n),
        "start": pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(n, dtype=np.int32), mask=warm), pa.array(["cold"])
        ),
        "instance": pa.DictionaryArray.from_arrays(
            pa.array(pod.astype(np.int32), mask=no_pod), pa.array(data.pods)
        ),
        "started": pa.array(ended - execution),
        "ended": pa.array(ended),
        "initialization": pa.array(NS_PER_US * cold, mask=warm),
        "execution": pa.array(execution),
        "allocated_cpu": pa.array(_MILLI * millicores.take(pod), mask=no_pod),
        "allocated_memory": pa.array(MIB * megabytes.take(pod), mask=no_pod),
        "cpu_user": pa.array(_cpu_time(data.cpu[rows], data.execution[rows]), mask=no_usage),
        "memory_avg": pa.array(_bytes(data.memory[rows]), mask=no_usage),
    }
    return pa.Table.from_arrays(
        [columns.get(field.name, _nulls(field.type, n)) for field in schema], schema=schema
    )


def _cpu_time(micro_cores: Ints, micro_seconds: Ints) -> Ints:
    """CPU time in ns to the nearest, halves up."""
    return (micro_cores * micro_seconds + 500) // 1000


def _bytes(micro_megabytes: Ints) -> Ints:
    """Bytes to the nearest, halves up: a millionth of a megabyte is 2^14 / 5^6 bytes."""
    return (micro_megabytes * 32_768 + 15_625) // 31_250


def _allocations(data: Block) -> tuple[Ints, Ints]:
    sizes = [pool.split("-") for pool in data.pools]
    cpu, memory = zip(*((int(cpu), int(memory)) for _, cpu, memory in sizes), strict=True)
    return np.array(cpu, dtype=np.int64), np.array(memory, dtype=np.int64)


def _functions(data: Block, pod: Ints, no_pod: npt.NDArray[np.bool_]) -> pa.DictionaryArray:
    """``funcName---userID---pool``, without the pool where there is no pod."""
    short = [f"{function}---{user}" for function, user in data.names]
    long = [f"{name}---{pool}" for name, pool in zip(short, data.pools, strict=True)]
    distinct = {name: i for i, name in enumerate(dict.fromkeys(long + short))}
    index = np.array([distinct[name] for name in long + short], dtype=np.int32)
    return pa.DictionaryArray.from_arrays(
        pa.array(index.take(pod + len(long) * no_pod)), pa.array(list(distinct))
    )


def _identifiers(digits: npt.NDArray[np.uint8]) -> pa.StringArray:
    rows, width = digits.shape
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(digits.ravel()))


@cache
def _same(text: str, rows: int) -> pa.DictionaryArray:
    indices = pa.array(np.zeros(rows, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array([text]))


@cache
def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind)
