"""How long entries of suites take: as measured, or at least by what their files schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uncia import yamlio
from uncia.experiment import checks
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.suites import links, perform
from uncia.suites.catalogue import Suite, SuiteEntry, experiment_file
from uncia.units import NS_PER_S

_S_PER_MIN = 60
_MIN_PER_H = 60


@dataclass(frozen=True)
class Length:
    """How long something takes.

    Attributes:
        ns: how long; None if nobody knows.
        is_measured: whether it was measured; otherwise it takes that long at least.
        shared: how much of it are runs that other entries may share, by the digests of their files.
    """

    ns: int | None
    is_measured: bool
    shared: Mapping[str, int] = field(default_factory=dict)

    def words(self) -> str:
        """``7 min``, ``over 7 min`` of what was not measured, or ``-``."""
        if self.ns is None:
            return "-"
        seconds = self.ns / NS_PER_S
        if seconds < _S_PER_MIN:
            text = f"{seconds:.0f} s"
        elif seconds < _MIN_PER_H * _S_PER_MIN:
            text = f"{seconds / _S_PER_MIN:.0f} min"
        else:
            text = f"{seconds / _S_PER_MIN / _MIN_PER_H:.1f} h"
        return text if self.is_measured else f"over {text}"

    def data(self) -> dict[str, Any]:
        """As plain data, in seconds."""
        seconds = None if self.ns is None else self.ns / NS_PER_S
        return {"seconds": seconds, "measured": self.is_measured}


def of_entry(suite: Suite, entry: SuiteEntry, *, quick: bool) -> Length:
    """How long an entry takes.

    What was measured is in its file (``takes``). Otherwise it is what the schedules of its runs
    come to: without set-up, and without closed loops whose answers alone decide; or what was
    measured with ``--quick``, if that is more.
    """
    measured = entry.form.takes.quick if quick else entry.form.takes.whole
    state = perform.State(Path(), suite.source, quick)
    alone, shared = 0, {}
    for run, form in entry.form.runs.items():
        if run in entry.without_platform:
            continue
        document = perform.run_document(state, entry, run)
        if measured is not None:
            # Of several runs nobody knows which took how long.
            span = measured if len(entry.form.runs) == 1 else 0
        else:
            span = _scheduled_ns(entry, run, document)
        if links.is_of_file(form):
            shared[perform.digest_of(document)] = span
        else:
            alone += span
    if measured is not None:
        return Length(measured, is_measured=True, shared=shared)
    least = alone + sum(shared.values())
    if not quick:
        # In full it takes as long at least as what is left of it with --quick.
        least = max(least, entry.form.takes.quick or 0)
    return Length(least or None, is_measured=False, shared=shared)


def total(lengths: list[Length]) -> Length:
    """How long all take together; a run that several share counts once."""
    taken, counted = 0, set[str]()
    # What was measured first: it has the time of a run that others share.
    for length in sorted(lengths, key=lambda it: not it.is_measured):
        taken += length.ns or 0
        taken -= sum(ns for digest, ns in length.shared.items() if digest in counted)
        counted |= length.shared.keys()
    return Length(taken or None, all(it.is_measured for it in lengths))


def _scheduled_ns(entry: SuiteEntry, run: str, document: yamlio.Document) -> int:
    path = experiment_file(entry.form.runs[run].file, entry.document)
    planned = plan(checks.check(document), Sources(document, path.resolve().parent))
    return sum(experiment.span_ns() for experiment in planned.experiments)
