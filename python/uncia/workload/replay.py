"""Replay: the arrivals of a recorded table, sent again.

A table of *invocations* (an earlier run, or a trace of every invocation) gives each function's
times. A table of *arrivals* (a trace that counts per minute) gives each function's exact counts,
and a placement within the minute.

The arrival of an invocation is ``scheduled`` (when it should have been sent); if that is null,
``sent``; if that is null too, ``started``, by the platform's clock. Rows with ``attempt`` above 1
are consequences of an arrival, not arrivals: they are left out, and counted. Invocations caused by
others (``parent``) are replayed like any other.

Tables are processed as columns until a function's times are written for the engine, so that a trace
of many million rows fits into memory.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_serializer

from uncia.errors import UnciaError
from uncia.forms import Form
from uncia.text import did_you_mean
from uncia.units import INT64_MAX, NS_PER_MIN, NS_PER_S, format_duration
from uncia.workload import recorded
from uncia.workload.arrivals import ArrivalProcess
from uncia.workload.arrivals._window import Window, format_window
from uncia.workload.arrivals.counts import Process as Counts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Int64s = npt.NDArray[np.int64]
    Booleans = npt.NDArray[np.bool_]

Placement = Literal["equidistant", "uniform", "exponential"]
DEFAULT_PLACEMENT: Final[Placement] = "exponential"

# Bounds of an arrivals table. Minutes become indexes of a list, and no trace is longer than ten
# years; the engine refuses more requests.
_MAX: Final = {"minute": 10 * 366 * 24 * 60, "count": 1_000_000_000}


_NAMED: Final = 3
"""Functions that a sentence names; of more it says how many."""


def read_path(value: object) -> object:
    """Read a path from a form; other values are the form's to refuse."""
    return Path(value) if isinstance(value, str) else value


class Replay(Form):
    """Arrivals of a recorded table: its functions, a window of time, and the speed."""

    table: Annotated[Path, BeforeValidator(read_path)] = Field(
        description="*.parquet or *.arrows of an invocation or arrivals table, or a run's folder"
    )
    functions: list[str] | None = Field(
        None, min_length=1, description="Only these; all if left out"
    )
    sample: int | None = Field(
        None, ge=1, description="Number of functions to draw at random by the seed"
    )
    window: Window | None = Field(
        None, description="[from, to) in the table's time; by default all, from its first arrival"
    )
    speed: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="2 is twice as fast: times divided by 2"
    )
    placement: Placement | None = Field(
        None,
        description="Where in its minute an arrival of an arrivals table is (default: exponential)",
    )
    experiment: str | None = Field(
        None, description="Which one, of an invocation table of several experiments"
    )

    @field_validator("speed")
    @classmethod
    def _exact(cls, speed: float) -> float:
        exact = _fraction(speed)
        if exact.numerator * exact.denominator > INT64_MAX:
            raise ValueError(f"{speed!r} has more digits than can be computed with exactly")
        return speed

    def exact_speed(self) -> Fraction:
        """Return the speed as written: 1.1 is 11/10."""
        return _fraction(self.speed)


def _fraction(number: float) -> Fraction:
    """Convert a double to the fraction that its shortest text denotes."""
    return Fraction(repr(number))


