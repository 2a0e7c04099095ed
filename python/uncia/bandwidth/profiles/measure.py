"""Measures profiles of this machine: the probe runs in its own control group and writes a run.

The probe is Rust (``crates/bandwidth/src/probe``, ``uncia-engine cpu profile``). This module
gives its run a folder like any other: ``run.yaml``, tables, ``summary.json``, ``report.html``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from uncia import engine, record
from uncia.bandwidth.profiles import noise, sources
from uncia.doctor.host import Host
from uncia.errors import UnciaError
from uncia.forms import Form
from uncia.runs import folder as folders
from uncia.runs.folder import RunFolder, Status
from uncia.runs.versions import versions
from uncia.stats.quantiles import quantiles_of

PROFILED: Final = "profile"
"""The experiment of the rows under the quota; other rows are of the probe without one."""

_FEATURES: Final = ("/sys/kernel/debug/sched/features", "/sys/kernel/debug/sched_features")
_QUANTILES: Final = (0.5, 0.95)


class Settings(Form):
    """What to measure; times in ns, the kernel's in whole microseconds.

    Attributes:
        period_ns: 1 ms to 1 s.
        quota_ns: 1 ms at least; None: the group is not limited.
        burst_ns: unused quota that may be saved; at most the quota.
        duration_ns: of each run of the probe; not with tasks.
        task_cpu_ns: CPU times of tasks to run instead, one after the other.
        repeat: number of runs; with tasks, of each.
        groups: control groups that the runs are spread over, at most as many as there are repeats.
            Since Linux 6.4 a group's period timer keeps a random offset from the ticks, so that one
            group shows one case.
        threshold_ns: smaller jumps of the clock are not throttles.
        cpu: the CPU to run on; None: any.
        seed: of the random phases at which runs begin.
        idle_ns: minimum time between runs; None: until the group has no debt.
        baseline_ns: how long the probe first watches without a quota; 0: not at all.
        unified: use control groups version 2 even if version 1 has the controller.
    """

    period_ns: int
    quota_ns: int | None
    burst_ns: int = 0
    duration_ns: int | None = None
    task_cpu_ns: list[int] | None = None
    repeat: int = Field(default=1, ge=1)
    groups: int = Field(default=1, ge=1)
    threshold_ns: int = 500_000
    cpu: int | None = Field(default=None, ge=0)
    seed: int = Field(default=0, ge=0)
    idle_ns: int | None = Field(default=None, ge=0)
    baseline_ns: int = Field(default=1_000_000_000, ge=0)
    unified: bool = False

    def config(self, out: Path, run: str) -> dict[str, Any]:
        """The engine's configuration."""
        content = self.model_dump(exclude={"task_cpu_ns"})
        if self.task_cpu_ns is not None:
            content["task"] = {"cpu_ns": self.task_cpu_ns}
        return {**content, "out": str(out), "run": run}


@dataclass(frozen=True)
class Measured:
    """A measured profile.

    Attributes:
        folder: the run.
        summary: the content of ``summary.json``.
        description: the content of ``run.yaml``.
        interrupted: it was ended before all runs were made; it has those made until then.
    """

    folder: Path
    summary: dict[str, Any]
    description: dict[str, Any]
    interrupted: bool


def measure(
    settings: Settings,
    out: Path,
    *,
    overwrite: bool = False,
    on_event: Callable[[engine.Event], None] | None = None,
) -> Measured:
    """Measure a profile.

    After SIGINT the profile consists of the runs made until then.

    Args:
        settings: what to measure.
        out: the run's folder, which is created.
        overwrite: an earlier run there may be deleted.
        on_event: called with each event of the engine.

    Raises:
        UnciaError: the folder cannot be made, or the kernel or its control groups refuse; with
            what to do. Nothing is left of a profile that could not begin.
        KeyboardInterrupt: it was interrupted before the end of the first run.
    """
    folder = RunFolder.create(out, overwrite=overwrite)
    description = _describe(settings, out)
    folder.write_run(description)
    events: list[engine.Event] = []

    def listen(event: engine.Event) -> None:
        events.append(event)
        if on_event is not None:
            on_event(event)

    interrupted = False
    try:
        engine.run(["cpu", "profile", "--config", "-"], settings.config(out, out.name), listen)
    except KeyboardInterrupt:
        interrupted = True
    except UnciaError as error:
        _end_failed(folder, description, error)
        raise
    record.recover_folder(out)
    end = _last(events, "done")
    for key in ("epoch_unix_ns", "epoch_monotonic_ns"):
        description[key] = _last(events, "started").get(key)
    status: Status = "interrupted" if interrupted else "complete"
    description |= {"status": status, "ended": _time(), "group": _last(events, "started")}
    folder.write_run(description)
    if not end.get("completed"):
        raise KeyboardInterrupt
    summary = summarise(out, settings, baseline=end.get("baseline"))
    folder.write_json(folders.SUMMARY, summary)
    return Measured(out, summary, description, interrupted)


