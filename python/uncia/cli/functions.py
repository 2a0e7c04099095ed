"""``uncia functions``: the catalogue of functions, and their packages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from uncia import terminal
from uncia.cli.options import AsJson
from uncia.cli.quantities import quantity
from uncia.errors import UnciaError

if TYPE_CHECKING:
    from rich.table import Table

    from uncia.functions import Function, Parameter
    from uncia.functions.images import Image


def register(app: typer.Typer) -> None:
    """Add the command group ``functions`` to ``app``."""
    group = typer.Typer(help="The catalogue of functions; without a command, their list.")
    app.add_typer(group, name="functions")

    @group.callback(invoke_without_command=True)
    def functions(context: typer.Context) -> None:
        """The catalogue of functions; without a command, their list."""
        if context.invoked_subcommand is None:
            _list(as_json=False)

    @group.command("list")
    def list_command(
        as_json: AsJson = False,
    ) -> None:
        """List the functions of the catalogue."""
        _list(as_json=as_json)

    @group.command()
    def show(
        name: str = typer.Argument(help="A name in the catalogue, or a folder (./mine)."),
        as_json: AsJson = False,
    ) -> None:
        """Show a function: its parameters, its sizes, and what a correct answer looks like."""
        from uncia.functions import load

        function = load(name)
        if as_json:
            typer.echo(json.dumps(_plain(function), indent=2))
        else:
            _show(function)

    @group.command()
    def package(
        name: str = typer.Argument(help="A name in the catalogue, or a folder (./mine)."),
        runtime: str | None = typer.Option(
            None, help="Such as python or node. Default: the function's first."
        ),
        python_version: str | None = typer.Option(
            None,
            help="Python to install requirements for, as major.minor. Default: this Python's.",
        ),
        architecture: str | None = typer.Option(
            None, help="x86_64 or arm64. Default: this machine's."
        ),
        filler: str = typer.Option("0B", help="Incompressible data to add, for example 10MB."),
        calls: bool = typer.Option(
            False, "--calls", help="Add what stages of chains need to invoke other functions."
        ),
        out: Path | None = typer.Option(
            None, "--out", metavar="FILE", help="The file to write. Default: NAME-RUNTIME.zip."
        ),
    ) -> None:
        """Write a function's zip file for Lambda; the same input gives the same bytes."""
        from uncia.functions import package as build
        from uncia.units import format_size, parse_size

        extra = quantity("--filler", filler, parse_size)
        built = build(
            name,
            runtime,
            python_version=python_version,
            architecture=architecture,
            filler=extra,
            invokes=calls,
        )
        target = out or Path(f"{built.function}-{built.runtime}.zip")
        try:
            shutil.copyfile(built.path, target)
        except OSError as error:
            raise UnciaError(f"{target} cannot be written: {error.strerror or error}") from error
        typer.echo(f"{target}: {built.size} bytes, {format_size(built.unzipped_size)} unzipped")
        typer.echo(f"handler: {built.handler}")
        typer.echo(f"sha256: {built.sha256}")

    @group.command()
    def root(
        packages: list[str] = typer.Argument(help="Debian packages, such as python3 or ffmpeg."),
        out: Path = typer.Option(
            ..., "--out", metavar="FOLDER", help="The folder of the layout to write."
        ),
        suite: str | None = typer.Option(
            None, help="Debian's suite, such as bookworm. Default: this machine's."
        ),
    ) -> None:
        """Make a root file system from Debian packages, for functions that bring theirs.

        The packages come from where apt on this machine gets its own; it takes mmdebstrap, and root
        or user namespaces. The root is an OCI image layout: lay a function over it with
        `uncia functions image`, or name it in Code.ImageUri.
        """
        from uncia.functions.images import make_root

        typer.echo(f"Making a root of {', '.join(packages)}, which takes a minute or so.", err=True)
        _print_image(make_root(packages, out, suite))

    @group.command()
    def image(
        name: str = typer.Argument(help="A name in the catalogue, or a folder (./mine)."),
        root: str = typer.Option(
            ...,
            "--root",
            metavar="LAYOUT[:TAG]",
            help="The root: the folder of an OCI layout, as `uncia functions root` writes it.",
        ),
        out: Path = typer.Option(
            ..., "--out", metavar="FOLDER", help="The folder of the layout to write."
        ),
        runtime: str | None = typer.Option(
            None, help="Such as python or node. Default: the function's first."
        ),
        python_version: str | None = typer.Option(
            None,
            help="The root's Python, to install requirements for, as major.minor. Default: this"
            " Python's.",
        ),
        filler: str = typer.Option("0B", help="Incompressible data to add, for example 100MB."),
    ) -> None:
        """Lay a function over a root: an image to deploy with PackageType Image."""
        from uncia.functions.images import lay_over
        from uncia.units import parse_size

        folder, tag = _layout(root)
        extra = quantity("--filler", filler, parse_size)
        _print_image(
            lay_over(
                name,
                folder,
                out,
                runtime,
                root_tag=tag,
                python_version=python_version,
                filler=extra,
            )
        )

    @group.command()
    def lock(
        name: str = typer.Argument(help="A folder (./mine)."),
        python_version: str | None = typer.Option(
            None, help="Python that it runs on, as major.minor. Default: this Python's."
        ),
        architecture: str | None = typer.Option(
            None, help="x86_64 or arm64. Default: this machine's."
        ),
        upgrade: bool = typer.Option(
            False,
            "--upgrade",
            help="Take the newest versions, not those of an earlier lock (Python, Node.js).",
        ),
    ) -> None:
        """Lock what a function requires, by language: find versions, write them with hashes.

        uv does so for Python, npm for Node.js (package.json), Maven for Java.
        """
        from uncia.functions import lock as write

        for written in write(
            name, python_version=python_version, architecture=architecture, upgrade=upgrade
        ):
            target = f" for {written.target}" if written.target else ""
            typer.echo(f"{written.path}: {', '.join(written.pins)}{target}")


