"""``uncia deploy``: a function on a running platform, and again whenever its files change."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.cli.options import AsJson, Endpoint
from uncia.cli.pairs import parse_pairs
from uncia.cli.quantities import quantity
from uncia.errors import UnciaError
from uncia.units import format_duration, format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from uncia.platforms.served import Deployed, Served
    from uncia.settings import Value

_POLL_S: Final = 0.5
"""How often files are looked at for changes."""

_ALONE: Final = {".py": "handler.py", ".mjs": "index.mjs", ".js": "index.js"}
"""What a file without a folder is called on the platform, by its ending."""


def register(app: typer.Typer) -> None:
    """Add the command ``deploy`` to ``app``."""

    @app.command()
    def deploy(
        source: str = typer.Argument(
            help="A name in the catalogue, a folder (./mine), or a file with a handler"
            " (./mine.py, ./mine.mjs).",
        ),
        name: str | None = typer.Option(
            None, help="The function's name on the platform. Default: that of SOURCE."
        ),
        runtime: str | None = typer.Option(
            None, help="Such as python or node. Default: the function's first."
        ),
        memory: str | None = typer.Option(
            None, metavar="SIZE", help="Such as 512MB. Default: the function's own."
        ),
        timeout: str | None = typer.Option(
            None, metavar="TIME", help="Such as 30s. Default: the function's own."
        ),
        environment: list[str] = typer.Option(
            [], "--env", metavar="NAME=VALUE", help="An environment variable; may be repeated."
        ),
        settings: list[str] = typer.Option(
            [],
            "--set",
            metavar="SETTING=VALUE",
            help="A setting of functions, such as keep_alive=5min; may be repeated.",
        ),
        streams: bool | None = typer.Option(
            None,
            "--stream/--no-stream",
            help="Whether the function's URL passes an answer on while it is made, or once it is"
            " whole. Default: as it is; of a new function once it is whole.",
            show_default=False,
        ),
        watch: bool = typer.Option(
            False, "--watch", help="Deploy again whenever a file changes, until Ctrl-C."
        ),
        as_json: AsJson = False,
        endpoint: Endpoint = "127.0.0.1:9001",
    ) -> None:
        """Deploy a function to a running platform, or change the one of that name.

        Requirements are resolved from their lock for the platform's Python and processor. Of a
        function that exists only the code and what the options name change.
        """
        from uncia.platforms.served import Served

        change = _Change(
            source=source,
            name=name,
            runtime=runtime,
            memory=None if memory is None else quantity("--memory", memory, parse_size),
            timeout=None if timeout is None else quantity("--timeout", timeout, parse_duration),
            environment=parse_pairs("--env", environment),
            settings=parse_settings(settings),
            streams=streams,
        )
        served = Served(endpoint)
        # From before the first deployment on, so that no change during it is missed.
        changes = _Changes(Path(source) if change.is_path else None, source) if watch else None
        _print(change.deploy(served), as_json)
        if changes is not None:
            for files in changes:
                if not as_json:
                    typer.echo(f"changed: {', '.join(files)}")
                try:
                    _print(change.deploy(served), as_json)
                except UnciaError as error:
                    # The next change may mend it; what is deployed goes on meanwhile.
                    typer.echo(f"error: {error.message}", err=True)


@dataclass(frozen=True)
class _Change:
    """What is to be deployed, and how; None and missing keys keep what is there."""

    source: str
    name: str | None
    runtime: str | None
    memory: int | None
    timeout: int | None
    environment: Mapping[str, str]
    settings: Mapping[str, Value]
    streams: bool | None

    @property
    def is_path(self) -> bool:
        return "/" in self.source or self.source in (".", "..") or Path(self.source).is_file()

    def deploy(self, served: Served) -> Deployed:
        """Package the function and bring it to the platform.

        Raises:
            UnciaError: it cannot be packaged, or a value is not allowed.
            RunFailedError: the platform refused.
        """
        from uncia import functions
        from uncia.platforms import FunctionSpec

        with self._folder() as folder:
            definition = functions.load(folder)
            if definition.root is not None:
                raise UnciaError(
                    f"{definition.name} brings a root, which this command does not deploy",
                    hint="`uncia functions image` makes its image, and Code.ImageUri names it.",
                )
            package = functions.package(
                definition,
                self.runtime,
                python_version=served.python_version,
                architecture=served.architecture,
            )
            content = package.read_bytes()
        name = self.name or definition.name
        is_new = not served.exists(name)
        spec = FunctionSpec(
            name=name,
            package=content,
            runtime=package.runtime,
            handler=package.handler,
            memory=definition.memory if self.memory is None and is_new else self.memory,
            timeout=definition.timeout if self.timeout is None and is_new else self.timeout,
            environment=self.environment,
            settings=self.settings,
        )
        return served.deploy(spec, streams=self.streams)

    @contextmanager
    def _folder(self) -> Iterator[str | Path]:
        """The function's folder or name; of a file, a folder with it alone."""
        file = Path(self.source)
        if not file.is_file():
            yield self.source if not self.is_path else Path(self.source)
            return
        if file.suffix not in _ALONE:
            raise UnciaError(
                f"{file} is no file with a handler",
                f"Name one that ends in {', '.join(_ALONE)}, or the function's folder.",
            )
        with tempfile.TemporaryDirectory(prefix="uncia-deploy-") as work:
            folder = Path(work) / file.stem
            folder.mkdir()
            shutil.copyfile(file, folder / _alone(file))
            yield folder


