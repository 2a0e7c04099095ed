"""``uncia cost utilization``: how much of their allocation requests use."""

from __future__ import annotations

import typer

from uncia.cli import pages
from uncia.cli.cost import options


def register(app: typer.Typer) -> None:
    """Add the command ``utilization`` to ``app``."""

    @app.command()
    @pages.with_figures
    def utilization(
        table: options.Tables,
        fit: options.Fit = "allocated",
        backend_name: options.BackendName = "duckdb",
        master: options.Master = None,
        memory_limit: options.MemoryLimit = None,
        as_json: options.AsJson = False,
        html: options.Html = None,
    ) -> None:
        """Measure how much of the allocated CPU and memory requests use, and their correlation."""
        from uncia.cli.querying import open_backend
        from uncia.costs.rows import NOTHING_MEASURED, describe_reasons
        from uncia.costs.utilization import measure

        with open_backend(backend_name, memory_limit=memory_limit, master=master) as backend:
            rows = options.results(table, backend)
            usage = measure(rows, fit=options.fit_rule(fit), backend=backend)
        if html is not None:
            from uncia.report.cost.utilization import section

            options.write_report(
                html,
                "Utilization of allocated resources",
                "What requests use of the CPU and the memory that are allocated to them.",
                [section(usage)],
                table,
            )
        notes = [f"Left out: {describe_reasons(usage.left_out)}."] if usage.left_out else []
        if not usage.rows:
            notes.append(NOTHING_MEASURED)
        if not as_json and usage.pearson is not None and usage.spearman.value is not None:
            notes.append(
                f"Correlation of CPU and memory: Pearson {usage.pearson:.3f}, Spearman"
                f" {usage.spearman.value:.3f} (at most {usage.spearman.error:.3f} off)."
            )
        frame = usage.frame
        if not as_json:
            frame = frame.drop(columns=["pearson", "spearman", "spearman_error", "left_out"])
            frame = frame.rename(
                columns={f"below_{bound}": f"< {bound} %" for bound in (25, 50, 75)}
            )
        options.emit(frame, as_json=as_json, notes=notes)
