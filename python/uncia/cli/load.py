"""``uncia load``: open-loop load on one URL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.errors import RunFailedError, UnciaError

if TYPE_CHECKING:
    from uncia.workload.arrivals import ArrivalProcess
    from uncia.workload.one import Measured

_EXIT_INTERRUPTED: Final = 130


def register(app: typer.Typer) -> None:
    """Add the command ``load`` to ``app``."""

    @app.command()
    def load(
        url: str = typer.Argument(help="Where requests are sent: http://..."),
        rate: str | None = typer.Option(None, help="For example 100/s.", show_default=False),
        duration: str | None = typer.Option(None, help="For example 10s.", show_default=False),
        arrivals: str = typer.Option("constant", help="constant, poisson or burst."),
        sizes: str | None = typer.Option(
            None, help="Burst sizes, taken in turn, e.g. 1,10,50.", show_default=False
        ),
        interval: str | None = typer.Option(
            None, help="From one burst to the next, e.g. 2s.", show_default=False
        ),
        bursts: int | None = typer.Option(
            None, min=1, help="How many bursts [default: 1].", show_default=False
        ),
        seed: int = typer.Option(1, min=0, help="The same seed gives the same schedule."),
        method: str | None = typer.Option(
            None, "--method", "-X", help="[default: GET, or POST with a body]", show_default=False
        ),
        body: str | None = typer.Option(
            None, "--body", "-d", help="Text, or @FILE.", show_default=False
        ),
        header: list[str] = typer.Option(
            [], "--header", "-H", help="'Name: value'; may be repeated.", show_default=False
        ),
        timeout: str = typer.Option("60s", help="From sending to the whole answer."),
        connect_timeout: str = typer.Option("5s", help="For a connection to stand."),
        max_connections: int | None = typer.Option(
            None, min=1, help="Connections open at once [default: no limit].", show_default=False
        ),
        out: Path | None = typer.Option(
            None, help="Where the rows go: *.parquet or *.arrows.", show_default=False
        ),
        dry_run: bool = typer.Option(False, "--dry-run", help="Write the schedule; send nothing."),
        as_json: bool = typer.Option(False, "--json", help="The summary as JSON on stdout."),
        quiet: bool = typer.Option(False, "--quiet", "-q", help="No progress."),
    ) -> None:
        """Send requests at times fixed beforehand, whatever the answers do; a row for each.

        Latency counts from the scheduled time, so a slow server cannot slow the clock (no
        coordinated omission). Failed requests are rows too, and make the exit code 1.
        """
        from uncia.experiment.progress import one
        from uncia.workload.one import measure, process

        if dry_run and out is None:
            raise UnciaError(
                "a dry run writes the schedule: say where, with --out schedule.parquet"
            )
        given = {
            "kind": arrivals,
            "rate": rate,
            "duration": duration,
            "sizes": _sizes(sizes),
            "interval": interval,
            "bursts": bursts,
        }
        wanted = process({key: value for key, value in given.items() if value is not None})
        with one(url, wanted, quiet=quiet or dry_run) as on_event:
            measured = measure(
                url,
                wanted,
                seed=seed,
                method=method,
                body=_body(body),
                headers=_headers(header),
                timeout=timeout,
                connect_timeout=connect_timeout,
                max_connections=max_connections,
                out=out,
                dry_run=dry_run,
                on_event=on_event,
            )
        if dry_run:
            typer.echo(
                f"{measured.rows.num_rows:,} requests are scheduled in {out}; none was sent."
            )
        else:
            _finish(url, wanted, measured, as_json=as_json)


def _finish(url: str, arrivals: ArrivalProcess, measured: Measured, *, as_json: bool) -> None:
    """Print the summary; exit 130 after an interruption, 1 when a request failed."""
    from uncia.stats import summary

    found: dict[str, Any] = summary.summarise(measured.rows, {})
    if as_json:
        head = {"url": url, "arrivals": arrivals.model_dump(mode="json", exclude_none=True)}
        typer.echo(json.dumps({**head, "interrupted": measured.interrupted, **found}, indent=2))
    else:
        from uncia.experiment.table import summary_table

        summary_table({"load": found})
    if measured.interrupted:
        raise typer.Exit(_EXIT_INTERRUPTED)
    if found["failed"]:
        words = ", ".join(
            f"{count:,} {word}" for word, count in found["outcomes"].items() if word != "ok"
        )
        raise RunFailedError(
            f"{found['failed']:,} of {found['invocations']:,} requests failed: {words}"
        )


def _sizes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UnciaError(
            f"--sizes: {text!r} is not a list of whole numbers like 1,10,50"
        ) from error


def _body(text: str | None) -> bytes | None:
    if text is None or not text.startswith("@"):
        return None if text is None else text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise UnciaError(f"--body: {text[1:]} cannot be read: {error.strerror or error}") from error


def _headers(given: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in given:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise UnciaError(f"--header: {line!r} is not of the form 'Name: value'")
        headers[name.strip()] = value.strip()
    return headers
