"""Archives of FaaSProfiler: their invocations, and what is no such archive."""

import copyreg
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.core.internals import managers

from uncia import record
from uncia.errors import UnciaError
from uncia.traces import faasprofiler

MS = 1_000_000


def archive(path: Path, monitored: Any = None, **changes: Any) -> Path:
    test = {
        "func_name": ["primes", "primes"],
        "activationId": ["a1", "a2"],
        "start": [1_570_000_000_500, 1_570_000_000_100],
        "end": [1_570_000_002_300, 1_570_000_002_600],
        "duration": [1_800, 2_500],
        "waitTime": [40, 53],
        "initTime": [0, 600],
        "latency": [1_840, 2_553],
        "lang": ["python:3", "python:3"],
        "execution": [1_800, 1_900],
    } | changes
    config = pd.DataFrame({"rate": [1.5], "name": ["primes"]})
    stat = pd.DataFrame({"mean": [1.0, 2.0]}, index=["a", "b"])
    parts = ["primes_test", config, stat, pd.DataFrame(test), monitored or {}]
    with path.open("wb") as file:
        pickle.dump(parts, file)
    return path


def test_invocations_are_openwhisks_records_in_nanoseconds(tmp_path: Path) -> None:
    path = archive(tmp_path / "test.pkl")
    assert faasprofiler.detect([path])
    faasprofiler.convert([path], tmp_path / "rows.parquet")
    warm, cold = record.read(tmp_path / "rows.parquet").to_pylist()
    assert (warm["experiment"], warm["function"], warm["invocation"]) == (
        "primes_test",
        "primes",
        "a1",
    )
    assert (warm["started"], warm["ended"]) == (400 * MS, 2_200 * MS)
    assert (warm["queued"], warm["initialization"], warm["start"]) == (40 * MS, None, None)
    assert (cold["started"], cold["start"]) == (0, "cold")
    assert (cold["initialization"], cold["execution"]) == (600 * MS, 1_900 * MS)
    assert cold["received"] is None, "no client saw it"


def test_what_monitors_said_is_passed_over(tmp_path: Path) -> None:
    times = pd.to_datetime(["2019-10-01 10:00:00", "2019-10-01 10:00:01"])
    pqos = pd.DataFrame({"timestamp": times, "Core": [1, 2], "IPC": [0.5, 1.5]})
    perf = pd.DataFrame({"timestamp": [1.0, 2.0], "cycles": [10, None]})
    indexed = pqos.set_index("timestamp")
    records = {"perf_records": perf, "pqos_records": pqos, "first": times[0], "by": indexed}
    path = archive(tmp_path / "test.pkl", monitored={**records, "at": times.to_numpy()[0]})
    assert faasprofiler.detect([path])
    faasprofiler.convert([path], tmp_path / "rows.parquet")
    assert record.read(tmp_path / "rows.parquet").num_rows == 2


class BlockManager:
    """What pandas pickled before 1.3: nothing to construct it with, and a state."""

    def __init__(self, frame: pd.DataFrame) -> None:
        axes = list(frame._mgr.axes)
        blocks = [
            {"values": np.atleast_2d(np.asarray(block.values)), "mgr_locs": block.mgr_locs.indexer}
            for block in frame._mgr.blocks
        ]
        values = [block["values"] for block in blocks]
        items = [axes[0][block["mgr_locs"]] for block in blocks]
        self.state = axes, values, items, {"0.14.1": {"axes": axes, "blocks": blocks}}

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copyreg.__newobj__, (BlockManager,), self.state


BlockManager.__module__ = "pandas.core.internals.managers"


class Frames(pickle.Pickler):
    """Pickles frames as pandas did before 1.3."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, pd.DataFrame):
            state = {"_data": BlockManager(value), "_typ": "dataframe", "_metadata": []}
            return copyreg.__newobj__, (pd.DataFrame,), state
        return NotImplemented


def test_frames_of_pandas_before_1_3_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "test.pkl")
    parts = pickle.loads(path.read_bytes())
    with monkeypatch.context() as patched, path.open("wb") as file:
        patched.setattr(managers, "BlockManager", BlockManager)  # so that it is found by its name
        Frames(file, 3).dump(parts)
    faasprofiler.convert([archive(tmp_path / "now.pkl")], tmp_path / "now.parquet")
    faasprofiler.convert([path], tmp_path / "before.parquet")
    before, now = (record.read(tmp_path / f"{it}.parquet") for it in ("before", "now"))
    assert before.to_pylist() == now.to_pylist()


class Malicious:
    """A pickle of it would run a program."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.made),)


def test_a_malicious_archive_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "test.pkl"
    path.write_bytes(pickle.dumps(["test", Malicious(tmp_path / "made"), None, None, None]))
    with pytest.raises(UnciaError, match=r"test\.pkl is no archive .* names the global .*mkdir"):
        faasprofiler.convert([path], tmp_path / "rows.parquet")
    assert not (tmp_path / "made").exists()
    assert not faasprofiler.detect([path])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"duration": [100, 500]}, "shorter than its initTime"),
        ({"waitTime": [1.5, 2.0]}, "row 0: waitTime is no whole number of milliseconds"),
        ({"waitTime": ["x", "y"]}, "waitTime has a value that is no number"),
        ({"waitTime": [1, 10**400]}, "waitTime has a value that is no number"),
        ({"func_name": ["f", float("nan")]}, "row 1: func_name is no text"),
        ({"activationId": ["a", None]}, "row 1: activationId is no text"),
    ],
)
def test_what_is_no_time_or_name_is_an_error(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    path = archive(tmp_path / "test.pkl", **changes)
    with pytest.raises(UnciaError, match=sentence):
        faasprofiler.convert([path], tmp_path / "rows.parquet")


def test_what_is_no_archive_or_cut_off_is_an_error(tmp_path: Path) -> None:
    path = archive(tmp_path / "test.pkl")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnciaError, match="is cut off after"):
        faasprofiler.convert([path], tmp_path / "rows.parquet")
    path.write_bytes(pickle.dumps(["one", "two"]))
    with pytest.raises(UnciaError, match="no list of five parts"):
        faasprofiler.convert([path], tmp_path / "rows.parquet")
