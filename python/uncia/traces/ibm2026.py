"""IBM Cloud Code Engine, 62 days: every request of 1,780 applications, with the pod that served it.

The release has ten weekly files, pickles of a pandas DataFrame with a row for each application and
lists of equal length in its columns, and one file of the applications' configurations by day. A
request becomes a row of the invocation table:

* ``started`` is ``InvocationTimes`` (s) and ``execution`` is ``AppExecTimes`` (ms), both as the
  decimal number that they stand for, to the nearest nanosecond; ``ended`` is their sum. When the
  trace's time begins is not said, so it is 0 of the table's.
* ``TotalExecTimes`` exceeds ``AppExecTimes`` by all that passed in the platform: waiting and, where
  there was one, a cold start. The trace does not tell these apart, so neither ``queued`` nor
  ``initialization`` is filled; the warnings say how much it is.
* ``function`` is ``NamespaceHash/AppHash``, and ``instance`` is the pod.
* With ``app_configs.pickle`` given too, ``allocated_cpu`` and ``allocated_memory`` (GB of 2^30
  bytes) are those of the request's day, counted from time 0. Where the times reach beyond the days
  of the configurations, they are known for an application that never changed only. ``shared`` is
  false where a pod serves one request at a time, else null.
* The trace holds no failures, so every outcome is ok; CPU and memory in use are not measured.

The pickles are read as data: nothing that they name is imported or called (`unpickle`).
"""

import math
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from uncia.errors import UnciaError
from uncia.traces import cells, frames, ibm_lists, json_lines, log_values, unpickle
from uncia.traces.base import Imported, Issues, expand
from uncia.traces.files import Kind
from uncia.traces.output import BATCH_ROWS, Names, Stage, output
from uncia.traces.rejected import Problem
from uncia.units import GIB, MICRO_PER_VCPU, NS_PER_MS, NS_PER_S

NAME: Final = "ibm2026"
DESCRIPTION: Final = (
    "IBM Cloud Code Engine traces, 2026: 1.9 billion requests of 1,780 applications in 62 days."
    " License MIT; https://github.com/ubc-cirrus-lab/ibm-cloud-code-engine-traces; cite Nasiri et"
    " al., In-Production Characterization of an Open Source Serverless Platform and New Scaling"
    " Strategies, EuroSys 2026."
)
TABLES: Final = ("invocations",)
_OWNER: Final = ("NamespaceHash", "AppHash")
_LISTS: Final = ("InvocationTimes", "AppExecTimes", "PodHash")
_OPTIONAL: Final = ("NumEvents", "TotalExecTimes")
_CONFIGURED: Final = ("AppContainerRequestCpu", "AppContainerRequestMemory")
_CONCURRENCY: Final = "AppContainerConcurrency"
FILES: Final = (
    Kind("week", (*_OWNER, *_LISTS), signature=("InvocationTimes",)),
    Kind("configurations", (*_OWNER, *_CONFIGURED), signature=_CONFIGURED[:1]),
)
_PICKLES: Final = (".pickle", ".pkl")
_PACKED: Final = ("", ".gz", ".bz2", ".xz", ".zip")
SUFFIXES: Final = tuple(name + packed for name in _PICKLES for packed in _PACKED)

_MAX_SECONDS: Final = 4_000_000_000
_MAX_MS: Final = 10_000_000_000  # as of other traces: 10,000,000 s
_SECONDS: Final = f"seconds, from 0 to {_MAX_SECONDS:,}"
_MILLISECONDS: Final = f"milliseconds, from 0 to {_MAX_MS:,}"
_DAY_NS: Final = 86_400 * NS_PER_S
_SNIFFED: Final = 1 << 16

_STAGE: Final = {
    "invocation": pa.int64(),
    "function": pa.int32(),
    "pod": pa.utf8(),
    "started": pa.int64(),
    "execution": pa.int64(),
    "allocated_cpu": pa.int64(),
    "allocated_memory": pa.int64(),
    "shared": pa.bool_(),
}
_SORTED: Final = "SELECT *, started + execution AS ended FROM invocations ORDER BY started, row"

_Ints = npt.NDArray[np.int64]


def detect(paths: Iterable[Path]) -> bool:
    """Whether every file is a pickle of pandas, by its first bytes; what it holds is far behind."""
    return all(_is_pickle(path) for path in paths)


