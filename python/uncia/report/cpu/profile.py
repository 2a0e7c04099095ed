"""The page of a profile: throttles seen by the probe, the kernel's counts, and how they agree."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from uncia.bandwidth import profiles
from uncia.report import plots
from uncia.report.numbers import count, figure, figure4
from uncia.report.page import Block, Chart, Note, Page, Row, Section, Tile
from uncia.report.page import write as write_page
from uncia.report.table import Column, Fact, Table, fact_columns
from uncia.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TAIL: Final = 0.995  # where a chart ends, so that one late throttle does not flatten it
_ROOM: Final = 1.05
_CURVES: Final = (
    ("interval", "time from throttle to throttle, ms", "Throttle intervals"),
    ("throttle", "length of a throttle, ms", "Throttle durations"),
    ("cpu", "CPU time between throttles, ms", "CPU time obtained"),
)
_NAMES: Final = {"mean": "mean", "p5": "p5", "p50": "p50", "p95": "p95", "max": "max"}
_figure5: Final = partial(figure, digits=5)
_figure6: Final = partial(figure, digits=6)

Arrays = Mapping[str, "NDArray[Any]"]


def distributions(
    measured: Mapping[str, Arrays],
    reference: Mapping[str, Arrays],
    *,
    prefix: str = "profile",
    counted: str = "throttles",
    ending: str = "",
) -> list[Chart]:
    """Draw the three cumulative distributions of Figure 12 of the cost paper.

    Args:
        measured: name -> ``interval``, ``throttle`` and ``cpu`` in ns.
        reference: the same of models, drawn in grey.
        prefix: of the charts' names.
        counted: what is counted.
        ending: of the charts' labels.

    Returns:
        Three charts; fewer if there are no throttles.
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
                    counted,
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
    """Make the sections of the page."""
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
            "Every jump of the monotonic clock that a busy loop saw. The curves show the share of"
            " throttles that were no longer than a value.",
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
            Column("quantity", "title"),
            *(_milliseconds(name, key) for name, key in _NAMES.items()),
        ],
        [{"title": title, **(summary[f"{key}_ns"] or nothing)} for key, _, title in _CURVES],
        "Spans `throttle`: from the end of one to the end of the next, their lengths, and the"
        " difference; without the first of each run.",
        "Quantiles",
        fold=False,
    )


def _milliseconds(name: str, key: str, explanation: str = "") -> Column:
    """Make the column of a time that is given in ns."""

    def value(row: Any) -> float | None:
        return None if row[key] is None else row[key] / NS_PER_MS

    return Column(name, value, _figure5, "ms", explanation)


def _tasks(tasks: list[dict[str, Any]]) -> Table:
    return Table(
        [
            Column(
                "CPU time",
                lambda task: task["cpu_ns"] / NS_PER_MS,
                "{:.6g}".format,
                "ms",
                "CPU time that the task needs.",
            ),
            Column("tasks", "runs", count),
            _milliseconds("used", "used_ns", "CPU time that the kernel counted."),
            _milliseconds("mean", "mean_ns", "Mean duration."),
            _milliseconds("p50", "p50_ns"),
            _milliseconds("p95", "p95_ns"),
        ],
        tasks,
        "`execution` of tasks that need a CPU time, each begun after an idle gap at a random phase;"
        " used: cpu_user + cpu_system.",
        "How long tasks took",
    )


def _trust(summary: Mapping[str, Any]) -> list[Block]:
    kernel, noise, baseline = summary["kernel"], summary["noise"], summary["baseline"]
    throttled_ns = kernel["throttled_ns"]
    throttled_ms = None if throttled_ns is None else throttled_ns / NS_PER_MS
    counts = [
        Fact("gaps seen", noise["gaps"], count, source="spans `throttle`"),
        Fact("time in gaps", summary["gap_ns"] / NS_PER_MS, _figure6, "ms", "their lengths"),
        Fact("refills in gaps", noise["refills"], count, source="times of the quota's refills"),
        Fact(
            "nr_throttled",
            kernel["nr_throttled"],
            count,
            source="the kernel's counter of refills waited for",
        ),
        Fact("throttled_time", throttled_ms, _figure6, "ms", "the kernel's counter"),
        Fact(
            "gaps without a refill",
            noise["without_refill"],
            count,
            source="probably not throttles",
        ),
        Fact(
            "expected by the baseline",
            noise["expected_false"],
            figure,
            source="pauses that no quota explains",
        ),
    ]
    blocks: list[Block] = [
        Table(
            fact_columns("quantity", "source"),
            counts,
            "Throttles as the probe saw them, and as the kernel counted them (`throttled_count`,"
            " `throttled_time`).",
            "Seen and counted",
            fold=False,
        )
    ]
    if baseline is None:
        return [*blocks, Note("The probe did not run without a quota.")]
    rows = [
        Fact("watched", baseline["duration_ns"] / NS_PER_S, figure4, "s"),
        Fact("CPU time", baseline["cpu_ns"] / NS_PER_S, figure4, "s"),
        Fact("smallest step of the clock", baseline["clock_step_ns"], count, "ns"),
        Fact("turn of the loop, p50", baseline["loop_p50_ns"], count, "ns"),
        Fact("turn of the loop, p99", baseline["loop_p99_ns"], count, "ns"),
        Fact("pauses as long as a throttle", baseline["jumps"], count),
        Fact("involuntary context switches", baseline["involuntary_switches"], count),
    ]
    return [
        *blocks,
        Table(
            fact_columns("without a quota"),
            rows,
            "The same probe without a quota, just before: its resolution, and the pauses that it"
            " would have counted as throttles.",
            "Baseline",
            fold=False,
        ),
    ]


def _curve(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    ordered = np.sort(values) / NS_PER_MS
    return ordered, np.arange(1, len(ordered) + 1) / len(ordered)


def _ms(ns: int) -> str:
    return f"{ns / NS_PER_MS:.6g}"
