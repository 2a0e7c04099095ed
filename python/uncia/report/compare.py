"""Comparisons of runs, as data: what `uncia compare` prints, writes and judges."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia.errors import UnciaError
from uncia.report import costs, data, numbers
from uncia.stats import bootstrap, summary
from uncia.stats import comparison as compared
from uncia.stats.comparison import WHOLE_RUN, Change, Measured
from uncia.stats.gates import Finding, Gate, judge, unit_of

BREAKING: Final = ("violated", "unknown")
"""The verdicts that make a comparison fail."""


@dataclass(frozen=True)
class Candidate:
    """A run that is compared with the baseline."""

    label: str
    data: data.RunData
    measured: Mapping[str, Measured]
    changes: Sequence[Change]

    def find(self, experiment: str, metric: str, tariff: str = "") -> Change | None:
        """The change of one metric, if either run has it."""
        for change in self.changes:
            if (change.experiment, change.metric, change.tariff) == (experiment, metric, tariff):
                return change
        return None


@dataclass(frozen=True)
class Comparison:
    """A baseline and its candidates.

    Attributes:
        label: the baseline's name, as shown.
        baseline: the run.
        measured: its experiments.
        candidates: the others.
        experiments: the experiments that are results, the baseline's first.
        tariffs: every tariff that could price a run.
        warnings: what makes the runs less comparable.
    """

    label: str
    baseline: data.RunData
    measured: Mapping[str, Measured]
    candidates: Sequence[Candidate]
    experiments: Sequence[str]
    tariffs: Sequence[str]
    warnings: Sequence[str]


def build(
    folders: Sequence[Path],
    tariffs: Sequence[str] | None = None,
    seed: int = bootstrap.SEED,
) -> Comparison:
    """Read and compare runs; all of them are billed again, with the same tariffs.

    Args:
        folders: run folders, the baseline first.
        tariffs: ids or files; by default every tariff that bills by request.
        seed: of the bootstrap.

    Raises:
        UnciaError: fewer than two runs, one cannot be read, the baseline has no rows, or there is
            no such tariff.
    """
    if len(folders) < 2:
        raise UnciaError(
            "a comparison needs at least two runs", hint="uncia compare BASELINE CANDIDATE..."
        )
    runs = [data.load(folder) for folder in folders]
    labels = _labels(runs)
    measured, figures = [], []
    for label, run in zip(labels, runs, strict=True):
        if run.invocations.num_rows == 0:
            raise UnciaError(f"{run.path} has no invocations, so there is nothing to compare")
        grouped = costs.grouped(run.invocations, tariffs, seed)
        measured.append(compared.measured(run.invocations, run.meta, grouped))
        figures.append(compared.figures(measured[-1], label, seed))
    candidates = [
        Candidate(label, run, experiments, compared.compare(figures[0], candidate_figures))
        for label, run, experiments, candidate_figures in zip(
            labels[1:], runs[1:], measured[1:], figures[1:], strict=True
        )
    ]
    names = dict.fromkeys(name for run in runs for name in run.summaries)
    priced = dict.fromkeys(
        tariff
        for run_figures in figures
        for (experiment, metric, tariff), figure in run_figures.items()
        if experiment == WHOLE_RUN and metric == "cost" and figure.value is not None
    )
    return Comparison(
        labels[0],
        runs[0],
        measured[0],
        candidates,
        list(names),
        list(priced),
        list(_warnings(labels, runs)),
    )


def verdicts(
    comparison: Comparison, gates: Iterable[Gate], *, strict: bool = False
) -> list[Finding]:
    """Judge every candidate by every gate."""
    experiments = list(comparison.baseline.summaries)
    return [
        finding
        for gate in gates
        for candidate in comparison.candidates
        for finding in judge(gate, candidate.label, candidate.changes, experiments, strict=strict)
    ]


def broken(findings: Iterable[Finding]) -> list[Finding]:
    """Select the findings that make a comparison fail."""
    return [finding for finding in findings if finding.verdict in BREAKING]


def _labels(runs: Sequence[data.RunData]) -> list[str]:
    """Label each run by its name; if names repeat, by its path; if paths repeat, with a number."""
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in runs]
    counts = Counter[str]()
    result = []
    for name in names:
        counts[name] += 1
        result.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return result


def _warnings(labels: Sequence[str], runs: Sequence[data.RunData]) -> Iterable[str]:
    first = runs[0]
    for label, run in zip(labels, runs, strict=True):
        # Small samples are marked in the tables.
        marked = set(summary.small_samples(run.all_summaries))
        yield from (f"{label}: {text}" for text in run.warnings if text not in marked)
    for label, run in zip(labels[1:], runs[1:], strict=True):
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
        "baseline": {"run": comparison.label, "path": str(comparison.baseline.path)},
        "candidates": [
            {
                "run": candidate.label,
                "path": str(candidate.data.path),
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
            }
            for finding in findings
        ],
        "ok": not broken(findings),
        "warnings": list(comparison.warnings),
    }


def _plain(change: Change) -> dict[str, Any]:
    interval = None if change.interval is None else [_finite(v) for v in change.interval]
    return {
        "experiment": change.experiment or None,
        "metric": change.metric,
        "tariff": change.tariff or None,
        "unit": unit_of(change.metric).strip() or None,
        "baseline": change.baseline.value,
        "candidate": change.candidate.value,
        "change": None if change.change is None else _finite(change.change),
        "change_is": "ratio" if change.kind == "ratio" else "percentage points",
        "change_ci95": interval,
        "significant": change.significant,
        "few_rows": change.baseline.few or change.candidate.few,
        "why_missing": change.why or None,
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if abs(value) != float("inf") else None


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
