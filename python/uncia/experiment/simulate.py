"""Carries out a simulation and writes a run folder, as an experiment does.

Each billing model is an experiment of the run, with the same requests. The tables' epoch is 0 and
the run's id is made of name and seed, so that the same file gives the same tables on every machine.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uncia import engine, record, yamlio
from uncia.errors import UnciaError
from uncia.experiment import simulation
from uncia.experiment.conclude import conclude
from uncia.experiment.describe import Content, Description
from uncia.experiment.drawn_traces import draw
from uncia.experiment.expect import FAILURES
from uncia.experiment.prices import Revenue, revenue
from uncia.experiment.progress import Reporter
from uncia.experiment.simulated_requests import Requests
from uncia.experiment.simulated_requests import read as read_requests
from uncia.experiment.simulation import RULES, SIMULATED, Model, SimulationFile, StartsOf
from uncia.runs.folder import RunFolder, check_complete
from uncia.runs.versions import versions
from uncia.stats import student
from uncia.stats.quantiles import quantiles_of
from uncia.units import format_cpu, format_size

RESULT: Final = "simulation.json"
REPEATS: Final = "repeats.json"
TABLES: Final = ("invocations", "instances", "machine")
WORK: Final = ".uncia-simulate-"
"""How the name of a folder begins in which a simulation works, beside its run's."""


@dataclass(frozen=True)
class _Cell:
    """An experiment of the run: a model with a seed."""

    name: str
    model: Model
    seed: int


def simulate(
    file: Path | str | Mapping[str, Any],
    *,
    out: Path | str | None = None,
    seed: int | None = None,
    overwrite: bool = False,
    report: bool = False,
) -> dict[str, Any]:
    """Simulate a cluster that serves functions.

    Args:
        file: the path of a simulation file, or its content.
        out: the folder of the run; by default ``results/NAME-SEED``.
        seed: instead of the file's.
        overwrite: whether an earlier run in the folder may be replaced.
        report: write ``report.html``.

    Returns:
        What ``simulation.json`` holds: by experiment (billing model, with the seed where it is
        repeated) counts, throughput, utilisation, completion times, cost and revenue.

    Raises:
        UnciaError: the file is none, or cannot be simulated.
    """
    from uncia.experiment import progress
    from uncia.experiment.runner import RESULTS

    if isinstance(file, Mapping):
        document, base = yamlio.load(yamlio.dump(file), "<simulation>"), Path()
        checked = yamlio.validate(SimulationFile, document)
    else:
        checked, _ = simulation.load(Path(file))
        base = Path(file).parent
    if seed is not None:
        checked = checked.model_copy(update={"seed": seed})
    folder = Path(out) if out is not None else RESULTS / f"{checked.name}-{checked.seed}"
    reporter = progress.reporter(quiet=True)
    try:
        return execute(
            checked, folder, reporter, base=base, overwrite=overwrite, with_report=report
        )
    finally:
        reporter.close()


def execute(
    file: SimulationFile,
    out: Path,
    reporter: Reporter,
    *,
    base: Path = Path(),
    overwrite: bool = False,
    with_report: bool = True,
) -> dict[str, Any]:
    """Simulate a file under each of its models, with each of its seeds.

    Args:
        file: what is simulated.
        out: the folder of the run.
        reporter: receives progress updates.
        base: the folder from which paths in the file go out.
        overwrite: whether an earlier run in it may be replaced.
        with_report: write ``report.html``.

    Returns:
        The content of ``simulation.json``, by experiment: counts, throughput, utilisation,
        completion times, revenue. Nothing in it depends on how long the simulation took.

    Raises:
        UnciaError: the file cannot be simulated, or the folder cannot be written; what was begun is
            deleted, or marked as failed.
    """
    starts = _starts(file, base)
    requests = _requests(file, base, out)
    cells = [
        _Cell(simulation.experiment(file, model, seed), model, seed)
        for model in file.models
        for seed in file.seeds()
    ]
    folder = RunFolder.create(out, overwrite=overwrite)
    description = Description(
        run=f"{file.name}-{file.seed}",
        content=_content(file, cells, requests),
        seed=file.seed,
        epoch_unix_ns=0,
        versions=versions(),
        warnings=_warnings(file, list(requests.values())),
    )
    for warning in description.warnings:
        reporter.note(warning)
    is_begun = False
    try:
        # Beside the run: there is as much room as that needs, which /tmp may not have.
        with tempfile.TemporaryDirectory(prefix=WORK, dir=out.parent) as work:
            done, parts = _simulate(
                file, cells, starts, requests, description.run, Path(work), reporter
            )
        folder.write_run(description.data())
        is_begun = True
        tables = {
            name: record.merge([parts[cell.name][name] for cell in cells], name) for name in TABLES
        }
        tables["spans"] = record.empty("spans")
        for name, rows in tables.items():
            record.write(rows, folder.path / f"{name}.parquet", name)
        earned = revenue(
            file,
            {(cell.model, cell.seed): parts[cell.name]["invocations"] for cell in cells},
            {(cell.model, cell.seed): int(done[cell.name]["end_ns"]) for cell in cells},
            folder.path,
        )
        result: dict[str, Any] = {
            cell.name: {
                **_result(
                    file,
                    requests[cell.seed].clipped if requests else 0,
                    cell.model,
                    parts[cell.name],
                    done[cell.name],
                    earned[cell.model, cell.seed],
                ),
                "seed": cell.seed,
            }
            for cell in cells
        }
        folder.write_json(RESULT, result)
        if file.repeat > 1:
            folder.write_json(REPEATS, repeats(file, result))
        description.ended_unix_ns = max(int(events["end_ns"]) for events in done.values())
        description.status = "complete"
        conclude(folder, description, tables, reporter, with_report=with_report)
    except BaseException:
        if is_begun:
            folder.mark_failed()
        else:
            folder.remove()
        raise
    return result


