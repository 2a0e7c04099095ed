"""``uncia capacity``: the highest rate that a function sustains."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia import terminal
from uncia.cli.options import OtherSeed, Overwrite, Quiet, RunFolder
from uncia.errors import UnciaError

if TYPE_CHECKING:
    from uncia.experiment.capacity import Finder, Result

_METHOD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2


def register(app: typer.Typer) -> None:
    """Add the command ``capacity`` to ``app``."""

    @app.command()
    def capacity(
        target: str = typer.Argument(
            metavar="FUNCTION|FILE|URL",
            help="A function of the catalogue or a function's folder (./mine), which the embedded"
            " platform runs; an experiment file (*.yaml); or http://..., https://...",
        ),
        experiment: str | None = typer.Option(
            None,
            "--experiment",
            metavar="NAME",
            help="Which experiment of the file, if it has several.",
            show_default=False,
        ),
        method: str = typer.Option("GET", "--method", "-X", help="HTTP method, for a URL."),
        header: list[str] = typer.Option(
            [],
            "--header",
            "-H",
            help="Header, as 'Name: value', for a URL; may be repeated.",
            show_default=False,
        ),
        timeout: str | None = typer.Option(
            None,
            "--timeout",
            metavar="TIME",
            help="Time from sending to the end of the answer (default: 60s), for a function or a"
            " URL.",
            show_default=False,
        ),
        start: str | None = typer.Option(
            None,
            "--start",
            metavar="RATE",
            help="The first rate that is tried, such as 10/s. Default: half of what single"
            " requests come to.",
            show_default=False,
        ),
        tolerance: str = typer.Option(
            "2%", metavar="PERCENT", help="By how much latency may grow along the schedule."
        ),
        seed: OtherSeed = None,
        as_json: bool = typer.Option(False, "--json", help="Print JSON."),
        out: RunFolder = None,
        overwrite: Overwrite = False,
        quiet: Quiet = False,
    ) -> None:
        """Find the highest rate that a function, or a server, sustains.

        Rates are doubled, then bisected; above the capacity latency grows along the schedule, and
        a rate is sustained if nothing fails and that growth is below the tolerance. All requests
        are kept as the rows of a run, with an experiment for each rate.
        """
        from uncia.cli.quantities import quantity
        from uncia.experiment import progress
        from uncia.units import parse_rate

        finder = _finder(
            target,
            experiment,
            method,
            header,
            timeout=timeout,
            start=None if start is None else float(quantity("--start", start, parse_rate)),
            tolerance=_tolerance(tolerance),
        )
        reporter = progress.reporter(quiet=quiet)
        try:
            result = finder.find(out=out, overwrite=overwrite, reporter=reporter, seed=seed)
        finally:
            reporter.close()
        outcome = result.outcome
        if as_json:
            typer.echo(json.dumps(result.data(), indent=2))
        else:
            _show(result)
        # An interrupted search shows what it has tried.
        if outcome.interrupted is not None:
            raise typer.Exit(outcome.interrupted)
        if outcome.error is not None:
            raise outcome.error


def _finder(
    target: str,
    experiment: str | None,
    method: str,
    header: list[str],
    *,
    timeout: str | None,
    start: float | None,
    tolerance: float,
) -> Finder:
    """What is searched, by what the target names.

    Raises:
        UnciaError: there is no such target, or an option is of another kind of target.
    """
    from uncia import yamlio
    from uncia.cli.pairs import parse_pairs
    from uncia.cli.quantities import quantity
    from uncia.experiment.capacity import Finder, of_experiment
    from uncia.units import parse_duration

    is_url = target.startswith(("http://", "https://"))
    if not is_url and (header or method != "GET"):
        raise UnciaError("--method and --header are of a URL", hint="In a file they are keys.")
    if "://" in target and not is_url:
        raise UnciaError(f"{target} is no URL of http or https", hint="Write http://HOST:PORT/.")
    if not _METHOD.fullmatch(method):
        raise UnciaError(f"--method: {method!r} is no method of HTTP", hint="Write GET or POST.")
    sender: dict[str, Any] = {"function": "function"}
    if timeout is not None:
        if not quantity("--timeout", timeout, parse_duration):
            raise UnciaError("--timeout: 0 is no time in which an answer can come")
        sender["timeout"] = timeout
    base = Path.cwd()
    if is_url:
        function: dict[str, Any] = {"url": target, "method": method.upper()}
        if header:
            given = parse_pairs("--header", header, "'Name: value'", ":")
            function["headers"] = {name: value.strip() for name, value in given.items()}
        document = _document("http", function)
    elif target.endswith((".yaml", ".yml")):
        file = yamlio.load(Path(target))
        if timeout is not None:
            raise UnciaError(
                "--timeout is of a function or a URL",
                hint="In a file it is the experiment's key `timeout`.",
            )
        document, sender = of_experiment(file, experiment)
        return Finder(document, sender, Path(target).resolve().parent, start, tolerance)
    else:
        document = _document("embedded", {"source": target})
    if experiment is not None:
        raise UnciaError("--experiment is of an experiment file, and this is none")
    return Finder(document, sender, base, start, tolerance)


def _document(platform: str, function: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "capacity",
        "platform": {"kind": platform},
        "functions": {"function": function},
    }


def _tolerance(text: str) -> float:
    """A share, of ``2%``.

    Raises:
        UnciaError: it is none above 0.
    """
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = 0.0
    if not text.endswith("%") or not 0 < value < 1:
        raise UnciaError(f"--tolerance: {text!r} is not a share above 0 % and below 100 %, as 2%")
    return value


def _show(result: Result) -> None:
    """Print what was tried, and the capacity."""
    from rich.console import Console
    from rich.table import Table

    from uncia.experiment.table import report_line

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    content = result.data()
    if content["probes"]:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("rate/s", "requests", "failed", "slope", "from", "to"):
            table.add_column(title, justify="right")
        table.add_column("sustained")
        for probe in content["probes"]:
            slopes = (probe[key] for key in ("slope", "slope_low", "slope_high"))
            table.add_row(
                f"{probe['rate']:g}",
                f"{probe['requests']:,}",
                f"{probe['failed']:,}",
                *("-" if it is None else f"{100 * it:.1f} %" for it in slopes),
                {"sustained": "yes", "not": "no"}.get(probe["verdict"], "cannot be said"),
            )
        terminal.show(console, table)
    capacity = result.found
    if capacity is not None:
        console.print(
            f"Capacity: {capacity.capacity:.4g}/s, between {capacity.low:.4g}/s"
            f" and {capacity.high:.4g}/s"
        )
        if not capacity.decided:
            console.print("Not every rate in between could be judged.")
    if result.outcome.folder.exists():
        console.print(report_line(result.outcome.folder))