def convert(paths: Iterable[Path | str], out: Path | str, *, strict: bool = False) -> Imported:
    """Write the requests as an invocation table, sorted by ``started``.

    ``invocation`` is the request's number in the trace, from 1, in the order of files and lists.

    Args:
        paths: weekly files, and the configurations if wanted, plain or compressed with gzip, bzip2,
            xz or zip, or folders of them.
        out: a folder, or a file ``*.parquet``.
        strict: whether a bad request is an error; otherwise it is kept aside and counted.

    Raises:
        UnciaError: a file is not of this trace, cut off, damaged or names what no file of data
            does; a request is bad; or nothing can be written.
    """
    files = expand(paths, SUFFIXES)
    # What a file is, its end says; configurations are read first where their name shows them.
    files.sort(key=lambda path: "config" not in path.name.lower())
    issues = Issues(strict)
    with output(Path(out), TABLES, issues) as result:
        reader = _Reader(result.stage("invocations", _STAGE), issues)
        for path in files:
            reader.read(path)
        if not reader.weeks:
            raise UnciaError(
                f"{files[0]} holds configurations, which are no invocations by themselves",
                hint="Name the weekly files too.",
            )
        for batch in result.query(_SORTED):
            result.write("invocations", reader.columns(batch))
        return result.finish(reader.warnings())


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix.lower() != ".zip":
        with json_lines.opened(path) as file:
            yield file
        return
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(names) != 1:
                raise UnciaError(f"{path} holds {len(names)} files", hint="Unpack it first.")
            with archive.open(names[0]) as file:
                yield file
    except zipfile.BadZipFile as error:
        raise UnciaError(
            f"{path} is damaged: {error}", hint="Fetch or copy the file again."
        ) from error
    except OSError as error:
        raise UnciaError(f"{path} cannot be read: {error.strerror or error}") from error


def _is_pickle(path: Path) -> bool:
    with _opened(path) as file:
        start = file.read(_SNIFFED)
    return start[:1] == b"\x80" and 2 <= start[1] <= 5 and b"pandas" in start


@dataclass
class _Config:
    """An application's configuration by day; None where it is not known."""

    cpu: list[int | None]
    memory: list[int | None]
    concurrency: list[int | None]


