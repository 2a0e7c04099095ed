"""The compact table that a run ends with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

from uncia import terminal
from uncia.experiment.plan import WARMUP_SUFFIX
from uncia.runs.folder import REPORT
from uncia.runs.warnings import by_importance
from uncia.text import plural

if TYPE_CHECKING:
    from uncia.experiment.runner import Outcome

# On a terminal, an error is for finding its cause; the summary has all of it.
_MAX_ERRORS: Final = 8
_MAX_TRACE_LINES: Final = 12
_MAX_OUTPUT_LINES: Final = 8
_MAX_WARNINGS: Final = 3
_MAX_WARNING_CHARACTERS: Final = 400


def show(outcome: Outcome) -> None:
    """Print what came out, and where the report is."""
    from rich.console import Console

    from uncia.tariffs.catalogue import is_model

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    experiments = outcome.summary.get("experiments", {})
    shown = {
        name: summary for name, summary in experiments.items() if not name.endswith(WARMUP_SUFFIX)
    }
    if shown:
        summary_table(shown)
    for line in (*chain_lines(shown), *error_lines(outcome.summary.get("errors", []))):
        console.print(line)
    tariffs = {
        name: summary["cost_usd_per_million"]
        for name, summary in outcome.summary.get("tariffs", {}).items()
        if summary.get("cost_usd_per_million") is not None
    }
    bills = {name: cost for name, cost in tariffs.items() if not is_model(name)}
    if bills:
        low, high = min(bills, key=lambda name: bills[name]), max(bills, key=lambda n: bills[n])
        console.print(
            f"A million requests like these cost {bills[low]:.2f} USD ({low})"
            f" to {bills[high]:.2f} USD ({high}); {plural(len(tariffs), 'tariff')} in the report."
        )
    for line in warning_lines(outcome.summary.get("warnings", [])):
        console.print(line)
    if outcome.folder.exists():
        console.print(report_line(outcome.folder))


def warning_lines(warnings: Sequence[str]) -> Iterator[str]:
    """The warnings of a run that matter most, not too long, and how many there are."""
    distinct = by_importance(warnings)
    for warning in distinct[:_MAX_WARNINGS]:
        yield f"Warning: {shorten(warning, _MAX_WARNING_CHARACTERS, placeholder=' ...')}"
    if distinct:
        yield f"{plural(len(distinct), 'warning')} in the report."


def report_line(folder: Path) -> str:
    """Where the results of a run are."""
    report = folder / REPORT
    return f"Report: {report}" if report.exists() else f"Rows: {folder}"


def summary_table(experiments: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the summaries of experiments, a line each."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("experiment")
    # A start that is restored is a start too, but only some runs have any.
    restored = any(summary["starts"].get("restored") for summary in experiments.values())
    starts = ("cold", "restored") if restored else ("cold",)
    for title in ("requests", "failed", *starts, "p50 ms", "p99 ms", "max ms", "MR", "TR", "TMR"):
        table.add_column(title, justify="right")
    for name, summary in experiments.items():
        latency = summary["latency_ms"]
        table.add_row(
            name,
            f"{summary['invocations'] - summary['hop_rows']:,}",
            f"{summary['failed']:,}",
            *(_starts_of(summary, kind) for kind in starts),
            *(_number(latency[key]) for key in ("p50", "p99", "max")),
            *(_number(summary[key]) for key in ("mr", "tr", "tmr")),
        )
    terminal.show(Console(highlight=False, markup=False, emoji=False), table)


def _starts_of(summary: Mapping[str, Any], kind: str) -> str:
    """How many invocations met a kind of start; a dash where none says how it started."""
    if summary["invocations"] and not summary["starts"]:
        return "-"
    count = f"{summary['starts'].get(kind, 0):,}"
    # Hops are started as well, and are no requests.
    return f"{count} of {summary['invocations']:,}" if summary["hop_rows"] else count


def load_summary(summary: Mapping[str, Any]) -> None:
    """Print what a load came to (see :mod:`uncia.workload.outcome`)."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    counts = ", ".join(f"{count:,} {word}" for word, count in summary["outcomes"].items())
    console.print(f"{plural(summary['invocations'], 'request')}: {counts or 'none was sent'}")
    for line in (*_ending(summary), *_rates(summary)):
        console.print(line)
    shown = summary.get("quantiles_less_rtt") or summary["quantiles"]
    held = {name: entry for name, entry in shown.items() if entry["value"] is not None}
    if held:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("latency")
        table.add_column("ms", justify="right")
        table.add_column("95 % interval")
        for name, entry in held.items():
            low, high = entry["ci95"]
            table.add_row(name, _number(entry["value"]), f"{_number(low)} to {_number(high)}")
        if "quantiles_less_rtt" not in summary:
            table.add_row("max", _number(summary["latency_ms"]["max"]), "")
        terminal.show(console, table)
    for line in (
        *_unsupported(summary),
        *_event(summary),
        *_starts(summary),
        *_generator(summary),
        *_slowest(summary),
        *_trips(summary),
        *error_lines(summary["distinct_errors"]),
    ):
        console.print(line)


def _ending(summary: Mapping[str, Any]) -> Iterator[str]:
    """Why it ended before its time, and what kind of loop it was."""
    if summary["stopped"] is not None:
        yield f"Stopped: {summary['stopped']['message']}"
    elif summary["interrupted"]:
        yield "Interrupted."
    if summary["unsent"] and summary["open_loop"]:
        yield f"{summary['unsent']:,} scheduled requests were never sent; they have no rows."
    if not summary["open_loop"]:
        yield (
            "Closed loop: a client sends again only when it has its answer, so a slow server is"
            " sent less,"
        )
        yield "and its delays count once. Do not compare with latencies of an open loop."


