"""Profiles of this machine: the probe runs in a control group of its own and writes a run.

The probe is Rust (``crates/bandwidth/src/probe``, ``uncia-engine cpu profile``). Here its run gets
a folder like any other: ``run.yaml``, tables, ``summary.json``, ``report.html``.
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
"""The experiment of the rows under the quota; the others are of the probe without one."""

_FEATURES: Final = ("/sys/kernel/debug/sched/features", "/sys/kernel/debug/sched_features")
_QUANTILES: Final = (0.5, 0.95)


class Settings(Form):
    """What is measured; times in ns, and the kernel's are whole microseconds.

    Attributes:
        period_ns: 1 ms to 1 s.
        quota_ns: 1 ms at least; None: the group is not limited.
        burst_ns: saved up at most; at most the quota.
        duration_ns: of each run of the probe; not with tasks.
        task_cpu_ns: CPU times of tasks to run instead, one after the other.
        repeat: runs; of tasks, how often all of them are run.
        groups: control groups that the runs are spread over, at most as many as there are repeats.
            Since Linux 6.4 a group's period timer has an offset of its own among the ticks, which
            it keeps; so one group shows one case.
        threshold_ns: smaller jumps of the clock are no throttles.
        cpu: the CPU to stay on; None: any.
        seed: of the random phases at which runs begin.
        idle_ns: between runs at least; None: until the group owes nothing.
        baseline_ns: how long the probe watches without a quota first; 0: not at all.
        unified: version 2 of control groups even if version 1 has the controller.
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
    """A profile that was made.

    Attributes:
        folder: where it is.
        summary: the content of ``summary.json``.
        description: the content of ``run.yaml``.
        interrupted: it was ended before all runs were made; those that were are there.
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
    """Make a profile.

    SIGINT ends it early; then what was measured until then is the profile.

    Args:
        settings: what to measure.
        out: the run's folder, made here.
        overwrite: an earlier run there may be deleted.
        on_event: called with each event of the engine.

    Raises:
        UnciaError: the folder cannot be made, or the kernel or its control groups refuse; with
            what to do. Nothing is left of a profile that could not begin.
        KeyboardInterrupt: it was interrupted before the first run was over.
    """
    folder = RunFolder.create(out, overwrite=overwrite)
    description = _describe(settings, out)
    folder.write_run(description)
    told: list[engine.Event] = []

    def listen(event: engine.Event) -> None:
        told.append(event)
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
    done = _last(told, "done")
    for key in ("epoch_unix_ns", "epoch_monotonic_ns"):
        description[key] = _last(told, "started").get(key)
    status: Status = "interrupted" if interrupted else "complete"
    description |= {"status": status, "ended": _time(), "group": _last(told, "started")}
    folder.write_run(description)
    if not done.get("completed"):
        raise KeyboardInterrupt
    summary = summarise(out, settings, baseline=done.get("baseline"))
    folder.write_json(folders.SUMMARY, summary)
    return Measured(out, summary, description, interrupted)


def summarise(
    folder: Path, settings: Settings, baseline: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a profile shows, beside what the kernel counted, in numbers; times in ns.

    Args:
        folder: of the run.
        settings: those of the run.
        baseline: what the probe saw without a quota; None: it did not look.
    """
    profile = sources.read(folder)
    rows = _rows(folder)
    gaps = sum(gap for run in profile.runs for _, gap in run.events)
    count, held = rows["throttled_count"], rows["throttled_time"]
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
            "throttled_ns": None if None in held else sum(held),
        },
        "baseline": None if baseline is None else dict(baseline),
        "noise": noise.judge(profile, settings.period_ns, baseline, used),
    }
    if settings.task_cpu_ns is not None:
        summary["tasks"] = _tasks(rows, settings.task_cpu_ns)
    return summary


def _rows(folder: Path) -> dict[str, list[Any]]:
    """Columns of the runs under the quota, in the order in which they were made."""
    names = ["execution", "cpu_user", "cpu_system", "throttled_count", "throttled_time"]
    table = record.read(folder).select(["experiment", *names]).to_pydict()
    own = [place for place, name in enumerate(table["experiment"]) if name == PROFILED]
    return {name: [table[name][place] for place in own] for name in names}


def _tasks(rows: Mapping[str, list[Any]], cpu_ns: list[int]) -> list[dict[str, Any]]:
    """For each CPU time, in the order asked for: how long tasks took."""
    import numpy as np

    found = []
    for place, wanted in enumerate(cpu_ns):
        walls = np.array(rows["execution"][place :: len(cpu_ns)], dtype=np.int64)
        if len(walls) == 0:
            continue
        user = np.array(rows["cpu_user"][place :: len(cpu_ns)], dtype=np.int64)
        system = np.array(rows["cpu_system"][place :: len(cpu_ns)], dtype=np.int64)
        middle, high = quantiles_of(walls, _QUANTILES)
        found.append(
            {
                "cpu_ns": wanted,
                "runs": len(walls),
                "used_ns": float((user + system).mean()),
                "mean_ns": float(walls.mean()),
                "p50_ns": float(middle),
                "p95_ns": float(high),
            }
        )
    return found


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
    """Keep what was measured before the failure, or else no folder at all."""
    if any(folder.path.glob("*.arrows")):
        record.recover_folder(folder.path)
    tables = [path for name in record.TABLES if (path := folder.path / f"{name}.parquet").exists()]
    if not tables or record.read(folder.path).num_rows == 0:
        # All that is here was made by this call.
        for path in [*tables, folder.path / folders.RUN]:
            path.unlink()
        folder.path.rmdir()
        return
    folder.write_run({**description, "status": "failed", "failures": [error.message]})


def _last(events: list[engine.Event], name: str) -> dict[str, Any]:
    """The last event of a name, without its name; empty if there is none."""
    for event in reversed(events):
        if event.get("event") == name:
            return {key: value for key, value in event.items() if key != "event"}
    return {}


def _time() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
