"""What is made of a run's tables: bills, the summary, the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from uncia import record
from uncia.experiment.describe import Description
from uncia.experiment.plan import WARMUP_SUFFIX
from uncia.experiment.progress import Reporter
from uncia.runs.folder import SUMMARY, RunFolder


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
    tariffs = _bills(folder, description, tables["invocations"])
    content = summarise(description, tables["invocations"], tariffs)
    folder.write_json(SUMMARY, content)
    if with_report:
        reporter.note("Writing the report.")
        from uncia import report

        report.render(folder.path)
    return content


def summarise(
    description: Description, invocations: pa.Table, tariffs: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of ``summary.json``."""
    from uncia.stats import chains, columns, errors, summary

    data = description.data()
    experiments = summary.experiments(invocations, data)
    described = columns.experiments_of(data)
    for name, rows in columns.by_word(invocations, "experiment").items():
        if summaries := chains.summarise(rows, described.get(name)):
            experiments[name]["chains"] = summaries
    return {
        "run": description.run,
        "schema_version": record.SCHEMA_VERSION,
        "status": description.status,
        "experiments": experiments,
        "tariffs": dict(tariffs),
        "errors": errors.distinct(invocations, description.explained),
        "warnings": [*description.warnings, *summary.warnings(experiments)],
        "failures": list(description.failures),
    }


def _bills(
    folder: RunFolder, description: Description, invocations: pa.Table
) -> dict[str, dict[str, Any]]:
    """Bill the run's results as a whole, and each experiment; writes ``bill.parquet``.

    Warm-ups are experiments of their own, and no results.
    """
    import pyarrow.compute as pc

    from uncia import tariffs

    if invocations.num_rows == 0:
        record.write(record.empty("bill"), folder.path / "bill.parquet", "bill")
        return {}
    groups = ("run", "experiment", "function")
    is_warmup = pc.fill_null(
        pc.ends_with(invocations["experiment"].cast(pa.utf8()), WARMUP_SUFFIX), False
    )
    results, warmups = invocations.filter(pc.invert(is_warmup)), invocations.filter(is_warmup)
    whole, apart = tariffs.bill_with_total(results, group_by=groups)
    if warmups.num_rows:
        order = {line.tariff: index for index, line in enumerate(whole)}
        apart = sorted(
            [*apart, *tariffs.bill(warmups, group_by=groups)],
            key=lambda line: (order[line.tariff], [str(line.group[name]) for name in groups]),
        )
    rows = record.merge([tariffs.bill_table(whole), tariffs.bill_table(apart)], "bill")
    named = rows.set_column(
        rows.column_names.index("run"), "run", pa.array([description.run] * rows.num_rows)
    )
    record.write(record.conform(named, "bill"), folder.path / "bill.parquet", "bill")
    return tariffs.summary(whole)
