"""The requests of a simulation from a table of invocations: a run, an imported trace, a made one.

Each invocation that was answered is a request, with the phases that its row has; without, it is one
phase, from what was measured: it lasts as long as the execution, uses the CPU that its CPU time
comes to over that, and holds the most memory that it held. What a function is allocated is the most
that its rows say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uncia import record
from uncia.errors import UnciaError
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


@dataclass(frozen=True)
class Requests:
    """What a trace asks for.

    Attributes:
        functions: by name, in order.
        table: the columns of ``uncia-engine sim``: function, arrival and phases.
        skipped: invocations that are no requests: they were not answered, or have no times.
        clipped: requests that held more memory than they may.
        is_simulated: whether they are those of a simulated run.
    """

    functions: Mapping[str, TracedFunction]
    table: pa.Table
    skipped: int
    clipped: int = 0
    is_simulated: bool = False

    def limited(self, memory: int) -> Requests:
        """The same with phases that hold at most so many bytes."""
        phases = self.table["phases"].combine_chunks()
        items = phases.values
        held = items.field("memory")
        above = pc.list_parent_indices(phases).filter(pc.greater(held, memory))
        fields = [items.field("duration"), items.field("cpu"), pc.min_element_wise(held, memory)]
        limited = pa.StructArray.from_arrays(fields, fields=list(_PHASE))
        column = pa.ListArray.from_arrays(phases.offsets, limited, type=_PHASES)
        table = self.table.set_column(2, _SCHEMA.field("phases"), column)
        return replace(self, table=table, clipped=len(above.unique()))

    def write(self, path: Path) -> None:
        """Write the requests for the engine."""
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
            writer.write_table(self.table, max_chunksize=1 << 16)


def read(spec: TraceOf, path: Path) -> Requests:
    """Read the requests of a trace.

    Args:
        spec: what the simulation file says of it.
        path: the run folder, table or trace.

    Raises:
        UnciaError: there is no such table, it is that of a run that is not complete, nothing of it
            is a request, or what it lacks the file does not say.
    """
    run = check_complete(path, "invocations")
    if path.suffix in record.SUFFIXES:
        run = read_run(path.parent)
    is_simulated = run.get("platform", {}).get("kind") == SIMULATED
    rows = record.read(path).unify_dictionaries()
    if spec.experiment is not None:
        names = sorted({str(name) for name in rows["experiment"].unique().to_pylist()})
        if spec.experiment not in names:
            raise UnciaError(
                f"{path} has no experiment {spec.experiment!r}",
                hint=f"Its experiments: {', '.join(names)}.",
            )
        rows = rows.filter(pc.field("experiment") == spec.experiment)
    elif len(names := rows["experiment"].unique().drop_null().to_pylist()) > 1:
        raise UnciaError(
            f"{path} holds several experiments: {', '.join(sorted(map(str, names)))}",
            hint="Say which under trace.experiment.",
        )
    total = rows.num_rows
    arrival, is_stamped = _arrivals(rows)
    keep = pc.and_(pc.equal(rows["outcome"], "ok"), pc.is_valid(arrival))
    keep = pc.and_(keep, pc.or_(pc.is_valid(rows["phases"]), pc.is_valid(rows["execution"])))
    rows, arrival = rows.filter(keep), arrival.filter(keep)
    if rows.num_rows == 0:
        raise UnciaError(
            f"{path} holds no invocation that could be a request: none was answered, or their"
            " times are not known"
        )
    # A real run's epoch is when it began: before its deployment, and before its other experiments.
    is_measured = bool(run) and not is_simulated
    if is_stamped or is_measured or pc.min(arrival).as_py() < 0:
        arrival = pc.subtract(arrival, pc.min(arrival))
    if spec.window is not None:
        earliest = pc.min(arrival).as_py()
        keep = pc.less_equal(arrival, spec.window)
        rows, arrival = rows.filter(keep), arrival.filter(keep)
        if rows.num_rows == 0:
            raise UnciaError(
                f"{path}: no request arrives within trace.window",
                hint=f"The first arrives after {format_duration(earliest)}.",
            )
    phases = _phases(rows, spec, path)
    functions, indexes = _functions(rows, phases, spec)
    table = pa.Table.from_arrays([indexes, arrival.cast(pa.int64()), phases], schema=_SCHEMA)
    return Requests(functions, table, total - table.num_rows, is_simulated=is_simulated)


def _arrivals(rows: pa.Table) -> tuple[pa.ChunkedArray, bool]:
    """When requests arrive, and whether those are stamps: not times from the beginning of a run."""
    scheduled = rows["scheduled"]
    is_stamped = scheduled.null_count > 0
    return pc.coalesce(scheduled, rows["sent"], rows["started"]), is_stamped


def _phases(rows: pa.Table, spec: TraceOf, path: Path) -> pa.Array:
    """The phases of each request."""
    rows = rows.combine_chunks()
    made = rows["phases"].combine_chunks()
    single = _single(rows, pc.is_null(made), spec, path)
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


def _single(rows: pa.Table, needed: pa.Array, spec: TraceOf, path: Path) -> pa.StructArray:
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
    for what, column, key in (
        ("CPU time", cpu, "used_vcpu"),
        ("memory", memory, "used_memory"),
    ):
        lacking = pc.sum(pc.and_(needed, pc.is_null(column)).cast(pa.int64())).as_py() or 0
        if lacking:
            raise UnciaError(
                f"{path}: the {what} of {lacking:,} invocations was not measured",
                hint=f"Say what they use under trace.{key}.",
            )
    columns = [pc.fill_null(column, 0).combine_chunks() for column in (execution, cpu, memory)]
    return pa.StructArray.from_arrays(columns, fields=list(_PHASE))


def _functions(
    rows: pa.Table, phases: pa.Array, spec: TraceOf
) -> tuple[dict[str, TracedFunction], pa.Array]:
    """What is known of each function, and each request's."""
    names = rows["function"].cast(pa.string()).combine_chunks().dictionary_encode()
    memory = phases.values.field("memory")
    most = pa.table({"row": pc.list_parent_indices(phases), "memory": memory})
    peaks = most.group_by("row").aggregate([("memory", "max")])
    held = pa.table({"function": names.indices.take(peaks["row"]), "held": peaks["memory_max"]})
    held = held.group_by("function").aggregate([("held", "max")])
    peak = dict(zip(held["function"].to_pylist(), held["held_max"].to_pylist(), strict=True))
    columns = ("allocated_cpu", "allocated_memory", "spot_cpu", "preemptible", "qos")
    known = pa.table(
        {"function": names.indices, **{name: rows[name] for name in columns[:3]}}
        | {
            "preemptible": rows["preemptible"].cast(pa.int8()),
            "qos": rows["qos"].cast(pa.string()),
        }
    )
    groups = known.group_by("function").aggregate([(name, "max") for name in columns])
    functions: dict[str, TracedFunction] = {}
    by_index = {row["function"]: row for row in groups.to_pylist()}
    for index, name in enumerate(names.dictionary.to_pylist()):
        row = by_index[index]
        cpu = row["allocated_cpu_max"] or spec.vcpu
        held_bytes = peak.get(index, 0)
        functions[name] = TracedFunction(
            cpu=cpu,
            memory=max(row["allocated_memory_max"] or spec.memory or 0, held_bytes, 1),
            spot_cpu=min(row["spot_cpu_max"] or 0, cpu),
            preemptible=bool(row["preemptible_max"]),
            qos=row["qos_max"] or "interactive",
        )
    return functions, names.indices.cast(pa.int32())
