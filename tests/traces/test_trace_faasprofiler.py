"""Archives of FaaSProfiler: their invocations, and what is no such archive."""

import copyreg
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.core.internals import managers

from uncia import record
from uncia.errors import UnciaError
from uncia.traces import faasprofiler, frames

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
    # Its handler was given the request once it was initialized.
    assert (cold["started"], cold["start"]) == (600 * MS, "cold")
    assert (cold["initialization"], cold["execution"]) == (600 * MS, 1_900 * MS)
    assert all(row["ended"] - row["started"] == row["execution"] for row in (warm, cold))
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
        ({"waitTime": ["40", "53"]}, "waitTime has a value that is no number"),
        ({"waitTime": [(40,), (53,)]}, "waitTime has a value that is no number"),
        ({"waitTime": [True, False]}, "waitTime has a value that is no number"),
        ({"func_name": pd.Series(["f", "\ud800"], dtype=object)}, "a text that is no UTF-8"),
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


def test_times_that_do_not_fit_together_begin_at_0(tmp_path: Path) -> None:
    path = archive(tmp_path / "test.pkl", duration=[1_800, 3_200])
    faasprofiler.convert([path], tmp_path / "rows.parquet")
    warm, cold = record.read(tmp_path / "rows.parquet").to_pylist()
    assert (warm["started"], cold["started"], cold["ended"]) == (500 * MS, 0, 2_600 * MS)


def text(of: str) -> bytes:
    """A text, as a pickle has it."""
    return b"\x8c" + bytes([len(of)]) + of.encode()


def called(name: str, arguments: bytes) -> bytes:
    """What is called by that name, with a tuple."""
    module, _, name = name.rpartition(".")
    return text(module) + text(name) + b"\x93" + arguments + b"R"


def part(frame: bytes) -> bytes:
    """An archive whose fourth part is this."""
    return b"\x80\x04](" + text("t") + b"NN" + frame + b"Ne."


def framed(index: bytes, blocks: bytes = b")") -> bytes:
    """A DataFrame by the data of its columns' index, and its blocks."""
    base = "pandas.core.indexes.base"
    axis = text(base) + text("Index") + b"\x93}" + text("data") + index + b"s\x86"
    axes = called(f"{base}._new_Index", axis) + b"\x85"
    manager = called("pandas.core.internals.managers.BlockManager", blocks + axes + b"\x86")
    whole = text("pandas.core.frame") + text("DataFrame") + b"\x93)\x81"
    return whole + b"}" + text("_mgr") + manager + b"sb"


def array(kind: str, shape: bytes, data: bytes) -> bytes:
    """An array of numpy."""
    dtype = called("numpy.dtype", text(kind) + b"\x85")
    return called("numpy.core.numeric._frombuffer", b"(" + data + dtype + shape + text("C") + b"t")


def objects(cell: bytes) -> bytes:
    """An array of one object."""
    dtype = called("numpy.dtype", text("O8") + b"\x85")
    state = b"(K\x01K\x01\x85" + dtype + b"\x89]" + cell + b"at"
    return called("numpy.core.multiarray._reconstruct", b")") + state + b"b"


def arrow(kind: bytes, chunks: int = 0, value: bytes = b"") -> bytes:
    """A string array of pandas; its type's arguments, and how often it has the same text."""
    alias = called("pyarrow.lib.type_for_alias", kind)
    ends = b"C\x08" + struct.pack("<2i", 0, len(value))
    long = b"\x8e" + struct.pack("<Q", len(value)) + value
    data = b"((" + alias + b"K\x01K\x00K\x00]N" + b"a" + ends + b"a" + long + b"att"
    made = called("pyarrow.lib._restore_array", data)
    if chunks:
        same = b"](" + made + b"q\x07" + b"h\x07" * (chunks - 1) + b"e"
        made = called("pyarrow.lib.chunked_array", same + b"\x85")
    whole = text("pandas.core.arrays.string_arrow") + text("ArrowStringArray") + b"\x93)\x81"
    return whole + b"}" + text("_pa_array") + made + b"sb"


ONE = b"K\x01\x85"
"""The shape of one item."""


