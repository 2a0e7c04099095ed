"""``uncia cost prices``: prices per vCPU-second and GB-second, and of one size everywhere."""

from __future__ import annotations

import typer

from uncia.cli.cost.options import AsJson, ReportFile, emit, one_or_many, write_report
from uncia.units import MIB, MICRO_PER_VCPU


def register(app: typer.Typer) -> None:
    """Add the command ``prices`` to ``app``."""

    @app.command()
    def prices(
        table: list[str] = typer.Argument(
            None,
            metavar="[TABLE...]",
            help="Compare the size that most rows of these tables have.",
        ),
        tariff: list[str] = typer.Option(
            [],
            "--tariff",
            "-t",
            metavar="ID",
            help="A tariff's id (uncia tariffs list) or file; again for more. Default: all.",
        ),
        size: str = typer.Option(
            None,
            "--size",
            metavar="MEMORY/VCPU",
            help="The size that is compared. Default: that of most rows, or 1769MB/1vCPU.",
        ),
        against: str = typer.Option(
            "aws-lambda-arm", "--against", metavar="ID", help="The tariff whose price is 1."
        ),
        as_json: AsJson = False,
        report: ReportFile = None,
    ) -> None:
        """What a vCPU-second, a GB-second and one size cost, serverless, container and machine."""
        from uncia.backends import connect
        from uncia.costs.prices import BUNDLE, commonest
        from uncia.costs.prices import prices as compute
        from uncia.costs.sizes import parse_allocation

        asked = BUNDLE
        if size:
            asked = parse_allocation(size)
        elif table:
            with connect() as backend:
                asked = commonest(one_or_many(table), backend=backend)
        frame = compute(tariff or None, size=asked, against=against)
        if report is not None:
            from uncia.report.cost.prices import section

            write_report(
                report,
                "Prices of resources",
                "What a vCPU and its memory cost a second, by provider.",
                [section(frame, asked, against)],
                table or [],
            )
        if as_json:
            emit(frame, as_json=True)
            return
        columns = {
            "tariff": "tariff",
            "bills": "bills",
            "usd_per_vcpu_s": "USD/vCPU-s",
            "usd_per_gb_s": "USD/GB-s",
            "cpu_memory_ratio": "ratio",
            "usd_per_s": f"{asked.words}, USD/s",
            "vcpu": "sold: vCPU",
            "mb": "MB",
            "sold_usd_per_s": "USD/s",
            "relative": f"/ {against}",
        }
        shown = frame.assign(
            vcpu=frame["sold_cpu"].map(lambda one: one / MICRO_PER_VCPU, na_action="ignore"),
            mb=frame["sold_memory"].map(lambda one: one // MIB, na_action="ignore"),
        )
        emit(
            shown,
            as_json=False,
            columns=columns,
            notes=[
                "-: not priced by itself; where only memory is priced, the vCPU is in its price."
                " No fees, no rounding. Sold: the smallest size that covers it, or the only one."
            ],
        )
