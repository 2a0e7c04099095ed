"""Reads profiles of CPU bandwidth control, from published files and from runs.

Algorithm 1 of *Demystifying Serverless Costs on Public Platforms* (EuroSys'26, section 4.3) reads
the monotonic clock in a loop and notes every jump of at least 0.5 ms: ``(time, gap)``, where
``time`` is when the jump was seen, that is, the end of the gap.

Sources are published files (JSON, also gzipped) and the folders of Uncia's runs, in which a jump is
a span ``throttle``, and the time that was watched a span ``probe``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncia.bandwidth.profiles import published, units
from uncia.bandwidth.profiles.model import ProbeRun, Profile
from uncia.bandwidth.profiles.raw import NS, RawRun, Unit
from uncia.bandwidth.profiles.runs import read as read_run
from uncia.errors import UnciaError
from uncia.stats.quantiles import quantiles_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAX_NAMES: Final = 8  # names that an error lists
_JUST_BOOTED_NS: Final = 2_000_000_000


def read(path: Path | str, *, unit: Unit | None = None, name: str | None = None) -> Profile:
    """Read one profile.

    Args:
        path: a published file (``.json``, ``.json.gz``), ``-`` for one on standard input, or the
            folder of a run. ``RUN:NAME`` means the profile NAME of a run that holds several, as
            ``name`` does.
        unit: unit of a file's times; by default it is inferred from the file.
        name: name of the profile, if a run has several.

    Raises:
        UnciaError: the source is missing, no profile, or damaged; its unit is ambiguous, no run
            succeeded, or there are several profiles and no name.
    """
    path, name = _split(Path(path), name)
    profiles = read_all(path, unit=unit)
    if name is not None:
        for profile in profiles:
            if profile.name == name:
                return profile
        raise UnciaError(f"{path} has no profile {name!r}", hint=_names(profiles))
    if len(profiles) > 1:
        raise UnciaError(
            f"{path} holds {len(profiles)} profiles",
            hint=f"Name one, as in {path}:{profiles[0].name}. {_names(profiles)}",
        )
    return profiles[0]


def read_all(path: Path | str, *, unit: Unit | None = None) -> list[Profile]:
    """Read every profile of a source: one of a file, one per experiment and size of a run.

    Raises:
        UnciaError: as :func:`read`, but for several profiles.
    """
    path = Path(path)
    if path.is_dir():
        if unit not in (None, "ns"):
            raise UnciaError(f"{path} is the folder of a run, whose times are in ns, not {unit}")
        return read_run(path)
    return [_read_file(path, unit)]


def _read_file(path: Path, unit: Unit | None) -> Profile:
    document = published.load(path)
    succeeded = document.runs
    if not succeeded:
        raise UnciaError(
            f"{path}: none of the {len(document.failed)} invocations succeeded; "
            f"the first failure: {document.failed[0]}"
        )
    notes = []
    if document.failed:
        notes.append(
            f"{len(document.failed)} of {len(document.failed) + len(succeeded)} invocations failed "
            f"and are left out; the first failure: {document.failed[0]}"
        )
    file_unit, unit_notes = units.decide(path, succeeded, unit)
    notes += unit_notes
    empty = sum(not run.events for run in succeeded)
    if empty:
        notes.append(f"{empty} of {len(succeeded)} runs saw no throttle")
    factor = 1 if file_unit is None else NS[file_unit]
    runs = [
        ProbeRun(
            start_ns=run.t0_ns(file_unit),
            duration_ns=None if run.duration_s is None else round(run.duration_s * 1e9),
            events=_events(path, run, factor),
        )
        for run in succeeded
    ]
    monotonic = not _shifted(runs)
    if not monotonic:
        notes.append("the times count from the beginning of the profile or of each run")
    return Profile(runs=runs, source=str(path), unit=file_unit, notes=notes, monotonic=monotonic)


def _shifted(runs: Sequence[ProbeRun]) -> bool:
    """Whether times count from the begin of the profile or of each run, not of the machine.

    No machine starts a profile right after booting, or two runs at the same time.
    """
    first = [run.events[0] for run in runs if run.events]
    if not first:
        return False
    begins = {end - gap for end, gap in first}
    simultaneous = len(first) > 1 and min(len(begins), len({end for end, _ in first})) == 1
    return simultaneous or min(begins) < _JUST_BOOTED_NS


def _events(path: Path, run: RawRun, factor: int) -> list[tuple[int, int]]:
    """Convert the events to ns, and check that they are sorted and do not overlap.

    Raises:
        UnciaError: they are not sorted, or overlap.
    """
    events: list[tuple[int, int]] = []
    before: int | None = None
    for index, (time, gap) in enumerate(run.events):
        end, length = round(time * factor), round(gap * factor)
        if before is not None and end < before:
            raise UnciaError(
                f"{path}: run {run.index}, event {index}: its time {time:g} is before that of the "
                "event before it, so the events are not sorted"
            )
        if before is not None and end - length < before:
            raise UnciaError(
                f"{path}: run {run.index}, event {index}: its gap of {gap:g} begins before the gap "
                "before it ended, so the two overlap",
                hint="Times and gaps must be in one unit, and a time is the end of its gap.",
            )
        events.append((end, length))
        before = end
    return events


def _split(path: Path, name: str | None) -> tuple[Path, str | None]:
    """Split ``RUN:NAME`` into folder and name."""
    if name is not None or path.exists():
        return path, name
    folder, colon, last = str(path).rpartition(":")
    return (Path(folder), last) if colon and Path(folder).is_dir() else (path, None)


def _names(profiles: Sequence[Profile]) -> str:
    names = [str(profile.name) for profile in profiles]
    others = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"It holds: {', '.join(names[:_MAX_NAMES])}{others}."


def summary(profile: Profile) -> dict[str, Any]:
    """Summarise a profile: runs, events, and quantiles in ns (None without events)."""
    interval, throttle, cpu = profile.arrays()
    total = int(interval.sum())
    return {
        "source": profile.source,
        "name": profile.name,
        "unit": profile.unit,
        "runs": len(profile.runs),
        "events": profile.events,
        "interval_ns": _quantiles(interval),
        "throttle_ns": _quantiles(throttle),
        "cpu_ns": _quantiles(cpu),
        "share": float(cpu.sum()) / total if total > 0 else None,
        "notes": profile.notes,
    }


def _quantiles(values: NDArray[np.int64]) -> dict[str, float] | None:
    if len(values) == 0:
        return None
    low, middle, high = quantiles_of(values, [0.05, 0.5, 0.95])
    return {
        "mean": float(values.mean()),
        "p5": float(low),
        "p50": float(middle),
        "p95": float(high),
        "max": float(values.max()),
    }