def twice(times: int, again: bytes) -> bytes:
    """Something that has the same thing twice, which has the same thing twice, and so on."""
    return b")q\x01" + b"".join(b"0" + again + b"q\x01" for _ in range(times))


ODD = {
    "nested a million times": framed(arrow(b")" + b"\x85" * 1_000_000)),
    "a name of 2^60 tuples": framed(objects(twice(60, b"h\x01h\x01\x86"))),
    "a name of 2^60 dictionaries": framed(
        objects(twice(60, b"}(" + text("a") + b"h\x01" + text("b") + b"h\x01u"))
    ),
    "a name that is nothing": framed(objects(b"N")),
    "a type that is a dictionary": framed(arrow(b"}\x85")),
    "a type that is two": framed(arrow(text("string") + text("string") + b"\x86")),
    "a float of a byte": framed(array("f1", ONE, b"C\x01\x00")),
    "seventy dimensions": framed(array("i8", b"(" + b"K\x01" * 70 + b"t", b"C\x08" + bytes(8))),
    "dimensions of nothing": framed(
        array("i8", b"(" + b"\x8a\x05\xff\xff\xff\xff\x00" * 4 + b"K\x00t", b"C\x00")
    ),
    "columns without rows": framed(
        objects(text("a")),
        called(
            "pandas._libs.internals._unpickle_block",
            array("i8", b"\x8a\x05\xff\xff\xff\xff\x00K\x00\x86", b"C\x00")
            + array("i8", ONE, b"C\x08" + bytes(8))
            + b"K\x02\x87",
        )
        + b"\x85",
    ),
    "no character": framed(array("U1", ONE, b"C\x04\xff\xff\xff\xff")),
    "half a character": framed(array("U1", ONE, b"C\x04" + struct.pack("<I", 0xD800))),
    "a scalar that is no character": called(
        "numpy.core.multiarray.scalar",
        called("numpy.dtype", text("U1") + b"\x85") + b"C\x04\xff\xff\xff\xff\x86",
    ),
}


_READ = """\
import resource, sys
from pathlib import Path
from uncia.errors import UnciaError
from uncia.traces import faasprofiler
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
for path in map(Path, sys.argv[1:]):
    print(path.name, faasprofiler.detect([path]), end=" ", flush=True)
    try:
        faasprofiler.convert([path], path.with_suffix(".parquet"))
    except UnciaError as error:
        print(error)
"""


def test_what_pandas_would_not_write_is_a_sentence(tmp_path: Path) -> None:
    """In a process of its own: some of it once ended the interpreter, or took all memory."""
    paths = [tmp_path / f"{name.replace(' ', '-')}.pkl" for name in ODD]
    for path, odd in zip(paths, ODD.values(), strict=True):
        path.write_bytes(part(odd))
    ended = subprocess.run(
        [sys.executable, "-c", _READ, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-300:] + ended.stderr
    for path, line in zip(paths, ended.stdout.splitlines(), strict=True):
        assert line.startswith(f"{path.name} False {path} is no archive of FaaSProfiler: ")


@pytest.mark.parametrize("chunks", [9, 11])
def test_a_small_file_holds_no_frame_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunks: int
) -> None:
    """Parts of it may be the same one, ever again."""
    monkeypatch.setattr(frames, "MAX_BYTES", 10_500)
    path = tmp_path / "odd.pkl"
    # Eight bytes beside each text.
    names = arrow(text("string") + b"\x85", chunks, b"x" * 992)
    path.write_bytes(part(framed(names)))
    sentence = "do not fit together" if chunks == 9 else "more than 10,500 bytes"
    with pytest.raises(UnciaError, match=sentence):
        faasprofiler.convert([path], tmp_path / "rows.parquet")
    block = called("pandas._libs.internals._unpickle_block", b"h\x08h\x09K\x02\x87")
    shared = (
        array("i8", b"K\x01K\x14\x86", b"C\xa0" + bytes(160))
        + b"q\x080"
        + array("i8", ONE, b"C\x08" + bytes(8))
        + b"q\x090"
    )
    blocks = b"(" + block * (60 if chunks == 9 else 70) + b"t"
    path.write_bytes(part(shared + framed(objects(text("a")), blocks)))
    if chunks == 9:
        sentence = "no column func_name"
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
