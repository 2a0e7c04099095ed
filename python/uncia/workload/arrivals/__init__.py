"""Arrival processes, one module each.

A module of this package defines ``Process``: a form with a literal ``kind`` (the name in files)
and ``engine()``, the process as the configuration of ``uncia-engine load``. Modules whose names
begin with an underscore are shared by several processes. The engine draws the times from the seed
before the first request is sent.

A process made of others (``superposition``, ``windows``) annotates them as ``Arrivals``, which is
known only when all modules are imported; its form is completed here then.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from uncia.workload.arrivals.base import ArrivalProcess


def _processes() -> list[type[ArrivalProcess]]:
    modules = (
        importlib.import_module(f"{__name__}.{info.name}")
        for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name)
        if info.name != "base" and not info.name.startswith("_")
    )
    return [module.Process for module in modules]


__all__ = ["PROCESSES", "ArrivalProcess", "Arrivals", "kinds"]

PROCESSES: list[type[ArrivalProcess]] = _processes()

if TYPE_CHECKING:
    Arrivals = ArrivalProcess
else:
    Arrivals = Annotated[Union[tuple(PROCESSES)], Field(discriminator="kind")]  # noqa: UP007

for _process in PROCESSES:
    _process.model_rebuild(_types_namespace={"Arrivals": Arrivals})


def kinds() -> list[str]:
    """Return the names of all arrival processes."""
    return [
        kind for process in PROCESSES for kind in _literal(process.model_fields["kind"].annotation)
    ]


def _literal(annotation: Any) -> tuple[str, ...]:
    return tuple(annotation.__args__)