class RecordedTimes(ArrivalProcess):
    """The arrival process ``times``, with the times in a column."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: Literal["times"] = "times"
    offsets: Any = Field(repr=False, description="An Arrow array of int64: ns, in order, not empty")

    @model_serializer
    def _as_times(self) -> dict[str, Any]:
        return {"kind": "times", "times": [format_duration(time) for time in self._list()]}

    def engine(self) -> dict[str, Any]:
        return {"kind": "times", "times_ns": self._list()}

    def span_ns(self) -> int:
        return int(self.offsets[-1].as_py())

    def expected_before(self, ns: int) -> Fraction:
        return Fraction(int(self.offsets.to_numpy().searchsorted(ns)))

    def sentence(self) -> str:
        return f"at {len(self.offsets):,} recorded times within {self.span_ns() / NS_PER_S:,.1f} s"

    def _list(self) -> list[int]:
        times: list[int] = self.offsets.to_numpy().tolist()
        return times


@dataclass(frozen=True)
class Replayed:
    """One function of the table and its arrivals, from the start of the replay.

    Attributes:
        function: its name in the table.
        arrivals: when its requests are sent.
        columns: of an invocation table, the columns asked for, with a value for each request.
    """

    function: str
    arrivals: ArrivalProcess
    columns: Mapping[str, pa.Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Expansion:
    """The functions and arrivals of a replay.

    Attributes:
        replayed: one for each function with an arrival, sorted by name.
        start_ns: the time of the table at which the replay starts.
        retries: number of rows of an invocation table that are further attempts, and left out.
    """

    replayed: Sequence[Replayed]
    start_ns: int
    retries: int = 0

    def requests(self) -> int:
        """Return the number of requests of all functions."""
        return sum(part.arrivals.expected_requests() for part in self.replayed)

    def sentence(self, table: Path) -> str:
        """Describe the replay in a few words."""
        functions = len(self.replayed)
        return (
            f"replay of {functions:,} function{'s' if functions > 1 else ''} of {table},"
            f" {self.requests():,} requests"
        )


def expand(replay: Replay, seed: int, folder: Path | None = None) -> list[Replayed]:
    """List the functions of a replay and their arrivals; see `expansion`."""
    return list(expansion(replay, seed, folder).replayed)


def expansion(
    replay: Replay,
    seed: int,
    folder: Path | None = None,
    columns: Collection[str] = (),
    optional: Collection[str] = (),
) -> Expansion:
    """Read the table and compute each function's arrivals.

    Times count from the window's start; without a window, from the table's first arrival (of the
    experiment) of any function, so that functions that are replayed separately keep their distance.
    A time t becomes floor(t / speed) ns. Of an arrivals table the minutes become buckets
    of 60 s / speed, to the nearest nanosecond (so bucket i is off by at most i / 2 ns), beginning
    with the window's, or the table's, first minute; rows of one function and minute add up.

    The sample is drawn among the functions (those named, if any are) that have an arrival: the ones
    whose SHA-256 of the seed (8 bytes, little-endian), ``sample/`` and the name (UTF-8) comes first
    in byte order. A larger sample contains the smaller one.

    Args:
        replay: what to replay.
        seed: of the workload, below 2^64.
        folder: base of a relative path of the table (default: the working directory).
        columns: of an invocation table, whose values the requests carry.
        optional: the same, and left out of a table of arrivals.

    Raises:
        UnciaError: the table does not exist, is not one of Uncia's, or is damaged; a row of it is
            invalid; there is nothing to replay; or columns are asked of a table of arrivals.
    """
    path = (folder or Path()) / replay.table
    every = sorted({*columns, *optional})
    name, table = recorded.read(path, every)
    if table.num_rows == 0:
        raise UnciaError(f"{path}: the table is empty, so there is nothing to replay")
    if table["function"].null_count:
        raise UnciaError(f"{path}: {_row(table['function'].is_null())} has no function")
    if name == "arrivals":
        if columns:
            raise UnciaError(
                f"{path} counts arrivals per minute: its requests have no rows that a column"
                f" ({', '.join(sorted(columns))}) could be taken from"
            )
        return _counted(replay, seed, path, table)
    return _timed(replay, seed, path, table, every)


def _timed(
    replay: Replay, seed: int, path: Path, table: pa.Table, columns: Collection[str]
) -> Expansion:
    """Expand the replay of an invocation table."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if replay.placement is not None:
        raise UnciaError(
            f"placement: {path} has the time of every invocation, so there is nothing to place",
            hint="Leave the key out; it is for tables of arrivals per minute.",
        )
    if table["attempt"].null_count:
        raise UnciaError(f"{path}: {_row(table['attempt'].is_null())} has no attempt")
    is_selected = _of_experiment(replay, path, table["experiment"])
    first_attempts = table["attempt"].to_numpy() <= 1
    retries = int((is_selected & ~first_attempts).sum())
    is_selected &= first_attempts
    if not is_selected.any():
        raise UnciaError(f"{path}: all rows are further attempts, so there is nothing to replay")
    times = pc.coalesce(*(table[column] for column in recorded.TIMES))
    timeless = times.is_null().to_numpy() & is_selected
    if timeless.any():
        raise UnciaError(
            f"{path}: row {int(timeless.argmax()) + 1:,} has no time: scheduled, sent and started"
            " are null"
        )
    names, codes = _encoded(table["function"])
    codes, moments = codes[is_selected], times.fill_null(0).to_numpy()[is_selected]
    first, last = int(moments.min()), int(moments.max())
    begin, end = replay.window or (first, last + 1)
    if last - min(first, begin) > INT64_MAX:
        raise UnciaError(
            f"{path}: times from {first} to {last} ns are further apart than 292 years"
        )
    inside = (moments >= begin) & (moments < end)
    chosen = _choose(replay, seed, path, names, np.unique(codes), np.unique(codes[inside]))
    if not chosen:
        raise UnciaError(
            f"{path}: no arrival is left from {format_window(begin, end)}",
            hint=f"The arrivals of the table are from {format_window(first, last)} of its time.",
        )
    inside &= np.isin(codes, list(chosen))
    codes, moments = codes[inside], _scaled(moments[inside] - begin, replay)
    order = np.lexsort((moments, codes))
    codes, moments = codes[order], moments[order]
    rows = np.flatnonzero(is_selected)[inside][order]
    values = {column: table[column].take(rows).combine_chunks() for column in columns}
    replayed = []
    for code in sorted(chosen, key=names.__getitem__):
        part = _part(codes, code)
        replayed.append(
            Replayed(
                names[code],
                RecordedTimes(offsets=pa.array(moments[part])),
                {column: value[part] for column, value in values.items()},
            )
        )
    return Expansion(replayed, begin, retries)


