"""``uncia new``: writes a function, a tariff or an experiment from a template."""

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
# The order of function.yaml, repeated here because its module takes long to import.
_ORDER: Final = ("python", "node", "ruby", "java", "go", "provided")


def _runtimes() -> dict[str, list[str]]:
    """Runtimes that have templates, each with the names of the files that they make."""
    files: dict[str, list[str]] = {}
    for template in sorted(_BY_RUNTIME.glob("*/*.template")):
        files.setdefault(template.parent.name, []).append(template.name.removesuffix(".template"))
    return {name: files[name] for name in dict.fromkeys((*_ORDER, *RUNTIMES)) if name in files}


_RUNTIMES: Final = _runtimes()
_RUNTIME_HELP: Final = f"{', '.join(_RUNTIMES)}; may be repeated."


def register(app: typer.Typer) -> None:
    """Add the command group ``new`` to ``app``."""
    group = typer.Typer(
        help="Write a function, a tariff or an experiment to start from.", no_args_is_help=True
    )
    app.add_typer(group, name="new")

    @group.command()
    def function(
        name: str = typer.Argument(help="Name of the function and of its folder."),
        runtime: list[str] = typer.Option(["python"], help=_RUNTIME_HELP),
        into: Path = typer.Option(Path(), help="The folder to create it in."),
    ) -> None:
        """Write the folder of a function that runs as it is: function.yaml and a handler.

        With the runtime "provided", the handler is a C program that contains its own runtime and
        is compiled to one static executable; with "go", it is a Go module that is built to one.
        """
        folder = new_function(name, runtime, into)
        typer.echo(f"{folder}: a function; see it with `uncia functions show {_as_path(folder)}`")

    @group.command()
    def tariff(
        name: str = typer.Argument(help="The tariff's id."),
        into: Path = typer.Option(Path(), help="The folder to write it to."),
    ) -> None:
        """Write NAME.yaml, a tariff with comments on every key."""
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        _check(name, r"[a-z0-9]+(?:-[a-z0-9]+)*", 64, "lower-case letters, digits and single -")
        path = _write(into / f"{name}.yaml", "tariff.yaml", NAME=name, TODAY=today)
        typer.echo(f"{path}: a tariff; use it with `uncia bill RUN --tariff {_as_path(path)}`")

    @group.command()
    def experiment(
        name: str = typer.Argument(help="Name of the experiment file."),
        into: Path = typer.Option(Path(), help="The folder to write it to."),
    ) -> None:
        """Write NAME.yaml, a small experiment that runs as it is."""
        _check_name(name)
        path = _write(into / f"{name}.yaml", "experiment.yaml", NAME=name)
        typer.echo(f"{path}: an experiment; run it with `uncia run {path}`")


def new_function(name: str, runtimes: list[str], into: Path) -> Path:
    """Write the folder of a function called ``name`` into ``into``, completely or not at all.

    Returns:
        The folder.

    Raises:
        UnciaError: the name or a runtime is invalid, or the folder exists or cannot be written.
    """
    _check_name(name)
    for runtime in runtimes:
        if runtime not in _RUNTIMES:
            raise UnciaError(f"unknown runtime {runtime!r} (allowed: {', '.join(_RUNTIMES)})")
    chosen = [runtime for runtime in _RUNTIMES if runtime in runtimes]
    folder = into / name
    if folder.exists():
        raise UnciaError(f"{folder} exists already", hint="Choose another name, or another --into.")
    section = "".join(f"  {runtime}:{_entry(runtime)}\n" for runtime in chosen)
    try:
        into.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=into))
        try:
            _fill(partial / "function.yaml", "function/function.yaml", NAME=name, RUNTIMES=section)
            for runtime in chosen:
                (partial / runtime).mkdir()
                for file in _RUNTIMES[runtime]:
                    target = partial / runtime / file
                    _fill(target, f"function/{runtime}/{file}", NAME=name)
            partial.chmod(0o755)  # mkdtemp makes it private
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial)
            raise
    except OSError as error:
        raise UnciaError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


def _entry(runtime: str) -> str:
    """The value of a runtime in function.yaml."""
    file = _RUNTIMES[runtime][0]
    if runtime == "go":
        return " {}"
    if runtime == "provided":
        return f"\n    source: {file}"
    if runtime == "java":
        return f"\n    handler: {Path(file).stem}::handle"
    return f"\n    handler: {Path(file).stem}.handler"


def _write(path: Path, template: str, **values: str) -> Path:
    """Write a new file from a template."""
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


def _check(name: str, pattern: str, max_length: int, allowed: str) -> None:
    if re.fullmatch(pattern, name) is None or len(name) > max_length:
        raise UnciaError(f"{name!r} is not a name: write 1 to {max_length} {allowed}")


def _as_path(path: Path) -> str:
    """Write a path with a ``/``, without which commands would take it for a name."""
    return str(path) if "/" in str(path) else f"./{path}"