def summarise(
    folder: Path, settings: Settings, baseline: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Summarise a profile and the kernel's counters; times in ns.

    Args:
        folder: of the run.
        settings: those of the run.
        baseline: the probe's result without a quota; None: it did not run.
    """
    profile = sources.read(folder)
    rows = _rows(folder)
    gaps = sum(gap for run in profile.runs for _, gap in run.events)
    count, throttled = rows["throttled_count"], rows["throttled_time"]
    used = sum(rows["cpu_user"]) + sum(rows["cpu_system"])
    wall = sum(rows["execution"])
    summary = {
        "settings": settings.model_dump(),
        **sources.summary(profile),
        "execution_ns": wall,
        "used_ns": used,
        "used_share": used / wall if wall else None,
        "quota_share": None
        if settings.quota_ns is None
        else settings.quota_ns / settings.period_ns,
        "gap_ns": gaps,
        "kernel": {
            "nr_throttled": None if None in count else sum(count),
            "throttled_ns": None if None in throttled else sum(throttled),
        },
        "baseline": None if baseline is None else dict(baseline),
        "noise": noise.judge(profile, settings.period_ns, baseline, used),
    }
    if settings.task_cpu_ns is not None:
        summary["tasks"] = _tasks(rows, settings.task_cpu_ns)
    return summary


def _rows(folder: Path) -> dict[str, list[Any]]:
    """Read columns of the runs under the quota, in the order of the runs."""
    names = ["execution", "cpu_user", "cpu_system", "throttled_count", "throttled_time"]
    table = record.read(folder).select(["experiment", *names]).to_pydict()
    indexes = [index for index, name in enumerate(table["experiment"]) if name == PROFILED]
    return {name: [table[name][index] for index in indexes] for name in names}


def _tasks(rows: Mapping[str, list[Any]], cpu_ns: list[int]) -> list[dict[str, Any]]:
    """Summarise how long tasks took, for each CPU time."""
    import numpy as np

    result = []
    for index, cpu_time in enumerate(cpu_ns):
        walls = np.array(rows["execution"][index :: len(cpu_ns)], dtype=np.int64)
        if len(walls) == 0:
            continue
        user = np.array(rows["cpu_user"][index :: len(cpu_ns)], dtype=np.int64)
        system = np.array(rows["cpu_system"][index :: len(cpu_ns)], dtype=np.int64)
        middle, high = quantiles_of(walls, _QUANTILES)
        result.append(
            {
                "cpu_ns": cpu_time,
                "runs": len(walls),
                "used_ns": float((user + system).mean()),
                "mean_ns": float(walls.mean()),
                "p50_ns": float(middle),
                "p95_ns": float(high),
            }
        )
    return result


def _describe(settings: Settings, out: Path) -> dict[str, Any]:
    host = Host()
    features = next((text for path in _FEATURES if (text := host.read(path))), None)
    return {
        "run": out.name,
        "title": "CPU profile",
        "status": "running",
        "schema_version": record.SCHEMA_VERSION,
        "seed": settings.seed,
        "started": _time(),
        "versions": versions(),
        "machine": {**host.facts(), "scheduler_features": features and features.split()},
        "profile": settings.model_dump(),
    }


def _end_failed(folder: RunFolder, description: dict[str, Any], error: UnciaError) -> None:
    """Keep what was measured before the failure; without any rows, remove the folder."""
    if any(folder.path.glob("*.arrows")):
        record.recover_folder(folder.path)
    tables = [path for name in record.TABLES if (path := folder.path / f"{name}.parquet").exists()]
    if not tables or record.read(folder.path).num_rows == 0:
        # Everything in the folder was made by this call.
        for path in [*tables, folder.path / folders.RUN]:
            path.unlink()
        folder.path.rmdir()
        return
    folder.write_run({**description, "status": "failed", "failures": [error.message]})


def _last(events: list[engine.Event], name: str) -> dict[str, Any]:
    """Return the last event of a name, without its name; empty if there is none."""
    for event in reversed(events):
        if event.get("event") == name:
            return {key: value for key, value in event.items() if key != "event"}
    return {}


def _time() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