def _of_experiment(replay: Replay, path: Path, experiments: pa.ChunkedArray) -> Booleans:
    """Select the rows of the experiment that the replay names, or of the only one."""
    import numpy as np

    names, codes = _encoded(experiments)
    present = np.unique(codes)
    available = sorted(names[code] for code in present if code >= 0)
    if replay.experiment is None:
        if len(present) > 1:
            raise UnciaError(
                f"{path} has several experiments: name the one to replay, with experiment",
                hint=f"They are: {', '.join(available)}.",
            )
        return np.ones(len(codes), dtype=np.bool_)
    if replay.experiment not in available:
        raise UnciaError(
            f"experiment: {path} has no experiment {replay.experiment!r}"
            + did_you_mean(replay.experiment, available)
        )
    mask: Booleans = codes == names.index(replay.experiment)
    return mask


def _scaled(times: Int64s, replay: Replay) -> Int64s:
    """Compute floor(time / speed), exactly.

    Raises:
        UnciaError: the replay would be too slow for 64-bit nanoseconds.
    """
    speed = replay.exact_speed()
    if int(times.max()) / speed > INT64_MAX:
        raise UnciaError(f"speed: at {replay.speed:g} the replay does not fit 64-bit nanoseconds")
    # time x d / n by quotient and remainder; the product of the latter with d fits, as n x d does.
    quotient, remainder = times // speed.numerator, times % speed.numerator
    scaled: Int64s = quotient * speed.denominator + remainder * speed.denominator // speed.numerator
    return scaled


def _counted(replay: Replay, seed: int, path: Path, table: pa.Table) -> Expansion:
    """Expand the replay of an arrivals table."""
    import numpy as np

    if replay.experiment is not None:
        raise UnciaError(f"experiment: {path} is a table of arrivals, which has no experiments")
    minutes, counts = (_numbers(path, table, column) for column in ("minute", "count"))
    names, codes = _encoded(table["function"])
    first, last = int(minutes.min()), int(minutes.max())
    begin, end = _minutes(replay, path) or (first, last + 1)
    inside = (minutes >= begin) & (minutes < end) & (counts > 0)
    chosen = _choose(replay, seed, path, names, np.unique(codes), np.unique(codes[inside]))
    if not chosen:
        raise UnciaError(
            f"{path}: no arrival is left in the minutes {begin} to {end - 1}",
            hint=f"The minutes of the table are {first} to {last}.",
        )
    bucket = round(NS_PER_MIN / replay.exact_speed())
    if bucket < 1:
        raise UnciaError(f"speed: at {replay.speed:g} a minute is shorter than a nanosecond")
    inside &= np.isin(codes, list(chosen))
    codes, minutes, counts = codes[inside], minutes[inside] - begin, counts[inside]
    order = np.lexsort((minutes, codes))
    codes, minutes, counts = codes[order], minutes[order], counts[order]
    replayed = []
    for code in sorted(chosen, key=names.__getitem__):
        part = _part(codes, code)
        buckets: Int64s = np.zeros(int(minutes[part][-1]) + 1, dtype=np.int64)
        np.add.at(buckets, minutes[part], counts[part])
        process = Counts.model_validate(
            {
                "kind": "counts",
                "counts": buckets.tolist(),
                "bucket": format_duration(bucket),
                "placement": replay.placement or DEFAULT_PLACEMENT,
            }
        )
        replayed.append(Replayed(names[code], process))
    return Expansion(replayed, begin * NS_PER_MIN)


