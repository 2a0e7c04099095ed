"""Carries out a simulation and writes a run folder, as an experiment does.

Each billing model is an experiment of the run, with the same requests. The tables' epoch is 0 and
the run's id is made of name and seed, so that the same file gives the same tables on every machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia import engine, record
from uncia.experiment import simulation
from uncia.experiment.conclude import conclude
from uncia.experiment.describe import Content, Description
from uncia.experiment.expect import FAILURES
from uncia.experiment.prices import Revenue, revenue
from uncia.experiment.progress import Reporter
from uncia.experiment.simulation import RULES, Model, SimulationFile
from uncia.runs.folder import RunFolder
from uncia.runs.versions import versions
from uncia.units import format_cpu, format_size

if TYPE_CHECKING:
    import pyarrow as pa

RESULT: Final = "simulation.json"
TABLES: Final = ("invocations", "instances", "machine")


def execute(
    file: SimulationFile,
    out: Path,
    reporter: Reporter,
    *,
    overwrite: bool = False,
    with_report: bool = True,
) -> dict[str, Any]:
    """Simulate a file under each of its models.

    Args:
        file: what is simulated.
        out: the folder of the run.
        reporter: receives progress updates.
        overwrite: whether an earlier run in it may be replaced.
        with_report: write ``report.html``.

    Returns:
        The content of ``simulation.json``, by model: counts, throughput, utilisation, completion
        times, revenue. Nothing in it depends on how long the simulation took.

    Raises:
        UnciaError: the file cannot be simulated, or the folder cannot be written; what was begun is
            deleted, or marked as failed.
    """
    folder = RunFolder.create(out, overwrite=overwrite)
    description = Description(
        run=f"{file.name}-{file.seed}",
        content=_content(file),
        seed=file.seed,
        epoch_unix_ns=0,
        versions=versions(),
    )
    is_begun = False
    try:
        with tempfile.TemporaryDirectory(prefix="uncia-simulate-") as work:
            done, parts = _simulate(file, description.run, Path(work), reporter)
        folder.write_run(description.data())
        is_begun = True
        tables = {
            name: record.merge([parts[model][name] for model in file.models], name)
            for name in TABLES
        }
        tables["spans"] = record.empty("spans")
        for name, rows in tables.items():
            record.write(rows, folder.path / f"{name}.parquet", name)
        rows_of = {model: parts[model]["invocations"] for model in file.models}
        ends = {model: int(done[model]["end_ns"]) for model in file.models}
        earned = revenue(file, rows_of, ends, folder.path)
        result: dict[str, Any] = {
            model: _result(file, model, rows_of[model], done[model], earned[model])
            for model in file.models
        }
        folder.write_json(RESULT, result)
        description.ended_unix_ns = max(ends.values())
        description.status = "complete"
        conclude(folder, description, tables, reporter, with_report=with_report)
    except BaseException:
        if is_begun:
            folder.mark_failed()
        else:
            folder.remove()
        raise
    return result


def _simulate(
    file: SimulationFile, run: str, work: Path, reporter: Reporter
) -> tuple[dict[Model, dict[str, Any]], dict[Model, dict[str, pa.Table]]]:
    """Summaries of the engine and tables, by model."""
    done: dict[Model, dict[str, Any]] = {}
    parts: dict[Model, dict[str, pa.Table]] = {}
    for model in file.models:
        reporter.note(f"Simulating {file.cluster.workers} workers under {model}.")
        output = work / model
        output.mkdir()
        config = simulation.config(file, model, run, output)
        done[model] = engine.run(["sim", "--config", "-"], config=config)
        parts[model] = {name: record.read(output / f"{name}.arrows", name) for name in TABLES}
    return done, parts


def _content(file: SimulationFile) -> Content:
    experiments: dict[str, Any] = {
        model: {
            "description": f"Billing model {model}: {RULES[model].sharing}",
            "functions": sorted(file.functions),
            "wait_ns": 0,
            # What is preempted runs again, and what is turned away is what was asked.
            "expect": dict.fromkeys(FAILURES, "allowed"),
            "timeout_ns": 0,
            "streams": [
                {
                    "function": name,
                    "deployment": name,
                    "sends": function.arrivals.sentence(),
                    "start": "0s",
                    "event": {},
                    "settings": {
                        "memory": format_size(function.memory),
                        "vcpu": format_cpu(function.vcpu),
                    },
                }
                for name, function in file.functions.items()
            ],
        }
        for model in file.models
    }
    return Content(
        file.name,
        file.description,
        {"kind": "simulated"},
        experiments,
        file.model_dump(mode="json", exclude_none=True),
    )


def _result(
    file: SimulationFile,
    model: Model,
    rows: pa.Table,
    done: Mapping[str, Any],
    earned: Revenue,
) -> dict[str, Any]:
    """What a model came to."""
    totals = {name: int(text) for name, text in done["totals"].items()}
    seconds = done["end_ns"] / 10**9

    def share(part: int, whole: str) -> float | None:
        return part / totals[whole] if totals[whole] else None

    return {
        "policies": {**RULES[model].policies, **file.policies},
        "end_s": seconds,
        "events": done["events"],
        "arrived": done["arrived"],
        "served": done["served"],
        "preempted": done["preempted"],
        "rejected": done["rejected"],
        "unfinished": done["unfinished"],
        "starts": done["starts"],
        "throughput_per_s": done["served"] / seconds if seconds else None,
        "cpu_utilization": share(totals["cpu_own"] + totals["cpu_borrowed"], "cpu_capacity"),
        "cpu_reservation": share(totals["cpu_reserved"], "cpu_capacity"),
        "memory_utilization": share(totals["memory_used"], "memory_capacity"),
        "memory_reservation": share(totals["memory_reserved"], "memory_capacity"),
        "qos": _by_qos(rows, earned),
        "cost_usd": float(earned.cost),
        "revenue_usd_per_worker_hour": float(earned.rate * 3600),
        "price_factor_at_equal_revenue": _number(earned.factor),
        "totals": done["totals"],
    }


def _by_qos(rows: pa.Table, earned: Revenue) -> dict[str, Any]:
    """Completion times and cold starts of what was served, and its cost at equal revenue."""
    import pyarrow.compute as pc

    result = {}
    for qos in ("interactive", "batch"):
        mine = rows.filter((pc.field("qos") == qos) & (pc.field("outcome") == "ok"))
        if mine.num_rows == 0:
            continue
        completion = pc.subtract(mine["ended"], mine["scheduled"])
        cost = earned.cost_by_qos.get(qos, Fraction(0))
        result[qos] = {
            "served": mine.num_rows,
            "completion_mean_s": pc.mean(completion).as_py() / 10**9,
            "execution_mean_s": pc.mean(mine["execution"]).as_py() / 10**9,
            "cold_share": pc.mean(pc.equal(mine["start"], "cold").cast("int8")).as_py(),
            "cost_usd_per_million_at_equal_revenue": _number(
                None if earned.factor is None else cost * earned.factor * 10**6 / mine.num_rows
            ),
        }
    return result


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
