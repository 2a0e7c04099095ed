"""A comparison as Markdown, for a pull request or a job's summary."""

import re
from collections.abc import Sequence

from uncia.report.compare import Comparison, moved, spread, summarize
from uncia.stats.comparison import Change
from uncia.stats.verdicts import Finding

_MARKS = {"holds": "✅ holds", "violated": "❌ violated", "not judged": "⚪ not judged"}


def markdown(comparison: Comparison, findings: Sequence[Finding]) -> str:
    """Write the verdicts as a table, and the changes of medians below it."""
    lines = [f"### {_escape(summarize(findings))}" if findings else "### Comparison", ""]
    sides = [comparison.baseline, *comparison.candidates]
    runs = "; ".join(f"{_escape(side.label)}: {len(side.runs)}" for side in sides)
    lines += [f"Runs: {runs}. Intervals are 95 % intervals.", ""]
    if findings:
        lines += ["| condition | subject | verdict | reason |", "|---|---|---|---|"]
        several = len(comparison.candidates) > 1
        for finding in findings:
            subject = f"{finding.run}: {finding.subject}" if several else finding.subject
            cells = (f"`{finding.gate.text}`", _escape(subject), _MARKS[finding.verdict])
            lines.append(f"| {' | '.join(cells)} | {_escape(finding.reason)} |")
        lines.append("")
    for candidate in comparison.candidates:
        lines += [
            f"<details><summary>Changes in {_escape(candidate.label)}</summary>",
            "",
            "| experiment | p50 | p99 | mean | failed | cold |",
            "|---|---|---|---|---|---|",
        ]
        for experiment in comparison.experiments:
            changes = [
                _cell(candidate.find(experiment, metric))
                for metric in ("p50", "p99", "mean", "failed", "cold")
            ]
            lines.append(f"| {_escape(experiment)} | {' | '.join(changes)} |")
        lines += ["", "</details>", ""]
    lines += [f"> {_escape(text)}" for text in comparison.warnings]
    return "\n".join(lines).rstrip() + "\n"


def _cell(change: Change | None) -> str:
    text = moved(change)
    return f"{text} ({spread(change)})" if spread(change) else text


def _escape(text: str) -> str:
    """Let nothing from a run (names, error texts) become markup."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~@!])", r"\\\1", text)