def _requests(file: SimulationFile, base: Path, out: Path) -> dict[int, Requests]:
    """The requests of each seed as the workers can hold them; none if the file names no trace.

    Args:
        file: what is simulated.
        base: the folder from which paths in the file go out.
        out: the folder of the run, beside which traces are drawn.
    """
    trace = file.trace
    if trace is None:
        return {}

    def limited(requests: Requests) -> Requests:
        return requests.limited(file.cluster.memory) if trace.too_large == "clip" else requests

    if trace.bb is not None:
        return {seed: limited(draw(file, trace, seed, out.parent)) for seed in file.seeds()}
    assert trace.path is not None, "the form has one of the two"
    return dict.fromkeys(file.seeds(), limited(read_requests(trace, base / trace.path)))


def _warnings(file: SimulationFile, read: list[Requests]) -> list[str]:
    """What is probably not meant of a trace, a sentence each."""
    if not read:
        return []
    warnings = []
    requests, is_drawn = read[0], file.trace is not None and file.trace.bb is not None
    if clipped := sum(item.clipped for item in read if item is requests or is_drawn):
        warnings.append(
            f"{clipped:,} requests held more memory than a worker has, and hold all of a"
            " worker's instead (trace.too_large: clip)."
        )
    has_settings = any(known.spot_cpu or known.preemptible for known in requests.functions.values())
    if requests.is_simulated and "npfu" in file.models and not has_settings:
        warnings.append(
            "No function of the trace has spot CPU or is preemptible: rows that were simulated"
            " under slim, sim or spfu lack what functions say of both. Those of npfu have it"
            " (trace.experiment)."
        )
    return warnings


def _starts(file: SimulationFile, base: Path) -> list[int] | None:
    """Durations of the starts in the run that the file names, if it names one."""
    if not isinstance(file.starts, StartsOf):
        return None
    path = base / file.starts.run
    check_complete(path, "instances")
    rows = record.read(path, "instances")
    if file.starts.function is not None:
        rows = rows.filter(pc.field("function") == file.starts.function)
    taken = pc.subtract(rows["initialized"], rows["started"]).drop_null().to_pylist()
    if not taken:
        raise UnciaError(
            f"{path} holds no start of an instance that came to its end",
            hint="Name another run or function under starts, or list durations.",
        )
    return sorted(taken)


