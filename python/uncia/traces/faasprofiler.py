"""FaaSProfiler's archives: what a test of its workload analyzer came to, by OpenWhisk's records.

An archive is a pickle of the list ``[test_name, config_df, stat_df, test_df, perf_mon_records]``,
of which only ``test_df`` has invocations, in whole milliseconds:

* ``ended`` is ``end``, in times from the first ``start`` on. ``queued`` is ``waitTime``,
  ``initialization`` is ``initTime``, where there was one, and ``execution`` is ``duration`` without
  that. ``started`` is as long before the end: ``start`` is when the initialization began.
* The archive calls ``duration + waitTime`` a latency; it is none that a client saw, so that there
  are no client's times.
* ``start`` is cold where ``initTime`` is not 0, else null: a paused container is not known from
  a live one.

The pickle is read as data: nothing that it names is imported or called (`unpickle`). The other
parts are not looked at; the last holds what perf and pqos said, with pqos's as times of pandas.
"""

import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from uncia.errors import UnciaError
from uncia.traces import frames, unpickle
from uncia.traces.base import Imported, Issues, expand
from uncia.traces.output import output
from uncia.units import NS_PER_MS

NAME: Final = "faasprofiler"
DESCRIPTION: Final = (
    "FaaSProfiler archives: invocations of a test by OpenWhisk's records, pickles of pandas."
    " License of the tool MIT; https://github.com/PrincetonUniversity/faas-profiler; cite Shahrad"
    " et al., Architectural Implications of Function-as-a-Service Computing, MICRO 2019."
)
TABLES: Final = ("invocations",)
SUFFIXES: Final = (".pickle", ".pkl")
_PARTS: Final = 5
_TEST: Final = 3
_COLUMNS: Final = ("func_name", "activationId", "start", "end", "duration", "waitTime", "initTime")
_MOST_MS: Final = 1 << 43
_SNIFFED: Final = 16
_LIST: Final = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?\]", re.DOTALL)
"""How a pickle of a list begins: the protocol, perhaps a frame, and the list."""

_Columns = Mapping[str, frames.Column]


def detect(paths: Iterable[Path]) -> bool:
    """Whether every file is such an archive: a list whose fourth part has these columns."""
    return all(_is_archive(path) for path in paths)


