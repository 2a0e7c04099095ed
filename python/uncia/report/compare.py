"""Comparisons of runs, as data: what `uncia compare` and `uncia gate` print, write and judge."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from uncia.errors import UnciaError
from uncia.report import costs, data, numbers, run_sets
from uncia.report.run_sets import RunSet
from uncia.stats import bootstrap, repeats, summary
from uncia.stats import comparison as compared
from uncia.stats.comparison import WHOLE_RUN, Change, Figures, Measured
from uncia.stats.gates import Gate, unit_of
from uncia.stats.verdicts import Finding, Verdict, judge

_FIGURE: Final = re.compile(r"\d[\d.,]*")

EXIT_VIOLATED: Final = 1
EXIT_NOT_JUDGED: Final = 3
"""Exit codes of commands that judge; 0: every condition holds; 2: bad input."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a run, or several of the same experiment.

    Attributes:
        label: its name, as shown.
        runs: their folders' contents.
        measured: the experiments of all runs together.
    """

    label: str
    runs: Sequence[data.RunData]
    measured: Mapping[str, Measured]

    @property
    def paths(self) -> list[str]:
        """The runs' folders."""
        return [str(run.path) for run in self.runs]


@dataclass(frozen=True)
class Candidate(Side):
    """What is compared with the baseline.

    Attributes:
        changes: of every metric.
        paired: whether its runs were interleaved with the baseline's.
    """

    changes: Sequence[Change]
    paired: bool

    def find(self, experiment: str, metric: str, tariff: str = "") -> Change | None:
        """The change of one metric, if either side has it."""
        for change in self.changes:
            if (change.experiment, change.metric, change.tariff) == (experiment, metric, tariff):
                return change
        return None


@dataclass(frozen=True)
class Comparison:
    """A baseline and its candidates.

    Attributes:
        baseline: what the others are compared with.
        candidates: the others.
        experiments: the experiments that are results, the baseline's first.
        tariffs: every tariff that could price a run.
        warnings: what makes the runs less comparable.
    """

    baseline: Side
    candidates: Sequence[Candidate]
    experiments: Sequence[str]
    tariffs: Sequence[str]
    warnings: Sequence[str]


def build(
    sides: Sequence[RunSet],
    tariffs: Sequence[str] | None = None,
    seed: int = bootstrap.SEED,
) -> Comparison:
    """Read and compare runs; all of them are billed again, with the same tariffs.

    Args:
        sides: the runs of each side, the baseline first.
        tariffs: ids or files; by default every tariff that bills by request. If empty, there are
            no costs.
        seed: of the bootstrap.

    Raises:
        UnciaError: fewer than two sides, a run cannot be read or has no rows, or there is no such
            tariff.
    """
    if len(sides) < 2:
        raise UnciaError(
            "a comparison needs at least two runs", hint="uncia compare BASELINE CANDIDATE..."
        )
    runs = [[data.load(folder) for folder in side.folders] for side in sides]
    labels = _labels([side.name for side in sides], runs)
    measured: list[list[Mapping[str, Measured]]] = []
    figures: list[list[Figures]] = []
    for label, side_runs in zip(labels, runs, strict=True):
        measured.append([])
        figures.append([])
        for index, run in enumerate(side_runs):
            if run.invocations.num_rows == 0:
                raise UnciaError(f"{run.path} has no invocations, so there is nothing to compare")
            grouped = {} if tariffs == [] else costs.grouped(run.invocations, tariffs, seed + index)
            measured[-1].append(compared.measured(run.invocations, run.meta, grouped))
            stream = label if len(side_runs) == 1 else f"{label} {index}"
            figures[-1].append(compared.figures(measured[-1][-1], stream, seed))
    parts = [Side(*side) for side in zip(labels, runs, map(_merge_runs, measured), strict=True)]
    candidates = []
    for side, of_side in zip(parts[1:], figures[1:], strict=True):
        order = run_sets.pairs(parts[0].runs, side.runs)
        if len(parts[0].runs) == len(of_side) == 1:
            changes = compared.compare(figures[0][0], of_side[0])
        elif order is not None:
            first, second = (
                [f[i] for i in o] for f, o in zip((figures[0], of_side), order, strict=True)
            )
            changes = repeats.compare(first, second, paired=True)
        else:
            changes = repeats.compare(figures[0], of_side, paired=False)
        candidates.append(
            Candidate(side.label, side.runs, side.measured, changes, order is not None)
        )
    names = dict.fromkeys(name for side in runs for run in side for name in run.summaries)
    priced = dict.fromkeys(
        tariff
        for side_figures in figures
        for run_figures in side_figures
        for (experiment, metric, tariff), figure in run_figures.items()
        if experiment == WHOLE_RUN and metric == "cost" and figure.value is not None
    )
    warnings = [text for side in sides for text in side.warnings]
    warnings += _warnings(parts[0], candidates)
    return Comparison(parts[0], candidates, list(names), list(priced), warnings)


