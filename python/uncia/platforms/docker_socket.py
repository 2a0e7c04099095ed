"""Which Engine of Docker is meant, and whether it answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from uncia.errors import RunFailedError, UnciaError
from uncia.platforms.shims.docker_engine import Engine, EngineError

DEFAULT: Final = "/var/run/docker.sock"
VARIABLE: Final = "DOCKER_HOST"
_UNIX: Final = "unix://"


def chosen(option: str | None = None) -> str:
    """The path of the Engine's socket: the option's, else that of ``DOCKER_HOST``, else Docker's.

    Raises:
        UnciaError: it is no unix socket.
    """
    given = option or os.environ.get(VARIABLE) or DEFAULT
    path = given.removeprefix(_UNIX)
    if "://" in path or not path.startswith("/"):
        origin = "the option socket" if option else VARIABLE
        raise UnciaError(
            f"{origin} is {given}: the platform docker reaches an Engine by a unix socket alone",
            hint=f"Name one, such as {_UNIX}{DEFAULT}.",
        )
    return str(Path(path))


def failed(error: EngineError, what: str | None = None) -> RunFailedError:
    """The error of a run whose Engine could not do something."""
    return RunFailedError(f"{what}: {error}" if what else str(error), error.hint)


def ready(path: str, timeout_s: float = 30.0) -> dict[str, Any]:
    """What an Engine says of itself and its machine, if it answers: ``/version`` and ``/info``.

    Args:
        path: of its socket.
        timeout_s: between two bytes of its answers.

    Raises:
        RunFailedError: none does; says which socket, and what to do.
    """
    engine = Engine(path, timeout_s)
    try:
        version, info = engine.version(), engine.ask("GET", "/info")
    except EngineError as error:
        raise failed(error) from error
    return {**info, "Version": version.get("Version"), "ApiVersion": version["ApiVersion"]}
