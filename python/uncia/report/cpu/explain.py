"""The chapter on CPU bandwidth control, as an interactive page and as Markdown.

Both are written from the same texts and charts, so that neither can fall behind the models.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from markupsafe import Markup, escape

from uncia.bandwidth import closed_form
from uncia.bandwidth.cpu_time import constant
from uncia.profiles.cpu import LAMBDA
from uncia.providers import LAMBDA_MB
from uncia.report import export, page
from uncia.report.cpu import explain_bills as bills
from uncia.report.cpu import explain_charts as drawn
from uncia.report.cpu import explain_text as text
from uncia.report.cpu import explain_ticks as ticks
from uncia.report.cpu.duration import durations
from uncia.report.numbers import count
from uncia.report.page import Chart
from uncia.report.table import Column, Table
from uncia.units import MICRO_PER_VCPU, NS_PER_MS

Block: TypeAlias = str | Chart | Table

_MARKED: Final = re.compile(r"`([^`]*)`|\*([^*]*)\*")
_STYLE: Final = (
    "main p.note{font-size:1rem;line-height:1.6;color:var(--text);max-width:44rem}"
    "main code{font-size:.92em;background:var(--faint);padding:.05em .3em;border-radius:4px;"
    "overflow-wrap:anywhere}"
    ".vega-bindings{display:flex;flex-wrap:wrap;gap:.4rem 1.6rem;font-size:.9rem;"
    "color:var(--muted);padding:.2rem 0 .6rem}"
    ".vega-bind{display:inline-flex;align-items:center;gap:.4rem}"
    ".vega-bind label{display:inline-flex;align-items:center;gap:.4rem;flex-wrap:wrap}"
    ".vega-bind select{font:inherit;max-width:100%;padding:.15rem .3rem;color:var(--text);"
    "background:var(--panel);border:1px solid var(--line);border-radius:5px}"
)
"""What a page of prose needs beyond the style of reports: larger words, and settings in a row."""

_WIDTH: Final = 110
"""Columns of the Markdown file."""

_QUARTER: Final = MICRO_PER_VCPU // 4
_LAMBDA_TARIFF: Final = "aws-lambda-x86"


@dataclass(frozen=True)
class Part:
    """A section of the chapter: paragraphs in Markdown, charts and tables, in order."""

    name: str
    title: str
    blocks: Sequence[Block]


@cache
def parts() -> tuple[Part, ...]:
    """Compute the chapter."""
    numbers = _numbers()

    def fill(paragraphs: Sequence[str]) -> list[Block]:
        return [paragraph.format(**numbers) for paragraph in paragraphs]

    return (
        Part(
            "quota",
            "A quota in a period",
            [
                *fill(text.QUOTA),
                Chart(
                    "quota",
                    drawn.quota(),
                    "When a task of 20 ms runs, for a share, a period and a phase",
                    "A task that needs 20 ms of CPU time",
                ),
                *fill(text.EQUATION),
            ],
        ),
        Part(
            "ticks",
            "What a tick does",
            [
                *fill(text.TICKS),
                Chart(
                    "ticks",
                    ticks.balance(),
                    "When a task runs, and how much runtime it has left, over time",
                    "Runs, refills and debt of a task that never sleeps (period 20 ms)",
                ),
                *fill(text.TICKS_AFTER),
            ],
        ),
        Part(
            "kernels",
            "CFS, EEVDF, and tasks that are stopped one by one",
            [
                *fill(text.KERNELS),
                Table(
                    [
                        Column("Linux", 0),
                        Column("what changed", 1, mark="wrap"),
                        Column("functions and files", 2, mark="wrap"),
                    ],
                    text.KERNEL_ROWS,
                    "Functions of kernel/sched/fair.c and files of the control group.",
                    "Versions",
                    fold=False,
                ),
                *fill(text.KERNELS_AFTER),
                Chart(
                    "offsets",
                    ticks.offsets(),
                    "Distribution of the CPU time obtained in a run, by the offset of the timer",
                    "CPU time obtained between two throttles, 1.447 ms in 20 ms",
                ),
            ],
        ),
        Part(
            "steps",
            "Why more memory helps in steps",
            [
                *fill(text.STEPS),
                Chart(
                    "steps",
                    drawn.steps(),
                    "Duration over memory: Equation (2), the mean over phases, and the reciprocal",
                    "AWS Lambda: duration over memory",
                ),
                *fill(text.STEPS_AFTER),
                Chart(
                    "periods",
                    durations(
                        constant(closed_form.FIGURE_11),
                        0,
                        {
                            period: (period // 20, period)
                            for period in closed_form.FIGURE_11_PERIODS
                        },
                    ),
                    "Duration over the share for six periods, and the reciprocal",
                    "A task that needs 51.8 ms, in periods of 5 to 100 ms (Figure 11)",
                ),
            ],
        ),
        Part(
            "profiles",
            "What a profile shows",
            [*fill(text.PROFILES[:1]), *ticks.profiles(), *fill(text.PROFILES[1:])],
        ),
        Part(
            "bill",
            "From time to money",
            [
                *fill(text.BILLS),
                Chart(
                    "bill",
                    drawn.bill(),
                    "Cost of a million requests over memory",
                    "AWS Lambda: what a million requests cost, fee and rounding included",
                ),
                *fill(text.BURSTS),
                _bursts(),
                Chart(
                    "bursts",
                    drawn.bursts(),
                    "The fee below which bursts are cheaper, by share, and the fee",
                    "The fee below which bursts would be cheaper (line), and the fee (dashed)",
                ),
                *fill(text.BURSTS_AFTER),
            ],
        ),
        Part(
            "exact",
            "Could it be exact?",
            [
                *fill(text.EXACT[:1]),
                Chart(
                    "overrun",
                    ticks.overrun(),
                    "The longest run by quota and tick rate",
                    "How much longer than its quota a run may be",
                ),
                *fill(text.EXACT[1:]),
            ],
        ),
        Part("sources", "What is known from where", fill(text.SOURCES)),
    )


def html(path: Path) -> Path:
    """Write the chapter as a page of its own.

    Raises:
        UnciaError: it cannot be written.
    """
    return page.write(
        page.Page(
            title=text.TITLE,
            kicker="Uncia explains",
            summary=text.SUMMARY,
            sections=[
                page.Section(part.name, part.title, [_in_page(block) for block in part.blocks])
                for part in parts()
            ],
            style=_STYLE,
        ),
        path,
    )


def markdown(images: str) -> str:
    """The chapter as Markdown.

    Args:
        images: where the pictures are, relative to the file.
    """
    lines = [
        f"# {text.TITLE}",
        "*Written by `uncia cpu explain --markdown`; do not edit.*",
        _wrapped(text.SUMMARY),
        _wrapped(
            "The pictures here show one setting each. The chapter with charts that can be set is a"
            " page of its own, which needs no network:"
        ),
        "```\nuncia cpu explain --html cpu.html\n```",
    ]
    for part in parts():
        lines.append(f"## {part.title}")
        for block in part.blocks:
            if isinstance(block, str):
                lines.append(_wrapped(block))
            elif isinstance(block, Chart):
                lines.append(f"![{block.label}]({images}/{picture(block)})\n\n*{block.title}.*")
            else:
                lines += ["\n".join(_rows(block)), _wrapped(block.trace)]
    return "\n\n".join(lines) + "\n"


def pictures() -> Iterator[tuple[str, bytes]]:
    """Draw each chart with its initial settings as an SVG picture on white: name, content."""
    for part in parts():
        for block in part.blocks:
            if isinstance(block, Chart):
                yield picture(block), export.drawn(block.spec, "svg")


def picture(chart: Chart) -> str:
    """The name of a chart's picture."""
    return f"cpu-{chart.name}.svg"


