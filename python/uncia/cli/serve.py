"""``uncia serve``: the embedded platform in the foreground."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.errors import UnciaError
from uncia.settings import PLATFORM_SETTINGS, Setting

if TYPE_CHECKING:
    from uncia.platforms.embedded import Options

_STRING_TYPES: Final = ("duration", "cpu", "choice")


def register(app: typer.Typer) -> None:
    """Add the command ``serve`` to ``app``."""

    def serve(
        listen: str = typer.Option(
            "127.0.0.1:9001", help="Address and port; port 0 takes a free one."
        ),
        state: Path | None = typer.Option(
            None,
            help="Where functions and logs are kept. Default: $XDG_STATE_HOME/uncia/serve.",
            show_default=False,
        ),
        **settings: Any,
    ) -> None:
        """Run a small Lambda on this machine until Ctrl-C: the AWS Lambda API, without AWS.

        Point any Lambda client at it: boto3.client("lambda", endpoint_url="http://127.0.0.1:9001").
        """
        from uncia import engine
        from uncia.platforms.journal import state_home

        options = _options(settings)
        folder = state_home() / "serve" if state is None else state
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnciaError(f"cannot write to {folder}: {error.strerror or error}") from error
        # The configuration goes along as an open file without a name, so nothing is left behind.
        config = os.memfd_create("uncia-serve-config", 0)
        os.write(config, json.dumps(options.engine()).encode())
        os.lseek(config, 0, os.SEEK_SET)
        binary = str(engine.binary())
        arguments = ["serve", "--listen", listen, "--state", str(folder)]
        os.execv(binary, [binary, *arguments, "--config", f"/dev/fd/{config}"])

    # Typer reads the options off the signature, which has one for each of the platform's settings.
    parameters = [_parameter(setting) for setting in PLATFORM_SETTINGS.values()]
    signature = inspect.signature(serve)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    serve.__signature__ = signature.replace(parameters=[*own, *parameters])  # type: ignore[attr-defined]
    serve.__annotations__ |= {parameter.name: parameter.annotation for parameter in parameters}
    app.command()(serve)


def _parameter(setting: Setting) -> inspect.Parameter:
    """The option that sets a setting."""
    help_text = f"{setting.description} Default: {setting.default_text()}."
    if setting.type == "boolean":
        annotation: Any = bool | None
        option = typer.Option(None, help=help_text, show_default=False)
    else:
        is_text = setting.type in _STRING_TYPES
        annotation = (str if is_text else int) | None
        least = None if is_text else setting.minimum
        option = typer.Option(None, min=least, help=help_text, show_default=False)
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation
    )


def _options(settings: dict[str, Any]) -> Options:
    """The platform's options from those of the command line.

    :raises UnciaError: one has no or a wrong unit, or is not allowed.
    """
    from pydantic import ValidationError

    from uncia.platforms.embedded import Options

    written = {key: value for key, value in settings.items() if value is not None}
    try:
        return Options.model_validate({"kind": "embedded", **written})
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        message = first["msg"].removeprefix("Value error, ")
        raise UnciaError(f"{option}: {message}") from error
