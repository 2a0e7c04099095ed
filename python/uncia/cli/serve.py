"""``uncia serve``: the embedded platform in the foreground."""

from __future__ import annotations

import inspect
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from uncia.cli import completion
from uncia.cli.invocations import Printer, print_functions
from uncia.cli.pairs import parse_pairs
from uncia.errors import RunFailedError, UnciaError
from uncia.settings import FUNCTION_SETTINGS, PLATFORM_SETTINGS, POLICIES, Setting

if TYPE_CHECKING:
    from uncia.platforms.embedded import Options
    from uncia.profiles import Profile
    from uncia.tariffs import Tariff

_STRING_TYPES: Final = ("duration", "cpu", "size", "choice")
_SERVICES: Final = ", ".join(FUNCTION_SETTINGS["reach"].choices)
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
            "127.0.0.1:9001",
            help="Address and port to listen on; port 0 takes a free one. Beyond loopback it takes"
            " --tls-cert, --tls-key and credentials.",
        ),
        socket: list[Path] = typer.Option(
            [],
            metavar="PATH",
            help="A unix socket to listen on, too, which its owner alone can use; may be repeated.",
            show_default=False,
        ),
        tls_cert: Path | None = typer.Option(
            None,
            metavar="FILE",
            help="Speak TLS at the address, with this certificate (PEM), followed by those that it"
            " is signed by.",
            show_default=False,
        ),
        tls_key: Path | None = typer.Option(
            None, metavar="FILE", help="The certificate's private key (PEM).", show_default=False
        ),
        credentials: Path | None = typer.Option(
            None,
            metavar="FILE",
            help="At the address, answer whoever has these credentials alone: a file in the form of"
            " AWS's, with aws_access_key_id and aws_secret_access_key, or uncia_token. Default"
            " beyond loopback: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and UNCIA_TOKEN.",
            show_default=False,
        ),
        controller: bool = typer.Option(
            False,
            "--controller",
            help="Run nothing here: workers join, and run what this platform gives them.",
        ),
        join: str | None = typer.Option(
            None,
            metavar="URL",
            help="Join the controller at this address as a worker, instead of listening: http:// on"
            " this machine, https:// elsewhere, with the uncia_token of --credentials.",
            show_default=False,
        ),
        name: str | None = typer.Option(
            None,
            metavar="NAME",
            help="With --join: what rows call this worker. Default: the machine's name.",
            show_default=False,
        ),
        state: Path | None = typer.Option(
            None,
            help="Folder of functions and logs. Default: $XDG_STATE_HOME/uncia/serve, with --join"
            " uncia/worker.",
            show_default=False,
        ),
        like: str | None = typer.Option(
            None,
            metavar="PROFILE",
            help="Serve as a provider does: aws, azure, cloudflare, gcp, ibm, or a file (.yaml)."
            " Other options count where they are given.",
            show_default=False,
        ),
        policy: list[str] = typer.Option(
            [],
            metavar="CHOICE=POLICY",
            help=_POLICY_HELP,
        ),
        capacity: str | None = typer.Option(
            None,
            metavar="CPU/MEMORY",
            help="CPU and memory that instances may be allocated together, such as 2vCPU/2GB: short"
            " for --capacity-cpu and --capacity-memory. Default: not counted.",
            show_default=False,
        ),
        images: list[str] = typer.Option(
            [],
            metavar="FOLDER",
            help="A folder whose images functions may be; may be repeated. Default: none.",
            show_default=False,
        ),
        service: list[str] = typer.Option(
            [],
            metavar="NAME=HOST:PORT",
            help="Where a service is that functions reach whose tag uncia:reach names it; may be"
            f" repeated. NAME: {_SERVICES}. Default: none.",
            show_default=False,
        ),
        registry: list[str] = typer.Option(
            [],
            metavar="HOST:PORT",
            help="A registry of which functions may be images, pulled when an instance starts; may"
            " be repeated. Default: none.",
            show_default=False,
        ),
        tariff: str | None = typer.Option(
            None,
            "--tariff",
            "-t",
            metavar="ID",
            autocompletion=completion.tariffs,
            help="The tariff of the costs shown: its id or file. Default: that of --like, else AWS"
            " Lambda's for this machine's architecture.",
            show_default=False,
        ),
        quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no invocations."),
        as_json: bool = typer.Option(
            False, "--json", help="Print an object a line: when it listens, and each invocation."
        ),
        **settings: Any,
    ) -> None:
        """Serve the AWS Lambda API on this machine until Ctrl-C, without AWS.

        Any Lambda client works: boto3.client("lambda", endpoint_url="http://127.0.0.1:9001"). Each
        invocation is a line with its function, start, duration and cost.
        """
        from uncia.cli.meter import Meter
        from uncia.platforms.embedded import runtimes_cache
        from uncia.platforms.foreground import Foreground, become_worker
        from uncia.platforms.inquiries import list_functions
        from uncia.platforms.journal import state_home
        from uncia.tariffs.catalogue import resolve

        options = _options(
            {
                **_with_capacity(settings, capacity),
                "like": like,
                "images": images,
                "policies": _policies(policy),
            }
        )
        folder = state_home() / ("worker" if join else "serve") if state is None else state
        profile = options.profile()
        chosen = default_tariff(profile) if tariff is None else tariff
        (billed,) = resolve([chosen])
        for warning in [] if profile is None else profile.warnings():
            _warn(warning)
        printer = Printer(billed, as_json)
        messages: Literal["json", "text"] = "json" if as_json else "text"
        config = options.engine() | runtimes_cache()
        if service:
            config["services"] = _services(service)
        if registry:
            config["registries"] = registry
        if join is not None:
            alone = {"--controller": controller, "--socket": socket, "--tls-cert": tls_cert}
            if given := [option for option, value in alone.items() if value]:
                raise UnciaError(f"--join and {given[0]}: a worker that joins does not listen")
            become_worker(join, name, folder, config, credentials, messages)
        # The platform tells it to whoever shows costs of its invocations.
        named = billed.id if billed.id == chosen else str(Path(chosen).absolute())
        if is_utf8(named):
            config["tariff"] = named
        else:
            _warn(f"the name of {named!r} is not UTF-8: uncia logs and invoke take AWS's tariff")
        if name is not None:
            raise UnciaError("--name: it is a worker's, which --join makes of this platform")
        if controller and ("capacity_cpu_micro" in config or "capacity_memory_bytes" in config):
            raise UnciaError("--controller and a capacity: it is each worker's (--join) own")
        listening = ["--controller"] if controller else []
        listening += [word for path in socket for word in ("--socket", str(path))]
        for option, file in (
            ("--tls-cert", tls_cert),
            ("--tls-key", tls_key),
            ("--credentials", credentials),
        ):
            listening += [] if file is None else [option, str(file)]
        with Foreground(listen, folder, config, listening, messages, _warn) as server:
            try:
                if server.ready is not None:
                    if as_json:
                        typer.echo(json.dumps(server.ready))
                    else:
                        _greet(server.ready, folder, billed.id)
                        print_functions(list_functions(server.control))
                    with Meter(server.control, server.newest, billed, _warn):
                        if not quiet:
                            for rows in server.rows():
                                printer.print(rows)
                        server.wait()
            except RunFailedError:
                # Killed or told to stop while it was asked: that is why it does not answer.
                if server.last_words() is None and not server.is_stopping:
                    raise
            code = server.wait()
            if words := server.last_words():
                typer.echo(f"error: {words}", err=True)
        raise typer.Exit(code)

    # Typer reads options from the signature, which therefore gets one for each platform setting.
    parameters = [_parameter(setting) for setting in PLATFORM_SETTINGS.values()]
    signature = inspect.signature(serve)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    serve.__signature__ = signature.replace(parameters=[*named, *parameters])  # type: ignore[attr-defined]
    serve.__annotations__ |= {parameter.name: parameter.annotation for parameter in parameters}
    app.command()(serve)


