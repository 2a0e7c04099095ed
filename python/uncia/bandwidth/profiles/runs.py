"""Reads profiles from the folder of a run: spans of invocations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia import record
from uncia.bandwidth.profiles.model import PROBE, THROTTLE, ProbeRun, Profile
from uncia.errors import UnciaError

_MIB: Final = 2**20

# Rows with the same values of these are one profile.
_GROUP: Final = ("experiment", "platform", "function", "allocated_cpu", "allocated_memory")


@dataclass(frozen=True)
class _Group:
    """The runs of a group of invocations; `throttled` is `Profile.kernel_throttled`."""

    runs: list[ProbeRun]
    notes: list[str]
    throttled: int | None


def read(folder: Path) -> list[Profile]:
    """Read the profiles of a run, one for each experiment, platform, function and size.

    A run of the probe is an invocation with a span ``probe``, which covers the time that it
    watched. If no invocation has one (simulated runs), every invocation counts.

    Raises:
        UnciaError: the folder is no run, has no profile, or a gap is wrong.
    """
    rows = record.read(folder).select([*_GROUP, "invocation", "attempt", "outcome", "error"])
    details = record.read(folder).select(["started", "execution", "throttled_count"])
    spans = record.read(folder, "spans").select(["invocation", "name", "start", "end"])
    probes: dict[str, tuple[int, int]] = {}
    throttles: dict[str, list[tuple[int, int]]] = {}
    zero = _zero(folder)
    for span in spans.to_pylist():
        times = (span["start"] + (zero or 0), span["end"] + (zero or 0))
        if span["name"] == PROBE:
            probes[span["invocation"]] = times
        elif span["name"] == THROTTLE:
            throttles.setdefault(span["invocation"], []).append(times)
    if not probes and not throttles:
        raise UnciaError(
            f"{folder} holds no profile: none of its invocations has a span `probe` or `throttle`",
            hint="Make one with `uncia cpu profile`, or run the function `throttle`.",
        )
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row, detail in zip(rows.to_pylist(), details.to_pylist(), strict=True):
        groups.setdefault(tuple(row[name] for name in _GROUP), []).append({**row, **detail})
    profiles: dict[tuple[Any, ...], _Group] = {}
    for key, members in groups.items():
        group = _runs(folder, members, probes, throttles)
        if group is not None:
            profiles[key] = group
    if not profiles:
        raise UnciaError(f"{folder}: no invocation of the probe succeeded")
    names = _names(list(profiles))
    return [
        Profile(
            group.runs,
            str(folder),
            "ns",
            group.notes,
            names[key],
            monotonic=zero is not None,
            kernel_throttled=group.throttled,
        )
        for key, group in profiles.items()
    ]


def _zero(folder: Path) -> int | None:
    """Read the offset of times from the zero of the monotonic clock; None if the run has none.

    The kernel's timers count from that zero, so a profile shows more with it than with the run's
    epoch. ``uncia cpu profile`` records it.
    """
    from uncia.runs.folder import read_run

    epoch = read_run(folder).get("epoch_monotonic_ns")
    return epoch if isinstance(epoch, int) else None


def _runs(
    folder: Path,
    members: list[dict[str, Any]],
    probes: Mapping[str, tuple[int, int]],
    throttles: Mapping[str, list[tuple[int, int]]],
) -> _Group | None:
    """Collect the runs of a group; None if none of its invocations is of the probe."""
    runs: list[ProbeRun] = []
    counted: list[int | None] = []
    failed: list[str] = []
    others = 0
    for row in members:
        name = row["invocation"]
        if row["outcome"] != "ok":
            failed.append(f"{name}: {row['error'] or row['outcome']}")
            continue
        start, length = row["started"], row["execution"]
        if name in probes:
            start, length = probes[name][0], probes[name][1] - probes[name][0]
        elif probes:
            others += 1
            continue
        runs.append(ProbeRun(start, length, _events(folder, name, throttles.get(name, ()))))
        counted.append(row["throttled_count"])
    if not runs:
        return None
    notes = []
    if failed:
        notes.append(
            f"{len(failed)} of {len(members)} invocations failed and are left out; the first "
            f"failure: {failed[0]}"
        )
    if others:
        notes.append(f"{others} invocations are left out, for the probe did not run in them")
    empty = sum(not run.events for run in runs)
    if empty:
        notes.append(f"{empty} of {len(runs)} runs saw no throttle")
    counts = [count for count in counted if count is not None]
    throttled = sum(counts) if len(counts) == len(counted) else None
    gaps = sum(len(run.events) for run in runs)
    if throttled == 0 and gaps:
        notes.append(f"the kernel counted no throttle: the {gaps:,} gaps have other causes")
    return _Group(runs, notes, throttled)


def _events(
    folder: Path, invocation: str, spans: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    events: list[tuple[int, int]] = []
    # Tables have no order.
    for start, end in sorted(spans):
        if end <= start:
            raise UnciaError(
                f"{folder}: invocation {invocation}: a throttle ends at {end} ns, which is not "
                f"after its start at {start} ns"
            )
        if events and start < events[-1][0]:
            raise UnciaError(
                f"{folder}: invocation {invocation}: the throttles that end at {events[-1][0]} ns "
                f"and at {end} ns overlap"
            )
        events.append((end, end - start))
    return events


def _names(keys: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], str | None]:
    """Name profiles after the columns in which they differ; None for a single profile."""
    if len(keys) == 1:
        return {keys[0]: None}
    differing = [index for index in range(len(_GROUP)) if len({key[index] for key in keys}) > 1]
    labels = {
        key: "-".join(_word(_GROUP[index], key[index]) for index in differing) for key in keys
    }
    # The experiment's name suffices if each profile has another one.
    by_experiment = {key: str(key[0]) for key in keys}
    return dict(by_experiment if len(set(by_experiment.values())) == len(keys) else labels)


def _word(column: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if column == "allocated_memory":
        return f"{value // _MIB}MB"
    if column == "allocated_cpu":
        return f"{value / 1e6:g}vcpu"
    return str(value)