def _simulate(
    file: SimulationFile,
    cells: list[_Cell],
    starts: list[int] | None,
    requests: Mapping[int, Requests],
    run: str,
    work: Path,
    reporter: Reporter,
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, pa.Table]]]:
    """Summaries of the engine and tables, by experiment."""
    done: dict[str, dict[str, Any]] = {}
    parts: dict[str, dict[str, pa.Table]] = {}
    written: Requests | None = None
    asked = None
    # Those of a seed are written once, for all models.
    for cell in sorted(cells, key=lambda cell: cell.seed):
        wanted = requests.get(cell.seed)
        if wanted is not None and wanted is not written:
            asked, written = (work / "requests.arrows", wanted.functions), wanted
            wanted.write(asked[0])
            if wanted.skipped:
                reporter.note(
                    f"{wanted.skipped:,} invocations of the trace are no requests: not answered,"
                    " without times, or after the window."
                )
        reporter.note(f"Simulating {file.cluster.workers} workers: {cell.name}.")
        output = work / cell.name
        output.mkdir()
        config = simulation.config(
            file, cell.model, run, output, seed=cell.seed, starts=starts, requests=asked
        )
        events = engine.run(["sim", "--config", "-"], config=config)
        done[cell.name] = events
        rate = events["events"] / max(events["wall_s"], 1e-9)
        reporter.note(
            f"{events['events']:,} events in {events['wall_s']:.2f} s, {rate / 1e6:.2f} million/s."
        )
        parts[cell.name] = {name: record.read(output / f"{name}.arrows", name) for name in TABLES}
    return done, parts


def _content(file: SimulationFile, cells: list[_Cell], requests: Mapping[int, Requests]) -> Content:
    def streams(seed: int) -> dict[str, tuple[str, int, int]]:
        if seed in requests:
            return {
                name: ("as in the trace", function.memory, function.cpu)
                for name, function in requests[seed].functions.items()
            }
        return {
            name: (function.arrivals.sentence(), function.memory, function.vcpu)
            for name, function in (file.functions or {}).items()
        }

    experiments: dict[str, Any] = {
        cell.name: {
            "description": f"Billing model {cell.model}, seed {cell.seed}:"
            f" {RULES[cell.model].sharing}",
            "functions": sorted(streams(cell.seed)),
            "wait_ns": 0,
            # What is preempted runs again, and what is turned away is what was asked.
            "expect": dict.fromkeys(FAILURES, "allowed"),
            "timeout_ns": 0,
            "streams": [
                {
                    "function": name,
                    "deployment": name,
                    "sends": sends,
                    "start": "0s",
                    "event": {},
                    "settings": {"memory": format_size(memory), "vcpu": format_cpu(vcpu)},
                }
                for name, (sends, memory, vcpu) in streams(cell.seed).items()
            ],
        }
        for cell in cells
    }
    return Content(
        file.name,
        file.description,
        {"kind": SIMULATED},
        experiments,
        file.model_dump(mode="json", exclude_none=True),
    )


def _result(
    file: SimulationFile,
    clipped: int,
    model: Model,
    tables: Mapping[str, pa.Table],
    done: Mapping[str, Any],
    earned: Revenue,
) -> dict[str, Any]:
    """What a model came to with a seed."""
    rows = tables["invocations"]
    seconds = done["end_ns"] / 10**9
    window = file.until if file.until is not None else _last(rows)
    counts = ("events", "arrived", "served", "preempted", "lost", "rejected", "unfinished")

    return {
        "policies": {**RULES[model].policies, **file.policies},
        "end_s": seconds,
        **{name: done[name] for name in counts},
        "starts": done["starts"],
        "failures": done["failures"],
        "clipped": clipped,
        "throughput_per_s": done["served"] / seconds if seconds else None,
        **_in_window(file, rows, window),
        "offered_load": (
            int(done["cpu_offered"]) / (file.cluster.workers * file.cluster.vcpu * window)
            if window
            else None
        ),
        **_shares(tables["machine"], window),
        "requests_in_system": (int(done["in_system"]) / done["end_ns"] if done["end_ns"] else None),
        "cold_share": _cold(rows.filter(pc.field("outcome") == "ok")),
        "qos": _by_qos(rows, done, earned),
        "cost_usd": float(earned.cost),
        "revenue_usd_per_worker_hour": float(earned.rate * 3600),
        "price_factor_at_equal_revenue": _number(earned.factor),
        "totals": done["totals"],
    }


def _last(rows: pa.Table) -> int:
    """When the last of the requests that have a row arrived."""
    last = pc.max(rows["scheduled"]).as_py()
    return int(last or 0)


def _in_window(file: SimulationFile, rows: pa.Table, window: int) -> dict[str, Any]:
    """What was served while requests came: until the end, or the last arrival."""
    served = rows.filter((pc.field("outcome") == "ok") & (pc.field("ended") <= window))
    rate = served.num_rows / (window / 10**9) if window else None
    return {"window_s": window / 10**9, "throughput_in_window_per_s": rate}