def _minutes(replay: Replay, path: Path) -> tuple[int, int] | None:
    """Convert the window to minutes."""
    if replay.window is None:
        return None
    begin, end = replay.window
    if begin % NS_PER_MIN or end % NS_PER_MIN:
        raise UnciaError(
            f"window: {path} counts arrivals per minute, and {format_window(begin, end)} cuts"
            " a minute",
            hint="Let the window begin and end on whole minutes.",
        )
    return begin // NS_PER_MIN, end // NS_PER_MIN


def _numbers(path: Path, table: pa.Table, column: str) -> Int64s:
    """Read a column of whole numbers, and check its bounds."""
    import pyarrow.compute as pc

    values = table[column]
    if values.null_count:
        raise UnciaError(f"{path}: {_row(values.is_null())} has no {column}")
    wrong = pc.or_(pc.less(values, 0), pc.greater(values, _MAX[column]))
    if pc.any(wrong).as_py():
        bad = values.filter(wrong)[0].as_py()
        allowed = f"0 to {_MAX[column]:,}"
        raise UnciaError(f"{path}: {_row(wrong)} has the {column} {bad:,} (allowed: {allowed})")
    mask: Int64s = values.to_numpy()
    return mask


def _row(wrong: pa.ChunkedArray) -> str:
    """Name the first wrong row, counted from 1."""
    import pyarrow.compute as pc

    return f"row {pc.index(wrong, True).as_py() + 1:,}"


def _encoded(texts: pa.ChunkedArray) -> tuple[list[str], Int64s]:
    """Return the distinct texts, and for every row the index of its text, -1 for null."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_encode()
    texts = texts.unify_dictionaries()
    chunks = [chunk.indices.fill_null(-1).to_numpy().astype(np.int64) for chunk in texts.chunks]
    codes: Int64s = np.concatenate([np.empty(0, dtype=np.int64), *chunks])
    names: list[str] = texts.chunk(0).dictionary.to_pylist() if chunks else []
    return names, codes


def _part(codes: Int64s, code: int) -> slice:
    """Find the rows of a function in sorted codes."""
    return slice(int(codes.searchsorted(code)), int(codes.searchsorted(code, "right")))


def _choose(
    replay: Replay,
    seed: int,
    path: Path,
    names: Sequence[str],
    present: Int64s,
    arriving: Int64s,
) -> set[int]:
    """Choose the codes of the functions to replay.

    Args:
        replay, seed, path: as in `expansion`.
        names: by code.
        present: the codes that rows have.
        arriving: those with an arrival in the window.
    """
    chosen = {int(code) for code in arriving}
    if replay.functions is not None:
        positions = {names[code]: int(code) for code in present}
        for name in replay.functions:
            if name not in positions:
                raise UnciaError(
                    f"functions: {path} has no function {name!r}"
                    + did_you_mean(name, list(positions))
                )
        chosen &= {positions[name] for name in replay.functions}
    if replay.sample is None or not chosen:
        return chosen
    if replay.sample > len(chosen):
        raise UnciaError(
            f"sample: {replay.sample:,} functions are asked for, but only {len(chosen):,} of {path}"
            " have an arrival to be replayed"
        )
    drawn = sorted(chosen, key=lambda code: _lot(seed, names[code]))
    return set(drawn[: replay.sample])


def _lot(seed: int, name: str) -> bytes:
    return hashlib.sha256(struct.pack("<Q", seed) + b"sample/" + name.encode()).digest()


def name_some(functions: Sequence[str]) -> str:
    """Name the first of many functions, for a sentence."""
    some = ", ".join(map(repr, functions[:_NAMED]))
    return some if len(functions) <= _NAMED else f"{some} and {len(functions) - _NAMED:,} more"
