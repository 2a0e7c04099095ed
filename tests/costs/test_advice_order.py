"""Order statistics by two aggregations, against sorting."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from uncia.backends import Backend, connect
from uncia.costs.advice.order import bin_of, order_statistics
from uncia.costs.advice.rows import Configuration


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with connect() as opened:
        yield opened


def test_bins_rise_with_the_value_and_are_narrow(backend: Backend) -> None:
    edges = [2**k + d for k in range(2, 61) for d in (-1, 0, 1)]
    near = [edge + step for edge in edges for step in (0, 3, 1001) if edge + step < 2**61]
    values = sorted({0, 1, 127, 255, 256, 257, *near})
    rows = backend.table(pa.table({"value": pa.array(values, pa.int64())}))
    answer = backend.collect(rows.mutate(bin=bin_of(rows["value"])).order_by("value"))
    bins = answer.column("bin").to_pylist()
    assert bins == sorted(bins)
    for value, low in zip(values, bins, strict=True):
        assert low <= value < low + max(1, value / 128)
    exact = dict(zip(values, bins, strict=True))
    assert exact[255] == 255  # below 256 every value has a bin of its own


def test_every_rank_is_that_of_the_sorted_values(backend: Backend) -> None:
    rng = np.random.default_rng(3)
    groups = {
        Configuration("a", "", -1, -1): np.exp(rng.normal(17, 1.5, 400)).astype(np.int64),
        Configuration("a", "aws", 1 << 27, -1): rng.integers(0, 40, 300),
        Configuration("b", "aws", 1 << 27, 72_357): np.array([7]),
    }
    columns: dict[str, list[object]] = {
        name: [] for name in ("function", "platform", "memory", "cpu", "value")
    }
    for item, values in groups.items():
        for value in [None, *values.tolist()]:
            for name, cell in zip(columns, (*item, value), strict=True):
                columns[name].append(cell)
    integers = ("memory", "cpu", "value")
    types = {name: pa.int64() if name in integers else pa.utf8() for name in columns}
    data = pa.table({name: pa.array(cells, types[name]) for name, cells in columns.items()})
    ranks = {item: range(1, values.size + 1) for item, values in groups.items()}
    result = order_statistics(backend, backend.table(data), "value", ranks)
    for item, values in groups.items():
        assert [result[item][rank] for rank in ranks[item]] == sorted(values.tolist())


def test_no_ranks_no_values(backend: Backend) -> None:
    data = pa.table(
        {
            "function": ["a"],
            "platform": ["p"],
            "memory": pa.array([1], pa.int64()),
            "cpu": pa.array([1], pa.int64()),
            "value": pa.array([5], pa.int64()),
        }
    )
    configuration = Configuration("a", "p", 1, 1)
    assert order_statistics(backend, backend.table(data), "value", {configuration: []}) == {
        configuration: {}
    }
