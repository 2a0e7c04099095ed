"""``uncia rm``: removes functions from a running platform."""

from __future__ import annotations

import typer

from uncia.cli.options import Endpoint


def register(app: typer.Typer) -> None:
    """Add the command ``rm`` to ``app``."""

    @app.command("rm")
    def remove(
        names: list[str] = typer.Argument(help="The functions' names on the platform."),
        endpoint: Endpoint = "127.0.0.1:9001",
    ) -> None:
        """Remove functions, and their instances, from a running platform.

        If one of them does not exist, none is removed. The log of their invocations stays.
        """
        from uncia.platforms.served import Served

        served = Served(endpoint)
        for name in names:
            served.require(name)
        for name in dict.fromkeys(names):
            served.remove(name)
            typer.echo(f"{name} removed")
