"""``uncia invoke``: one invocation of a function on a running platform."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from uncia.cli import completion
from uncia.cli.options import Endpoint
from uncia.errors import UnciaError

if TYPE_CHECKING:
    from uncia.platforms.served import Log, Row

_FAILED: Final = 1

# The row of an answered invocation is in the log some 20 ms later; a busy machine takes longer.
_ROW_TIMEOUT_S: Final = 5.0
_ROW_POLL_S: Final = 0.02


def register(app: typer.Typer) -> None:
    """Add the command ``invoke`` to ``app``."""

    @app.command()
    def invoke(
        name: str = typer.Argument(help="The function's name on the platform."),
        event: str = typer.Argument(
            "{}", help="The event as JSON; @FILE reads a file, - standard input."
        ),
        is_asynchronous: bool = typer.Option(
            False, "--async", help="Do not wait for the answer; `uncia logs` shows what came of it."
        ),
        quiet: bool = typer.Option(
            False, "--quiet", "-q", help="Show the answer alone, without what it took and printed."
        ),
        tariff: str | None = typer.Option(
            None,
            "--tariff",
            "-t",
            metavar="ID",
            autocompletion=completion.tariffs,
            help="The tariff of the cost shown: its id or file. Default: the one that the"
            " platform was started with.",
            show_default=False,
        ),
        endpoint: Endpoint = "127.0.0.1:9001",
    ) -> None:
        """Invoke a function on a running platform, and show its answer.

        The answer is written to standard output; to standard error what the function printed, how
        it started, and what it took and cost. A function's error has the exit code 1.
        """
        from uncia.cli.serve import served_tariff
        from uncia.platforms.served import Served

        payload = _read(event)
        served = Served(endpoint)
        billed = served_tariff(served.tariff, tariff)
        served.require(name)
        if is_asynchronous:
            typer.echo(served.submit(name, payload))
            return
        log = served.log(_warn)
        answer = served.invoke(name, payload)
        sys.stdout.buffer.write(answer.body + (b"" if answer.body.endswith(b"\n") else b"\n"))
        sys.stdout.flush()
        if not quiet:
            from uncia.cli.invocations import Printer

            if answer.log:
                typer.echo(answer.log.removesuffix("\n"), err=True)
            row = _row(log, answer.request_id)
            if row is not None:
                typer.echo(Printer(billed, as_json=False).line(row), err=True)
        if answer.failed:
            raise typer.Exit(_FAILED)


def _read(event: str) -> bytes:
    """The event's bytes.

    Raises:
        UnciaError: it cannot be read, or is no JSON.
    """
    label = "the event"
    if event == "-":
        content, label = sys.stdin.buffer.read(), "standard input"
    elif event.startswith("@"):
        label = event[1:]
        try:
            content = Path(label).read_bytes()
        except OSError as error:
            raise UnciaError(f"{label} cannot be read: {error.strerror or error}") from error
    else:
        content = event.encode()
    try:
        json.loads(content)
    except ValueError as error:
        raise UnciaError(f"{label} is no JSON: {error}") from error
    return content


def _row(log: Log, request_id: str) -> Row | None:
    """The row of the attempt that was answered; None if it does not come."""
    deadline = time.monotonic() + _ROW_TIMEOUT_S
    while time.monotonic() < deadline:
        for row in log.new():
            # What is preempted runs again.
            if row["request_id"] == request_id and row["outcome"] != "preempted":
                return row
        time.sleep(_ROW_POLL_S)
    return None


def _warn(message: str) -> None:
    typer.echo(f"warning: {message}", err=True)
