"""What the client did: the generator's punctuality, and how requests ended."""

from typing import Final

from uncia.report import charts, numbers, theme
from uncia.report.data import RunData
from uncia.report.page import Block, Cell, Chart, Note, Section, Table
from uncia.stats import columns
from uncia.stats.summary import LAG_LIMIT_US, WARMUP_SUFFIX

_NS_PER_US: Final = 1e3
_OUTCOMES: Final = {
    "ok": "#3f9f68",
    "throttled": "#e08a2c",
    "timeout": "#8a6fd1",
    "function_error": "#cf4a5c",
    "transport_error": "#98923a",
    "preempted": "#3b7fc4",
}
_OTHER: Final = theme.REFERENCE
_ERROR_TEXTS: Final = 12
"""Different error texts shown; the rest are counted."""

_ERROR_LENGTH: Final = 160


def lag(run: RunData) -> Section:
    """How late requests were sent."""
    values = columns.ordered(columns.difference(run.invocations, "sent", "scheduled"))
    if values.size == 0:
        return Section("lag", "Generator lag", [Note("No request was sent.", "warning")])
    rows: list[list[Cell | str]] = []
    for name, found in run.all_summaries.items():
        lag_us = found["lag_us"]
        late = lag_us["p99"] is not None and lag_us["p99"] > LAG_LIMIT_US
        rows.append(
            [
                name,
                numbers.count(found["sent"]),
                numbers.figure(lag_us["p50"]),
                Cell(numbers.figure(lag_us["p99"]), mark="high" if late else ""),
                numbers.figure(lag_us["max"]),
                numbers.figure(found["offered_rate"]),
                numbers.figure(found["achieved_rate"]),
            ]
        )
    return Section(
        "lag",
        "Generator lag",
        [
            Chart(
                "lag",
                charts.histogram(values, _NS_PER_US, "sent − scheduled, µs", LAG_LIMIT_US),
                "Histogram of generator lag on a logarithmic axis; the line stands at 1 ms",
            ),
            Table(
                (
                    "<experiment",
                    "sent",
                    "p50, µs",
                    "p99, µs",
                    "max, µs",
                    "offered, 1/s",
                    "answered, 1/s",
                ),
                rows,
                "Lag is sent − scheduled over all rows of invocations with both, whatever their"
                " outcome. Offered: (rows − 1) / (last − first scheduled); answered: the same of"
                " received over rows with outcome ok. A dash: all at one instant.",
            ),
        ],
        "How late the load generator was itself. It is part of every latency above, so it must be "
        "small beside them; the line stands at 1 ms.",
    )


def outcomes(run: RunData) -> Section:
    """How many requests ended in which way."""
    summaries = run.all_summaries
    words = list(dict.fromkeys(word for found in summaries.values() for word in found["outcomes"]))
    words.sort(
        key=lambda word: list(_OUTCOMES).index(word) if word in _OUTCOMES else len(_OUTCOMES)
    )
    blocks: list[Block] = []
    if set(words) - {"ok"}:
        blocks.append(
            Chart(
                "outcomes",
                charts.stacked(
                    [
                        {"name": name, "part": word, "value": n}
                        for name, found in summaries.items()
                        for word, n in found["outcomes"].items()
                    ],
                    words,
                    "share of requests",
                    normalized=True,
                    colours=[_OUTCOMES.get(word, _OTHER) for word in words],
                    value_format=",",
                ),
                "Outcomes of each experiment as shares",
            )
        )
    blocks.append(
        Table(
            ("<experiment", "requests", "sent", *words, "failed", "cold", "instances"),
            [
                [
                    name,
                    numbers.count(found["invocations"]),
                    numbers.count(found["sent"]),
                    *(numbers.count(found["outcomes"].get(word, 0)) for word in words),
                    Cell(numbers.count(found["failed"]), mark="bad" if found["failed"] else ""),
                    numbers.count(found["cold"]) if found["starts"] else numbers.ABSENT,
                    numbers.count(found["instances"]) if found["instances"] else numbers.ABSENT,
                ]
                for name, found in summaries.items()
            ],
            "Counts of rows of invocations by the column outcome; sent: rows with sent not null;"
            " failed: neither ok nor declared by the experiment (expect); cold: rows with start"
            " cold; instances: different values of the column instance. A dash: the platform does"
            " not say."
            + (
                f" Experiments whose names end in {WARMUP_SUFFIX} prepare another one and are in"
                " no other section but this and the generator's."
                if any(name.endswith(WARMUP_SUFFIX) for name in summaries)
                else ""
            ),
            "Outcomes",
        )
    )
    errors = _errors(run)
    if errors is not None:
        blocks.append(errors)
    return Section(
        "outcomes",
        "Outcomes",
        blocks,
        "How every request ended. Nothing is left out: what was scheduled is a row.",
    )


def _errors(run: RunData) -> Table | None:
    """The error texts, most frequent first."""
    rows: list[list[Cell | str]] = []
    rest = 0
    for name, table in columns.by_word(run.invocations, "experiment").items():
        for text, n in columns.count_words(table, "error").items():
            if len(rows) == _ERROR_TEXTS:
                rest += n
                continue
            shown = text if len(text) <= _ERROR_LENGTH else f"{text[: _ERROR_LENGTH - 1]}…"
            rows.append([name, Cell(shown, mark="wrap"), numbers.count(n)])
    if not rows:
        return None
    tail = f" {rest:,} more rows have other texts." if rest else ""
    return Table(
        ("<experiment", "<error", "rows"),
        rows,
        f"The column error of invocations, by experiment.{tail}",
        "Errors",
    )
