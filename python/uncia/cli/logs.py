"""``uncia logs``: the newest invocations of a running platform, and those that follow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import typer

from uncia.cli import completion
from uncia.cli.options import Endpoint

if TYPE_CHECKING:
    from uncia.platforms.served import Row

_POLL_S: Final = 0.25


def register(app: typer.Typer) -> None:
    """Add the command ``logs`` to ``app``."""

    @app.command()
    def logs(
        name: str | None = typer.Argument(
            None, help="A function's name. Default: all functions.", show_default=False
        ),
        last: int = typer.Option(20, "--last", "-n", min=0, help="How many, the newest."),
        follow: bool = typer.Option(
            False, "--follow", "-f", help="Go on with those that follow, until Ctrl-C."
        ),
        failed: bool = typer.Option(False, "--failed", help="Show only those that failed."),
        output: bool = typer.Option(
            False, "--output", "-o", help="Show what each printed, its last 4 KiB, below it."
        ),
        tariff: str | None = typer.Option(
            None,
            "--tariff",
            "-t",
            metavar="ID",
            autocompletion=completion.tariffs,
            help="The tariff of the costs shown: its id or file. Default: the one that the"
            " platform was started with.",
            show_default=False,
        ),
        as_json: bool = typer.Option(False, "--json", help="Print an object a line."),
        endpoint: Endpoint = "127.0.0.1:9001",
    ) -> None:
        """Show the newest invocations of a running platform, a line each, as `uncia serve` does."""
        from uncia.cli.invocations import MOST_LINES, Printer
        from uncia.cli.serve import served_tariff
        from uncia.platforms.served import Served

        served = Served(endpoint)
        billed = served_tariff(served.tariff, tariff)
        if name is not None:
            served.require(name)

        def wanted(row: Row) -> bool:
            return (name is None or row["function"] == name) and (
                not failed or row["outcome"] != "ok"
            )

        printer = Printer(billed, as_json)

        def show(rows: list[Row], most: int | None = MOST_LINES) -> None:
            if not output:
                printer.print(rows, most=most)
                return
            for row in rows:
                printer.print([row])
                printer.print_output(row, served.output(str(row["request_id"])))

        log = served.log(_warn)
        show(log.last(last, wanted), most=None)
        while follow:
            time.sleep(_POLL_S)
            show([row for row in log.new() if wanted(row)])


def _warn(message: str) -> None:
    typer.echo(f"warning: {message}", err=True)