@dataclass
class _Reader:
    """Reads weeks into a stage, and makes the columns of the table from what comes out of it."""

    stage: Stage
    issues: Issues
    weeks: int = 0
    functions: Names = field(default_factory=Names)
    configs: dict[tuple[str, str], _Config] = field(default_factory=dict)
    noted: Counter[str] = field(default_factory=Counter)
    waited: int = 0
    _requests: int = 0

    def read(self, path: Path) -> None:
        """Add a file.

        Raises:
            UnciaError: it is not of this trace, cut off or damaged, or (if strict) a row is bad.
        """
        spill = unpickle.Spill(self.stage.path.parent / "lists")
        try:
            with _opened(path) as file:
                tree = unpickle.load(file, frames.GLOBALS, spill, frames.plain)
            columns = frames.columns(tree)
            week, configurations = (kind.recognises(list(columns)) for kind in FILES)
            if week == configurations:
                raise UnciaError(
                    f"{path} is no file of the trace {NAME}: its columns are"
                    f" {', '.join(map(repr, columns))}",
                    hint=f"A week has {', '.join(FILES[0].columns)}.",
                )
            if missing := [name for name in FILES[configurations].columns if name not in columns]:
                raise UnciaError(f"{path} lacks the columns {', '.join(map(repr, missing))}")
            if configurations:
                self._configure(path, columns)
            else:
                self._week(path, columns)
        except unpickle.CutOff as error:
            raise UnciaError(
                f"{path} is cut off: its pickle ends after {error.args[0]:,} bytes",
                hint="Fetch or copy the file again.",
            ) from error
        except unpickle.Refused as error:
            raise UnciaError(
                f"{path} is not read, as {error}",
                hint="Uncia reads pickles as data; the trace's files are plain DataFrames.",
            ) from error
        finally:
            spill.close()

    def _configure(self, path: Path, columns: Mapping[str, frames.Column]) -> None:
        if self.weeks:
            raise UnciaError(
                f"{path} holds configurations, which are needed before the weeks",
                hint="Name it app_configs.pickle, as in the release.",
            )
        concurrency = columns.get(_CONCURRENCY, [None] * len(columns[_OWNER[0]]))
        for row, (namespace, app, cpu, memory, shared) in enumerate(
            zip(*(columns[name] for name in (*_OWNER, *_CONFIGURED)), concurrency, strict=True),
            start=1,
        ):
            if not isinstance(namespace, str) or not isinstance(app, str):
                self._bad(path, row, _OWNER[1], app, "a hash")
                continue
            self.configs[namespace, app] = _Config(
                self._days(path, row, _CONFIGURED[0], cpu, MICRO_PER_VCPU),
                self._days(path, row, _CONFIGURED[1], memory, GIB),
                self._days(path, row, _CONCURRENCY, shared, 1),
            )

    def _days(self, path: Path, row: int, column: str, value: Any, factor: int) -> list[int | None]:
        """A quantity by day, exact in the decimal number that its float stands for."""
        values = frames.cell(value)
        if values is None:
            return []
        numbers, ok = ibm_lists.Cell(values).numbers(0, len(values))
        days: list[int | None] = []
        for number, good in zip(numbers.tolist(), ok.tolist(), strict=True):
            if good and math.isnan(number):
                days.append(None)
                continue
            scaled = cells.scaled(repr(number), factor) if good and number < _MAX_MS else None
            if scaled is None or scaled <= 0:
                self._bad(path, row, column, number, "a list of numbers above 0")
                return []
            days.append(scaled)
        return days

    def _week(self, path: Path, columns: Mapping[str, frames.Column]) -> None:
        self.weeks += 1
        for name in _OPTIONAL:
            if name not in columns:
                self.noted[f"{path.name} has no column {name}"] += 1
        names = (*_OWNER, *_LISTS, *(name for name in _OPTIONAL if name in columns))
        for row, values in enumerate(zip(*(columns[name] for name in names), strict=True), 1):
            self._app(path, row, dict(zip(names, values, strict=True)))

    def _app(self, path: Path, row: int, values: dict[str, Any]) -> None:
        """Add the requests of an application."""
        namespace, app = values[_OWNER[0]], values[_OWNER[1]]
        for name in _OWNER:
            if log_values.name(values[name]) is None:
                self._bad(path, row, name, values[name], "a hash")
                return
        lists: dict[str, ibm_lists.Cell] = {}
        for name in (*_LISTS, _OPTIONAL[1]):
            if name not in values:
                continue
            raw = frames.cell(values[name])
            if raw is None:
                self._bad(path, row, name, values[name], "a list")
                return
            lists[name] = ibm_lists.Cell(raw)
        length = len(lists[_LISTS[0]])
        for name, cell in lists.items():
            if len(cell) != length:
                expected = f"a list as long as {_LISTS[0]}"
                self._bad(path, row, name, f"{len(cell)} items, not {length}", expected)
                return
        events = values.get(_OPTIONAL[0], length)
        if int(events) != length if _whole(events) else True:
            self._bad(path, row, _OPTIONAL[0], events, "the length of the lists")
            return
        function = self.functions.id(f"{namespace}/{app}")
        config = self.configs.get((namespace, app))
        for start in range(0, length, BATCH_ROWS):
            stop = min(start + BATCH_ROWS, length)
            self._requests_of(path, row, function, config, lists, start, stop)

    def _requests_of(
        self,
        path: Path,
        row: int,
        function: int,
        config: _Config | None,
        lists: Mapping[str, ibm_lists.Cell],
        start: int,
        stop: int,
    ) -> None:
        times, time_ok = lists["InvocationTimes"].numbers(start, stop)
        durations, duration_ok = lists["AppExecTimes"].numbers(start, stop)
        pods, pod_ok = lists["PodHash"].texts(start, stop)
        unknown = np.isnan(durations) & duration_ok
        checks = (
            ("InvocationTimes", times, time_ok & (times >= 0) & (times <= _MAX_SECONDS), _SECONDS),
            (
                "AppExecTimes",
                durations,
                unknown | (duration_ok & (durations >= 0) & (durations <= _MAX_MS)),
                _MILLISECONDS,
            ),
            ("PodHash", pods, pod_ok, "a hash"),
        )
        good = np.ones(stop - start, dtype=bool)
        for name, column, ok, expected in checks:
            for index in np.flatnonzero(good & ~ok):
                text = f"{column[int(index)]} (request {start + int(index) + 1:,} of the list)"
                self._bad(path, row, name, text, expected)
            good &= ok
        started = ibm_lists.scaled(times[good], NS_PER_S)
        execution = ibm_lists.scaled(np.where(unknown, 0, durations)[good], NS_PER_MS)
        self._wait(lists, start, stop, good, execution, unknown[good])
        cpu, memory, shared = self._allocated(config, started)
        self.noted["requests without an execution time: execution is null"] += int(
            unknown[good].sum()
        )
        self.stage.write(
            {
                "invocation": self._requests + 1 + np.flatnonzero(good),
                "function": np.full(len(started), function, dtype=np.int32),
                "pod": pods.filter(pa.array(good)),
                "started": started,
                "execution": pa.array(execution, mask=unknown[good]),
                "allocated_cpu": cpu,
                "allocated_memory": memory,
                "shared": shared,
            }
        )
        self.issues.take(len(started))
        self._requests += stop - start

    def _wait(
        self,
        lists: Mapping[str, ibm_lists.Cell],
        start: int,
        stop: int,
        good: npt.NDArray[np.bool_],
        execution: _Ints,
        unknown: npt.NDArray[np.bool_],
    ) -> None:
        """Sum what requests waited in the platform."""
        if _OPTIONAL[1] not in lists:
            return
        totals, ok = lists[_OPTIONAL[1]].numbers(start, stop)
        usable = (ok & (totals >= 0) & (totals <= _MAX_MS))[good] & ~unknown
        beyond = ibm_lists.scaled(totals[good][usable], NS_PER_MS) - execution[usable]
        self.waited += int(beyond[beyond > 0].sum(dtype=object) if len(beyond) else 0)
        self.noted["requests whose TotalExecTimes is below their AppExecTimes"] += int(
            (beyond < 0).sum()
        )

    def _allocated(
        self, config: _Config | None, started: _Ints
    ) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Allocated CPU and memory of requests, and whether others may run beside them."""
        day = started // _DAY_NS
        if config is None:
            if self.configs:
                self.noted["requests of applications without a configuration"] += len(started)
            nothing = pa.nulls(len(started), pa.int64())
            return nothing, nothing, pa.nulls(len(started), pa.bool_())
        cpu, memory = _on(config.cpu, day), _on(config.memory, day)
        self.noted["requests on days without a configuration: allocation is null"] += cpu.null_count
        alone = pc.equal(_on(config.concurrency, day), 1)
        return cpu, memory, pc.if_else(alone, False, pa.scalar(None, pa.bool_()))

    def _bad(self, path: Path, row: int, column: str, text: object, expected: str) -> None:
        # Of what is nested nobody knows how long its text would be.
        is_short = text is None or isinstance(text, str | int | float | np.generic)
        shown = str(text) if is_short else "another kind of value"
        self.issues.add(Problem(path, row, column, shown, expected))

    def warnings(self) -> list[str]:
        """What a reader of the table should know."""
        sentences = [
            what if what.startswith("week") else f"{count:,} {what}"
            for what, count in self.noted.items()
            if count
        ]
        if not self.configs:
            sentences.append("no configurations were given: allocation is null")
        if self.waited:
            sentences.append(
                f"{self.waited // NS_PER_MS:,} ms passed in the platform beside the applications'"
                " time, waiting and cold starts together: not in the table"
            )
        return sentences

    def columns(self, batch: pa.RecordBatch) -> Mapping[str, Any]:
        """The columns of the invocation table."""
        row = dict(zip(batch.schema.names, batch.columns, strict=True))
        same = ("started", "ended", "execution", "allocated_cpu", "allocated_memory", "shared")
        return {
            "platform": pa.repeat(pa.scalar("ibm", pa.utf8()), batch.num_rows),
            "function": self.functions.column(row["function"]),
            "invocation": row["invocation"].cast(pa.utf8()),
            "attempt": pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows),
            "outcome": pa.repeat(pa.scalar("ok", pa.utf8()), batch.num_rows),
            "instance": row["pod"],
            **{name: row[name] for name in same},
        }


def _whole(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return bool(value == int(value)) if math.isfinite(value) else False
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _on(days: list[int | None], day: _Ints) -> pa.Array:
    """What held on each day; beyond the days, what always held if it never changed."""
    known = {value for value in days if value is not None}
    always = known.pop() if len(known) == 1 else None
    table = pa.array([*days, always], pa.int64())
    return table.take(pa.array(np.where(day < len(days), day, len(days))))
