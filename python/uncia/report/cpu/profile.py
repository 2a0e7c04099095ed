"""The page of a profile: what was seen, what the kernel counted, and how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from uncia.bandwidth import profiles
from uncia.report import plots
from uncia.report.numbers import count, figure
from uncia.report.page import Block, Chart, Note, Page, Row, Section, Tile
from uncia.report.page import write as write_page
from uncia.report.table import Column, Table
from uncia.units import NS_PER_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TAIL: Final = 0.995  # where a chart ends, so that one late throttle does not flatten it
_ROOM: Final = 1.05
_CURVES: Final = (
    ("interval", "time from throttle to throttle, ms", "Throttle intervals"),
    ("throttle", "length of a throttle, ms", "Throttle durations"),
    ("cpu", "CPU time between throttles, ms", "CPU time obtained"),
)
_NAMES: Final = {"mean": "mean", "5 %": "p5", "50 %": "p50", "95 %": "p95", "most": "max"}
_figure5: Final = partial(figure, digits=5)

Arrays = Mapping[str, "NDArray[Any]"]


def distributions(
    measured: Mapping[str, Arrays],
    reference: Mapping[str, Arrays],
    *,
    prefix: str = "profile",
    of: str = "throttles",
    ending: str = "",
) -> list[Chart]:
    """The three cumulative distributions of Figure 12 of the cost paper.

    Args:
        measured: name to ``interval``, ``throttle`` and ``cpu`` in ns.
        reference: the same, drawn in grey: models.
        prefix: of the charts' names.
        of: what is counted.
        ending: of the charts' labels.

    Returns:
        Three charts; fewer where nothing has a throttle.
    """
    charts = []
    for key, axis, title in _CURVES:
        curves = {
            name: _curve(arrays[key])
            for name, arrays in {**measured, **reference}.items()
            if len(arrays[key])
        }
        if not curves:
            continue
        high = max(float(np.quantile(values, _TAIL)) for values, _ in curves.values())
        charts.append(
            Chart(
                f"{prefix}-{key}",
                plots.curves(
                    curves,
                    axis,
                    of,
                    reference=list(reference),
                    log=False,
                    bounds=(0.0, high * _ROOM),
                ),
                f"Cumulative distribution of the {axis}{ending}",
                title,
            )
        )
    return charts


def sections(folder: Path, summary: Mapping[str, Any]) -> list[Section]:
    """The parts of the page."""
    profile = profiles.read(folder)
    interval, throttle, cpu = profile.arrays()
    arrays = {"interval": interval, "throttle": throttle, "cpu": cpu}
    blocks: list[Block] = [Row([chart]) for chart in distributions({"measured": arrays}, {})]
    blocks.append(_numbers(summary))
    blocks += [Note(note) for note in profile.notes]
    parts = [
        Section(
            "throttles",
            "Throttles",
            blocks,
            "Every jump of the monotonic clock that a busy loop saw. The share at a value is that"
            " of throttles that were no longer.",
        )
    ]
    if tasks := summary.get("tasks"):
        parts.append(Section("tasks", "Tasks", [_tasks(tasks)]))
    parts.append(Section("trust", "How far to trust it", _trust(summary)))
    return parts


def write(folder: Path, summary: Mapping[str, Any], description: Mapping[str, Any]) -> Path:
    """Write ``report.html`` of a profile.

    Args:
        folder: of the run.
        summary: what `uncia.bandwidth.profiles.measure.summarise` returns.
        description: the content of ``run.yaml``.

    Raises:
        UnciaError: it cannot be written.
    """
    settings, machine = summary["settings"], description["machine"]
    quota = settings["quota_ns"]
    limit = "no quota" if quota is None else f"{_ms(quota)} ms of CPU"
    complete = description["status"] == "complete"
    hz = machine.get("hz")
    page = Page(
        title="CPU profile",
        kicker="Uncia CPU profile",
        verdict="" if complete else "It was ended before all runs were made.",
        good=complete,
        facts=[
            ("Begun", description["started"]),
            ("Setting", f"{limit} in {_ms(settings['period_ns'])} ms"),
            ("Machine", f"{machine.get('cpu_model')}, {machine.get('cpus_usable')} CPUs"),
            ("Kernel", f"{machine.get('kernel')}, {'? Hz' if hz is None else f'{hz} Hz'}"),
        ],
        tiles=_tiles(summary),
        sections=sections(folder, summary),
        summary="Throttles of the kernel's CPU bandwidth control, as a process sees them.",
    )
    return write_page(page, folder / "report.html")


def _tiles(summary: Mapping[str, Any]) -> list[Tile]:
    share, allowed = summary["used_share"], summary["quota_share"]
    note = "" if allowed is None else f"{allowed:.2%} allowed"
    tiles = [
        Tile("Runs", count(summary["runs"])),
        Tile("Throttles", count(summary["events"])),
    ]
    if share is not None:
        tiles.append(Tile("CPU obtained", f"{share:.2%}", "of one vCPU", note))
    return tiles


def _numbers(summary: Mapping[str, Any]) -> Table:
    nothing = dict.fromkeys(_NAMES.values())
    return Table(
        [
            Column("ms", "title"),
            *(_milliseconds(name, key) for name, key in _NAMES.items()),
        ],
        [{"title": title, **(summary[f"{key}_ns"] or nothing)} for key, _, title in _CURVES],
        "Spans `throttle`: from the end of one to the end of the next, their lengths, and the"
        " difference; without the first of each run.",
        "Quantiles",
        fold=False,
    )


def _milliseconds(name: str, key: str, unit: str = "") -> Column:
    """The column of a time, in ns before."""

    def value(row: Any) -> float | None:
        return None if row[key] is None else row[key] / NS_PER_MS

    return Column(name, value, _figure5, unit)


def _tasks(tasks: list[dict[str, Any]]) -> Table:
    return Table(
        [
            Column("CPU time", lambda task: _ms(task["cpu_ns"]), str, "ms"),
            Column("tasks", "runs", count),
            _milliseconds("used", "used_ns", "ms"),
            _milliseconds("mean", "mean_ns", "ms"),
            _milliseconds("50 %", "p50_ns"),
            _milliseconds("95 %", "p95_ns"),
        ],
        tasks,
        "`execution` of tasks that need a CPU time, each begun after an idle gap at a random phase;"
        " used: cpu_user + cpu_system.",
        "How long tasks took",
    )


def _trust(summary: Mapping[str, Any]) -> list[Block]:
    kernel, noise, baseline = summary["kernel"], summary["noise"], summary["baseline"]
    seen = [
        ["gaps seen", count(noise["gaps"]), "spans `throttle`"],
        ["time in gaps, ms", figure(summary["gap_ns"] / NS_PER_MS, 6), "their lengths"],
        ["refills in gaps", count(noise["refills"]), "places where the quota is refilled"],
        ["nr_throttled", count(kernel["nr_throttled"]), "the kernel's own: refills waited for"],
        [
            "throttled_time, ms",
            figure(
                None if kernel["throttled_ns"] is None else kernel["throttled_ns"] / NS_PER_MS, 6
            ),
            "the kernel's own",
        ],
        ["gaps without a refill", count(noise["without_refill"]), "no throttles, probably"],
        [
            "expected by the baseline",
            figure(noise["expected_false"], 3),
            "pauses that no quota explains",
        ],
    ]
    blocks: list[Block] = [
        Table(
            [Column("what", 0), Column("value", 1, str), Column("from", 2)],
            seen,
            "Throttles as the probe saw them, and as the kernel counted them (`throttled_count`,"
            " `throttled_time`).",
            "Seen and counted",
            fold=False,
        )
    ]
    if baseline is None:
        return [*blocks, Note("The probe did not look without a quota.")]
    rows = [
        ["watched, s", figure(baseline["duration_ns"] / 1e9, 4)],
        ["CPU time, s", figure(baseline["cpu_ns"] / 1e9, 4)],
        ["smallest step of the clock, ns", count(baseline["clock_step_ns"])],
        ["turn of the loop, ns: 50 %", count(baseline["loop_p50_ns"])],
        ["turn of the loop, ns: 99 %", count(baseline["loop_p99_ns"])],
        ["pauses as long as a throttle", count(baseline["jumps"])],
        ["involuntary context switches", count(baseline["involuntary_switches"])],
    ]
    return [
        *blocks,
        Table(
            [Column("without a quota", 0), Column("value", 1, str)],
            rows,
            "The same probe without a quota, just before: its resolution, and what it would have"
            " taken for throttles.",
            "Baseline",
            fold=False,
        ),
    ]


def _curve(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    ordered = np.sort(values) / NS_PER_MS
    return ordered, np.arange(1, len(ordered) + 1) / len(ordered)


def _ms(ns: int) -> str:
    return f"{ns / NS_PER_MS:.6g}"
