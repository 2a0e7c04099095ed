"""The requests of a simulation from a table of invocations: a run, an imported trace, a made one.

Each invocation whose outcome is ok is a request, with the phases that its row has; without, it is
one phase, from what was measured: it lasts as long as the execution, uses the CPU that its CPU time
comes to over that, and holds the most memory that it held. What a function is allocated is the most
that its rows say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uncia import record
from uncia.errors import UnciaError
from uncia.experiment import request_checks
from uncia.experiment.simulation import SIMULATED, TracedFunction, TraceOf
from uncia.runs.folder import check_complete, read_run
from uncia.units import MICRO_PER_VCPU, format_duration

_PHASE: Final = pa.struct(
    [
        pa.field("duration", pa.int64(), nullable=False),
        pa.field("cpu", pa.int64(), nullable=False),
        pa.field("memory", pa.int64(), nullable=False),
    ]
)
_PHASES: Final = pa.list_(pa.field("item", _PHASE, nullable=False))
_SCHEMA: Final = pa.schema(
    [
        pa.field("function", pa.int32(), nullable=False),
        pa.field("arrival", pa.int64(), nullable=False),
        pa.field("phases", _PHASES, nullable=False),
    ]
)


_KNOWN: Final = ("allocated_cpu", "allocated_memory", "spot_cpu", "preemptible", "qos")
_TIMES: Final = ("experiment", "outcome", "scheduled", "sent", "started", "execution", "phases")
_NEEDS: Final = (
    *("experiment", "outcome", "scheduled", "sent", "started", "execution", "phases"),
    *("cpu_user", "cpu_system", "memory_avg", "memory_peak"),
    *_KNOWN,
    *request_checks.COLUMNS,
)


_OK: Final = "ok"
"""What else an invocation came to, its row is no request: one that failed may have ended early,
what timed out was cut off, and what was preempted ran again in a row of its own."""


@dataclass(frozen=True)
class Requests:
    """What a trace asks for.

    Attributes:
        functions: by name, in order.
        path: the requests as ``uncia-engine sim`` takes them: function, arrival and phases.
        left_out: invocations that are no requests, by why.
        clipped: requests that held more memory than they may.
        above_spot: requests with more spot CPU than is allocated to them.
        above_cpu: requests that use more CPU than is allocated to them.
        cpu: CPU time that all phases ask for, micro-vCPU x ns.
        is_simulated: whether they are those of a simulated run.
    """

    functions: Mapping[str, TracedFunction]
    path: Path
    left_out: Mapping[str, int]
    clipped: int
    above_spot: int
    above_cpu: int
    cpu: int
    is_simulated: bool


def read(spec: TraceOf, path: Path, into: Path, most_memory: int | None = None) -> Requests:
    """Read the requests of a trace some at a time, and write them for the engine.

    Args:
        spec: what the simulation file says of it.
        path: the run folder, table or trace.
        into: the file of requests to write.
        most_memory: bytes that a phase may hold; one that holds more holds so many.

    Raises:
        UnciaError: there is no such table, it is that of a run that is not complete, nothing of it
            is a request, rows are wrong, or what it lacks the file does not say.
    """
    run = check_complete(path, "invocations")
    if path.suffix in record.SUFFIXES:
        run = read_run(path.parent)
    is_simulated = run.get("platform", {}).get("kind") == SIMULATED
    times = _times(spec, path)
    # A real run's epoch is when it began: before its deployment, and before its other experiments.
    is_measured = bool(run) and not is_simulated
    is_relative = times.is_stamped or is_measured or times.first < 0
    start = times.first if is_relative else 0
    if spec.window is not None and times.first - start > spec.window:
        raise UnciaError(
            f"{path}: no request arrives within trace.window",
            hint=f"The first arrives after {format_duration(times.first - start)}.",
        )
    known = _Known(spec)
    checks = request_checks.Checks(path, spec)
    lacking: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    cpu = 0

    def parts() -> Iterator[tuple[pa.Table, pa.Array]]:
        for part in record.scan(path, _NEEDS):
            part = _of_experiment(part, spec)
            left_out.update(_left_out(part, start, spec.window))
            rows, arrival = _kept(part, start, spec.window)
            if rows.num_rows:
                yield rows, arrival

    with pa.OSFile(str(into), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
        for rows, arrival in parts():
            if not checks.add(rows):
                continue  # to count what is wrong
            phases = _phases(rows, spec, lacking)
            checks.compare(rows, phases)
            indexes = known.add(rows, phases)
            cpu += _cpu(phases)
            if most_memory is not None:
                phases, above = _limited(phases, most_memory)
                known.clip(indexes.take(above))
            writer.write_batch(pa.record_batch([indexes, arrival, phases], schema=_SCHEMA))
    checks.raise_flaws(lambda: (rows for rows, _ in parts()))
    for what, key in (("CPU time", "used_vcpu"), ("memory", "used_memory")):
        if lacking[what]:
            raise UnciaError(
                f"{path}: the {what} of {lacking[what]:,} invocations was not measured",
                hint=f"Say what they use under trace.{key}.",
            )
    functions = known.functions()
    return Requests(
        functions=functions,
        path=into,
        left_out=left_out,
        clipped=sum(function.clipped for function in functions.values()),
        above_spot=checks.above_spot,
        above_cpu=checks.above_cpu,
        cpu=cpu,
        is_simulated=is_simulated,
    )


@dataclass
class _Times:
    """What must be known of all rows before the first can be read: when the first request arrives,
    and whether that is a stamp: not a time from the beginning of a run."""

    first: int
    is_stamped: bool


def _times(spec: TraceOf, path: Path) -> _Times:
    names: set[str] = set()
    first: int | None = None
    is_stamped = False
    for part in record.scan(path, _TIMES):
        names |= set(part["experiment"].unique().drop_null().to_pylist())
        part = _of_experiment(part, spec)
        is_stamped = is_stamped or part["scheduled"].null_count > 0
        _, arrival = _kept(part, 0, None)
        least = pc.min(arrival).as_py()
        if least is not None:
            first = least if first is None else min(first, least)
    if spec.experiment is not None and spec.experiment not in names:
        raise UnciaError(
            f"{path} has no experiment {spec.experiment!r}",
            hint=f"Its experiments: {', '.join(sorted(names))}."
            if names
            else "None of its rows names an experiment: leave trace.experiment out.",
        )
    if spec.experiment is None and len(names) > 1:
        raise UnciaError(
            f"{path} holds several experiments: {', '.join(sorted(names))}",
            hint="Say which under trace.experiment.",
        )
    if first is None:
        raise UnciaError(
            f"{path} holds no invocation that could be a request: none has the outcome ok, a time"
            " of arrival and a duration"
        )
    return _Times(first, is_stamped)


def _of_experiment(rows: pa.Table, spec: TraceOf) -> pa.Table:
    if spec.experiment is None:
        return rows
    return rows.filter(pc.field("experiment") == spec.experiment)


def _kept(rows: pa.Table, start: int, window: int | None) -> tuple[pa.Table, pa.Array]:
    """The rows that are requests, and when they arrive from `start` on, within the window."""
    arrival = _arrival(rows)
    keep = pc.and_(pc.equal(rows["outcome"], _OK), pc.is_valid(arrival))
    keep = pc.and_(keep, pc.or_(pc.is_valid(rows["phases"]), pc.is_valid(rows["execution"])))
    arrival = pc.subtract(arrival.cast(pa.int64()), start)
    if window is not None:
        keep = pc.and_(keep, pc.less_equal(arrival, window))
    return rows.filter(keep), arrival.filter(keep).combine_chunks()


def _left_out(rows: pa.Table, start: int, window: int | None) -> Counter[str]:
    """How many rows :func:`_kept` leaves out, by the first reason."""
    counts: Counter[str] = Counter()
    is_ok = pc.fill_null(pc.equal(rows["outcome"], _OK), False)
    outcomes = rows["outcome"].filter(pc.invert(is_ok)).cast(pa.string())
    for entry in outcomes.value_counts().to_pylist():
        counts[f"with the outcome {entry['values'] or 'unknown'}"] += entry["counts"]
    rows = rows.filter(is_ok)
    timed = rows.filter(pc.is_valid(_arrival(rows)))
    counts["without a time of arrival"] = rows.num_rows - timed.num_rows
    lasting = timed.filter(pc.or_(pc.is_valid(timed["phases"]), pc.is_valid(timed["execution"])))
    counts["without a duration"] = timed.num_rows - lasting.num_rows
    kept, _ = _kept(lasting, start, window)
    counts["after the window"] = lasting.num_rows - kept.num_rows
    return +counts


def _arrival(rows: pa.Table) -> pa.ChunkedArray:
    return pc.coalesce(rows["scheduled"], rows["sent"], rows["started"])


def _cpu(phases: pa.Array) -> int:
    """CPU time that phases ask for, micro-vCPU x ns."""
    items = phases.flatten()
    # In vCPU x ns: many of these in micro-vCPU may not go into 64 bits.
    threads = pc.divide(items.field("cpu"), MICRO_PER_VCPU)
    total = pc.sum(pc.multiply(items.field("duration"), threads)).as_py()
    return int(total or 0) * MICRO_PER_VCPU


def _limited(phases: pa.Array, memory: int) -> tuple[pa.Array, pa.Array]:
    """The same with phases that hold at most so many bytes, and which requests held more."""
    items = phases.values
    held = items.field("memory")
    above = pc.list_parent_indices(phases).filter(pc.greater(held, memory))
    fields = [items.field("duration"), items.field("cpu"), pc.min_element_wise(held, memory)]
    limited = pa.StructArray.from_arrays(fields, fields=list(_PHASE))
    return pa.ListArray.from_arrays(phases.offsets, limited, type=_PHASES), above.unique()


def _phases(rows: pa.Table, spec: TraceOf, lacking: Counter[str]) -> pa.Array:
    """The phases of each request; what was not measured of how many is added to `lacking`."""
    rows = rows.combine_chunks()
    made = rows["phases"].combine_chunks()
    single = _single(rows, pc.is_null(made), spec, lacking)
    lengths = pc.fill_null(pc.list_value_length(made), 1).to_numpy(zero_copy_only=False)
    if made.null_count == len(made):
        return pa.ListArray.from_arrays(
            pa.array(range(len(made) + 1), pa.int32()), single, type=_PHASES
        )
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = made.flatten()
    items = pa.StructArray.from_arrays(
        [
            flat.field("duration"),
            pc.multiply_checked(flat.field("threads"), MICRO_PER_VCPU),
            flat.field("memory"),
        ],
        fields=list(_PHASE),
    )
    if made.null_count:
        # Those of rows without phases come last, and are put where they belong.
        order = np.empty(offsets[-1], dtype=np.int64)
        is_single = pc.is_null(made).to_numpy(zero_copy_only=False)
        positions = np.repeat(is_single, lengths)
        order[positions] = len(items) + np.flatnonzero(is_single)
        order[~positions] = np.arange(len(items))
        items = pa.concat_arrays([items, single]).take(pa.array(order))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=_PHASES)


def _single(
    rows: pa.Table, needed: pa.Array, spec: TraceOf, lacking: Counter[str]
) -> pa.StructArray:
    """One phase a row, from what was measured; what is not needed may be anything."""
    execution = rows["execution"]
    times = [rows["cpu_user"], rows["cpu_system"]]
    known = pc.or_(pc.is_valid(times[0]), pc.is_valid(times[1]))
    cpu_time = pc.add(pc.fill_null(times[0], 0), pc.fill_null(times[1], 0))
    cpu = pc.round(
        pc.divide(
            pc.multiply(cpu_time.cast(pa.float64()), float(MICRO_PER_VCPU)),
            pc.max_element_wise(execution, 1).cast(pa.float64()),
        )
    ).cast(pa.int64())
    cpu = pc.if_else(known, cpu, pa.scalar(spec.used_vcpu, pa.int64()))
    memory = pc.coalesce(rows["memory_peak"], rows["memory_avg"])
    memory = pc.coalesce(memory, pa.scalar(spec.used_memory, pa.int64()))
    for what, column in (("CPU time", cpu), ("memory", memory)):
        lacking[what] += pc.sum(pc.and_(needed, pc.is_null(column)).cast(pa.int64())).as_py() or 0
    columns = [pc.fill_null(column, 0).combine_chunks() for column in (execution, cpu, memory)]
    return pa.StructArray.from_arrays(columns, fields=list(_PHASE))


class _Known:
    """What is known of functions from the rows so far: the most that any row says."""

    def __init__(self, spec: TraceOf) -> None:
        self._spec = spec
        self._indexes: dict[str, int] = {}
        self._most: list[dict[str, Any]] = []
        self._requests: Counter[int] = Counter()
        self._clipped: Counter[int] = Counter()

    def add(self, rows: pa.Table, phases: pa.Array) -> pa.Array:
        """Add rows; the position of each one's function."""
        names = rows["function"].cast(pa.string()).combine_chunks().dictionary_encode()
        positions = []
        for name in names.dictionary.to_pylist():
            if name not in self._indexes:
                self._indexes[name] = len(self._most)
                self._most.append(dict.fromkeys((*_KNOWN, "held")))
            positions.append(self._indexes[name])
        indexes = pa.array(positions, pa.int32()).take(names.indices)
        held = pa.table(
            {
                "function": indexes.take(pc.list_parent_indices(phases)),
                "held": phases.flatten().field("memory"),
            }
        )
        known = pa.table(
            {"function": indexes, **{name: rows[name] for name in _KNOWN[:3]}}
            | {
                "preemptible": rows["preemptible"].cast(pa.int8()),
                "qos": rows["qos"].cast(pa.string()),
            }
        )
        self._raise(known, _KNOWN)
        self._raise(held, ("held",))
        for entry in indexes.value_counts().to_pylist():
            self._requests[entry["values"]] += entry["counts"]
        return indexes

    def clip(self, indexes: pa.Array) -> None:
        """Count requests, by the positions of their functions, that hold less than they did."""
        self._clipped.update(indexes.to_pylist())

    def _raise(self, rows: pa.Table, names: Sequence[str]) -> None:
        groups = rows.group_by("function").aggregate([(name, "max") for name in names])
        for row in groups.to_pylist():
            most = self._most[row["function"]]
            for name in names:
                values = [it for it in (most[name], row[f"{name}_max"]) if it is not None]
                most[name] = max(values, default=None)

    def functions(self) -> dict[str, TracedFunction]:
        """The functions by name, in order of their first rows."""
        functions = {}
        for position, (name, most) in enumerate(zip(self._indexes, self._most, strict=True)):
            cpu = most["allocated_cpu"] or self._spec.vcpu
            allocated = most["allocated_memory"] or self._spec.memory or 0
            functions[name] = TracedFunction(
                cpu=cpu,
                memory=max(allocated, most["held"] or 0, 1),
                spot_cpu=min(most["spot_cpu"] or 0, cpu),
                preemptible=bool(most["preemptible"]),
                qos=most["qos"] or "interactive",
                allocated_memory=allocated,
                requests=self._requests[position],
                clipped=self._clipped[position],
            )
        return functions
