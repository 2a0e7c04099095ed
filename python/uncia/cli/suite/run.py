"""``uncia suite run``: carries out a paper's experiments, and judges its claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from uncia.cli import completion
from uncia.cli.options import AsJson, Quiet
from uncia.cli.suite.report import emit

if TYPE_CHECKING:
    from uncia.suites.perform import State

_EXIT_FAILED: Final = 1


def register(app: typer.Typer) -> None:
    """Add the command ``run`` to ``app``."""

    @app.command()
    def run(
        suite: str = typer.Argument(
            help="A suite, or the folder of one of your own (./mine).",
            autocompletion=completion.suites,
        ),
        only: list[str] = typer.Option(
            [], help="Only these entries: fig6,table2; may be repeated.", show_default=False
        ),
        quick: bool = typer.Option(
            False, "--quick", help="Fewer experiments and requests, as the entries say."
        ),
        resume: bool = typer.Option(
            False, "--resume", help="Go on with the results in --out; what is whole stays."
        ),
        platform: str | None = typer.Option(
            None,
            "--platform",
            metavar="KIND",
            help="Carry it out on this kind of platform, instead of that of the files.",
            show_default=False,
        ),
        like: str | None = typer.Option(
            None,
            "--like",
            metavar="NAME",
            help="Let the embedded platform be like this provider, as far as the files leave it"
            " open.",
            show_default=False,
        ),
        urls: Path | None = typer.Option(
            None,
            "--urls",
            metavar="FILE",
            help="With --platform http: a YAML file with the URLs of functions that run elsewhere,"
            " functions: {FILE.FUNCTION or SOURCE: URL}.",
            show_default=False,
        ),
        trace: Path | None = typer.Option(
            None,
            "--trace",
            metavar="DIR",
            help="The files of the trace that entries read (Azure's of 2019); without them a"
            " synthetic one.",
            show_default=False,
        ),
        out: Path | None = typer.Option(
            None,
            "--out",
            metavar="DIR",
            help="The folder of the results. Default: results/SUITE.",
            show_default=False,
        ),
        as_json: AsJson = False,
        quiet: Quiet = False,
    ) -> None:
        """Carry out the entries of a suite, and write claims.json and one report.

        Exits 1 when a run failed, whatever the verdicts; an entry that failed has no numbers. So it
        does when what another entry wrote is gone or damaged; then both files stay as they are.
        What this machine, or the platform of --platform, cannot carry out is left out, which is
        told before the first run.
        """
        from uncia.experiment import progress
        from uncia.experiment.runner import RESULTS
        from uncia.suites import catalogue, left_out, perform, results
        from uncia.suites.target import Target

        definition = catalogue.find(suite)
        entries = definition.choose(only)
        target = Target(platform, like, None if urls is None else str(urls.resolve()))
        left_out.check_served(entries, target)
        state = perform.begin(
            RESULTS / definition.name if out is None else out,
            definition.source,
            quick=quick,
            resume=resume,
            target=target,
            trace=trace,
        )
        reporter = progress.reporter(quiet=quiet)
        try:
            others = [it for it in definition.entries.values() if it not in entries]
            interrupted = perform.carry_out(state, entries, reporter, others)
            reporter.note("Judging the claims and writing the report.")
        finally:
            reporter.close()
        read = results.read(state, definition)
        try:
            read.check_undamaged(entries if interrupted is None else ())
            emit(read, as_json=as_json)
        finally:
            if interrupted is not None:
                typer.echo(f"Interrupted. To go on: {_resumption(suite, only, state)}", err=True)
        if interrupted is not None:
            raise typer.Exit(interrupted)
        if read.failures:
            raise typer.Exit(_EXIT_FAILED)


def _resumption(suite: str, only: list[str], state: State) -> str:
    words = ["uncia suite run", suite, *(f"--only {name}" for name in only)]
    words += ["--quick"] if state.quick else []
    words += [str(state.target)] if str(state.target) else []
    return " ".join([*words, f"--resume --out {state.folder}"])
