"""``uncia cost prices``: prices per vCPU-second and GB-second, and of one size on each platform."""

from __future__ import annotations

import typer

from uncia.cli import completion, pages
from uncia.cli.cost import options
from uncia.units import MIB, MICRO_PER_VCPU


def register(app: typer.Typer) -> None:
    """Add the command ``prices`` to ``app``."""

    @app.command()
    @pages.with_figures
    def prices(
        table: list[str] = typer.Argument(
            None,
            metavar="TABLE...",
            help="Tables whose most common size is compared.",
        ),
        tariff: list[str] = typer.Option(
            [],
            "--tariff",
            "-t",
            metavar="ID",
            autocompletion=completion.tariffs,
            help="A tariff's id (uncia tariffs list) or file; may be repeated. Default: all.",
        ),
        size: str = typer.Option(
            None,
            "--size",
            metavar="MEMORY/VCPU",
            help="The size to compare. Default: that of most rows, or 1769MB/1vCPU without a"
            " table.",
        ),
        against: str = typer.Option(
            "aws-lambda-arm",
            "--against",
            metavar="ID",
            help="The tariff whose price counts as 1 in the last column.",
        ),
        as_json: options.AsJson = False,
        html: options.Html = None,
    ) -> None:
        """Compare what a vCPU-second, a GB-second and one size cost on functions, containers and
        machines.
        """
        from uncia.cli.querying import open_backend
        from uncia.costs.prices import BUNDLE, commonest
        from uncia.costs.prices import prices as compute
        from uncia.costs.sizes import parse_allocation

        allocation = BUNDLE
        if size:
            allocation = parse_allocation(size)
        elif table:
            with open_backend() as backend:
                allocation = commonest(table, backend=backend)
        frame = compute(tariff or None, size=allocation, against=against)
        if html is not None:
            from uncia.report.cost.prices import section

            options.write_report(
                html,
                "Prices of resources",
                "What a vCPU and its memory cost a second, by provider.",
                [section(frame, allocation, against)],
                table or [],
            )
        if as_json:
            options.emit(frame, as_json=True)
            return
        columns = {
            "tariff": "tariff",
            "bills": "bills",
            "usd_per_vcpu_s": "USD/vCPU-s",
            "usd_per_gb_s": "USD/GB-s",
            "cpu_memory_ratio": "ratio",
            "usd_per_s": f"{allocation.words}, USD/s",
            "vcpu": "sold: vCPU",
            "mb": "MB",
            "sold_usd_per_s": "USD/s",
            "relative": f"/ {against}",
        }
        shown = frame.assign(
            vcpu=frame["sold_cpu"].map(lambda cpu: cpu / MICRO_PER_VCPU, na_action="ignore"),
            mb=frame["sold_memory"].map(lambda memory: memory // MIB, na_action="ignore"),
        )
        options.emit(
            shown,
            as_json=False,
            columns=columns,
            notes=[
                "-: not priced by itself; where only memory is priced, its price includes the vCPU."
                " No fees, no rounding. Sold: the smallest size that covers it, or the only one."
            ],
        )
