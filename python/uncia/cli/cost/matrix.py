"""``uncia cost matrix``: cost and p95 of each function at each size, by provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from uncia import terminal
from uncia.cli import completion, pages
from uncia.cli.cost import options

if TYPE_CHECKING:
    import pandas as pd

_WIDTH: Final = 160  # columns, unless a terminal has another width
_MAX_HEADING: Final = 14  # letters; longer ids take two lines


def register(app: typer.Typer) -> None:
    """Add the command ``matrix`` to ``app``."""

    @app.command()
    @pages.with_figures
    def matrix(
        table: options.Tables,
        p95: options.P95 = None,
        of: options.BoundedTime = options.Time.execution,
        function: options.Functions = options.ALL,
        tariff: list[str] = typer.Option(
            options.ALL,
            "--tariff",
            "-t",
            metavar="ID",
            autocompletion=completion.tariffs,
            help="A tariff's id (uncia tariffs list) or file; may be repeated. Default: the usual"
            " one of each provider.",
        ),
        present: options.PresentTariff = None,
        confidence: options.Confidence = 0.95,
        fit: options.Fit = "allocated",
        backend_name: options.BackendName = "duckdb",
        master: options.Master = None,
        memory_limit: options.MemoryLimit = None,
        as_json: options.AsJson = False,
        html: options.Html = None,
    ) -> None:
        """Show each function's cost and p95 at every size that each provider sells."""
        from uncia.cli.querying import open_backend
        from uncia.costs.advice.frames import matrix_frame
        from uncia.costs.advice.gather import study
        from uncia.costs.advice.matrix import default_tariffs

        with (
            open_backend(backend_name, memory_limit=memory_limit, master=master) as backend,
            study(
                table,
                p95=p95,
                functions=function or None,
                tariffs=tariff or default_tariffs(),
                fit=options.fit_rule(fit),
                confidence=confidence,
                of=of.value,
                present=present,
                backend=backend,
            ) as data,
        ):
            cells = matrix_frame(data)
        if html is not None:
            from uncia.report.cost.matrix import section

            options.write_report(
                html,
                "What each size costs",
                "Cost and p95 of each function, by size and provider.",
                [section(cells)],
                table,
            )
        if as_json:
            options.emit(cells, as_json=True, notes=cells.attrs["notes"])
        else:
            _print(cells)


def _print(cells: pd.DataFrame) -> None:
    from uncia.report.cost.headline import headlines
    from uncia.report.cost.matrix import BROKEN, LEGEND, grids

    console = options.plain_console(_WIDTH)
    sentences = headlines(cells)
    for function, rows in grids(cells).items():
        console.print(f"{function}: {sentences[function]}", soft_wrap=True)
        terminal.show(console, _grid(rows))
        console.print()
    bound = cells.attrs["bound_ms"]
    broken = "" if bound is None else f" {BROKEN}"
    console.print(
        "In each cell: USD a million requests; p95; vCPU, where the size sets it."
        f" {LEGEND}{broken}",
        style="dim",
    )
    for note in cells.attrs["notes"]:
        console.print(note, style="yellow")


def _grid(rows: Any) -> Any:
    from rich.table import Table

    from uncia.report.cost.matrix import cost_text, p95_text, tariffs_of
    from uncia.report.numbers import figure

    tariffs = tariffs_of(rows)
    table = Table(box=None, pad_edge=False, show_lines=False)
    table.add_column("memory", justify="right", no_wrap=True)
    for tariff in tariffs:
        table.add_column(_heading(tariff), justify="right", overflow="fold")
    for memory, cells in rows.items():
        texts = []
        for tariff in tariffs:
            cell = cells.get(tariff)
            if cell is None:
                texts.append("-")
                continue
            lines = [cost_text(cell), p95_text(cell)]
            if cell["vcpu"] is not None:
                lines.append(f"{figure(cell['vcpu'], 2)} vCPU")
            texts.append("\n".join([*lines, ""]))
        table.add_row("-" if memory is None else f"{memory:,.0f} MB", *texts)
    return table


def _heading(tariff: str) -> str:
    """Write a tariff's id in two lines if it is long."""
    first, _, rest = tariff.partition("-")
    return f"{first}-\n{rest}" if len(tariff) > _MAX_HEADING and rest else tariff
