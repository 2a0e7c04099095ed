"""What a container may have, as far as its Engine can limit it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from uncia.platforms import FunctionSpec
from uncia.providers import lambda_cpu
from uncia.units import MICRO_PER_VCPU

LEAST_CPU: Final = MICRO_PER_VCPU // 100
_NS_PER_MICRO_CPU: Final = 1_000
_LOGS: Final = frozenset({"json-file", "local"})
"""Drivers that keep what containers print on the disk, by the name that they have with Docker."""
_MOST_LOG: Final = "16m"

Info = Mapping[str, Any]
"""What an Engine says of itself."""


def lacking(engine: Info) -> list[str]:
    """Sentences on what an Engine does not limit."""
    return [
        f"The Engine does not limit {what} here."
        for what, has in (("memory", has_memory(engine)), ("CPU", has_cpu(engine)))
        if not has
    ]


def has_memory(engine: Info) -> bool:
    """Whether an Engine limits memory."""
    return bool(engine.get("MemoryLimit", True))


def has_cpu(engine: Info) -> bool:
    """Whether an Engine limits CPU time."""
    # Of a container with such a limit Docker says otherwise that it cannot be made.
    return bool(engine.get("CpuCfsQuota", True) and engine.get("CpuCfsPeriod", True))


def limits(
    function: FunctionSpec, engine: Info, *, by_memory: bool
) -> tuple[dict[str, Any], dict[str, int]]:
    """The limits of a function's containers, as an Engine takes them, and as columns say them.

    Args:
        function: whose they are.
        engine: what it does not limit is in neither.
        by_memory: whether CPU time that is not given is as on Lambda.
    """
    taken: dict[str, Any] = {}
    allocated: dict[str, int] = {}
    if function.memory is not None and has_memory(engine):
        # Without swap: it would be of the machine's, and of nobody's size.
        taken |= {"Memory": function.memory, "MemorySwap": function.memory}
        allocated["allocated_memory"] = function.memory
    cpu = _cpu(function, engine, by_memory=by_memory)
    if cpu is not None and has_cpu(engine):
        taken["NanoCpus"] = cpu * _NS_PER_MICRO_CPU
        allocated["allocated_cpu"] = cpu
    if (cpus := function.settings.get("cpus")) is not None:
        taken["CpusetCpus"] = str(cpus)
    if (driver := engine.get("LoggingDriver")) in _LOGS:
        # Unless one says so, the disk is the limit of what a function prints.
        taken["LogConfig"] = {"Type": driver, "Config": {"max-size": _MOST_LOG}}
    return taken, allocated


def _cpu(function: FunctionSpec, engine: Info, *, by_memory: bool) -> int | None:
    """The CPU of a container in micro-vCPU; None if it is not limited."""
    given = function.settings.get("cpu")
    if given is not None:
        return int(given)
    if not by_memory or function.memory is None:
        return None
    most = engine.get("NCPU")
    cpu = max(LEAST_CPU, lambda_cpu(function.memory))
    return cpu if most is None else min(cpu, most * MICRO_PER_VCPU)
