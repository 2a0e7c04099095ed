"""Carries out a simulation and writes a run folder, as an experiment does.

Each billing model is an experiment of the run, with the same requests. The tables' epoch is 0 and
the run's id is made of name and seed, so that the same file gives the same tables on every machine.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from uncia import engine, record, yamlio
from uncia.errors import UnciaError
from uncia.experiment import simulation, simulation_checks
from uncia.experiment.conclude import conclude_parts
from uncia.experiment.describe import Content, Description
from uncia.experiment.drawn_traces import draw
from uncia.experiment.expect import FAILURES
from uncia.experiment.prices import revenue
from uncia.experiment.progress import Reporter
from uncia.experiment.simulated_figures import figures
from uncia.experiment.simulated_requests import Requests
from uncia.experiment.simulated_requests import read as read_requests
from uncia.experiment.simulation import RULES, SIMULATED, Model, SimulationFile, StartsOf
from uncia.runs.folder import RunFolder, check_complete
from uncia.runs.versions import versions
from uncia.stats import student
from uncia.text import plural
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
        checked = simulation.validate(document, seed)
    else:
        checked, document = simulation.load(Path(file), seed)
        base = Path(file).parent
    simulation_checks.check(checked, document)
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
    # Beside the run: there is as much room as that needs, which /tmp may not have.
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        room = tempfile.TemporaryDirectory(prefix=WORK, dir=out.parent)
    except OSError as error:
        raise UnciaError(f"cannot write {out}: {error.strerror}", exit_code=1) from error
    with room as work:
        requests = _requests(file, base, Path(work))
        return _execute(file, out, starts, requests, Path(work), reporter, overwrite, with_report)


def _execute(
    file: SimulationFile,
    out: Path,
    starts: list[int] | None,
    requests: Mapping[int, Requests],
    work: Path,
    reporter: Reporter,
    overwrite: bool,
    with_report: bool,
) -> dict[str, Any]:
    """See `execute`, with starts and requests that are read, and a folder to work in."""
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
        done, parts = _simulate(file, cells, starts, requests, description.run, work, reporter)
        folder.write_run(description.data())
        is_begun = True
        for name in TABLES:
            files = [parts[cell.name] / f"{name}.parquet" for cell in cells]
            _join(files, folder.path / f"{name}.parquet", name)
        record.write(record.empty("spans"), folder.path / "spans.parquet", "spans")
        earned = revenue(
            file,
            {(cell.model, cell.seed): parts[cell.name] / "invocations.parquet" for cell in cells},
            {(cell.model, cell.seed): int(done[cell.name]["end_ns"]) for cell in cells},
            folder.path,
        )
        result: dict[str, Any] = {
            cell.name: {
                **figures(
                    file,
                    _clipped(file, cell, requests),
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
        rows = {cell.name: parts[cell.name] / "invocations.parquet" for cell in cells}
        conclude_parts(folder, description, rows, reporter, with_report=with_report)
    except BaseException:
        if is_begun:
            folder.mark_failed()
        else:
            folder.remove()
        raise
    return result


def _join(files: list[Path], path: Path, table: str) -> None:
    """Make a table of the run from those of its experiments."""
    if len(files) == 1:
        with contextlib.suppress(OSError):
            path.hardlink_to(files[0])
            return
    record.concatenate(files, path, table)


def _requests(file: SimulationFile, base: Path, work: Path) -> dict[int, Requests]:
    """The requests of each seed as the workers can hold them; none if the file names no trace.

    Args:
        file: what is simulated.
        base: the folder from which paths in the file go out.
        work: a folder for the files of requests.
    """
    trace = file.trace
    if trace is None:
        return {}
    most_memory = file.cluster.memory if trace.too_large == "clip" else None
    if trace.bb is not None:
        return {
            seed: draw(file, trace, seed, work / f"requests-{seed}.arrows", most_memory)
            for seed in file.seeds()
        }
    assert trace.path is not None, "the form has one of the two"
    requests = read_requests(trace, base / trace.path, work / "requests.arrows", most_memory)
    return dict.fromkeys(file.seeds(), requests)


def _clipped(file: SimulationFile, cell: _Cell, requests: Mapping[int, Requests]) -> int:
    if not requests:
        return 0
    return simulation.clipped(file, cell.model, requests[cell.seed].functions)


def _warnings(file: SimulationFile, read: list[Requests]) -> list[str]:
    """What is probably not meant of a trace, a sentence each."""
    if not read:
        return []
    warnings = []
    requests = read[0]
    # Those of each seed where they are drawn; else all seeds have the same.
    each = read if file.trace is not None and file.trace.bb is not None else [requests]
    if left_out := sum((Counter(item.left_out) for item in each), Counter()):
        reasons = ", ".join(f"{count:,} {why}" for why, count in left_out.most_common())
        warnings.append(f"Invocations of the trace that are no requests: {reasons}.")
    if clipped := sum(item.clipped for item in each):
        warnings.append(
            f"{clipped:,} requests held more memory than a worker has, and hold all of a"
            " worker's instead (trace.too_large: clip)."
        )
    warnings += _cut(file, each)
    if above := sum(item.above_spot for item in each):
        warnings.append(
            f"{above:,} requests have more spot CPU than is allocated to them: all that is"
            " allocated is spot."
        )
    if above := sum(item.above_cpu for item in each):
        warnings.append(
            f"{above:,} requests use more CPU than is allocated to them, and take longer than the"
            " trace says (trace.vcpu is allocated where rows do not say)."
        )
    has_settings = any(known.spot_cpu or known.preemptible for known in requests.functions.values())
    if requests.is_simulated and "npfu" in file.models and not has_settings:
        warnings.append(
            "No function of the trace has spot CPU or is preemptible: rows that were simulated"
            " under slim, sim or spfu lack what functions say of both. Those of npfu have it"
            " (trace.experiment)."
        )
    return warnings


def _cut(file: SimulationFile, read: list[Requests]) -> list[str]:
    """A sentence for each number of requests whose functions are cut, with the models."""
    if file.trace is None or file.trace.too_large != "clip":
        return []
    models: dict[int, list[str]] = {}
    for model in file.models:
        functions = [function for item in read for function in item.functions.values()]
        count = sum(it.requests for it in functions if simulation.is_cut(file, model, it))
        models.setdefault(count, []).append(model)
    return [
        f"{count:,} requests are of functions with more CPU or memory than a worker has under"
        f" {', '.join(names)}, and have at most a worker's (trace.too_large: clip)."
        for count, names in models.items()
        if count
    ]


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
) -> tuple[dict[str, dict[str, Any]], dict[str, Path]]:
    """Summaries of the engine and folders with tables as Parquet files, by experiment."""
    done: dict[str, dict[str, Any]] = {}
    parts: dict[str, Path] = {}
    for cell in sorted(cells, key=lambda cell: cell.seed):
        wanted = requests.get(cell.seed)
        reporter.note(f"Simulating {plural(file.cluster.workers, 'worker')}: {cell.name}.")
        output = work / cell.name
        output.mkdir()
        config = simulation.config(
            file,
            cell.model,
            run,
            output,
            seed=cell.seed,
            starts=starts,
            requests=None if wanted is None else (wanted.path, wanted.functions),
        )
        events = engine.run(["sim", "--config", "-"], config=config, ends_with_parent=True)
        done[cell.name] = events
        rate = events["events"] / max(events["wall_s"], 1e-9)
        reporter.note(
            f"{events['events']:,} events in {events['wall_s']:.2f} s, {rate / 1e6:.2f} million/s."
        )
        record.recover_folder(output)
        parts[cell.name] = output
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
        if name in ("policies", "totals", "running", "seed"):
            continue
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
