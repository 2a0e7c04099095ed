"""The page of inferred settings: measured throttles and simulated ones (Figure 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from uncia.bandwidth.distance import distance
from uncia.bandwidth.infer.tick import TICKS
from uncia.report.cpu.profile import distributions
from uncia.report.numbers import figure
from uncia.report.page import Block, Note, Row, Section
from uncia.report.table import Column, Table

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
_WAKE: Final = 20_000  # ns from a refill until a thread runs, on an idle CPU
_ANYWHERE: Final = 0.4  # of a tick: where refills stand that have an offset nobody knows
_KEYS: Final = ("period_us", "quota_us", "hz", "scheduler")

Arrays = tuple["NDArray[np.float64]", "NDArray[np.float64]", "NDArray[np.float64]"]


@dataclass(frozen=True)
class Overlay:
    """A simulated setting over a profile: its intervals, throttles and CPU times, and how far
    (Wasserstein-1, ns) each is from what was measured."""

    name: str
    arrays: Arrays
    distances: tuple[float, float, float]


def sections(
    names: Sequence[str], profiles: Sequence[Profile], found: Sequence[Inferred]
) -> list[Section]:
    """A section a profile: what is told, the distributions, and the settings by distance."""
    made = []
    for number, (name, profile, one) in enumerate(zip(names, profiles, found, strict=True), 1):
        blocks: list[Block] = [_told(one)]
        measured = _as_floats(profile.arrays())
        overlays = simulated(one, measured) if len(measured[0]) else []
        if len(measured[0]):
            blocks.insert(
                0,
                Row(
                    distributions(
                        {"measured": _named(measured)},
                        {overlay.name: _named(overlay.arrays) for overlay in overlays[:1]},
                        prefix=f"p{number}",
                        of="gaps",
                        ending=", measured and simulated",
                    )
                ),
            )
        if overlays:
            blocks.append(_distances(overlays))
        blocks += [Note(note) for note in one.notes]
        made.append(Section(f"profile-{number}", Path(name).name, blocks, _INTRO))
    return made


_INTRO: Final = (
    "Coloured: what the probe saw. Grey: the nearest of the simulated settings with the inferred"
    " period and quota. A gap is a throttle or, rarely, a preemption; measured curves hold both."
)


def simulated(found: Inferred, measured: Arrays) -> list[Overlay]:
    """Settings with the inferred period and quota, by distance from what was measured.

    Rates are 250 and 1000 Hz, and the one that was told. For CFS refills are at whole periods; for
    EEVDF they stand after a tick as in the profile if that is EEVDF's, and 0.4 ticks if not.
    """
    from uncia.bandwidth.simulate import simulate

    if found.period_us is None or found.quota_us is None:
        return []
    rates = sorted({250, 1000} | ({found.hz} if found.hz else set()))
    settings = [_setting(found, hz, scheduler) for hz in rates for scheduler in ("cfs", "eevdf")]
    done = simulate(settings)
    overlays = []
    for setting in settings:
        arrays = _arrays(done.spans, done.invocations, setting.name)
        if len(arrays[0]):
            near = [distance(a, b) for a, b in zip(measured, arrays, strict=True)]
            overlays.append(Overlay(setting.name, arrays, (near[0], near[1], near[2])))
    return sorted(overlays, key=lambda overlay: sum(overlay.distances))


def _setting(found: Inferred, hz: int, scheduler: str) -> Setting:
    from uncia.bandwidth.simulate import Probe, Setting

    period, quota = found.period_us or 0.0, found.quota_us or 0.0
    cfs = scheduler == "cfs"
    told = not cfs and hz == found.hz and found.scheduler == "eevdf"
    offset = (found.offset_us or 0.0) * _US % TICKS[hz] if told else TICKS[hz] * _ANYWHERE
    return Setting(
        name=f"{'CFS' if cfs else 'EEVDF'} {hz} Hz P{period / 1e3:g} Q{quota / 1e3:.4g}",
        period_ns=round(period * _US),
        quota_ns=round(quota * _US),
        hz=hz,
        scheduler="cfs" if cfs else "eevdf",
        timer="absolute" if cfs else {"offset": round(offset)},
        wake_delay_ns=_WAKE,
        runs=_RUNS,
        work=Probe(duration_ns=_SECONDS),
    )


def _arrays(spans: pa.Table, invocations: pa.Table, name: str) -> Arrays:
    """Intervals, throttles and CPU times of a setting's runs, as `Profile.arrays` has them."""
    import pyarrow.compute as pc

    runs = invocations.filter(pc.field("function") == name)["invocation"].to_pylist()
    empty = np.empty(0)
    found: list[Arrays] = [(empty, empty, empty)]
    for run in runs:
        rows = spans.filter((pc.field("invocation") == run) & (pc.field("name") == "throttle"))
        start = np.sort(rows["start"].to_numpy().astype(np.float64))
        end = np.sort(rows["end"].to_numpy().astype(np.float64))
        if len(end) > 1:
            interval, gap = np.diff(end), (end - start)[1:]
            found.append((interval, gap, interval - gap))
    interval, gap, cpu = (np.concatenate(one) for one in zip(*found, strict=True))
    return interval, gap, cpu


def _as_floats(
    arrays: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
) -> Arrays:
    interval, gap, cpu = (one.astype(np.float64) for one in arrays)
    return interval, gap, cpu


def _named(arrays: Arrays) -> dict[str, NDArray[np.float64]]:
    return dict(zip(("interval", "throttle", "cpu"), arrays, strict=True))


def _told(found: Inferred) -> Table:
    values = (
        ("Period", None if found.period_us is None else f"{found.period_us / _US:g} ms"),
        ("Quota", None if found.quota_us is None else f"{found.quota_us / _US:.4g} ms"),
        ("Tick rate", None if found.hz is None else f"{found.hz} Hz"),
        ("Scheduler", found.scheduler),
    )
    rows: list[tuple[str, str, float | None]] = [
        (name, value or "cannot tell", found.confidence[key])
        for (name, value), key in zip(values, _KEYS, strict=True)
    ]
    if found.share is not None:
        rows.append(("CPU obtained", f"{found.share:.2%} of one", None))
    return Table(
        [
            Column("", 0),
            Column("inferred", 1),
            Column("confidence", 2, partial(figure, digits=2)),
        ],
        rows,
        f"{found.gaps:,} gaps of {found.runs:,} runs of the probe: their ends and lengths.",
        "What the profile tells",
        fold=False,
    )


def _distances(overlays: Sequence[Overlay]) -> Table:
    def distance(name: str, index: int) -> Column:
        return Column(name, lambda overlay: overlay.distances[index] / _MS, figure, "ms")

    return Table(
        [
            Column("simulated setting", "name"),
            distance("interval", 0),
            distance("throttle", 1),
            distance("CPU", 2),
        ],
        overlays,
        f"Wasserstein-1 distances of simulated profiles ({_RUNS} runs of 10 s) from the"
        " measured one: how far, on average, the one's values are to be moved to make the other's.",
        "Simulated settings by distance",
        fold=False,
    )
