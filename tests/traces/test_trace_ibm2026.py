"""IBM's weekly pickles: the same rows from every version of pandas, and nothing that runs."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import pickle
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia import record
from uncia.errors import UnciaError
from uncia.traces import frames, ibm2026, ibm_lists, unpickle

DATA = Path(__file__).parent.parent / "data" / "ibm2026"
VERSIONS = ["1.5.3", "2.0.3", "2.3.3", "3.1.1"]
NAN = float("nan")
GIB = 1 << 30


def imported(folder: Path) -> list[dict[str, object]]:
    rows = record.read(folder).to_pylist()
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def week(apps: list[tuple[str, str, list[Any], list[Any], list[Any]]]) -> pd.DataFrame:
    """A weekly frame of applications: namespace, app, times, durations, pods."""
    return pd.DataFrame(
        {
            "NamespaceHash": [app[0] for app in apps],
            "AppHash": [app[1] for app in apps],
            "NumEvents": [len(app[2]) for app in apps],
            "InvocationTimes": [app[2] for app in apps],
            "AppExecTimes": [app[3] for app in apps],
            "TotalExecTimes": [app[3] for app in apps],
            "PodHash": [app[4] for app in apps],
        }
    )


def save(path: Path, value: object, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def exact(number: float, factor: int) -> int:
    """The decimal number that a float is shown as, times ``factor``, halves up."""
    return int((Decimal(repr(number)) * factor).to_integral_value(ROUND_HALF_UP))


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_of_every_pandas(version: str, tmp_path: Path) -> None:
    files = [DATA / f"{kind}-pandas-{version}.pickle" for kind in ("week", "config")]
    assert ibm2026.detect(files)
    done = ibm2026.convert(files, tmp_path / "out")
    common = {"platform": "ibm", "attempt": 1, "outcome": "ok"}
    row = {"function": "n1/a1", "allocated_cpu": 1_000_000, "allocated_memory": 4 * GIB}
    two = {"function": "n1/a2", "allocated_cpu": 125_000, "allocated_memory": GIB // 4}
    rows = [
        ("1", "p1", 1_000_000, 12_500_000, row),
        ("2", "p2", 1_250_000_000, 3_000_000, row),
        ("4", "p3", 2_500_000_000, 7_000_000, two | {"shared": False}),
        ("3", "p1", 86_400_500_000_000, 1_000_000, row),
    ]
    assert imported(tmp_path / "out") == [
        common
        | other
        | {"invocation": number, "instance": pod, "started": at, "execution": took}
        | {"ended": at + took}
        for number, pod, at, took, other in rows
    ]
    assert done.warnings == [
        "4 ms passed in the platform beside the applications' time, waiting and cold starts"
        " together: not in the table"
    ]


TIMES = st.one_of(
    st.integers(0, 62 * 86_400_000).map(lambda ms: ms / 1000),
    st.floats(0, 62 * 86_400),
    st.integers(0, 10**6),
    st.floats(1.7e9, 1.8e9),
)
EXECUTIONS = st.one_of(st.floats(0, 1e7), st.integers(0, 10**9), st.just(NAN), st.none())
PODS = st.one_of(st.sampled_from(["p1", "p2", "f00d"]), st.none())
CELLS: dict[str, Callable[[list[Any]], Any]] = {
    "lists": list,
    "tuples": tuple,
    "objects": lambda items: np.array([*items, None], dtype=object)[:-1],
}


@settings(deadline=None, max_examples=40)
@given(data=st.data(), protocol=st.integers(2, 5), form=st.sampled_from([*CELLS, "arrays"]))
def test_the_table_is_what_plain_python_computes(
    data: st.DataObject, protocol: int, form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    events = st.lists(st.tuples(TIMES, EXECUTIONS, PODS), max_size=40)
    apps = data.draw(st.lists(events, min_size=1, max_size=4).filter(any))
    expected, number, rows = [], 0, []
    for index, app in enumerate(apps):
        times, took, pods = ([event[part] for event in app] for part in range(3))
        if form == "arrays":
            took = [NAN if value is None else value for value in took]
            cells = [np.array(times, dtype=np.float64), np.array(took, dtype=np.float64)]
            pods = ["p1" if pod is None else pod for pod in pods]
            cells.append(np.array(pods, dtype=str))
        else:
            cells = [CELLS[form](column) for column in (times, took, pods)]
        rows.append((f"n{index}", "a", *cells))
        for time, duration, pod in zip(times, took, pods, strict=True):
            number += 1
            row = {"function": f"n{index}/a", "invocation": str(number), "instance": pod}
            row["started"] = exact(float(time), 10**9)
            if duration is not None and duration == duration:
                row["execution"] = exact(float(duration), 10**6)
                row["ended"] = row["started"] + row["execution"]
            expected.append({key: value for key, value in row.items() if value is not None})
    folder = tmp_path_factory.mktemp("ibm")
    frame = week(rows)
    if data.draw(st.booleans()):
        frame = frame.astype({"AppHash": object})
    file = save(folder / "week_1.pickle", frame, protocol)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ibm2026, "BATCH_ROWS", data.draw(st.sampled_from([1, 7, 1 << 18])))
        patch.setattr(unpickle, "CHUNK_BYTES", data.draw(st.sampled_from([3, 1000, 1 << 20])))
        ibm2026.convert([file], folder / "out")
    result = imported(folder / "out")
    for row in result:
        assert (row.pop("platform"), row.pop("outcome"), row.pop("attempt")) == ("ibm", "ok", 1)
    assert sorted(result, key=lambda row: int(str(row["invocation"]))) == expected
    starts = [row["started"] for row in result]
    assert starts == sorted(starts)  # type: ignore[type-var]


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(
        TIMES.map(float) | st.floats(0, 1e-3) | st.floats(0, 4e9), min_size=1, max_size=20
    ),
    places=st.sampled_from([6, 9]),
)
def test_floats_become_the_decimal_numbers_that_they_stand_for(
    values: list[float], places: int
) -> None:
    result = ibm_lists.scaled(np.array(values), 10**places)
    assert result.tolist() == [exact(value, 10**places) for value in values]


def test_long_lists_wait_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 30_000
    times = [index / 1000 for index in range(n)]
    took = [index % 70_000 for index in range(n)]
    pods = [f"pod-{index % 300}" for index in range(300)] * (n // 300)
    file = save(tmp_path / "week_1.pickle", week([("n", "a", times, took, pods)]))
    del times, took
    with file.open("rb") as stream:
        spill = unpickle.Spill(tmp_path / "spill")
        monkeypatch.setattr(unpickle, "CHUNK_BYTES", 1 << 14)
        tracemalloc.start()
        tree = unpickle.load(stream, frames.GLOBALS, spill, frames.plain)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 20 * n  # as Python values, each request would take more than 100 bytes
    columns = frames.columns(tree)
    for name, expected in (("AppExecTimes", [index % 70_000 for index in range(n)]),):
        cell = frames.cell(columns[name][0])
        assert cell is not None
        numbers, ok = ibm_lists.Cell(cell).numbers(0, n)
        assert ok.all()
        assert numbers.tolist() == expected
    result = frames.cell(columns["PodHash"][0])
    assert result is not None
    assert ibm_lists.Cell(result).texts(1000, 29_000)[0].to_pylist() == pods[1000:29_000]
    spill.close()
    assert not (tmp_path / "spill").exists()
    ibm2026.convert([file], tmp_path / "out")
    assert record.read(tmp_path / "out").num_rows == n
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["invocations.parquet"]


@pytest.mark.parametrize("packing", ["gz", "bz2", "xz", "zip"])
def test_packed_files(packing: str, tmp_path: Path) -> None:
    plain = (DATA / "week-pandas-2.3.3.pickle").read_bytes()
    file = tmp_path / f"week_1.pickle.{packing}"
    if packing == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("week_1.pickle", plain)
    else:
        pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[packing]
        file.write_bytes(pack(plain))
    assert ibm2026.detect([file])
    done = ibm2026.convert([tmp_path], tmp_path / "out")
    assert done.rows == {"invocations": 4}
    if packing != "zip":
        file.write_bytes(file.read_bytes()[:-12])
        with pytest.raises(UnciaError, match=r"cut off|damaged"):
            ibm2026.convert([file], tmp_path / "none")


def test_a_cut_pickle_is_an_error_that_says_where(tmp_path: Path) -> None:
    whole = (DATA / "week-pandas-3.1.1.pickle").read_bytes()
    for size in range(3, len(whole), 97):
        file = tmp_path / "week_1.pickle"
        file.write_bytes(whole[:size])
        with pytest.raises(UnciaError, match=rf"cut off: its pickle ends after {size:,} bytes"):
            ibm2026.convert([file], tmp_path / "out", strict=False)
    assert not (tmp_path / "out").exists()


def test_bad_requests_are_left_out_and_counted(tmp_path: Path) -> None:
    good = [1.0, 2.0]
    frame = week(
        [
            ("n", "good", good, good, ["p", "p"]),
            ("n", "negative", [-1.0, 3.0], [5, 6], ["p", "p"]),
            ("n", "absurd", [4e9 + 1, float("inf"), NAN, 4.0, "x"], [1.0] * 5, ["p"] * 5),
            ("n", "long", [5.0, 6.0], [-0.5, 1e11], ["p", "p"]),
            ("n", "pods", [7.0, 8.0], [1, 1], [7, "p"]),
            ("n", "short", [9.0, 9.0], [1.0], ["p", "p"]),
            ("n", "none", [9.0], [1.0], ["p"]),
            ("", "unnamed", [9.0], [1.0], ["p"]),
        ]
    )
    frame.at[6, "PodHash"] = "no list"
    frame.loc[7, "NumEvents"] = 1
    file = save(tmp_path / "week_1.pickle", frame)
    done = ibm2026.convert([file], tmp_path / "out", strict=False)
    result = [(row["function"], row["started"]) for row in imported(tmp_path / "out")]
    assert result == [
        ("n/good", 1 * 10**9),
        ("n/good", 2 * 10**9),
        ("n/negative", 3 * 10**9),
        ("n/absurd", 4 * 10**9),
        ("n/pods", 8 * 10**9),
    ]
    assert done.skipped == 1 + 4 + 2 + 1 + 3
    with pytest.raises(UnciaError, match=r"line 2, column InvocationTimes: '-1\.0 \(request 1 of"):
        ibm2026.convert([file], tmp_path / "none", strict=True)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    frame = week([("n", "a", [1.0], [1.0], ["p"])])
    file = save(tmp_path / "week_1.pickle", frame.drop(columns=["PodHash", "AppHash"]))
    with pytest.raises(UnciaError, match="lacks the columns 'AppHash', 'PodHash'"):
        ibm2026.convert([file], tmp_path / "out")
    save(file, frame.rename(columns={"InvocationTimes": "arrivals"}))
    with pytest.raises(UnciaError, match=r"its columns are 'NamespaceHash', .*'arrivals'"):
        ibm2026.convert([file], tmp_path / "out")
    save(file, frame.drop(columns=["NumEvents", "TotalExecTimes"]))
    done = ibm2026.convert([file], tmp_path / "out")
    assert "week_1.pickle has no column NumEvents" in done.warnings
    assert "no configurations were given: allocation is null" in done.warnings
    with pytest.raises(UnciaError, match="no invocations by themselves"):
        ibm2026.convert([DATA / "config-pandas-2.3.3.pickle"], tmp_path / "none")


# A pickle may name what it likes; each of these would run code in Python's own reader.


class Evil:
    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


def attacks(mark: Path) -> dict[str, bytes]:
    """Pickles that would make the file ``mark``."""
    command = f"open({str(mark)!r}, 'w').close()"
    shell = f"touch {mark}"

    def op(module: str, name: str) -> bytes:
        return f"c{module}\n{name}\n".encode()

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    frame = week([("n", "a", [1.0], [1.0], ["p"])])
    hidden = frame.copy()
    hidden.at[0, "PodHash"] = [Evil(exec, (command,))]
    built = b"\x80\x02" + op("numpy", "dtype") + b")R}" + text("__class__") + op("os", "system")
    frame_with_state = op("pandas.core.frame", "DataFrame") + b")\x81"
    return {
        "os.system": pickle.dumps(Evil(os.system, (shell,))),
        "exec": pickle.dumps(Evil(exec, (command,)), 2),
        "eval by getattr": b"\x80\x02"
        + op("builtins", "getattr")
        + op("builtins", "__import__")
        + text("eval")
        + b"\x86R"
        + text(command)
        + b"\x85R.",
        "dotted name": b"\x80\x04" + text("numpy") + text("f2py.crackfortran.myeval") + b"\x93.",
        "in a cell": pickle.dumps(hidden),
        "in a state": b"\x80\x02" + frame_with_state + op("os", "system") + b"b.",
        "class by state": built + b"sb.",
        "setstate of a frame": b"\x80\x02"
        + frame_with_state
        + b"}"
        + text("_mgr")
        + op("builtins", "exec")
        + text(command)
        + b"\x85Rsb.",
        "allowed callable of another module": b"\x80\x02" + op("os", "slice") + b")R.",
        "numpy loads": b"\x80\x02" + op("numpy", "load") + text(str(mark)) + b"\x85R.",
        "dtype of a module": b"\x80\x02" + op("numpy.core.multiarray", "fromfile") + b")R.",
        "read_pickle": b"\x80\x02" + op("pandas", "read_pickle") + text(str(mark)) + b"\x85R.",
        "instance": b"\x80\x02(" + text(shell) + b"ios\nsystem\n.",
        "object": b"\x80\x02(" + op("os", "system") + text(shell) + b"o.",
        "persistent": b"\x80\x02" + text("x") + b"Q.",
        "extension": b"\x80\x02\x82\x01.",
        "newobj_ex": b"\x80\x04" + op("os", "system") + text(shell) + b"\x85}\x92.",
        "called text": b"\x80\x02" + text("x") + b")R.",
        "append to a frame": b"\x80\x02" + frame_with_state + b"Na.",
        "items of a list": b"\x80\x02]NNs.",
        "state of a list": b"\x80\x02]}b.",
        "protocol 0": f"cos\nsystem\n(S'{shell}'\ntR.".encode(),
        "no frame": pickle.dumps({"a": 1}),
        "stack": b"\x80\x02.",
        "memo": b"\x80\x02h\x05.",
        "mark": b"\x80\x02t.",
        "huge text": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x",
        "deep": b"\x80\x02" + b"(" * 200_000,
    }


@pytest.mark.parametrize("name", attacks(Path("x")))
def test_nothing_that_a_pickle_names_is_run(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    file = tmp_path / "week_1.pickle"
    file.write_bytes(attacks(mark)[name])
    before = set(sys.modules)
    with pytest.raises(UnciaError, match=r"week_1\.pickle is (not read, as it|cut off)"):
        ibm2026.convert([file], tmp_path / "out", strict=False)
    assert not mark.exists()
    assert not (tmp_path / "out").exists()
    assert not {module for module in set(sys.modules) - before if "f2py" in module}


def test_the_attacks_would_work_on_pythons_own_reader(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    pickle.loads(attacks(mark)["exec"])
    assert mark.exists()


@pytest.mark.parametrize(
    ("name", "named"),
    [("os.system", "posix.system"), ("in a cell", "builtins.exec"), ("object", "os.system")],
)
def test_the_error_names_the_global(name: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "week_1.pickle"
    file.write_bytes(attacks(tmp_path / "mark")[name])
    with pytest.raises(UnciaError, match=f"it names the global {named}, which"):
        ibm2026.convert([file], tmp_path / "out")


def test_values_that_would_be_without_end_as_text_are_counted(tmp_path: Path) -> None:
    nested: Any = {}
    for _ in range(60):
        nested = {"a": nested, "b": nested}
    frame = week([("n", "a", [1.0], [1.0], ["p"]), ("n", "b", [1.0], [1.0], ["p"])])
    frame["AppHash"] = pd.Series(["a", nested], dtype=object)
    done = ibm2026.convert([save(tmp_path / "week_1.pickle", frame)], tmp_path / "out")
    assert (done.rows["invocations"], done.skipped) == (1, 1)


@pytest.mark.parametrize("array", [np.array(1.0), np.ones((2, 2))])
def test_a_list_is_of_one_dimension(tmp_path: Path, array: Any) -> None:
    frame = week([("n", "a", [1.0], [1.0], ["p"])])
    frame["InvocationTimes"] = pd.Series([None], dtype=object)
    frame.iat[0, 3] = array
    with pytest.raises(UnciaError, match="another number of dimensions than 1"):
        ibm2026.convert([save(tmp_path / "week_1.pickle", frame)], tmp_path / "out")


@settings(deadline=None, max_examples=80)
@given(data=st.data(), version=st.sampled_from(VERSIONS))
def test_any_damage_is_an_error_or_counted(
    data: st.DataObject, version: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    content = bytearray((DATA / f"week-pandas-{version}.pickle").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(2, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    file = folder / "week_1.pickle"
    file.write_bytes(content)
    try:
        done = ibm2026.convert([file], folder / "out", strict=False)
    except UnciaError:
        assert not (folder / "out").exists()
    else:
        assert done.rows["invocations"] >= 1
