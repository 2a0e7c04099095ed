"""Verdicts of a history: each time against those before it, by the gates of ``uncia compare``.

What a time is compared with are the last `BASELINE` whole ones before it, of the same experiment
file, in which no condition was violated: a regression is not to become what the next one is
measured by. But if as many times in a row violated one as a baseline needs, it has come to stay,
and from then on they are the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from uncia.report import run_sets
from uncia.stats import repeats
from uncia.stats.comparison import WHOLE_RUN, Change, Figure, absent
from uncia.stats.gates import Gate, parse
from uncia.stats.verdicts import MIN_REPEATS, Finding, judge
from uncia.suites.history import figures
from uncia.suites.history.figures import Key
from uncia.suites.history.index import Time

BASELINE: Final = 20
"""Most times that one is compared with: about half a year of weeks."""

CONDITIONS: Final = ("p50>10%", "p99>20%", "failed>1%", "cold>5%")
"""Conditions unless others are given."""


@dataclass(frozen=True)
class Judged:
    """A time with its verdicts.

    Attributes:
        time: what there is of it.
        findings: the verdicts on it; none unless it is whole.
        compared: the names of the times that it was compared with, for each ``ENTRY/RUN``.
    """

    time: Time
    findings: Sequence[Finding] = ()
    compared: Mapping[str, Sequence[str]] | None = None

    @property
    def violated(self) -> list[Finding]:
        """The conditions that it violates."""
        return [finding for finding in self.findings if finding.verdict == "violated"]


@dataclass(frozen=True)
class _Run:
    """A run of an entry at one time, as a part of a baseline."""

    name: str
    noise: Mapping[str, float]
    figures: Mapping[Key, Figure]


class _Baseline:
    """What the next run of one experiment file is compared with."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self._violating: list[_Run] = []
        self._violated: set[str] = set()

    def add(self, run: _Run, findings: Sequence[Finding]) -> None:
        """Take up a run that was judged.

        One in which a condition that was violated before is not judged says nothing of it: it
        neither goes on with the violations nor ends them.
        """
        verdicts = {
            verdict: {_condition(finding) for finding in findings if finding.verdict == verdict}
            for verdict in ("violated", "not judged")
        }
        if not verdicts["violated"]:
            self.runs = [*self.runs, run][-BASELINE:]
            if not self._violated & verdicts["not judged"]:
                self._violating, self._violated = [], set()
            return
        self._violating.append(run)
        self._violated |= verdicts["violated"]
        if len(self._violating) == MIN_REPEATS:
            self.runs, self._violating, self._violated = self._violating, [], set()


def _condition(finding: Finding) -> str:
    return f"{finding.gate.text} {finding.subject}"


def judge_all(times: Sequence[Time], conditions: Sequence[str] | None = None) -> list[Judged]:
    """Judge every time by its own conditions.

    Args:
        times: in order.
        conditions: judge all of them by these instead.

    Raises:
        UnciaError: a condition is none.
    """
    before: dict[tuple[str, str], _Baseline] = {}
    judged = []
    for time in times:
        gates = [parse(text) for text in conditions or time.conditions]
        judged.append(_judge(time, gates, before))
    return judged


def _judge(time: Time, gates: Sequence[Gate], before: dict[tuple[str, str], _Baseline]) -> Judged:
    """Judge one time, and add it to what later ones are compared with."""
    if time.status != "whole":
        return Judged(time)
    metrics = {gate.metric for gate in gates}
    runs: dict[str, _Run] = {}
    baselines: dict[str, _Baseline] = {}
    changes: list[Change] = []
    run_of: dict[str, str] = {}
    for item in time.entries:
        key = f"{item.entry}/{item.run}"
        runs[key] = _Run(time.name, item.noise, figures.read(item.figures))
        baselines[key] = before.setdefault((key, item.digest), _Baseline())
        changed = _changes(item.entry, key, baselines[key].runs, runs[key], metrics)
        run_of |= {change.experiment: key for change in changed}
        changes += changed
    noise = run_sets.noise_between(
        _mean([run.noise for baseline in baselines.values() for run in baseline.runs]),
        _mean([run.noise for run in runs.values()]),
    )
    of_all = [gate for each in gates for gate in _spread(each, runs)]
    findings = judge(of_all, time.name, changes, list(run_of), noise=noise)
    compared = {key: [run.name for run in baseline.runs] for key, baseline in baselines.items()}
    for key, run in runs.items():
        of_run = [it for it in findings if it.change and run_of[it.change.experiment] == key]
        baselines[key].add(run, of_run)
    return Judged(time, findings, compared)


def _changes(
    entry: str, key: str, baseline: Sequence[_Run], run: _Run, metrics: set[str]
) -> list[Change]:
    """The changes that conditions may be about, under names that are of the whole suite."""
    changes = []
    for (experiment, metric, tariff), figure in run.figures.items():
        if metric not in metrics:
            continue
        name = key if experiment == WHOLE_RUN else f"{entry}.{experiment}"
        wanted = (experiment, metric, tariff)
        known = [item.figures.get(wanted, absent("baseline")) for item in baseline]
        # One time without a figure, or with too few rows for one, is not to silence the metric for
        # as long as it is in the baseline; if all are such, that is the reason.
        first = [it for it in known if it.value is not None and not it.few] or known
        changes.append(
            repeats.change(
                (name, metric, tariff),
                first or [Figure(None, why="there is no time before it to compare it with")],
                [figure],
                paired=False,
            )
        )
    return changes


def _spread(gate: Gate, runs: Mapping[str, _Run]) -> list[Gate]:
    """A condition on the costs of a whole run is one on those of each run of the suite."""
    if gate.metric != "cost" or gate.experiment is not None:
        return [gate]
    return [replace(gate, experiment=key) for key in runs]


def _mean(noises: Sequence[Mapping[str, float]]) -> dict[str, float]:
    counters = {counter for noise in noises for counter in noise}
    return {
        counter: sum(values) / len(values)
        for counter in sorted(counters)
        if (values := [noise[counter] for noise in noises if counter in noise])
    }
