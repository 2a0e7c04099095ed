"""What is made of a run's tables: bills, the summary, the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from uncia import record
from uncia.experiment.describe import Description
from uncia.experiment.plan import WARMUP_SUFFIX
from uncia.experiment.progress import Reporter
from uncia.runs.folder import SUMMARY, RunFolder
from uncia.runs.warnings import by_importance

if TYPE_CHECKING:
    from uncia.tariffs import Line

_GROUPS: Final = ("run", "experiment", "function")
"""What bills of a run are grouped by."""


def conclude(
    folder: RunFolder,
    description: Description,
    tables: Mapping[str, pa.Table],
    reporter: Reporter,
    *,
    with_report: bool = True,
) -> dict[str, Any]:
    """Price the run, summarise it and write its report.

    Args:
        folder: the run's folder, with its tables.
        description: what was run; written to ``run.yaml`` before anything reads it.
        tables: the run's tables by name.
        reporter: receives progress updates.
        with_report: write ``report.html``; `uncia report` can do so later.

    Returns:
        The content of ``summary.json``.

    Raises:
        UnciaError: something could not be computed or written; the tables are there all the same.
    """
    folder.write_run(description.data())
    reporter.note("Pricing the rows.")
    tariffs = _bills(folder, description, tables["invocations"], tables.get("spans"))
    content = summarise(description, tables["invocations"], tariffs, tables.get("spans"))
    folder.write_json(SUMMARY, content)
    if with_report:
        _report(folder, reporter)
    return content


def conclude_parts(
    folder: RunFolder,
    description: Description,
    parts: Mapping[str, Path],
    reporter: Reporter,
    *,
    with_report: bool = True,
) -> dict[str, Any]:
    """As `conclude`, of a run whose rows are not all in memory at the same time.

    Args:
        folder: the run's folder, with its tables.
        description: what was run; its experiments are no warm-ups, and have no chains.
        parts: the files of invocations, by experiment.
        reporter: receives progress updates.
        with_report: write ``report.html``, which takes all rows into memory.
    """
    from uncia import tariffs
    from uncia.stats import errors, summary, tally

    folder.write_run(description.data())
    reporter.note("Pricing the rows.")
    names = dict.fromkeys((*tally.COLUMNS, *errors.COLUMNS))
    failures: Counter[errors.Failure] = Counter()
    count = 0

    def rows(path: Path) -> Iterator[pa.Table]:
        nonlocal count
        for part in record.scan(path, list(names)):
            failures.update(errors.count(part))
            count += part.num_rows
            yield part

    tallies = {name: tally.Tally(rows(path)) for name, path in parts.items()}
    totals: dict[str, Any] = {}
    if count:
        whole, apart = tariffs.bill_with_total(list(parts.values()), group_by=_GROUPS)
        _write_bill(folder, description, whole, apart)
        totals = tariffs.summary(whole)
    else:
        record.write(record.empty("bill"), folder.path / "bill.parquet", "bill")
    # An experiment without rows is summarised all the same, as one of which nothing is known.
    tallies = {name: kept for name, kept in tallies.items() if kept.rows}
    experiments = summary.of_tallies(tallies, description.data())
    content = _content(description, experiments, totals, errors.of_counts(failures), [])
    folder.write_json(SUMMARY, content)
    if with_report:
        _report(folder, reporter)
    return content


def _report(folder: RunFolder, reporter: Reporter) -> None:
    from uncia import report

    reporter.note("Writing the report.")
    report.render(folder.path)


def summarise(
    description: Description,
    invocations: pa.Table,
    tariffs: Mapping[str, Any],
    spans: pa.Table | None = None,
) -> dict[str, Any]:
    """The content of ``summary.json``."""
    from uncia.stats import (
        chain_parts,
        chains,
        columns,
        errors,
        hops,
        modes,
        round_trips,
        summary,
    )

    data = description.data()
    experiments = summary.experiments(invocations, data)
    described = columns.experiments_of(data)
    for name, rows in columns.by_word(invocations, "experiment").items():
        if load := modes.of_rows(rows):
            experiments[name]["load"] = load.data()
        if summaries := chains.summarise(rows, described.get(name)):
            experiments[name]["chains"] = summaries
        if summaries := hops.summarise(rows, spans, described.get(name)):
            experiments[name]["hops"] = summaries
        if summaries := chain_parts.summarise(rows, spans, described.get(name)):
            experiments[name]["chain_parts"] = summaries
        if events := description.round_trips.get(name):
            experiments[name]["round_trips"] = round_trips.summarise(events)
            if description.content.file.get("subtract_rtt"):
                experiments[name] |= round_trips.subtracted(rows, events)
    distinct = errors.distinct(invocations, description.explained)
    return _content(description, experiments, tariffs, distinct, hops.warnings(experiments))


def _content(
    description: Description,
    experiments: Mapping[str, Any],
    tariffs: Mapping[str, Any],
    errors: list[dict[str, Any]],
    warnings: list[str],
) -> dict[str, Any]:
    from uncia.stats import summary

    return {
        "run": description.run,
        "schema_version": record.SCHEMA_VERSION,
        "status": description.status,
        "experiments": dict(experiments),
        "tariffs": dict(tariffs),
        "errors": errors,
        "warnings": by_importance(
            [*description.warnings, *summary.warnings(experiments), *warnings]
        ),
        "failures": list(description.failures),
    }


def _bills(
    folder: RunFolder, description: Description, invocations: pa.Table, spans: pa.Table | None
) -> dict[str, dict[str, Any]]:
    """Bill the run's results as a whole, and each experiment; writes ``bill.parquet``.

    Warm-ups are experiments of their own, and no results. Executions of sequences are no
    invocations of functions, and are not billed as such.
    """
    import pyarrow.compute as pc

    from uncia import tariffs

    invocations, waited = _invoked(description, invocations, spans)
    if invocations.num_rows == 0:
        record.write(record.empty("bill"), folder.path / "bill.parquet", "bill")
        return {}
    whole, apart = tariffs.bill_with_total(
        invocations,
        group_by=_GROUPS,
        in_total=lambda group: not (group["experiment"] or "").endswith(WARMUP_SUFFIX),
    )
    _write_bill(folder, description, whole, apart)
    totals = tariffs.summary(whole)
    is_warmup = pc.fill_null(
        pc.ends_with(invocations["experiment"].cast(pa.utf8()), WARMUP_SUFFIX), False
    )
    results, waited = (it.filter(pc.invert(is_warmup)) for it in (invocations, waited))
    if pc.any(pc.greater(waited, 0)).as_py():
        for name, amount in _billed_twice(results, waited).items():
            totals[name]["billed_twice_usd"] = amount
    return totals


def _write_bill(
    folder: RunFolder, description: Description, whole: Sequence[Line], apart: Sequence[Line]
) -> None:
    from uncia import tariffs

    rows = record.merge([tariffs.bill_table(whole), tariffs.bill_table(apart)], "bill")
    named = rows.set_column(
        rows.column_names.index("run"), "run", pa.array([description.run] * rows.num_rows)
    )
    record.write(record.conform(named, "bill"), folder.path / "bill.parquet", "bill")


def _invoked(
    description: Description, invocations: pa.Table, spans: pa.Table | None
) -> tuple[pa.Table, Any]:
    """The invocations of functions, and how long each of them waited for others, in ns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from uncia.stats import columns, hop_chains, waits

    described = columns.experiments_of(description.data())
    if not any(columns.chains_of(experiment) for experiment in described.values()):
        return invocations, pa.array([0] * invocations.num_rows, pa.int64())
    parts, waited = [invocations.slice(0, 0)], [pa.array([], pa.int64())]
    for name, rows in columns.by_word(invocations, "experiment").items():
        experiment = described.get(name)
        is_function = pc.invert(hop_chains.executions(rows, experiment))
        parts.append(rows.filter(is_function))
        # By all rows, as executions of sequences lead to their invocations.
        times = pa.chunked_array([waits.waiting(rows, spans, experiment)])
        waited.append(times.filter(is_function).combine_chunks())
    return record.merge(parts, "invocations"), pa.concat_arrays(waited)


def _billed_twice(results: pa.Table, waited: Any) -> dict[str, float | None]:
    """What each tariff charges for the time in which callers waited for those they had invoked.

    That time is billed a second time in the invocations that were waited for: it is the bill less
    the bill of the same invocations without it.
    """
    import pyarrow.compute as pc

    from uncia import tariffs

    is_caller = pc.greater(waited, 0)
    callers, waited = results.filter(is_caller), waited.filter(is_caller)
    execution = pc.max_element_wise(pc.subtract(callers["execution"], waited), 0, skip_nulls=False)
    index = callers.column_names.index("execution")
    alone = callers.set_column(index, callers.schema.field("execution"), execution)
    charged = {line.tariff: line for line in tariffs.bill(callers)}
    amounts: dict[str, float | None] = {}
    for line in tariffs.bill(alone):
        before, after = charged[line.tariff].exact_cost, line.exact_cost
        if before is None or after is None:
            amounts[line.tariff] = None
        else:
            amounts[line.tariff] = float(before - after)
    return amounts
