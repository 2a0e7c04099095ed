"""The page of inferred settings: measured throttles and simulated ones (Figure 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from uncia.bandwidth.distance import distance
from uncia.bandwidth.infer.tick import TICKS
from uncia.report.cpu.profile import distributions
from uncia.report.numbers import figure
from uncia.report.page import Block, Note, Row, Section
from uncia.report.table import Column, Table
from uncia.text import plural

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from uncia.bandwidth.infer import Inferred
    from uncia.bandwidth.profiles import Profile
    from uncia.bandwidth.simulate import Setting

_MS: Final = 1e6
_US: Final = 1e3
_RUNS: Final = 20
_SECONDS: Final = 10 * 10**9
_WAKE_NS: Final = 20_000  # from a refill until a thread runs, on an idle CPU
_UNKNOWN_OFFSET: Final = 0.4  # of a tick: assumed between a tick and a refill

Arrays = tuple["NDArray[np.float64]", "NDArray[np.float64]", "NDArray[np.float64]"]


@dataclass(frozen=True)
class Overlay:
    """A simulated setting to draw over a profile.

    Attributes:
        name: the setting.
        arrays: its intervals, throttles and CPU times, in ns.
        distances: the Wasserstein-1 distance of each from the measured ones, in ns.
    """

    name: str
    arrays: Arrays
    distances: tuple[float, float, float]


def sections(
    names: Sequence[str], profiles: Sequence[Profile], results: Sequence[Inferred]
) -> list[Section]:
    """Make a section for each profile: the result, the distributions, the settings by distance."""
    parts = []
    for number, (name, profile, result) in enumerate(zip(names, profiles, results, strict=True), 1):
        blocks: list[Block] = [_inferred(result)]
        measured = _as_floats(profile.arrays())
        overlays = simulated(result, measured) if len(measured[0]) else []
        if len(measured[0]):
            blocks.insert(
                0,
                Row(
                    distributions(
                        {"measured": _named(measured)},
                        {overlay.name: _named(overlay.arrays) for overlay in overlays[:1]},
                        prefix=f"p{number}",
                        counted="gaps",
                        ending=", measured and simulated",
                    )
                ),
            )
        if overlays:
            blocks.append(_distances(overlays))
        blocks += [Note(note) for note in result.notes]
        parts.append(Section(f"profile-{number}", Path(name).name, blocks, _INTRO))
    return parts


_INTRO: Final = (
    "Coloured: the measured profile. Grey: the nearest of the simulated settings with the inferred"
    " period and quota. A gap is a throttle or, rarely, a preemption; measured curves contain both."
)


def simulated(inferred: Inferred, measured: Arrays) -> list[Overlay]:
    """Simulate settings with the inferred period and quota, in order of distance.

    Tick rates are 250 and 1000 Hz, and the inferred one. With CFS, refills are at whole periods;
    with EEVDF they have the profile's offset from a tick if the profile is EEVDF's, else 0.4 ticks.
    """
    from uncia.bandwidth.simulate import simulate

    if inferred.period_us is None or inferred.quota_us is None:
        return []
    rates = sorted({250, 1000} | ({inferred.hz} if inferred.hz else set()))
    settings = [_setting(inferred, hz, scheduler) for hz in rates for scheduler in ("cfs", "eevdf")]
    simulation = simulate(settings)
    overlays = []
    for setting in settings:
        arrays = _arrays(simulation.spans, simulation.invocations, setting.name)
        if len(arrays[0]):
            d = [distance(a, b) for a, b in zip(measured, arrays, strict=True)]
            overlays.append(Overlay(setting.name, arrays, (d[0], d[1], d[2])))
    return sorted(overlays, key=lambda overlay: sum(overlay.distances))


def _setting(inferred: Inferred, hz: int, scheduler: str) -> Setting:
    from uncia.bandwidth.simulate import Probe, Setting

    period, quota = inferred.period_us or 0.0, inferred.quota_us or 0.0
    cfs = scheduler == "cfs"
    has_offset = not cfs and hz == inferred.hz and inferred.scheduler == "eevdf"
    offset = (
        (inferred.offset_us or 0.0) * _US % TICKS[hz] if has_offset else TICKS[hz] * _UNKNOWN_OFFSET
    )
    return Setting(
        name=f"{'CFS' if cfs else 'EEVDF'} {hz} Hz P{period / 1e3:g} Q{quota / 1e3:.4g}",
        period_ns=round(period * _US),
        quota_ns=round(quota * _US),
        hz=hz,
        scheduler="cfs" if cfs else "eevdf",
        timer="absolute" if cfs else {"offset": round(offset)},
        wake_delay_ns=_WAKE_NS,
        runs=_RUNS,
        work=Probe(duration_ns=_SECONDS),
    )


def _arrays(spans: pa.Table, invocations: pa.Table, name: str) -> Arrays:
    """Compute intervals, throttles and CPU times of a setting's runs, like `Profile.arrays`."""
    import pyarrow.compute as pc

    runs = invocations.filter(pc.field("function") == name)["invocation"].to_pylist()
    empty = np.empty(0)
    parts: list[Arrays] = [(empty, empty, empty)]
    for run in runs:
        rows = spans.filter((pc.field("invocation") == run) & (pc.field("name") == "throttle"))
        start = np.sort(rows["start"].to_numpy().astype(np.float64))
        end = np.sort(rows["end"].to_numpy().astype(np.float64))
        if len(end) > 1:
            interval, gap = np.diff(end), (end - start)[1:]
            parts.append((interval, gap, interval - gap))
    interval, gap, cpu = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return interval, gap, cpu


