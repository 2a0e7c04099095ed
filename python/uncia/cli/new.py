"""``uncia new``: a function, a tariff or an experiment to begin with."""

from __future__ import annotations

import datetime
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

import typer

from uncia.errors import UnciaError
from uncia.settings import RUNTIMES

_TEMPLATES: Final = Path(__file__).resolve().parent.parent / "templates"
_BY_RUNTIME: Final = _TEMPLATES / "function"
# The order that function.yaml has them in; the form itself takes long to import.
_FIRST: Final = ("python", "node", "provided")


def _runtimes() -> dict[str, str]:
    """Each runtime that there is a template for, in its folder, with the file that it gets."""
    found = {
        template.parent.name: template.name.removesuffix(".template")
        for template in sorted(_BY_RUNTIME.glob("*/*.template"))
    }
    return {name: found[name] for name in dict.fromkeys((*_FIRST, *RUNTIMES)) if name in found}


_RUNTIMES: Final = _runtimes()
_RUNTIME_HELP: Final = f"{', '.join(_RUNTIMES)}; may be given several times."


def register(app: typer.Typer) -> None:
    """Add the command group ``new`` to ``app``."""
    group = typer.Typer(help="Write a file or folder to begin with.", no_args_is_help=True)
    app.add_typer(group, name="new")

    @group.command()
    def function(
        name: str = typer.Argument(help="The function's name, and its folder's."),
        runtime: list[str] = typer.Option(["python"], help=_RUNTIME_HELP),
        into: Path = typer.Option(Path(), help="The folder to make it in."),
    ) -> None:
        """Write a folder with a function that runs: function.yaml and a handler.

        The runtime provided is a C program that is its own runtime, compiled to one static
        executable.
        """
        folder = new_function(name, runtime, into)
        typer.echo(f"{folder}: a function; see it with `uncia functions show {_as_path(folder)}`")

    @group.command()
    def tariff(
        name: str = typer.Argument(help="The tariff's id."),
        into: Path = typer.Option(Path(), help="The folder to write it to."),
    ) -> None:
        """Write NAME.yaml, a tariff with every key explained."""
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        _check(name, r"[a-z0-9]+(?:-[a-z0-9]+)*", 64, "lower-case letters, digits and single -")
        path = _write(into / f"{name}.yaml", "tariff.yaml", NAME=name, TODAY=today)
        typer.echo(f"{path}: a tariff; use it with `uncia bill RUN --tariff {_as_path(path)}`")

    @group.command()
    def experiment(
        name: str = typer.Argument(help="The experiment file's name."),
        into: Path = typer.Option(Path(), help="The folder to write it to."),
    ) -> None:
        """Write NAME.yaml, a small experiment that works as it is."""
        _check_name(name)
        path = _write(into / f"{name}.yaml", "experiment.yaml", NAME=name)
        typer.echo(f"{path}: an experiment; run it with `uncia run {path}`")


def new_function(name: str, runtimes: list[str], into: Path) -> Path:
    """Write the folder of a function called ``name`` into ``into``; all of it or nothing.

    Returns:
        The folder.

    Raises:
        UnciaError: the name or a runtime is not possible, the folder exists, or cannot be written.
    """
    _check_name(name)
    for runtime in runtimes:
        if runtime not in _RUNTIMES:
            raise UnciaError(f"unknown runtime {runtime!r} (allowed: {', '.join(_RUNTIMES)})")
    wanted = [runtime for runtime in _RUNTIMES if runtime in runtimes]
    folder = into / name
    if folder.exists():
        raise UnciaError(f"{folder} exists already", hint="Choose another name, or another --into.")
    section = "".join(f"  {runtime}:\n    {_entry(runtime)}\n" for runtime in wanted)
    try:
        into.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=into))
        try:
            _fill(partial / "function.yaml", "function/function.yaml", NAME=name, RUNTIMES=section)
            for runtime in wanted:
                target = partial / runtime / _RUNTIMES[runtime]
                target.parent.mkdir()
                _fill(target, f"function/{runtime}/{target.name}", NAME=name)
            partial.chmod(0o755)  # mkdtemp makes it private
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial)
            raise
    except OSError as error:
        raise UnciaError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


def _entry(runtime: str) -> str:
    """What function.yaml says of a runtime."""
    file = _RUNTIMES[runtime]
    if runtime == "provided":
        return f"source: {file}"
    return f"handler: {Path(file).stem}.handler"


def _write(path: Path, template: str, **values: str) -> Path:
    """Fill in a template as a new file."""
    if path.exists():
        raise UnciaError(f"{path} exists already", hint="Choose another name, or another --into.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _fill(path, template, **values)
    except OSError as error:
        raise UnciaError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _fill(path: Path, template: str, **values: str) -> None:
    text = (_TEMPLATES / f"{template}.template").read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


def _check_name(name: str) -> None:
    _check(name, r"[A-Za-z0-9][A-Za-z0-9_-]*", 32, "letters, digits, - and _")


def _check(name: str, pattern: str, longest: int, allowed: str) -> None:
    if re.fullmatch(pattern, name) is None or len(name) > longest:
        raise UnciaError(f"{name!r} is not a name: write 1 to {longest} {allowed}")


def _as_path(path: Path) -> str:
    """A path as it must be typed to be taken for one, with a ``/`` in it."""
    return str(path) if "/" in str(path) else f"./{path}"
