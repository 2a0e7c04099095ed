"""Shorter experiment files: fewer experiments, for less time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from math import ceil
from typing import Any, Final

from uncia.units import format_duration, parse_duration

_COUNTS: Final = ("bursts", "requests")


def shorten(
    data: Mapping[str, Any],
    only: Sequence[str],
    share: float,
    warmup: float = 1.0,
    whole: Sequence[str] = (),
) -> dict[str, Any]:
    """Leave out experiments and shorten the others.

    What paces the requests (rates, intervals, sizes of bursts, times to think) stays.

    Args:
        data: an experiment file.
        only: names and patterns of the experiments that stay; all if empty.
        share: of each duration, number of bursts and of requests; counts are rounded up.
        warmup: the same share of warm-ups.
        whole: names and patterns of experiments that stay as they are.
    """
    experiments = {
        name: experiment if _is_any(name, whole) else _shorter(experiment, share, warmup)
        for name, experiment in data["experiments"].items()
        if not only or _is_any(name, only)
    }
    return {**data, "experiments": experiments}


def _is_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _shorter(sender: Mapping[str, Any], share: float, warmup: float) -> dict[str, Any]:
    """An experiment or a stream of a mix."""
    shorter = dict(sender)
    for key, part in (("arrivals", share), ("closed", share), ("warmup", warmup)):
        if key in shorter:
            shorter[key] = _shorter_pacing(shorter[key], part)
    if "mix" in shorter:
        shorter["mix"] = [_shorter(stream, share, warmup) for stream in shorter["mix"]]
    return shorter


def _shorter_pacing(pacing: Mapping[str, Any], share: float) -> dict[str, Any]:
    shorter = dict(pacing)
    if "duration" in shorter:
        shorter["duration"] = format_duration(ceil(parse_duration(shorter["duration"]) * share))
    for key in _COUNTS:
        if key in shorter:
            shorter[key] = ceil(shorter[key] * share)
    return shorter
