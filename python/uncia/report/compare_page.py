"""The page of a comparison: conditions, changes with their intervals, distributions, bills."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from uncia.report import costs, numbers, plots
from uncia.report.compare import Comparison, Side, exit_code, moved, spread, summarize
from uncia.report.page import WRITTEN, Block, Chart, Note, Page, Row, Section
from uncia.report.sections.distributions import families
from uncia.report.table import Column, Table
from uncia.stats import untimed
from uncia.stats.comparison import RATIOS, SHARES, WHOLE_RUN, Change
from uncia.stats.gates import unit_of
from uncia.stats.verdicts import Finding
from uncia.text import plural
from uncia.units import NS_PER_MS


def page(comparison: Comparison, findings: Sequence[Finding]) -> Page:
    """Make the page of a comparison."""
    verdict = summarize(findings)
    if not findings:
        count = len(comparison.candidates)
        what = "candidate" if count == 1 else "candidates"
        verdict = f"{count} {what} against the baseline; no condition was set."
    sections = [_gates(findings)] if findings else []
    sections += [
        _metric_section(comparison, "latency", "Latency", ("p50", "p90", "p99", "mean")),
        _distributions(comparison),
        _metric_section(comparison, "ratios", "Ratios to warm", RATIOS),
        _bills(comparison),
        _metric_section(comparison, "failures", "Failures, starts, lag", (*SHARES, "lag")),
    ]
    return Page(
        title=f"{comparison.baseline.label} → {', '.join(c.label for c in comparison.candidates)}",
        kicker="Uncia comparison",
        verdict=verdict,
        good=exit_code(findings) == 0,
        facts=[
            ("Baseline", _about(comparison.baseline)),
            *(("Candidate", _about(candidate)) for candidate in comparison.candidates),
        ],
        warnings=list(comparison.warnings),
        sections=sections,
        footer=(
            f"{WRITTEN}. Changes are relative to the baseline; intervals are 95 % intervals, of"
            " several runs a side over runs and rows. Of one run a side they are over its rows"
            " alone, and do not include how runs differ from one another."
        ),
    )


def _about(side: Side) -> str:
    begun = str(side.runs[0].meta.get("started") or "")
    requests = plural(sum(run.requests for run in side.runs), "request")
    return ", ".join(part for part in (side.label, begun, requests) if part)


def _gates(findings: Sequence[Finding]) -> Section:
    order = ("violated", "not judged", "holds")
    table = Table(
        [
            Column("condition", lambda finding: finding.gate.text),
            Column("candidate", "run"),
            Column("subject", "subject", explanation="What the condition was checked on."),
            Column(
                "verdict", "verdict", mark=lambda row: "bad" if row.verdict == "violated" else ""
            ),
            Column("reason", "reason", mark="wrap"),
            Column(
                "repeats",
                "repeats",
                explanation="About how many runs a side would decide what is not judged.",
            ),
        ],
        sorted(findings, key=lambda finding: order.index(finding.verdict)),
        "Violated: all of the interval is beyond the bound. Holds: none of it is. Not judged: the"
        " bound lies within, or the interval cannot be trusted, for the reason given.",
        "Conditions",
    )
    return Section("conditions", "Conditions", [table])


def _metric_section(
    comparison: Comparison, name: str, title: str, metrics: Sequence[str]
) -> Section:
    blocks: list[Block] = []
    panels = []
    for number, candidate in enumerate(comparison.candidates):
        rows = [
            {
                "name": change.experiment,
                "kind": _title(change.metric),
                "value": change.change,
                "low": change.interval[0],
                "high": change.interval[1],
            }
            for experiment in comparison.experiments
            for metric in metrics
            if (change := candidate.find(experiment, metric)) is not None
            and change.kind == "ratio"
            and change.change is not None
            and change.interval is not None
            and 0 < change.interval[0] <= change.interval[1] < float("inf")
        ]
        kinds = [_title(metric) for metric in metrics if metric not in SHARES]
        if rows:
            panels.append(
                Chart(
                    f"{name}-{number}",
                    plots.ratios(rows, "candidate / baseline (logarithmic)", 1.0, kinds),
                    f"Change of {', '.join(kinds)} in {candidate.label}, by experiment",
                    candidate.label if len(comparison.candidates) > 1 else "",
                )
            )
        blocks.append(
            Table(
                [
                    Column("experiment", str),
                    *(
                        _changes(
                            _title(metric),
                            unit_of(metric).strip(),
                            partial(candidate.find, metric=metric),
                        )
                        for metric in metrics
                    ),
                ],
                comparison.experiments,
                f"{comparison.baseline.label} → {candidate.label}; below, the change and its 95 %"
                " interval. Coloured: the interval excludes no change. † too few rows for"
                " an interval. Drawn: the changes that have one.",
                candidate.label,
                stacked=True,
            )
        )
    if panels:
        blocks.insert(0, Row(panels))
    return Section(name, title, blocks)


def _title(metric: str) -> str:
    return metric.upper() if metric in RATIOS else metric


def _changes(name: str, unit: str, find: Callable[[Any], Change | None]) -> Column:
    """Make a column of changes: both values, below them the change and its interval.

    In CSV, each of them is a column of its own.
    """

    def part(title: str, unit: str, value: Callable[[Change], float | None]) -> Column:
        def get(row: Any) -> float | None:
            change = find(row)
            return None if change is None else value(change)

        return Column(f"{name} {title}", get, numbers.figure, unit)

    def bound(index: int) -> Callable[[Change], float | None]:
        return lambda change: None if change.interval is None else change.interval[index]

    def values(row: Any) -> str:
        change = find(row)
        if change is None:
            return numbers.ABSENT
        before, after = change.baseline.value, change.candidate.value
        return f"{numbers.figure(before)} → {numbers.figure(after)}"

    def note(row: Any) -> str:
        change = find(row)
        if change is None:
            return ""
        return f"{moved(change)} [{spread(change)}]" if spread(change) else moved(change)

    def mark(row: Any) -> str:
        change = find(row)
        if change is None:
            return ""
        if change.significant and change.change is not None and moved(change)[0] != "±":
            worse = change.change > (1.0 if change.kind == "ratio" else 0.0)
            return "worse" if worse else "better"
        return "few" if change.baseline.few or change.candidate.few else ""

    return Column(
        name,
        values,
        unit=unit,
        note=note,
        mark=mark,
        parts=[
            part("baseline", unit, lambda change: change.baseline.value),
            part("candidate", unit, lambda change: change.candidate.value),
            part("change", "ratio or points", lambda change: change.change),
            part("change, low", "ratio or points", bound(0)),
            part("change, high", "ratio or points", bound(1)),
        ],
        align="number",
    )


def _distributions(comparison: Comparison) -> Section:
    panels = []
    runs = [(comparison.baseline.label, comparison.baseline.measured)] + [
        (candidate.label, candidate.measured) for candidate in comparison.candidates
    ]
    order = [name for _, members in families(list(comparison.experiments)) for name in members]
    for number, experiment in enumerate(order):
        curves = {
            label: experiments[experiment].latency
            for label, experiments in runs
            if experiment in experiments and experiments[experiment].latency.size
        }
        if not curves:
            continue
        baseline = {k: v for k, v in curves.items() if k == comparison.baseline.label}
        candidates = {k: v for k, v in curves.items() if k != comparison.baseline.label}
        panels.append(
            Chart(
                f"distribution-{number}",
                plots.distribution(
                    candidates, baseline, NS_PER_MS, "latency, ms (logarithmic)", in_order=False
                ),
                f"Cumulative distribution of latency of {experiment}, by run",
                experiment,
            )
        )
    blocks: list[Block] = [Row(panels)]
    if not panels:
        summaries = [item.summary for _, measured in runs for item in measured.values()]
        blocks = [Note(untimed.sentence(untimed.why_no_latency, summaries), "warning")]
    return Section(
        "distributions",
        "Distributions",
        blocks,
        "Latency of the requests that succeeded. Dashed grey: the baseline.",
    )


def _bills(comparison: Comparison) -> Section:
    blocks: list[Block] = []
    for candidate in comparison.candidates:
        if comparison.tariffs:
            blocks.append(
                Table(
                    [
                        Column("tariff", str),
                        *(
                            _changes(
                                experiment or "whole run",
                                "USD",
                                partial(candidate.find, experiment, "cost"),
                            )
                            for experiment in (WHOLE_RUN, *comparison.experiments)
                        ),
                    ],
                    comparison.tariffs,
                    f"USD per million priced requests, {comparison.baseline.label} →"
                    f" {candidate.label}, both priced now with the same tariffs. Rows are resampled"
                    f" within each experiment, in at most {costs.GROUPS} groups.",
                    candidate.label,
                    stacked=True,
                )
            )
    if not blocks:
        blocks.append(Note("No tariff was asked for, or none could price these rows."))
    return Section("bills", "Bills", blocks)