def default_tariff(profile: Profile | None) -> str:
    """The id of the profile's tariff, else of AWS Lambda's, for this machine's architecture."""
    from uncia import profiles

    tariffs = (None if profile is None else profile.tariff) or profiles.get("aws").tariff
    assert tariffs is not None, "AWS's profile has one"
    return tariffs.aarch64 if platform.machine() == "aarch64" else tariffs.x86_64


def served_tariff(own: str | None, given: str | None) -> Tariff:
    """Return the tariff of the costs shown of a running platform.

    Args:
        own: the id or file that the platform was started with; None: it names none, and if nobody
            does, it is AWS Lambda's.
        given: the id or file that the user has chosen; None: the platform's.

    Raises:
        UnciaError: there is none of that name, or it cannot bill requests.
    """
    from uncia.tariffs.catalogue import resolve

    try:
        # The platform's word: it is not read before it is known to be a file.
        # `Path.is_file` raises where one may not look.
        is_path = given is None and own is not None and Path(own).is_absolute()
        if is_path and not os.path.isfile(own or ""):  # noqa: PTH113
            raise UnciaError(f"there is no file {own}")
        wanted = given if given is not None else own or default_tariff(None)
        (tariff,) = resolve([wanted])
    except UnciaError as error:
        if given is not None or own is None:
            raise
        raise UnciaError(
            f"the tariff that the platform was started with is not known here: {error.message}",
            "Name another with --tariff.",
        ) from error
    return tariff


