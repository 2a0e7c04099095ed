"""``uncia serve``: the embedded platform in the foreground."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from uncia.errors import UnciaError
from uncia.settings import PLATFORM_SETTINGS, POLICIES, Setting

if TYPE_CHECKING:
    from uncia.platforms.embedded import Options

_STRING_TYPES: Final = ("duration", "cpu", "choice")
_POLICY_HELP: Final = "The policy that makes a choice; may be given several times. " + " ".join(
    f"{choice.name}: {', '.join(choice.policies)}.".replace(
        choice.default, f"{choice.default} (default)", 1
    )
    for choice in POLICIES.values()
)


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
        policy: list[str] = typer.Option(
            [],
            metavar="CHOICE=POLICY",
            help=_POLICY_HELP,
        ),
        **settings: Any,
    ) -> None:
        """Run a small Lambda on this machine until Ctrl-C: the AWS Lambda API, without AWS.

        Point any Lambda client at it: boto3.client("lambda", endpoint_url="http://127.0.0.1:9001").
        """
        from uncia import engine
        from uncia.platforms.journal import state_home

        options = _options({**settings, "policies": _policies(policy)})
        folder = state_home() / "serve" if state is None else state
        # The configuration goes along as an open file without a name, so nothing is left behind.
        config = os.memfd_create("uncia-serve-config", 0)
        os.write(config, json.dumps(options.engine()).encode())
        os.lseek(config, 0, os.SEEK_SET)
        binary = str(engine.binary())
        arguments = ["serve", "--listen", listen, "--state", str(folder)]
        # It takes this process's place: what it says goes to the person as it is.
        arguments += ["--config", f"/dev/fd/{config}", "--messages", "text"]
        os.execv(binary, [binary, *arguments])

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


def _policies(options: list[str]) -> dict[str, str] | None:
    """The policies by choice, of texts such as ``order=shortest-job-first``.

    :raises UnciaError: a text has another form, or names what does not exist or a choice twice.
    """
    named: dict[str, str] = {}
    for option in options:
        name, separator, policy = option.partition("=")
        if not separator:
            raise UnciaError(f"--policy: {option!r} is not CHOICE=POLICY, such as order=first-come")
        if name not in POLICIES:
            raise UnciaError(
                f"--policy: no policy decides {name!r} (allowed: {', '.join(POLICIES)})"
            )
        if policy not in POLICIES[name].policies:
            allowed = ", ".join(POLICIES[name].policies)
            raise UnciaError(f"--policy: no {name} policy is named {policy!r} (allowed: {allowed})")
        if name in named:
            raise UnciaError(f"--policy: {name} is given twice")
        named[name] = policy
    return named or None


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
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "literal_error":
            message = f"{first['input']!r} is not {first['ctx']['expected']}"
        if first["loc"]:
            message = f"--{str(first['loc'][0]).replace('_', '-')}: {message}"
        raise UnciaError(message) from error