def _merge_runs(runs: Sequence[Mapping[str, Measured]]) -> Mapping[str, Measured]:
    """The experiments of several runs as one, for charts."""
    if len(runs) == 1:
        return runs[0]
    result = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        parts = [run[name] for run in runs if name in run]
        latency, lag = (
            np.sort(np.concatenate([getattr(part, column) for part in parts]))
            for column in ("latency", "lag")
        )
        result[name] = Measured(parts[0].summary, latency, lag)
    return result


def verdicts(
    comparison: Comparison, gates: Sequence[Gate], *, rows_only: bool = False
) -> list[Finding]:
    """Judge every candidate by every gate.

    Args:
        comparison: the runs.
        gates: the conditions.
        rows_only: judge single runs as well, by intervals over their rows.
    """
    experiments = list(comparison.baseline.runs[0].summaries)
    return [
        finding
        for candidate in comparison.candidates
        for finding in judge(
            gates,
            candidate.label,
            candidate.changes,
            experiments,
            noise=run_sets.noise(comparison.baseline.runs, candidate.runs),
            rows_only=rows_only,
        )
    ]


def exit_code(findings: Iterable[Finding], *, allow_not_judged: bool = False) -> int:
    """The exit code that verdicts lead to.

    Args:
        findings: the verdicts.
        allow_not_judged: what is not judged passes, unless there was nothing to judge.
    """
    code = 0
    for finding in findings:
        if finding.verdict == "violated":
            return EXIT_VIOLATED
        if finding.verdict == "not judged" and (finding.missing or not allow_not_judged):
            code = EXIT_NOT_JUDGED
    return code


def summarize(findings: Sequence[Finding]) -> str:
    """One sentence on all verdicts."""
    counts = Counter(finding.verdict for finding in findings)
    conditions = len({finding.gate.text for finding in findings})
    which = f"{conditions} condition{'s' if conditions > 1 else ''}"
    if counts["violated"] or counts["not judged"]:
        if len(findings) > conditions:  # one condition of several experiments, or of several runs
            which += f", {len(findings)} verdicts"
        verdicts: tuple[Verdict, ...] = ("violated", "not judged", "holds")
        return f"{which}: {', '.join(f'{counts[v]} {v}' for v in verdicts if counts[v])}."
    return f"{'All ' if conditions > 1 else ''}{which} hold{'s' if conditions == 1 else ''}."