def _wrapped(content: str) -> str:
    return textwrap.fill(content, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _in_page(block: Block) -> page.Block:
    if isinstance(block, str):
        return page.Note(_tagged(block))
    if isinstance(block, Chart):
        return block
    rows = [
        [_tagged(cell) if isinstance(cell, str) else cell for cell in row] for row in block.rows
    ]
    return replace(block, rows=rows)


def _tagged(content: str) -> Markup:
    """Convert `code` and *emphasis* to markup, and escape everything else."""
    return Markup(
        _MARKED.sub(
            lambda match: f"<code>{match[1]}</code>" if match[1] else f"<em>{match[2]}</em>",
            escape(content),
        )
    )


def _rows(table: Table) -> Iterator[str]:
    yield "| " + " | ".join(column.heading for column in table.columns) + " |"
    lines = ("---" if column.kind == "text" else "---:" for column in table.columns)
    yield "|" + "|".join(lines) + "|"
    for row in table.cells:
        yield "| " + " | ".join(cell.text for cell in row) + " |"


def _numbers() -> dict[str, str]:
    """Compute the numbers in the text."""
    period, whole = LAMBDA.period_ns, LAMBDA_MB
    steps = closed_form.jumps(period, [drawn.PYAES], 1, period, most=5)[0]
    sizes = range(LAMBDA.min_size, whole + 1)
    controls = [closed_form.control_of_memory(period, size, whole) for size in sizes]
    rows = closed_form.sweep(controls, constant(drawn.PYAES))
    costs = {
        size: bills.memory_bill(_LAMBDA_TARIFF, size, row.mean_ns)
        for size, row in zip(sizes, rows, strict=True)
    }
    cheapest = min(sizes, key=lambda size: costs[size])
    plain = bills.memory_bill(
        _LAMBDA_TARIFF, cheapest, rows[cheapest - LAMBDA.min_size].reciprocal_ns
    )
    burst = bills.fees_that_pay(_LAMBDA_TARIFF, "aws", [_QUARTER])[0]
    assert burst is not None, "2 s do not fit one quota"
    return {
        "pyaes": f"{drawn.PYAES / NS_PER_MS:.2f}",
        "jumps": ", ".join(f"{jump.memory_mb(whole):,}" for jump in steps),
        "cheapest": f"{cheapest:,}",
        "cheapest_saving": _percent(1 - costs[cheapest] / plain),
        "step_difference": _percent(1 - costs[cheapest] / costs[cheapest - 1]),
        "burst_saved": _percent(burst.saved),
        "burst_fee": _usd(burst.fee * 10**6),
        "lambda_fee": _usd(drawn.invocation_fee(_LAMBDA_TARIFF) * 10**6),
    }


def _bursts() -> Table:
    rows = []
    for tariff, platform in bills.BURST_TARIFFS.items():
        burst = bills.fees_that_pay(tariff, platform, [_QUARTER])[0]
        assert burst is not None, "2 s do not fit one quota"
        fee = burst.fee * 10**6
        rows.append((tariff, burst.count, burst.saved, fee, drawn.invocation_fee(tariff) * 10**6))
    return Table(
        [
            Column("tariff", 0),
            Column("bursts", 1, count),
            Column("billed time saved", 2, _percent),
            Column("pays below a fee of", 3, lambda fee: _usd(fee) if fee > 0 else "none would"),
            Column("fee", 4, _usd),
        ],
        rows,
        "A task of 2 s of CPU time at 0.25 vCPU by Equation (2); fees in USD a million. Starts and"
        " the passing on of state are not counted.",
        "Bursts",
        fold=False,
    )


def _percent(share: Fraction) -> str:
    return f"{float(share * 100):.1f} %"


def _usd(amount: Fraction) -> str:
    return f"{float(amount):.3f}"
