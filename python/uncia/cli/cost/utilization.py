"""``uncia cost utilization``: what requests use of what is allocated to them."""

from __future__ import annotations

import typer

from uncia.cli.cost.options import (
    AsJson,
    EngineName,
    Fit,
    Master,
    MemoryLimit,
    ReportFile,
    Tables,
    emit,
    fit_rule,
    one_or_many,
    write_report,
)


def register(app: typer.Typer) -> None:
    """Add the command ``utilization`` to ``app``."""

    @app.command()
    def utilization(
        table: Tables,
        fit: Fit = "allocated",
        engine: EngineName = "duckdb",
        master: Master = None,
        memory_limit: MemoryLimit = None,
        as_json: AsJson = False,
        report: ReportFile = None,
    ) -> None:
        """How much of the allocated CPU and memory requests use, and how the two go together."""
        from uncia.backends import connect
        from uncia.costs.rows import NOTHING_MEASURED, said
        from uncia.costs.utilization import measure

        with connect(engine, memory_limit=memory_limit, master=master) as backend:
            found = measure(one_or_many(table), fit=fit_rule(fit), backend=backend)
        if report is not None:
            from uncia.report.cost.utilization import section

            write_report(
                report,
                "Utilization of allocated resources",
                "What requests use of the CPU and the memory that are allocated to them.",
                [section(found)],
                table,
            )
        notes = [f"Left out: {said(found.left_out)}."] if found.left_out else []
        if not found.rows:
            notes.append(NOTHING_MEASURED)
        if not as_json and found.pearson is not None and found.spearman.value is not None:
            notes.append(
                f"CPU and memory together: Pearson {found.pearson:.3f}, Spearman"
                f" {found.spearman.value:.3f} (at most {found.spearman.error:.3f} off)."
            )
        frame = found.frame
        if not as_json:
            frame = frame.drop(columns=["pearson", "spearman", "spearman_error", "left_out"])
            frame = frame.rename(
                columns={f"below_{bound}": f"< {bound} %" for bound in (25, 50, 75)}
            )
        emit(frame, as_json=as_json, notes=notes)