def _rates(summary: Mapping[str, Any]) -> Iterator[str]:
    rates = [
        ("offered", summary["offered_rate"] if summary["open_loop"] else None),
        ("sent", summary["sent_rate"]),
        ("answered well", summary["achieved_rate"]),
    ]
    parts = [f"{word} {rate:,.1f}/s" for word, rate in rates if rate is not None]
    if parts:
        yield f"Rate: {', '.join(parts)}"


def _unsupported(summary: Mapping[str, Any]) -> Iterator[str]:
    """Quantiles that the sample is too small for, in one line with what each would need."""
    rows = summary["latency_rows"]
    if not rows:
        yield "No request succeeded, so there is no latency."
        return
    few = [
        f"{name} (needs {entry['rows_needed']:,})"
        for name, entry in summary["quantiles"].items()
        if entry["value"] is None
    ]
    if few:
        successes = "1 row is" if rows == 1 else f"{rows:,} rows are"
        yield f"Not printed, because {successes} too few: {', '.join(few)}"


def _generator(summary: Mapping[str, Any]) -> Iterator[str]:
    parts = [
        f"{name} {_number(entry['value'] / 1e3)} ms"
        for name, entry in summary["lag_quantiles"].items()
        if entry["value"] is not None
    ]
    if summary["lag_us"]["max"] is not None:
        parts.append(f"max {_number(summary['lag_us']['max'] / 1e3)} ms")
        yield f"Generator lag: {', '.join(parts)}"
    for warning in summary["warnings"]:
        yield f"Warning: {warning}"


def _trips(summary: Mapping[str, Any]) -> Iterator[str]:
    """Round trips, and whether they were taken off."""
    for endpoint, both in summary["rtt"].items():
        parts = []
        for when in ("before", "after"):
            entry = both.get(when)
            if entry is not None and entry["median_ms"] is not None:
                parts.append(f"{_number(entry['median_ms'])} ms {when}")
            elif entry is not None and entry.get("error"):
                parts.append(f"not measured {when} ({entry['error']})")
        if parts:
            yield f"Round trip to {endpoint}: {', '.join(parts)} (median of TCP connects)"
    if "subtracted_rtt_ms" in summary:
        less = summary["subtracted_rtt_ms"]
        if less is None:
            yield "No round trip was measured, so none was subtracted."
        else:
            yield (
                f"The latencies above are less {_number(less)} ms, the median round trip, as asked"
                " for; the rows are as measured."
            )


def _event(summary: Mapping[str, Any]) -> Iterator[str]:
    """What a handler behind a function URL got, which is not what was sent."""
    if summary["handler_event"] == "http":
        yield (
            "The handler got HTTP events, as function URLs deliver them: what was sent is"
            ' event["body"], a text.'
        )


def _starts(summary: Mapping[str, Any]) -> Iterator[str]:
    """How many requests met which kind of start, and how long those took."""
    parts = []
    for kind, count in summary["starts"].items():
        latency = summary["start_latency_ms"][kind]
        times = ""
        if latency["p50"] is not None:
            times = f" (p50 {_number(latency['p50'])} ms, max {_number(latency['max'])} ms)"
        parts.append(f"{count:,} {kind}{times}")
    unknown = summary["invocations"] - sum(summary["starts"].values())
    if parts and unknown:
        parts.append(f"{unknown:,} not known")
    if parts:
        yield f"Starts: {', '.join(parts)}"


def _slowest(summary: Mapping[str, Any]) -> Iterator[str]:
    """How late the slowest requests were sent: what of their latency is the generator's."""
    slowest = summary["slowest"]
    if slowest is None or slowest["lag_us"]["max"] is None:
        return
    lag = {name: f"{_number(value / 1e3)} ms" for name, value in slowest["lag_us"].items()}
    rows = slowest["rows"]
    which = "The slowest request" if rows == 1 else f"The slowest {rows:,} requests"
    late = f"{lag['max']} late" if rows == 1 else f"up to {lag['max']} late (p50 {lag['p50']})"
    verb = "was" if rows == 1 else "were"
    yield f"{which} ({_number(slowest['latency_ms'])} ms and more) {verb} sent {late}"


def chain_lines(experiments: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """How many chains were complete and how long they took; other latencies are of one request."""
    for name, summary in experiments.items():
        for chain in summary.get("chains", []):
            latency = chain["latency_ms"]
            times = "".join(
                f", {quantile} {_number(latency[quantile])} ms"
                for quantile in ("p50", "p99")
                if latency[quantile] is not None
            )
            yield (
                f"{name}: {chain['complete']:,} of {chain['begun']:,} chains complete{times}"
                f" ({' > '.join(stage['stage'] for stage in chain['stages'])});"
                " in the table above are first stages"
            )


def error_lines(errors: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each distinct error with its trace and the end of the function's output (`stats.errors`)."""
    if not errors:
        return
    yield f"{len(errors):,} error{'s' if len(errors) > 1 else ''}:"
    for error in errors[:_MAX_ERRORS]:
        kind = f"{error['type']}: " if error["type"] else ""
        message = f": {kind}{error['message']}" if kind or error["message"] else ""
        functions = ", ".join(error["functions"])
        yield f"  {error['count']:,} x {error['outcome']} of {functions}{message}"
        yield from (f"      {line}" for line in error["trace"][:_MAX_TRACE_LINES])
        if error["output"]:
            lines = error["output"].rstrip().splitlines()[-_MAX_OUTPUT_LINES:]
            yield "    last output of the function:"
            yield from (f"      {line}" for line in lines)
    if len(errors) > _MAX_ERRORS:
        more = sum(error["count"] for error in errors[_MAX_ERRORS:])
        yield f"  and {more:,} requests with {len(errors) - _MAX_ERRORS:,} other errors"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