def _labels(names: Sequence[str | None], runs: Sequence[Sequence[data.RunData]]) -> list[str]:
    """Label each side by its name or its run's; if these repeat, by path, then with a number."""
    labels = [name or side[0].name for name, side in zip(names, runs, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [str(side[0].path) for side in runs]
    counts = Counter[str]()
    result = []
    for label in labels:
        counts[label] += 1
        result.append(label if counts[label] == 1 else f"{label} ({counts[label]})")
    return result


def _warnings(baseline: Side, candidates: Sequence[Candidate]) -> Iterable[str]:
    for side in (baseline, *candidates):
        # Of several runs, sentences that differ in their figures alone are one.
        alike: dict[str, list[str]] = {}
        for run in side.runs:
            # Small samples are marked in the tables.
            marked = set(summary.small_samples(run.all_summaries))
            for text in run.warnings:
                if text not in marked:
                    alike.setdefault(_FIGURE.sub("#", text), []).append(text)
        for texts in alike.values():
            total = len(side.runs)
            which = "" if total == 1 else f" ({len(texts)} of {total} runs say so or alike)"
            yield f"{side.label}: {texts[0]}{which}"
    first = baseline.runs[0]
    for candidate in candidates:
        run = candidate.runs[0]
        label = candidate.label
        if len(candidate.runs) == len(baseline.runs) == 1:
            yield f"{label}: one run a side; intervals are over rows, not over how runs differ."
        elif not candidate.paired:
            yield (
                f"{label}: its runs and the baseline's were not interleaved, so a machine that"
                " changed meanwhile looks like a change."
            )
        for key in ("machine", "versions", "platform"):
            if run.meta.get(key) != first.meta.get(key):
                yield f"{label}: the {key} differs from the baseline's."
        names, baseline_names = set(run.summaries), set(first.summaries)
        if names - baseline_names:
            yield f"{label}: not in the baseline: {', '.join(sorted(names - baseline_names))}."
        if baseline_names - names:
            yield f"{label}: missing: {', '.join(sorted(baseline_names - names))}."
        different = [
            name
            for name, figures in run.summaries.items()
            if name in baseline_names
            and figures["invocations"] != first.summaries[name]["invocations"]
        ]
        if different:
            yield (
                f"{label}: other numbers of requests than the baseline in {', '.join(different)}:"
                " costs of the whole run are of another mix."
            )


def as_json(comparison: Comparison, findings: Sequence[Finding]) -> dict[str, Any]:
    """Convert the comparison to plain JSON values."""
    return {
        "baseline": _side(comparison.baseline),
        "candidates": [
            {
                **_side(candidate),
                "interleaved": candidate.paired,
                "changes": [_plain(change) for change in candidate.changes],
            }
            for candidate in comparison.candidates
        ],
        "gates": [
            {
                "gate": finding.gate.text,
                "run": finding.run,
                "subject": finding.subject,
                "verdict": finding.verdict,
                "reason": finding.reason,
                "value": _finite(finding.value),
                "ci95": _interval(finding.interval),
                "repeats_to_decide": finding.repeats,
            }
            for finding in findings
        ],
        "ok": exit_code(findings) == 0,
        "warnings": list(comparison.warnings),
    }


def _side(side: Side) -> dict[str, Any]:
    return {"run": side.label, "path": side.paths[0], "paths": side.paths}


def _plain(change: Change) -> dict[str, Any]:
    return {
        "experiment": change.experiment or None,
        "metric": change.metric,
        "tariff": change.tariff or None,
        "unit": unit_of(change.metric).strip() or None,
        "baseline": change.baseline.value,
        "candidate": change.candidate.value,
        "change": _finite(change.change),
        "change_is": "ratio" if change.kind == "ratio" else "percentage points",
        "change_ci95": _interval(change.interval),
        "repeats": change.repeats,
        "significant": change.significant,
        "few_rows": change.baseline.few or change.candidate.few,
        "why_missing": change.why or None,
    }


def _interval(bounds: tuple[float, float] | None) -> list[float | None] | None:
    return None if bounds is None else [_finite(bound) for bound in bounds]


def _finite(value: float | None) -> float | None:
    """JSON has no infinity."""
    return value if value is not None and math.isfinite(value) else None


def moved(change: Change | None) -> str:
    """Write a change: ``+12.3 %``, ``-0.5 points``, or a dash."""
    if change is None or change.change is None:
        return numbers.ABSENT
    if change.kind == "points":
        return f"{change.change:+.3g} points" if change.change else "±0 points"
    return numbers.change(change.change)


def spread(change: Change | None) -> str:
    """Write the interval of a change, in the unit of the change: ``-2.2 to +2.4``."""
    if change is None or change.interval is None:
        return ""
    low, high = change.interval
    if change.kind == "points":
        return f"{low:+.3g} to {high:+.3g}"
    return f"{_percent(low)} to {_percent(high)}"


def _percent(ratio: float) -> str:
    return numbers.change(ratio).removesuffix(" %")