def _alone(file: Path) -> str:
    """What a file is called on the platform: AWS's usual name if its handler has AWS's."""
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".py" and "def lambda_handler(" in text and "def handler(" not in text:
        return "lambda_function.py"
    return _ALONE[file.suffix]


class _Changes:
    """The files that change from now on, whenever some did and then none for a moment."""

    def __init__(self, path: Path | None, source: str) -> None:
        from uncia import functions

        self._root: Final = functions.load(source).folder if path is None else path
        self._before = _stamps(self._root)

    def __iter__(self) -> Iterator[list[str]]:
        while True:
            time.sleep(_POLL_S)
            now = _stamps(self._root)
            if now == self._before:
                continue
            # An editor or a build may write several files, one after the other.
            while (later := _settled(self._root)) != now:
                now = later
            before, self._before = self._before, now
            yield sorted(
                name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
            )


def _settled(root: Path) -> dict[str, tuple[int, int]]:
    time.sleep(_POLL_S)
    return _stamps(root)


def _stamps(root: Path) -> dict[str, tuple[int, int]]:
    """When each file below a folder, or a file, was changed last, and its size."""
    files: Sequence[Path] = [root] if root.is_file() else sorted(root.rglob("*"))
    stamps = {}
    for file in files:
        relative = file.relative_to(root) if file != root else Path(file.name)
        if any(part.startswith(".") or part == "__pycache__" for part in relative.parts):
            continue
        try:
            status = file.stat()
        except OSError:
            continue  # gone since
        if not file.is_dir():
            stamps[str(relative)] = (status.st_mtime_ns, status.st_size)
    return stamps


def parse_settings(texts: Sequence[str]) -> dict[str, Value]:
    """Read settings of a function as they are typed, such as ``keep_alive=5min``.

    Returns:
        Their values in base units.

    Raises:
        UnciaError: a setting is not known, or its value is not allowed.
    """
    import yaml
    from pydantic import ValidationError

    from uncia.forms import Form
    from uncia.settings import FUNCTION_SETTINGS, Setting, form

    values: dict[str, Any] = {}
    for name, text in parse_pairs("--set", texts).items():
        if name.replace("-", "_") not in FUNCTION_SETTINGS:
            raise UnciaError(
                f"--set: functions have no setting {name} (known: {', '.join(FUNCTION_SETTINGS)})"
            )
        try:
            values[name.replace("-", "_")] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UnciaError(f"--set: {name}: {text!r} is no value") from error
    model = form.make("Settings", Form, FUNCTION_SETTINGS.values(), Setting.function_default_text)
    try:
        parsed = model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        raise UnciaError(f"--set: {first['loc'][0]}: {message}") from error
    return form.given(parsed, FUNCTION_SETTINGS)


def _print(deployed: Deployed, as_json: bool) -> None:
    if deployed.warning:
        typer.echo(f"warning: {deployed.name}: {deployed.warning}", err=True)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "event": "deployed",
                    "function": deployed.name,
                    "state": deployed.state,
                    "url": deployed.url,
                    "memory_bytes": deployed.memory,
                    "timeout_ns": deployed.timeout,
                    "code_bytes": deployed.code_bytes,
                }
            )
        )
        return
    typer.echo(
        f"{deployed.name} {deployed.state}: {format_size(deployed.memory)},"
        f" {format_duration(deployed.timeout)}, {deployed.code_bytes:,} bytes of code"
    )
    typer.echo(f"  {deployed.url}")
