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
_POLICY_HELP: Final = "The policy that makes a choice; may be repeated. " + " ".join(
    f"{choice.name}: {', '.join(choice.policies)}.".replace(
        choice.default, f"{choice.default} (default)", 1
    )
    for choice in POLICIES.values()
)


def register(app: typer.Typer) -> None:
    """Add the command ``serve`` to ``app``."""

    def serve(
        listen: str = typer.Option(
            "127.0.0.1:9001", help="Address and port to listen on; port 0 takes a free one."
        ),
        state: Path | None = typer.Option(
            None,
            help="Folder of functions and logs. Default: $XDG_STATE_HOME/uncia/serve.",
            show_default=False,
        ),
        policy: list[str] = typer.Option(
            [],
            metavar="CHOICE=POLICY",
            help=_POLICY_HELP,
        ),
        as_json: bool = typer.Option(
            False, "--json", help="Print one line of JSON once it listens, and nothing else."
        ),
        **settings: Any,
    ) -> None:
        """Serve the AWS Lambda API on this machine until Ctrl-C, without AWS.

        It says which functions there are, and each invocation in a line: its outcome, duration,
        start, and cost as AWS Lambda bills it. Any Lambda client works: boto3.client("lambda", endpoint_url="http://127.0.0.1:9001").
        """
        from uncia import engine
        from uncia.platforms.journal import state_home

        options = _options({**settings, "policies": _policies(policy)})
        folder = state_home() / "serve" if state is None else state
        # The configuration is passed as an open file without a name, so nothing is left behind.
        config = os.memfd_create("uncia-serve-config", 0)
        os.write(config, json.dumps(options.engine()).encode())
        os.lseek(config, 0, os.SEEK_SET)
        binary = str(engine.binary())
        arguments = ["serve", "--listen", listen, "--state", str(folder)]
        if not as_json:
            from uncia.cli import served

            os.dup2(served.watch(), 1)
        # The engine replaces this process, so that its messages reach the terminal directly.
        arguments += ["--config", f"/dev/fd/{config}", "--messages", "text"]
        os.execv(binary, [binary, *arguments])

    # Typer reads options from the signature, which therefore gets one for each platform setting.
    parameters = [_parameter(setting) for setting in PLATFORM_SETTINGS.values()]
    signature = inspect.signature(serve)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    serve.__signature__ = signature.replace(parameters=[*named, *parameters])  # type: ignore[attr-defined]
    serve.__annotations__ |= {parameter.name: parameter.annotation for parameter in parameters}
    app.command()(serve)


def _parameter(setting: Setting) -> inspect.Parameter:
    """Make the option of a platform setting."""
    help_text = f"{setting.description} Default: {setting.default_text()}."
    if setting.type == "boolean":
        annotation: Any = bool | None
        option = typer.Option(None, help=help_text, show_default=False)
    else:
        is_text = setting.type in _STRING_TYPES
        annotation = (str if is_text else int) | None
        minimum = None if is_text else setting.minimum
        option = typer.Option(None, min=minimum, help=help_text, show_default=False)
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation
    )


def _policies(options: list[str]) -> dict[str, str] | None:
    """Parse policies such as ``order=shortest-job-first`` into a mapping from choice to policy.

    Raises:
        UnciaError: a text has another form, names something unknown, or repeats a choice.
    """
    policies: dict[str, str] = {}
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
        if name in policies:
            raise UnciaError(f"--policy: {name} is given twice")
        policies[name] = policy
    return policies or None


def _options(settings: dict[str, Any]) -> Options:
    """Convert the options of the command line to those of the platform.

    Raises:
        UnciaError: a unit is missing or wrong, or a value is not allowed.
    """
    from pydantic import ValidationError

    from uncia.platforms.embedded import Options

    values = {key: value for key, value in settings.items() if value is not None}
    try:
        return Options.model_validate({"kind": "embedded", **values})
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "literal_error":
            message = f"{first['input']!r} is not {first['ctx']['expected']}"
        if first["loc"]:
            message = f"--{str(first['loc'][0]).replace('_', '-')}: {message}"
        raise UnciaError(message) from error