def _as_floats(
    arrays: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
) -> Arrays:
    interval, gap, cpu = (array.astype(np.float64) for array in arrays)
    return interval, gap, cpu


def _named(arrays: Arrays) -> dict[str, NDArray[np.float64]]:
    return dict(zip(("interval", "throttle", "cpu"), arrays, strict=True))


def _inferred(inferred: Inferred) -> Table:
    def row(name: str, value: Any, unit: str, key: str) -> tuple[str, Any, str, float | None]:
        return name, value, unit if value is not None else "", inferred.confidence.get(key)

    period_ms, quota_ms = (
        None if us is None else us / _US for us in (inferred.period_us, inferred.quota_us)
    )
    rows = [
        row("Period", period_ms, "ms", "period_us"),
        row("Quota", quota_ms, "ms", "quota_us"),
        row("Tick rate", inferred.hz, "Hz", "hz"),
        row("Scheduler", inferred.scheduler, "", "scheduler"),
    ]
    if inferred.share is not None:
        rows.append(row("CPU obtained", inferred.share, "of a CPU", "share"))
    return Table(
        [
            Column("setting", 0),
            Column("inferred", 1, _value, align="text"),
            Column("unit", 2),
            Column(
                "confidence",
                3,
                partial(figure, digits=2),
                explanation="Estimated probability that the value is right, from 0 to 1.",
            ),
        ],
        rows,
        f"{plural(inferred.gaps, 'gap')} of {plural(inferred.runs, 'run')} of the probe: their"
        " ends and lengths.",
        "Inferred settings",
        fold=False,
    )


def _value(value: float | str | None) -> str:
    if value is None:
        return "cannot tell"
    return value if isinstance(value, str) else f"{value:.4g}"


def _distances(overlays: Sequence[Overlay]) -> Table:
    def distance(name: str, index: int) -> Column:
        return Column(
            name,
            lambda overlay: overlay.distances[index] / _MS,
            figure,
            "ms",
            "Wasserstein-1 distance from the measured profile.",
        )

    return Table(
        [
            Column("simulated setting", "name"),
            distance("interval", 0),
            distance("throttle", 1),
            distance("CPU", 2),
        ],
        overlays,
        f"Wasserstein-1 distances of simulated profiles ({_RUNS} runs of 10 s) from the"
        " measured one: how far values must be moved, on average, to turn one into the other.",
        "Simulated settings by distance",
        fold=False,
    )