def is_utf8(path: str) -> bool:
    """Whether a path can be said in JSON: names of files may be any bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _greet(ready: dict[str, Any], folder: Path, tariff: str) -> None:
    typer.echo(f"Serving AWS Lambda's API on {ready['url']} until Ctrl-C.")
    typer.echo(f"Functions and logs: {folder}. Costs: {tariff}.")
    typer.echo(f"What runs, live: {ready['url']}/uncia/")
    for warning in ready.get("warnings", []):
        _warn(warning)


def _warn(message: str) -> None:
    typer.echo(f"warning: {message}", err=True)


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


def _with_capacity(settings: dict[str, Any], capacity: str | None) -> dict[str, Any]:
    """Return the settings with a capacity such as ``2vCPU/2GB`` in its two parts.

    Raises:
        UnciaError: it has another form, or one of its parts is given, too.
    """
    if capacity is None:
        return settings
    cpu, slash, memory = capacity.partition("/")
    if not (cpu and slash and memory):
        raise UnciaError(f"--capacity: CPU/MEMORY, such as 2vCPU/2GB, not {capacity!r}")
    parts = {"capacity_cpu": cpu, "capacity_memory": memory}
    for name in parts:
        if settings.get(name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise UnciaError(f"--capacity and {option} say the same; give only one of them")
    return {**settings, **parts}


def _policies(options: list[str]) -> dict[str, str] | None:
    """Parse policies such as ``order=shortest-job-first`` into a mapping from choice to policy.

    Raises:
        UnciaError: a text has another form, names something unknown, or repeats a choice.
    """
    policies = parse_pairs("--policy", options, "CHOICE=POLICY, such as order=first-come")
    for name, policy in policies.items():
        if name not in POLICIES:
            raise UnciaError(
                f"--policy: no policy decides {name!r} (allowed: {', '.join(POLICIES)})"
            )
        if policy not in POLICIES[name].policies:
            allowed = ", ".join(POLICIES[name].policies)
            raise UnciaError(f"--policy: no {name} policy is named {policy!r} (allowed: {allowed})")
    return policies or None


def _services(options: list[str]) -> dict[str, Any]:
    """Parse services such as ``store=127.0.0.1:7070`` into the engine's configuration.

    Raises:
        UnciaError: a text has another form, or repeats a service; or one cannot be reached.
    """
    services = parse_pairs("--service", options, "NAME=HOST:PORT, such as store=127.0.0.1:7070")
    return {
        name: {"address": address, "environment": _variables(name, address)}
        for name, address in services.items()
    }


def _variables(service: str, address: str) -> Mapping[str, str]:
    """Return what functions must know of a service, by variables of this process (``UNCIA_...``).

    Raises:
        UnciaError: the service is one of documents, and cannot be reached.
    """
    if service == "documents":
        from uncia.services import documents

        return documents.served(address).environment
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    prefix = f"UNCIA_{service.upper()}_"
    keys = {name: os.environ.get(prefix + name.removeprefix("AWS_")) for name in names}
    given = {name: value for name, value in keys.items() if value is not None}
    # A key of theirs is not to be joined with the token that all functions have.
    return {"AWS_SESSION_TOKEN": "", **given} if given else {}


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
