"""``uncia workload``: converts workload files of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uncia.errors import UnciaError
from uncia.text import plural

if TYPE_CHECKING:
    from uncia.workload.importers import Imported


def register(app: typer.Typer) -> None:
    """Add the commands ``workload ...`` to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Convert workload files of other tools.")
    app.add_typer(group, name="workload")

    @group.command("import")
    def import_(
        file: Path = typer.Argument(help="A FaaSProfiler workload or STeLLAR experiment (JSON)."),
        origin: str | None = typer.Option(
            None,
            "--from",
            help="faasprofiler or stellar. Default: recognized from the file.",
            show_default=False,
        ),
        out: Path | None = typer.Option(
            None, help="The file to write. Default: standard output.", show_default=False
        ),
        platform: str = typer.Option("embedded", help="Platform to write into an experiment file."),
        openwhisk: str | None = typer.Option(
            None,
            help="https://HOST of the OpenWhisk that a FaaSProfiler workload invokes.",
            show_default=False,
        ),
        runtime: str | None = typer.Option(
            None,
            help="Runtime of all functions, where the platform lacks the original's.",
            show_default=False,
        ),
        skip_unsupported: bool = typer.Option(
            False, "--skip-unsupported", help="Leave out what has no counterpart in Uncia."
        ),
        overwrite: bool = typer.Option(False, "--overwrite", help="Replace the file of --out."),
    ) -> None:
        """Convert a FaaSProfiler workload or a STeLLAR experiment to Uncia's YAML.

        A FaaSProfiler workload becomes a workload file (uncia load FILE), a STeLLAR experiment an
        experiment file (uncia run FILE). Warnings on standard error name what the original tool
        ignores silently; unknown keys are errors.
        """
        from uncia import platforms
        from uncia.workload import importers

        if platform not in platforms.kinds():
            allowed = ", ".join(platforms.kinds())
            raise UnciaError(f"--platform: there is no platform {platform!r} (allowed: {allowed})")
        if out is not None and out.exists() and not overwrite:
            raise UnciaError(f"{out} exists already", hint="Name another, or use --overwrite.")
        options = importers.Options(
            platform=platform, openwhisk=openwhisk, runtime=runtime, skip=skip_unsupported
        )
        imported = importers.convert(file, name=origin, options=options)
        text = _text(file, imported)
        for warning in imported.distinct_warnings():
            typer.echo(f"warning: {warning}", err=True)
        if out is None:
            typer.echo(text, nl=False)
            _check(text, imported, "<stdout>")
            return
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UnciaError(f"{out} cannot be written: {error.strerror or error}") from error
        _check(text, imported, str(out))
        command = "load" if imported.kind == "workload" else "run"
        refusal = _refusal(out, imported)
        if refusal is None:
            typer.echo(f"{out} is written. Next: uncia {command} {out}", err=True)
        else:
            typer.echo(f"{out} is written. It cannot run as it is: {refusal}", err=True)


def _text(file: Path, imported: Imported) -> str:
    from uncia import yamlio

    head = [f"# From {file.name}."]
    head += [f"# * {warning}" for warning in imported.distinct_warnings()]
    return "\n".join(head) + "\n\n" + yamlio.dump(imported.data)


def _refusal(out: Path, imported: Imported) -> str | None:
    """Why ``uncia run`` would refuse the file; None: it would not."""
    if imported.kind == "workload":
        return None
    from uncia.experiment import files
    from uncia.experiment.planning import plan
    from uncia.experiment.sources import Sources

    try:
        file, document = files.load(out)
        plan(file, Sources(document, out.resolve().parent))
    except UnciaError as error:
        # Replicas are refused alike: the first stands for all.
        first, *more = error.message.splitlines()
        return f"{first} (and {plural(len(more), 'more line')} like it)" if more else first
    return None


def _check(text: str, imported: Imported, name: str) -> None:
    """Read the result as its user will.

    Args:
        text: the result.
        imported: what it was made of.
        name: what the result is called, which is written already: errors name its lines.

    Raises:
        UnciaError: Uncia would not read it, with line and key.
    """
    from uncia import yamlio

    document = yamlio.load(text, name=name)
    try:
        if imported.kind == "experiment":
            from uncia.experiment import checks

            checks.check(document)
        else:
            from uncia.workload import model as workload

            workload.check(document)
    except UnciaError as error:
        written = "The result is written all the same: correct it, or the original."
        raise UnciaError(error.message, error.hint or written) from error
