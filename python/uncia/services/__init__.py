"""Services beside functions, such as a store of objects: one file each, behind one protocol.

A module in this package that defines ``Options`` (a form), ``connect`` and ``clean`` is a service
of that name; it needs no registration. A service is started for a run, or exists and is named by
its address. Functions reach it if they name it (``reach``), and find it by the usual variables.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import create_model

from uncia.errors import UnciaError
from uncia.forms import Form
from uncia.platforms import Context, ServiceEndpoint
from uncia.platforms.journal import Resource

PLATFORM: Final = "services"
"""Of services' resources in the journal, whose details name the service."""


class Service(Protocol):
    """What every service implements."""

    def start(self) -> ServiceEndpoint:
        """Make the service ready; what is created is journalled before.

        Raises:
            UnciaError: it does not start, or does not answer.
        """

    def close(self) -> None:
        """Remove what :meth:`start` made and what functions left in it; may be called twice."""


class ServiceModule(Protocol):
    """What a service's module defines."""

    Options: type[Form]

    def require(self) -> None:
        """Check that one of a run's own can be started.

        Raises:
            UnciaError: something is not installed; the hint says what to install.
        """

    def connect(self, options: Any, context: Context) -> Service:
        """Return a service that is not started yet."""

    def clean(self, resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
        """Remove what a crashed run left; returns those of ``resources`` that no longer exist.

        Raises:
            UnciaError: something cannot be removed.
        """


def _modules() -> dict[str, Any]:
    files = (info.name for info in pkgutil.iter_modules(__path__))
    names = sorted(name for name in files if not name.startswith("_"))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "connect")}


MODULES: Final[Mapping[str, Any]] = _modules()
"""The services by name."""


def module(name: str) -> ServiceModule:
    """Return a service's module.

    Raises:
        UnciaError: there is no service of this name.
    """
    if name not in MODULES:
        raise UnciaError(f"there is no service {name!r}", hint=f"Known: {', '.join(MODULES)}.")
    service: ServiceModule = MODULES[name]
    return service


if TYPE_CHECKING:
    ServicesForm = Form
else:
    ServicesForm = create_model(
        "ServicesForm",
        __base__=Form,
        __module__=__name__,
        __doc__="Services that functions of the run reach, each with its options.",
        **{name: (module.Options | None, None) for name, module in MODULES.items()},
    )


def named(form: Form) -> dict[str, Any]:
    """Return the options of the services that a form names, by the services' names."""
    options = ((name, getattr(form, name)) for name in MODULES)
    return {name: value for name, value in options if value is not None}


def clean(resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
    """Remove what services of a crashed run left; returns those that no longer exist.

    Each alone: one that cannot be removed, which ``log`` takes the reason of, keeps no other.
    """
    gone: list[Resource] = []
    for resource in sorted(resources, key=_service_of):
        try:
            gone.extend(module(_service_of(resource)).clean([resource], log))
        except UnciaError as error:
            log(error.message)
    return gone


def _service_of(resource: Resource) -> str:
    return str(resource.detail["service"])


@contextmanager
def running(
    options: Mapping[str, Any], context: Context
) -> Iterator[Mapping[str, ServiceEndpoint]]:
    """Have services run while the context lasts.

    Args:
        options: of each service, by name.
        context: the run's.

    Yields:
        Where they are, by name.

    Raises:
        UnciaError: a service does not start; those before it are ended.
    """
    with ExitStack() as stack:
        endpoints: dict[str, ServiceEndpoint] = {}
        for name, of_service in options.items():
            context.log(f"Starting the service {name}.")
            service = module(name).connect(of_service, context)
            # Before it starts: a start that fails half-way leaves something, too.
            stack.callback(service.close)
            endpoints[name] = service.start()
        yield endpoints
