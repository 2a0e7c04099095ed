"""``uncia serve``: the embedded platform in the foreground."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from uncia.errors import UnciaError

if TYPE_CHECKING:
    from uncia.platforms.embedded import Options


def register(app: typer.Typer) -> None:
    """Add the command ``serve`` to ``app``."""

    @app.command()
    def serve(
        listen: str = typer.Option(
            "127.0.0.1:9001", help="Address and port; port 0 takes a free one."
        ),
        state: Path | None = typer.Option(
            None,
            help="Where functions and logs are kept. Default: $XDG_STATE_HOME/uncia/serve.",
            show_default=False,
        ),
        keep_alive: str | None = typer.Option(
            None, help="How long an idle instance lives, e.g. 5min.", show_default=False
        ),
        pause_after: str | None = typer.Option(
            None, help="An idle instance is paused after this time, e.g. 50ms.", show_default=False
        ),
        keep_alive_cpu: str | None = typer.Option(
            None,
            help="How it is paused: freeze, scale-down (to 0.01 vCPU), or run (not at all).",
            show_default=False,
        ),
        max_instances: int | None = typer.Option(
            None, min=1, help="Beyond this many at once: HTTP 429.", show_default=False
        ),
        period: str | None = typer.Option(
            None, help="Period of the CPU quota, e.g. 20ms.", show_default=False
        ),
        enforcement: str | None = typer.Option(
            None,
            help="Who enforces the CPU quota: kernel, at its ticks, or event-driven.",
            show_default=False,
        ),
        init_throttled: bool = typer.Option(
            False, "--init-throttled", help="Initialization runs under the CPU quota too."
        ),
        network: str | None = typer.Option(
            None, help="What instances reach: none, platform or host.", show_default=False
        ),
    ) -> None:
        """Run a small Lambda on this machine until Ctrl-C: the AWS Lambda API, without AWS.

        Point any Lambda client at it: boto3.client("lambda", endpoint_url="http://127.0.0.1:9001").
        """
        from uncia import engine
        from uncia.platforms.journal import state_home

        options = _options(
            keep_alive=keep_alive,
            pause_after=pause_after,
            keep_alive_cpu=keep_alive_cpu,
            max_instances=max_instances,
            period=period,
            enforcement=enforcement,
            init_throttled=True if init_throttled else None,
            network=network,
        )
        folder = state_home() / "serve" if state is None else state
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnciaError(f"cannot write to {folder}: {error.strerror or error}") from error
        # The configuration goes along as an open file without a name, so nothing is left behind.
        config = os.memfd_create("uncia-serve-config", 0)
        os.write(config, json.dumps(options.engine()).encode())
        os.lseek(config, 0, os.SEEK_SET)
        binary = str(engine.binary())
        arguments = ["serve", "--listen", listen, "--state", str(folder)]
        os.execv(binary, [binary, *arguments, "--config", f"/dev/fd/{config}"])


def _options(**given: Any) -> Options:
    """The platform's options from those of the command line.

    :raises UnciaError: one has no or a wrong unit, or is not allowed.
    """
    from pydantic import ValidationError

    from uncia.platforms.embedded import Options

    written = {key: value for key, value in given.items() if value is not None}
    try:
        return Options.model_validate({"kind": "embedded", **written})
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        message = first["msg"].removeprefix("Value error, ")
        raise UnciaError(f"{option}: {message}") from error