def _layout(text: str) -> tuple[Path, str | None]:
    """Split the name of an image into its layout's folder and its tag."""
    folder, separator, tag = text.rpartition(":")
    if separator and "/" not in tag and not Path(text).exists():
        return Path(folder), tag
    return Path(text), None


def _print_image(image: Image) -> None:
    count = len(image.layers)
    layers = "1 layer" if count == 1 else f"{count} layers"
    typer.echo(f"{image.folder}: {layers}, {image.size:,} bytes")
    typer.echo(f"image: oci:{image.folder.resolve()}")
    typer.echo(f"digest: {image.digest}")


def _list(*, as_json: bool) -> None:
    from rich.console import Console
    from rich.markup import escape

    from uncia.functions import list_functions

    functions = list_functions()
    if as_json:
        typer.echo(json.dumps([_plain(function) for function in functions], indent=2))
        return
    table = _table("name", "runtimes", "description")
    for function in functions:
        table.add_row(
            f"[bold]{escape(function.name)}[/]",
            ", ".join(function.runtime_names),
            escape(function.description),
        )
    terminal.show(Console(highlight=False, emoji=False), table)


def _plain(function: Function) -> dict[str, Any]:
    return {
        **function.model_dump(mode="json", exclude_none=True),
        "folder": str(function.folder),
    }


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=column in ("name", "runtimes"))
    return table


def _show(function: Function) -> None:
    from rich.console import Console
    from rich.markup import escape

    from uncia.units import format_duration, format_size

    console = Console(highlight=False, emoji=False)
    console.print(f"[bold]{escape(function.name)}[/]  {escape(function.description)}\n")
    for runtime in function.runtime_names:
        form = getattr(function.runtimes, runtime)
        needs = ", ".join(function.requirements(runtime))
        console.print(
            escape(f"runtime {runtime}: {form.handler}" + (f", requires {needs}" if needs else ""))
        )
    console.print(
        f"memory {format_size(function.memory)}, timeout {format_duration(function.timeout)} "
        "unless an experiment says otherwise"
    )
    console.print(f"folder {escape(str(function.folder))}\n")
    if function.parameters:
        table = _table("name", "type", "default", "range", "description")
        for name, parameter in function.parameters.items():
            table.add_row(
                f"[bold]{escape(name)}[/]",
                parameter.type + (f", {parameter.unit}" if parameter.unit else ""),
                escape(str(parameter.default)),
                escape(_range(parameter)),
                escape(parameter.description),
            )
        terminal.show(console, table)
        for size in ("test", "small", "large"):
            values = getattr(function.sizes, size)
            console.print(f"{size}: " + escape(", ".join(f"{k}={v}" for k, v in values.items())))
    elif function.takes_any_event:
        console.print("It takes any event.")
    else:
        console.print("It takes no parameters.")
    console.print(f"\nA correct answer: {escape(function.answer.text)}")


def _range(parameter: Parameter) -> str:
    if parameter.choices:
        return " | ".join(parameter.choices)
    low, high = parameter.min, parameter.max
    if low is None and high is None:
        return ""
    return f"{'' if low is None else low} .. {'' if high is None else high}"
