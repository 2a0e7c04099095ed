"""``uncia gate``: two versions, measured in turn and judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uncia.cli import completion, judging, pages
from uncia.cli.options import AsJson, Html, Overwrite, Quiet
from uncia.errors import RunFailedError, UnciaError

if TYPE_CHECKING:
    from uncia.experiment.repeat import Repeats, Side
    from uncia.stats.gates import Gate

_DEFAULT_CONDITIONS = ("p50>10%", "failed>1%")
_DEFAULT_WORDS = " and ".join(_DEFAULT_CONDITIONS)
_DEFAULT_REPEATS = 5


def register(app: typer.Typer) -> None:
    """Add the command ``gate`` to ``app``."""

    @app.command()
    @pages.with_figures
    def gate(
        base: str = typer.Argument(metavar="BASE", help="The experiment file of the baseline."),
        change: str = typer.Argument(
            metavar="CHANGE", help="The experiment file of the change: the same experiments."
        ),
        repeat: int = typer.Option(
            _DEFAULT_REPEATS, "--repeat", "-n", metavar="N", help="Runs of each side, at least 4."
        ),
        fail_on: list[str] = typer.Option(
            [],
            "--fail-on",
            metavar="CONDITION",
            help="Judge this condition, for example 'p99>10%', 'warm.p50>5%', 'cost:slim>5%',"
            f" 'failed>0'; may be repeated. Default: {_DEFAULT_WORDS}.",
            show_default=False,
        ),
        tariff: list[str] = typer.Option(
            [],
            "--tariff",
            "-t",
            metavar="ID",
            autocompletion=completion.tariffs,
            help="Bill under this tariff (id or file); may be repeated. Default: those of the"
            " conditions.",
            show_default=False,
        ),
        out: Path | None = typer.Option(
            None, help="The folder of the runs. Default: results/gate-TIME.", show_default=False
        ),
        only: list[str] = typer.Option(
            [], help="Run only this experiment; may be repeated.", show_default=False
        ),
        seed: int | None = typer.Option(
            None,
            min=0,
            help="Seed of the first pair of runs, instead of BASE's; each pair has the next.",
            show_default=False,
        ),
        allow_failures: bool = typer.Option(
            False,
            "--allow-failures",
            help="Judge even if requests ended other than declared, and do not fail for it.",
        ),
        allow_not_judged: bool = judging.ALLOW_NOT_JUDGED,
        overwrite: Overwrite = False,
        as_json: AsJson = False,
        html: Html = None,
        markdown: Path | None = judging.MARKDOWN,
        junit: Path | None = judging.JUNIT,
        quiet: Quiet = False,
    ) -> None:
        """Judge a change: run BASE and CHANGE in turn, several times, and compare them.

        Exits 0 when every condition holds, 1 when one is violated or a run failed, 3 when one could
        not be judged (too few runs, too much noise), 2 on bad input.
        """
        from uncia.experiment import progress
        from uncia.experiment import repeat as repeating
        from uncia.report import compare as comparing
        from uncia.report.run_sets import RunSet
        from uncia.stats import gates
        from uncia.stats.verdicts import MIN_REPEATS

        conditions = [gates.parse(text) for text in fail_on or _DEFAULT_CONDITIONS]
        if repeat < MIN_REPEATS:
            raise _too_few(repeat, MIN_REPEATS)
        sides: dict[repeating.Name, Side] = {
            "base": _side(base, only),
            "change": _side(change, only),
        }
        repeating.check(sides["base"].plan, sides["change"].plan, conditions)
        priced = _tariffs(tariff, conditions)
        folder = out or _new_folder()
        reporter = progress.reporter(quiet=quiet, repeats=True)
        try:
            repeats = repeating.interleave(
                sides,
                repeats=repeat,
                seed=sides["base"].plan.file.seed if seed is None else seed,
                out=folder,
                reporter=reporter,
                overwrite=overwrite,
            )
        finally:
            reporter.close()
        _check_whole(repeats, folder)
        comparison = comparing.build(
            [
                RunSet([outcome.folder for outcome in repeats.outcomes[name]], name)
                for name in repeating.SIDES
            ],
            priced,
        )
        findings = comparing.verdicts(comparison, conditions)
        output = judging.Output(as_json, html, markdown, junit, allow_not_judged)
        code = output.emit(comparison, findings, tables=False)
        typer.echo(
            f"The runs are in {folder}; all metrics: uncia compare {folder}/base {folder}/change",
            err=True,
        )
        if repeats.failures and not allow_failures:
            raise _failed(repeats)
        raise typer.Exit(code)


def _side(text: str, only: list[str]) -> Side:
    from uncia.experiment import files
    from uncia.experiment.planning import plan
    from uncia.experiment.repeat import Side
    from uncia.experiment.sources import Sources

    path = files.find(text)
    checked, document = files.load(path)
    sources = Sources(document, path.resolve().parent)
    return Side(plan(checked, sources, only), sources)


def _new_folder() -> Path:
    from uncia.experiment.runner import RESULTS, new_run_id

    return RESULTS / new_run_id("gate")


def _too_few(repeats: int, minimum: int) -> UnciaError:
    return UnciaError(
        f"--repeat {repeats}: too few runs to know how runs differ; a gate needs {minimum} a side",
        hint=f"Give --repeat {_DEFAULT_REPEATS} or more.",
    )


def _tariffs(given: list[str], conditions: list[Gate]) -> list[str] | None:
    """The tariffs to bill under: those given and those that conditions name; None for all.

    Raises:
        UnciaError: there is no such tariff, or it cannot bill by request.
    """
    from uncia.tariffs.catalogue import resolve

    costs = [gate.tariff for gate in conditions if gate.metric == "cost"]
    named = [tariff for tariff in costs if tariff is not None and not set("*?[") & set(tariff)]
    given_names = {tariff.id: name for tariff, name in zip(resolve(given), given, strict=True)}
    for name in named:
        # It may be that of a file given.
        if name not in given_names:
            resolve([name])
            given_names[name] = name
    if not given and len(named) < len(costs):
        return None
    return list(given_names.values())


def _check_whole(repeats: Repeats, folder: Path) -> None:
    """End the command if the runs ended early.

    Raises:
        UnciaError: a run could not be carried out.
        typer.Exit: a signal came.
    """
    if repeats.error is None and repeats.interrupted is None:
        return
    pairs = min(len(outcomes) for outcomes in repeats.outcomes.values())
    kept = f"{pairs} whole pairs of runs are in {folder}."
    if repeats.error is not None:
        error = repeats.error
        message = f"{error.message}\nThe gate ended there; {kept}"
        raise UnciaError(message, error.hint, exit_code=error.exit_code)
    typer.echo(f"Interrupted: nothing is judged. {kept}", err=True)
    raise typer.Exit(repeats.interrupted or 1)


def _failed(repeats: Repeats) -> UnciaError:
    lines = "\n".join(f"  {sentence}" for sentence in repeats.failures)
    total = sum(len(outcomes) for outcomes in repeats.outcomes.values())
    return RunFailedError(
        f"{len(repeats.failures)} of {total} runs failed:\n{lines}",
        hint="What may happen is declared with `expect:`; --allow-failures judges regardless.",
    )