def _is_archive(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(_SNIFFED)
        # Frames, which other traces are, are not read whole to be refused.
        if not _LIST.match(start):
            return False
        _read(path)
    except (UnciaError, OSError):
        return False
    return True


def convert(paths: Iterable[Path | str], out: Path | str, *, strict: bool = False) -> Imported:
    """Write the invocations of archives as an invocation table; each is an experiment.

    Args:
        paths: archives, or folders of them.
        out: a folder, or a file ``*.parquet``.
        strict: has no meaning: an archive with a bad row is an error as a whole.

    Raises:
        UnciaError: a file is no such archive, is cut off, names what no file of data does, or has
            times that are none; or nothing can be written.
    """
    issues = Issues(strict)
    with output(Path(out), TABLES, issues) as result:
        for path in expand(paths, SUFFIXES):
            name, columns = _read(path)
            result.write("invocations", _rows(path, name, columns))
        return result.finish([])


def _read(path: Path) -> tuple[str, _Columns]:
    """The test's name and the columns of its invocations.

    Raises:
        UnciaError: the file is no such archive.
    """
    with tempfile.TemporaryDirectory() as folder:
        spill = unpickle.Spill(Path(folder) / "spill")
        try:
            with path.open("rb") as file:
                tree = unpickle.load(file, GLOBALS, spill, _plain)
            parts = tree.values() if isinstance(tree, unpickle.Items) else []
            if len(parts) != _PARTS or not isinstance(parts[0], str):
                raise unpickle.Refused("it is no list of five parts that begins with a name")
            columns = frames.columns(parts[_TEST])
        except unpickle.Refused as error:
            raise UnciaError(f"{path} is no archive of FaaSProfiler: {error}") from error
        except unpickle.CutOff as error:
            raise UnciaError(f"{path} is cut off after {error} bytes") from error
        finally:
            spill.close()
    missing = [column for column in _COLUMNS if column not in columns]
    if missing:
        raise UnciaError(f"{path} is no archive of FaaSProfiler: it has no column {missing[0]}")
    return parts[0], columns


GLOBALS: Final = frames.GLOBALS | {
    ("pandas.arrays", "DatetimeArray"),
    ("pandas.core.arrays.datetimes", "DatetimeArray"),
    ("pandas", "DatetimeIndex"),
    ("pandas.core.indexes.datetimes", "DatetimeIndex"),
    ("pandas.core.indexes.datetimes", "_new_DatetimeIndex"),
    ("pandas._libs.tslibs.timestamps", "Timestamp"),
    ("pandas._libs.tslibs.timestamps", "_unpickle_timestamp"),
    ("pandas.core.indexes.numeric", "Float64Index"),
    ("datetime", "datetime"),
}
"""What the parts of an archive may name: frames of pandas, arrays of numpy, and times."""


def _plain(built: unpickle.Built) -> Any:
    """As `frames.plain`; a scalar of another type is an error where it is read, and not before."""
    try:
        return frames.plain(built)
    except unpickle.Refused:
        return built


def _rows(path: Path, test: str, columns: _Columns) -> dict[str, pa.Array]:
    times = {name: _milliseconds(path, name, columns[name]) for name in _COLUMNS[2:]}
    count = times["start"].size
    executed = times["duration"] - times["initTime"]
    started = times["end"] - executed
    # Of clocks that differ, a duration may be longer than from the start to the end.
    first = int(min(times["start"].min(), started.min())) if count else 0
    if (executed < 0).any() or (times["end"] < times["start"]).any():
        raise UnciaError(
            f"{path}: an invocation ends before it begins, or is shorter than its initTime"
        )
    is_cold = times["initTime"] != 0

    def nanoseconds(values: Any, known: Any = None) -> pa.Array:
        mask = None if known is None else ~known
        return pa.array(values * NS_PER_MS, pa.int64(), mask=mask)

    return {
        "experiment": pa.array([test] * count, pa.utf8()),
        "platform": pa.array(["openwhisk"] * count, pa.utf8()),
        "function": _texts(path, "func_name", columns["func_name"]),
        "invocation": _texts(path, "activationId", columns["activationId"]),
        "attempt": pa.array(np.ones(count, np.int64)),
        "outcome": pa.array(["ok"] * count, pa.utf8()),
        "start": pa.array(["cold" if cold else None for cold in is_cold], pa.utf8()),
        "started": nanoseconds(started - first),
        "ended": nanoseconds(times["end"] - first),
        "queued": nanoseconds(times["waitTime"]),
        "initialization": nanoseconds(times["initTime"], is_cold),
        "execution": nanoseconds(executed),
    }


def _texts(path: Path, name: str, column: frames.Column) -> pa.Array:
    """A column of texts.

    Raises:
        UnciaError: there is another value.
    """
    for row, value in enumerate(column):
        if not isinstance(value, str):
            raise UnciaError(f"{path}: row {row}: {name} is no text")
    return pa.array(column, pa.utf8())


def _milliseconds(path: Path, name: str, column: frames.Column) -> Any:
    """A column of whole milliseconds, as int64.

    Raises:
        UnciaError: there is another value.
    """
    no_number = f"{path}: {name} has a value that is no number"
    # What numpy would make numbers of: texts, truth values and lists, however deep.
    if isinstance(column, list):
        is_numbers = all(isinstance(it, int | float) and not isinstance(it, bool) for it in column)
    else:
        is_numbers = column.dtype.kind in "fiu"
    if not is_numbers:
        raise UnciaError(no_number)
    try:
        values = np.asarray(column, np.float64)
    except OverflowError as error:
        raise UnciaError(no_number) from error
    bad = ~((values >= 0) & (values < _MOST_MS) & (values == np.floor(values)))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise UnciaError(f"{path}: row {row}: {name} is no whole number of milliseconds, 0 or more")
    return values.astype(np.int64)
