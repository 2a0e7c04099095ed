"""Columns that an engine would mistake: two of one name, and durations in other units than ns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uncia.backends import connect
from uncia.errors import UnciaError

ROWS = pa.table({"execution": [10**8], "outcome": ["throttled"]})


@pytest.mark.parametrize("stored", [False, True])
def test_a_column_is_there_once(tmp_path: Path, stored: bool) -> None:
    source: Any = ROWS.append_column("outcome", pa.array(["ok"]))
    if stored:
        pq.write_table(source, tmp_path / "rows.parquet")
        source = tmp_path / "rows.parquet"
    name = str(source) if stored else "the table"
    with connect() as backend, pytest.raises(UnciaError) as caught:
        backend.table(source)
    assert caught.value.message == f"{name} has the column outcome more than once"


@pytest.mark.parametrize("unit", ["ns", "ms"])
def test_durations_are_of_ns(tmp_path: Path, unit: str) -> None:
    file = tmp_path / "rows.parquet"
    durations = pa.array([100], pa.duration(unit))
    pq.write_table(ROWS.set_column(0, "execution", durations), file)
    with connect() as backend:
        if unit == "ns":
            assert backend.table(file).execution.to_pyarrow().to_pylist() == [100]
            return
        with pytest.raises(UnciaError, match=r"the column execution is duration\[ms\]"):
            backend.table(file)