def _shares(machine: pa.Table, window: int) -> dict[str, float | None]:
    """Utilisation and reservation within the window: of all workers, and the least of one.

    Both are what was used over what there was, which a worker that is gone lacks. Rows are means
    since the row before; of one that reaches beyond the window, the part within counts. None for a
    window of no length, and the least for workers that were there.
    """
    # Workers give account at the same times.
    ends = np.unique(machine["time"].to_numpy())
    lengths = np.diff(np.minimum(ends, window), prepend=0)
    positions = pa.array(np.searchsorted(ends, machine["time"].to_numpy()))
    amounts = pc.multiply(machine["value"], pa.array(lengths).take(positions).cast(pa.float64()))
    columns = {
        "counter": machine["counter"].cast(pa.string()),
        "worker": machine["worker"].cast(pa.string()),
        "amount": amounts,
    }
    sums = (
        pa.table(columns)
        .group_by(["counter", "worker"], use_threads=False)
        .aggregate([("amount", "sum")])
    )
    by_counter: dict[str, dict[str, float]] = {}
    for row in sums.to_pylist():
        by_counter.setdefault(row["counter"], {})[row["worker"]] = row["amount_sum"]
    shares: dict[str, float | None] = {}
    for name, used, there in (
        ("cpu_utilization", "cpu_used_micro_vcpu", "cpu_available_micro_vcpu"),
        ("cpu_reservation", "cpu_reserved_micro_vcpu", "cpu_available_micro_vcpu"),
        ("memory_utilization", "memory_used_bytes", "memory_available_bytes"),
        ("memory_reservation", "memory_reserved_bytes", "memory_available_bytes"),
    ):
        parts, wholes = by_counter.get(used, {}), by_counter.get(there, {})
        whole = math.fsum(wholes.values())
        each = [parts[worker] / wholes[worker] for worker in wholes if wholes[worker]]
        shares[name] = math.fsum(parts.values()) / whole if whole else None
        shares[f"{name}_min"] = min(each, default=None)
    return shares


def _cold(served: pa.Table) -> float | None:
    if served.num_rows == 0:
        return None
    return float(pc.mean(pc.equal(served["start"], "cold").cast("int8")).as_py())


def _by_qos(rows: pa.Table, done: Mapping[str, Any], earned: Revenue) -> dict[str, Any]:
    """Completion times, slowdown and cold starts of what was served; cost at equal revenue."""
    result = {}
    for qos in ("interactive", "batch"):
        ok = (pc.field("qos") == qos) & (pc.field("outcome") == "ok")
        mine = rows.filter(ok)
        if mine.num_rows == 0:
            continue
        completion = pc.subtract(mine["ended"], mine["scheduled"])
        cost, count = earned.cost_by_qos.get(qos, Fraction(0)), earned.served_by_qos.get(qos, 0)
        p50, p99 = quantiles_of(completion.to_numpy(), (0.5, 0.99))
        slowdown = done["slowdown"][qos] or {"mean": None, "p50": None, "p99": None}
        result[qos] = {
            "served": mine.num_rows,
            "completion_mean_s": pc.mean(completion).as_py() / 10**9,
            "completion_p50_s": p50 / 10**9,
            "completion_p99_s": p99 / 10**9,
            "execution_mean_s": pc.mean(mine["execution"]).as_py() / 10**9,
            **{f"slowdown_{name}": slowdown[name] for name in ("mean", "p50", "p99")},
            "cold_share": _cold(mine),
            "cost_usd_per_million_at_equal_revenue": _number(
                None if earned.factor is None or not count else cost * earned.factor * 10**6 / count
            ),
        }
    return result


def repeats(file: SimulationFile, result: Mapping[str, Any]) -> dict[str, Any]:
    """Means over the seeds with 95 % intervals (Student's t), by model and dotted name."""
    summary: dict[str, Any] = {}
    for model in file.models:
        runs = [_flat(result[simulation.experiment(file, model, seed)]) for seed in file.seeds()]
        summary[model] = {}
        for name in runs[0]:
            values = [run.get(name) for run in runs]
            numbers = [float(value) for value in values if isinstance(value, (int, float))]
            if len(numbers) == len(values):
                summary[model][name] = _interval(numbers)
    return summary


def _interval(values: list[float]) -> dict[str, float]:
    mean = statistics.fmean(values)
    t = student.quantile(0.975, len(values) - 1)
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Numbers by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if name in ("policies", "totals", "seed"):
            continue
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
